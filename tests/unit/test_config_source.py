"""Where the settings come from."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from deerflow_boxlite import config_source
from deerflow_boxlite.config import BoxliteConfig
from deerflow_boxlite.config_source import from_section, load_config
from deerflow_boxlite.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_deerflow(monkeypatch, tmp_path):
    work = tmp_path / "project" / "backend"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    monkeypatch.delenv("DEER_FLOW_CONFIG_PATH", raising=False)
    monkeypatch.setattr(config_source, "DEERFLOW_INSTALLED", False)


def write(path, replicas):
    path.write_text(
        f"models: []\nsandbox:\n  use: deerflow.community.boxlite:BoxliteProvider\n  replicas: {replicas}\n"
    )


def test_without_a_file_all_is_default():
    assert load_config() == BoxliteConfig()


def test_the_file_is_that_of_the_variable_then_here_then_above(monkeypatch, tmp_path):
    work = tmp_path / "project" / "backend"
    write(work.parent / "config.yaml", 4)
    assert load_config().replicas == 4
    write(work / "config.yaml", 5)
    assert load_config().replicas == 5
    write(tmp_path / "other.yaml", 6)
    monkeypatch.setenv("DEER_FLOW_CONFIG_PATH", str(tmp_path / "other.yaml"))
    assert load_config().replicas == 6


def test_a_variable_that_names_no_file(monkeypatch, tmp_path):
    write(tmp_path / "project" / "backend" / "config.yaml", 5)
    monkeypatch.setenv("DEER_FLOW_CONFIG_PATH", str(tmp_path / "gone.yaml"))
    with pytest.raises(ConfigError, match=r"DEER_FLOW_CONFIG_PATH: there is no file .*gone\.yaml"):
        load_config()


@pytest.mark.parametrize("text", ["", "sandbox:\n", "models: []\n", "sandbox: {}\n"])
def test_a_file_without_settings(tmp_path, text):
    (tmp_path / "project" / "backend" / "config.yaml").write_text(text)
    assert load_config() == BoxliteConfig()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"sandbox: [", "is no YAML"),
        (b"\xff\xfe\xff", "is no YAML"),
        (b"- 1", "should be a mapping"),
        (b"sandbox: 3", "the section `sandbox` of config.yaml should be a mapping"),
    ],
)
def test_a_bad_file(tmp_path, data, message):
    (tmp_path / "project" / "backend" / "config.yaml").write_bytes(data)
    with pytest.raises(ConfigError, match=message):
        load_config()


def test_dollar_names_are_taken_from_the_environment_at_any_depth(monkeypatch, tmp_path):
    (tmp_path / "project" / "backend" / "config.yaml").write_text(
        "sandbox:\n"
        "  replicas: $BOXES\n"
        "  environment: {TOKEN: $TOKEN, PRICE: 5$}\n"
        "  secrets: [{name: a, value: $TOKEN, hosts: [example.com]}]\n"
    )
    monkeypatch.setenv("BOXES", "7")
    # A value that begins with a dollar itself is not looked up again.
    monkeypatch.setenv("TOKEN", "$x")
    config = load_config()
    assert config.replicas == 7
    assert config.environment == {"TOKEN": "$x", "PRICE": "5$"}
    assert config.secrets[0].value.get_secret_value() == "$x"


def test_an_unset_variable_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "project" / "backend" / "config.yaml").write_text("sandbox: {environment: {A: $NOT_SET_AT_ALL}}")
    monkeypatch.delenv("NOT_SET_AT_ALL", raising=False)
    with pytest.raises(
        ConfigError, match=r"sandbox\.environment\.A: the environment variable NOT_SET_AT_ALL is not set"
    ):
        load_config()


def test_the_image_can_be_given(tmp_path):
    write(tmp_path / "project" / "backend" / "config.yaml", 5)
    config = load_config(image="oci:x")
    assert (config.image, config.replicas) == ("oci:x", 5)


def test_none_means_the_default():
    section = {"use": "x", "image": None, "replicas": None, "idle_timeout": None, "mounts": [], "environment": {}}
    assert from_section(section) == BoxliteConfig()


def test_keys_of_others_are_left_alone_and_ours_misspelt_are_not():
    section = {"use": "x", "port": 8080, "allow_host_bash": False, "provisioner_url": "", "template": "t", "cpus": 2}
    assert from_section(section) == BoxliteConfig(cpus=2)
    with pytest.raises(ConfigError) as caught:
        from_section({"memory_mb": 3, "replica": 2})
    assert str(caught.value).splitlines() == [
        "sandbox.memory_mb: there is no such setting; did you mean memory_mib?",
        "sandbox.replica: there is no such setting; did you mean replicas?",
    ]


def test_deerflows_own_timeout_is_used_where_ours_is_not_given():
    assert from_section({"bash_command_timeout": 30}).command_timeout == 30
    assert from_section({"bash_command_timeout": 30, "command_timeout": 40}).command_timeout == 40
    assert from_section({"bash_command_timeout": None}).command_timeout == 600


class FakeDeerFlow:
    """DeerFlow's configuration modules, as far as they are used. `section` None: it has no config.yaml."""

    def __init__(self, monkeypatch):
        self.section: dict[str, object] | None = {}
        self.broken: Exception | None = None
        config, app_config, sandbox_config = (
            ModuleType(f"deerflow.config{end}") for end in ("", ".app_config", ".sandbox_config")
        )
        config.get_app_config = self.get_app_config
        app_config.AppConfig = SimpleNamespace(resolve_config_path=self.resolve_config_path)
        sandbox_config.SandboxConfig = SimpleNamespace(model_fields={"use": None, "imagee": None})
        for module in (config, app_config, sandbox_config):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(config_source, "DEERFLOW_INSTALLED", True)

    def resolve_config_path(self):
        if self.section is None:
            raise FileNotFoundError("`config.yaml` file not found")

    def get_app_config(self):
        self.resolve_config_path()
        if self.broken:
            raise self.broken
        return SimpleNamespace(sandbox=SimpleNamespace(model_dump=lambda: self.section))


@pytest.fixture
def deerflow(monkeypatch):
    return FakeDeerFlow(monkeypatch)


def test_deerflows_section_is_used_where_it_is_installed(deerflow, tmp_path):
    write(tmp_path / "project" / "backend" / "config.yaml", 5)
    deerflow.section = {"use": "x", "image": None, "replicas": 8, "cpus": 2}
    assert load_config() == BoxliteConfig(replicas=8, cpus=2)


def test_a_key_that_deerflow_knows_is_not_ours_misspelt(deerflow):
    deerflow.section = {"imagee": "x"}
    assert load_config() == BoxliteConfig()


def test_deerflow_without_a_file(deerflow, monkeypatch):
    deerflow.section = None
    assert load_config() == BoxliteConfig()
    monkeypatch.setenv("DEER_FLOW_CONFIG_PATH", "/gone.yaml")
    with pytest.raises(ConfigError, match=r"DEER_FLOW_CONFIG_PATH: .*not found"):
        load_config()


@pytest.mark.parametrize("error", [ValueError("Environment variable X not found"), FileNotFoundError("extensions")])
def test_deerflows_own_errors_are_not_hidden(deerflow, error):
    deerflow.broken = error
    with pytest.raises(type(error), match=str(error)):
        load_config()
