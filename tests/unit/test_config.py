"""The settings' values: what is allowed, and how what is not is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from deerflow_boxlite.config import BoxliteConfig, Mount, check_mounts, default_home
from deerflow_boxlite.config_errors import FOREIGN_KEYS, closest, misspelt
from deerflow_boxlite.errors import ConfigError

KEYS = BoxliteConfig.model_fields


def refused(**values) -> str:
    with pytest.raises(ConfigError) as caught:
        BoxliteConfig(**values)
    # pydantic's own error, which holds the values, must not be shown beside ours.
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    return str(caught.value)


def test_documented_defaults():
    config = BoxliteConfig()
    assert config.image == "python:3.12-slim"
    assert (config.memory_mib, config.cpus) == (None, None)
    assert (config.replicas, config.idle_timeout, config.health_check_skip_seconds) == (3, 600, 0.0)
    assert config.environment == {}


def test_further_defaults():
    config = BoxliteConfig()
    assert (config.disk_size_gb, config.shell, config.max_output_bytes) == (10, "auto", 1048576)
    assert (config.command_timeout, config.acquire_timeout, config.boot_timeout) == (600, 120, 120)
    assert (config.persist, config.retain_days, config.retain_gb) == (True, 30, 50)
    assert (config.mounts, config.thread_data, config.network, config.secrets) == ((), "copy", None, ())
    assert config.home_dir == default_home()


def test_the_defaults_are_valid():
    shown = BoxliteConfig().model_dump()
    assert BoxliteConfig(**shown) == BoxliteConfig()


def test_every_setting_is_described():
    assert [name for name, field in KEYS.items() if not field.description] == []


def test_is_immutable():
    with pytest.raises(ValidationError):
        BoxliteConfig().replicas = 4


def test_numbers_may_come_as_text_from_the_environment():
    config = BoxliteConfig(replicas="7", idle_timeout="0.5", memory_mib="512", persist="false")
    assert (config.replicas, config.idle_timeout, config.memory_mib, config.persist) == (7, 0.5, 512, False)


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("replicas", 0, "greater than or equal to 1"),
        ("replicas", 1.5, "valid integer"),
        ("replicas", True, "a number"),
        ("idle_timeout", False, "a number"),
        ("memory_mib", 1, "greater than or equal to 128"),
        ("memory_mib", 70000, "less than or equal to 65536"),
        ("cpus", 0, "greater than or equal to 1"),
        ("cpus", "two", "valid integer"),
        ("idle_timeout", -1, "greater than or equal to 0"),
        ("idle_timeout", "inf", "finite number"),
        ("command_timeout", float("inf"), "finite number"),
        ("health_check_skip_seconds", -0.1, "greater than or equal to 0"),
        ("boot_timeout", 0, "greater than 0"),
        ("disk_size_gb", 0, "greater than or equal to 1"),
        ("max_output_bytes", 0, "greater than or equal to 1"),
        ("retain_days", -1, "greater than or equal to 0"),
        ("shell", "zsh", "'auto', 'bash' or 'sh'"),
        ("thread_data", "link", "'copy' or 'mount'"),
        ("persist", "perhaps", "valid boolean"),
        ("image", " ", "at least 1 character"),
        ("sync_max_file_mb", 0, "greater than 0"),
        ("sync_timeout", 0, "greater than 0"),
        ("home_dir", "~nosuchuser/x", "cannot be resolved"),
    ],
)
def test_a_bad_value_is_told_with_key_value_and_what_is_allowed_case_35(key, value, allowed):
    message = refused(**{key: value})
    assert message.startswith(f"{key}: {value!r} is not allowed: ")
    assert allowed in message
    assert str(KEYS[key].description) in message


def test_there_is_one_line_per_problem():
    lines = refused(replicas=0, shell="zsh", mounts=[{"host_path": "x", "container_path": "y"}]).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "replicas",
        "shell",
        "mounts.0.host_path",
        "mounts.0.container_path",
    ]


def test_a_long_value_is_cut():
    assert len(refused(shell="x" * 10_000)) < 300


@pytest.mark.parametrize(
    "values",
    [
        {"secrets": "s3cret"},
        {"secrets": ["s3cret"]},
        {"secrets": [{"name": "a", "value": "s3cret"}]},
        {"secrets": [{"name": "a", "value": "s3cret", "hosts": []}]},
        {"secrets": [{"name": "a", "value": "s3cret", "hosts": "x"}]},
        {"secrets": [{"name": "a", "value": ["s3cret"], "hosts": ["x"]}]},
        {"secrets": [{"name": "a", "value": "x", "hosts": ["x"], "vale": "s3cret"}]},
        {"secrets": [{"name": "a", "value": "s3cret", "hosts": ["x"]}] * 2},
        {"environment": {"A B": "s3cret"}},
        {"environment": {"A": "s3cret\0"}},
        {"environment": {"A": ["s3cret"]}},
        {"environment": "s3cret"},
    ],
)
def test_a_secret_is_never_told(values):
    assert "s3cret" not in refused(**values)


def test_a_secret_is_not_shown():
    config = BoxliteConfig(
        secrets=[{"name": "a", "value": "s3cret", "hosts": ["api.example.com"]}], environment={"TOKEN": "s3cret"}
    )
    assert "s3cret" not in f"{config!r} {config} {config.secrets}"
    assert config.secrets[0].value.get_secret_value() == "s3cret"


@pytest.mark.parametrize("name", ["", "A B", "A=B", "1A", "é", "A\n"])
def test_environment_names_are_shell_names(name):
    assert f"the name {name!r}" in refused(environment={name: "x"})


def test_an_environment_value_is_text():
    assert refused(environment={"A": 1}).startswith(
        "environment.A: this value is not allowed: should be a valid string"
    )


def test_paths_from_the_users_home_are_expanded(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    config = BoxliteConfig(home_dir="~/boxes", mounts=[{"host_path": "~/data", "container_path": "/data/"}])
    assert config.home_dir == tmp_path / "boxes"
    assert config.mounts == (Mount(host_path=tmp_path / "data", container_path="/data", read_only=False),)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("data", "absolute path"),
        ("/a/../b", "without `..`"),
        ("/a\0", "NUL"),
        ("/", "root directory"),
        ("//", "root directory"),
        ("/mnt", "/mnt/user-data"),
        ("/mnt/user-data", "/mnt/user-data"),
        ("//mnt/./user-data/", "/mnt/user-data"),
        ("/mnt/user-data/workspace", "/mnt/user-data"),
        ("/proc/x", "/proc"),
        ("/dev", "/dev"),
        ("/mnt/acp-workspace", "/mnt/acp-workspace"),
    ],
)
def test_a_mount_needs_a_free_absolute_path(path, reason):
    message = refused(mounts=[{"host_path": "/srv", "container_path": path}])
    assert message.startswith("mounts.0.container_path: ")
    assert reason in message


def test_a_mount_beside_a_reserved_path_is_allowed():
    mounts = [{"host_path": "/srv", "container_path": path} for path in ("/mnt/user-data-2", "/device", "/mnt/skills")]
    assert len(BoxliteConfig(mounts=mounts).mounts) == 3


def test_two_mounts_at_one_path():
    mounts = [{"host_path": "/a", "container_path": "/d"}, {"host_path": "/b", "container_path": "//d/"}]
    assert "only one can have the container_path /d" in refused(mounts=mounts)


def test_check_mounts_names_every_host_path_that_is_missing(tmp_path):
    there, file, gone = tmp_path / "there", tmp_path / "file", tmp_path / "gone"
    there.mkdir()
    file.touch()
    config = BoxliteConfig(mounts=mounts(file, gone))
    with pytest.raises(ConfigError) as caught:
        check_mounts(config)
    assert [line.split(" is ")[0] for line in str(caught.value).splitlines()] == [
        f"mounts.0.host_path: {file}",
        f"mounts.1.host_path: {gone}",
    ]
    check_mounts(BoxliteConfig(mounts=mounts(there)))


def mounts(*paths):
    return [{"host_path": path, "container_path": f"/m{number}"} for number, path in enumerate(paths)]


@pytest.mark.parametrize(("count", "thread_data", "fits"), [(2, "copy", True), (1, "mount", True), (2, "mount", False)])
def test_not_more_volumes_than_boxlite_starts(tmp_path, monkeypatch, count, thread_data, fits):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    config = BoxliteConfig(mounts=mounts(*[tmp_path] * count), thread_data=thread_data)
    if fits:
        check_mounts(config)
    else:
        with pytest.raises(ConfigError, match="at most 2 volumes"):
            check_mounts(config)


def test_no_allow_list_without_a_network():
    assert "`allow` should be empty" in refused(network={"mode": "disabled", "allow": ["example.com"]})
    assert BoxliteConfig(network={"allow": ["example.com"]}).network.allow == ("example.com",)


def test_an_unknown_name_is_told_with_the_right_one():
    assert refused(replica=3) == "replica: there is no such setting; did you mean replicas?"
    assert refused(colour=3) == "colour: there is no such setting"
    assert "network.mod: there is no such setting; did you mean mode?" in refused(network={"mod": "enabled"})


@pytest.mark.parametrize(
    ("key", "right"),
    [
        ("memory_mb", "memory_mib"),
        ("memoryMib", "memory_mib"),
        ("idle-timeout", "idle_timeout"),
        ("idel_timeout", "idle_timeout"),
        ("IMAGE", "image"),
        ("imgae", "image"),
        ("cpu", "cpus"),
        ("enviroment", "environment"),
        ("healthcheck_skip_second", "health_check_skip_seconds"),
    ],
)
def test_misspelt_keys_are_found(key, right):
    assert misspelt([key], KEYS) == {key: right}


def test_other_keys_are_not_taken_for_misspelt():
    others = [*FOREIGN_KEYS, *KEYS, "template", "api_key", "namespace", "memory", "name", "host", "path"]
    assert misspelt(others, KEYS) == {}


def test_closest_takes_the_nearest():
    assert closest("retain_gbs", ["retain_days", "retain_gb"]) == "retain_gb"


def test_a_yaml_section_as_in_the_readme():
    section = yaml.safe_load(
        """
        image: python:3.12-slim
        memory_mib: 1024
        cpus: 2
        replicas: 3
        idle_timeout: 600
        health_check_skip_seconds: 0.0
        environment: {PYTHONUNBUFFERED: "1"}
        mounts: [{host_path: /srv/data, container_path: /data, read_only: true}]
        network: {mode: enabled, allow: [pypi.org]}
        """
    )
    config = BoxliteConfig(**section)
    assert config.environment == {"PYTHONUNBUFFERED": "1"}
    assert config.mounts[0].host_path == Path("/srv/data")
