"""The command line: what it prints, and its exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from deerflow_boxlite import boxes, config_source, doctor, images, provider
from deerflow_boxlite.boxes import KeptBox
from deerflow_boxlite.cli import app
from deerflow_boxlite.doctor_report import Finding, Report
from deerflow_boxlite.errors import CapacityError, HomeInUseError
from deerflow_boxlite.identity import DEFAULT_USER, Identity

SRC = Path(__file__).parents[2] / "src"


@pytest.fixture(autouse=True)
def _settings(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEER_FLOW_CONFIG_PATH", raising=False)
    monkeypatch.setattr(config_source, "DEERFLOW_INSTALLED", False)
    (tmp_path / "config.yaml").write_text(
        f"sandbox:\n  home_dir: {tmp_path / 'home'}\n  environment: {{TOKEN: s3cret}}\n"
        "  secrets: [{name: a, value: s3cret, hosts: [example.com]}]\n"
    )


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    return text.strip()


# -- doctor ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "status"), [("ok", 0), ("warning", 0), ("problem", 1)])
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_doctor_exits_0_only_when_a_box_can_run(monkeypatch, level, status, options):
    asked = []
    report = Report((Finding(level, "KVM", "seen", "cure"),))
    monkeypatch.setattr(doctor, "check", lambda config, boot: (asked.append((config.image, boot)), report)[1])
    result = invoke("doctor", "--boot", "--image", "busybox", *options)
    assert result.exit_code == status
    assert asked == [("busybox", True)]
    if options:
        assert json.loads(result.output) == report.as_dict()
    else:
        assert "KVM: seen" in result.output
        assert "cure" in result.output
        assert ("No box can run here." if status else "A box can run here.") in result.output


def test_a_cure_is_printed_as_it_is(monkeypatch):
    """Rich would take the extra's brackets for markup, and break long lines."""
    cure = 'pip install "deerflow-boxlite[boxlite]" ' + "x" * 200
    monkeypatch.setattr(doctor, "check", lambda config, boot: Report((Finding("problem", "a", "[b]", cure),)))
    assert cure in invoke("doctor").output


# -- config ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_config_masks_what_may_be_secret(tmp_path, options):
    result = invoke("config", *options)
    assert result.exit_code == 0
    assert "s3cret" not in result.output
    shown = (json.loads if options else yaml.safe_load)(result.output)
    assert shown["home_dir"] == str(tmp_path / "home")
    assert shown["environment"] == {"TOKEN": "***"}
    assert shown["secrets"] == [{"name": "a", "value": "***", "hosts": ["example.com"]}]
    assert shown["replicas"] == 3


def test_a_wrong_setting_is_one_message(tmp_path):
    (tmp_path / "config.yaml").write_text("sandbox: {replicas: 0}")
    result = invoke("config")
    assert result.exit_code == 1
    assert one_line(result.stderr).startswith("deerflow-boxlite: replicas: 0 is not allowed")
    assert result.stdout == ""


# -- image -------------------------------------------------------------------------------------------------------------


def test_image_build(monkeypatch, tmp_path):
    def build(base, into, log):
        log(f"making {base}")
        return into / "made"

    monkeypatch.setattr(images, "build", build)
    result = invoke("image", "build", "--from", "busybox", str(tmp_path))
    assert (result.exit_code, result.stdout, result.stderr) == (0, f"{tmp_path / 'made'}\n", "making busybox\n")


@pytest.mark.parametrize("arguments", [["--from", "alpine", "x"], ["x"], ["--from", "busybox"]])
def test_image_build_used_wrongly(arguments):
    assert invoke("image", "build", *arguments).exit_code == 2


def test_image_show_of_no_layout(tmp_path):
    result = invoke("image", "show", str(tmp_path))
    assert result.exit_code == 1
    assert str(tmp_path) in one_line(result.stderr)


# -- run ---------------------------------------------------------------------------------------------------------------


class FakeProvider:
    pieces: list[tuple[str, object]]
    log: list[object]

    def __init__(self, config):
        self.log.append(config.image)

    def acquire(self, thread_id, *, user_id):
        self.log.append(("acquire", thread_id, user_id))
        return "0" * 32

    def get(self, sandbox_id):
        return self

    def stream(self, command):
        self.log.append(command)
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def release(self, sandbox_id):
        self.log.append("release")

    def shutdown(self):
        self.log.append("shutdown")


@pytest.fixture
def run_log(monkeypatch):
    log: list[object] = []
    monkeypatch.setattr(FakeProvider, "log", log, raising=False)
    monkeypatch.setattr(FakeProvider, "pieces", [("stdout", "out"), ("stderr", "err"), ("exit", 3)], raising=False)
    monkeypatch.setattr(provider, "BoxliteProvider", FakeProvider)
    monkeypatch.setattr(boxes, "remove_boxes", lambda home, ids: log.append(("remove", *ids)))
    return log


def test_run_streams_and_exits_as_the_command(run_log):
    result = invoke("run", "--image", "busybox", "--thread", "t", "--user", "u", "--", "ls", "-l", "a b")
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out", "err")
    assert run_log == ["busybox", ("acquire", "t", "u"), "ls -l 'a b'", "release", "shutdown"]


def test_run_of_one_word_is_a_shell_command_line_and_leaves_no_box(run_log):
    assert invoke("run", "--image", "busybox", "echo hi | cat").exit_code == 3
    assert run_log == ["busybox", ("acquire", None, None), "echo hi | cat", "release", "shutdown", ("remove", "0" * 32)]


def test_a_command_killed_by_a_signal_is_told_as_a_shell_does(run_log, monkeypatch):
    monkeypatch.setattr(FakeProvider, "pieces", [("exit", -9)])
    assert invoke("run", "--thread", "t", "x").exit_code == 137


def test_run_gives_up_the_box_when_it_fails(run_log, monkeypatch):
    monkeypatch.setattr(FakeProvider, "pieces", [("stdout", "half"), CapacityError("no place")])
    result = invoke("run", "--thread", "t", "x")
    assert (result.exit_code, one_line(result.stderr)) == (1, "deerflow-boxlite: no place")
    assert run_log[-2:] == ["release", "shutdown"]


def test_run_without_a_command():
    assert invoke("run").exit_code == 2


# -- ls, rm ------------------------------------------------------------------------------------------------------------


def test_ls(monkeypatch, tmp_path):
    monkeypatch.setattr(boxes, "list_boxes", lambda home: [KeptBox("0" * 32, "stopped", 12_000_000, None)])
    result = invoke("ls")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split() == ["0" * 32, "stopped", "12", "MB", "unknown"]
    assert json.loads(invoke("ls", "--json").stdout) == [
        {"sandbox_id": "0" * 32, "state": "stopped", "size": 12_000_000, "last_use": None}
    ]


def test_ls_of_a_home_that_is_not_there_makes_none(tmp_path):
    result = invoke("ls")
    assert (result.exit_code, result.stdout.strip()) == (0, f"no boxes in {tmp_path / 'home'}")
    assert not (tmp_path / "home").exists()


def test_case_33_ls_of_a_home_in_use(monkeypatch):
    def list_boxes(home):
        raise HomeInUseError("the home is in use by process 7")

    monkeypatch.setattr(boxes, "list_boxes", list_boxes)
    result = invoke("ls")
    assert (result.exit_code, one_line(result.stderr)) == (1, "deerflow-boxlite: the home is in use by process 7")


def test_rm(monkeypatch):
    mine = Identity(DEFAULT_USER, "t").sandbox_id
    monkeypatch.setattr(boxes, "remove_boxes", lambda home, ids: [one for one in ids if one == mine])
    assert invoke("rm", "--thread", "t").stdout == f"removed {mine}\n"
    result = invoke("rm", "f" * 32, "--thread", "t")
    assert result.exit_code == 1
    assert f"there is no box {'f' * 32}" in one_line(result.stderr)
    assert invoke("rm").exit_code == 2


# -- the import --------------------------------------------------------------------------------------------------------


def imported_by(code: str) -> set[str]:
    script = f"import sys; sys.path.insert(0, {str(SRC)!r}); {code}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_the_package_costs_only_the_standard_library():
    # -c with the environment's own start-up modules, which may be anything, already there.
    script = (
        f"import sys; sys.path.insert(0, {str(SRC)!r}); before = set(sys.modules); import deerflow_boxlite; "
        "print(*(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    tops = {name.partition(".")[0] for name in done.stdout.split()}
    assert tops - sys.stdlib_module_names == {"deerflow_boxlite"}


def test_the_command_line_is_imported_without_what_its_commands_need():
    loaded = imported_by("import deerflow_boxlite.cli")
    assert "typer" in loaded
    assert loaded.isdisjoint({"pydantic", "boxlite", "yaml", "deerflow"})


def test_help_has_every_command():
    result = invoke("--help")
    assert result.exit_code == 0
    for command in ("doctor", "config", "run", "ls", "rm", "image"):
        assert command in result.output
