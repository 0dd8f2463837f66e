"""DeerFlow's tools and turns on local processes: quick, and with no VM."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest
from deerflow.runtime import user_context
from deerflow.sandbox import get_sandbox_provider
from deerflow.sandbox.sandbox import Sandbox
from deerflow.sandbox.sandbox_provider import SandboxProvider

import deerflow_boxlite
from deerflow_boxlite import ConfigError
from deerflow_boxlite.identity import Identity

from .. import tools
from ..harness import running, skill
from .conftest import Local

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class User:
    def __init__(self, id: str) -> None:
        self.id = id


def test_provider_and_boxes_are_deerflows(deerflow: Local) -> None:
    provider = deerflow.provider()
    assert isinstance(provider, SandboxProvider)
    assert isinstance(provider.get(provider.acquire("t")), Sandbox)
    assert provider.config.environment == {"TOKEN": "t0ken"}
    assert provider.config.command_timeout == 7
    assert get_sandbox_provider() is provider
    assert deerflow.turn("t", ("bash", {"command": "echo $TOKEN"})) == ["t0ken\n"]


def test_bash(deerflow: Local) -> None:
    root = deerflow.box("workspace")
    root.mkdir(parents=True)
    tools.check_bash(deerflow, str(root))


def test_files(deerflow: Local) -> None:
    tools.check_files(deerflow, f"{deerflow.box('workspace')}/files")


def test_search(deerflow: Local) -> None:
    tools.check_search(deerflow, f"{deerflow.box('workspace')}/search")


def test_errors(deerflow: Local) -> None:
    root = deerflow.box("workspace") / "errors"
    root.mkdir(parents=True)
    tools.check_errors(deerflow, str(root))


def test_the_user_is_the_one_given_else_deerflows_current_one_else_the_default(deerflow: Local) -> None:
    provider = deerflow.provider()
    assert provider.acquire("t") == Identity("default", "t").sandbox_id
    token = user_context.set_current_user(User("ann"))
    try:
        assert provider.acquire("t") == Identity("ann", "t").sandbox_id
        assert provider.acquire("t", user_id="bob") == Identity("bob", "t").sandbox_id
    finally:
        user_context.reset_current_user(token)


@pytest.mark.parametrize("lazy", [True, False])
def test_turns(project: Path, monkeypatch: pytest.MonkeyPatch, lazy: bool) -> None:
    deerflow = Local(project, monkeypatch, "bash", lazy=lazy)
    deerflow.provider()
    for at_work in running(deerflow):
        _turns(at_work, project)


def _turns(deerflow: Local, project: Path) -> None:
    uploads, outputs, workspace = (deerflow.box(name) for name in ("uploads", "outputs", "workspace"))
    data = project / "data.csv"
    data.write_text("1,2\n")
    skill(project, "analysis", "Look closely.")
    deerflow.upload("t", data)
    answers = deerflow.turn(
        "t",
        ("bash", {"command": f"cat {uploads}/data.csv; cat {deerflow.mnt}/skills/public/analysis/SKILL.md"}),
        ("write_file", {"path": f"{outputs}/report.md", "content": "# Report"}),
        ("bash", {"command": f"echo notes > {workspace}/notes"}),
        ("present_files", {"filepaths": ["/mnt/user-data/outputs/report.md"]}),
    )
    assert answers[0].startswith("1,2\n---\nname: analysis")
    assert answers[3] == "Successfully presented files"
    assert deerflow.artifact("t", "mnt/user-data/outputs/report.md") == b"# Report"
    assert deerflow.artifact("t", "mnt/user-data/workspace/notes") == b"notes\n"

    data.write_text("3,4\n")
    skill(project, "analysis", "Look more closely.")
    deerflow.upload("t", data)
    deerflow.upload_by_route("t", "more.bin", bytes(range(256)))
    answers = deerflow.turn(
        "t",
        ("bash", {"command": f"cat {uploads}/data.csv; tail -n 1 {deerflow.mnt}/skills/public/analysis/SKILL.md"}),
        ("bash", {"command": f"wc -c < {uploads}/more.bin; cat {workspace}/notes; rm {outputs}/report.md"}),
    )
    assert answers == ["3,4\nLook more closely.\n", "256\nnotes\n"]
    with pytest.raises(FileNotFoundError):
        deerflow.artifact("t", "mnt/user-data/outputs/report.md")


def test_image_of_an_earlier_turn_can_be_viewed(deerflow: Local) -> None:
    encoded = base64.b64encode(PNG).decode()
    command = f"echo {encoded} | base64 -d > {deerflow.box('outputs')}/plot.png"
    deerflow.turn("t", ("bash", {"command": command}))
    assert deerflow.turn("t", ("view_image", {"image_path": "/mnt/user-data/outputs/plot.png"})) == [
        "Successfully read image"
    ]


def test_disabled_skill_is_not_in_the_box(deerflow: Local, project: Path) -> None:
    skill(project, "kept", "x")
    skill(project, "dropped", "x")
    (project / "extensions_config.json").write_text('{"mcpServers": {}, "skills": {"dropped": {"enabled": false}}}')
    answers = deerflow.turn("t", ("bash", {"command": f"ls {deerflow.mnt}/skills/public"}))
    assert answers == ["kept\n"]


def test_hostile_outputs_leave_the_host_untouched(deerflow: Local, project: Path) -> None:
    outputs = deerflow.box("outputs")
    outside = project / "outside"
    outside.write_text("untouched")
    command = f"""
        cd {outputs}
        ln -s /etc/shadow shadow; ln -s {outside} link; ln -s /etc etc; mkfifo fifo
        truncate -s 10G huge; mkdir -p 'a/..b'; echo x > 'a/..b/..'c; touch -d @8589934592 far; echo fine > fine
    """
    deerflow.turn("t", ("bash", {"command": command}))
    root = project / ".deer-flow" / "users" / "default" / "threads" / "t" / "user-data" / "outputs"
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())
    assert found == ["a/..b/..c", "far", "fine"]
    assert outside.read_text() == "untouched"
    report = next(iter(deerflow.provider()._settings.hooks.reports.values()))
    assert sum(report.skipped.values()) == 5


def test_turn_whose_box_died_before_its_end_still_leaves_its_artifacts(deerflow: Local) -> None:
    provider = deerflow.provider()
    sandbox_id = provider.acquire("t")
    sandbox = provider.get(sandbox_id)
    assert sandbox is not None
    sandbox.execute_command(f"echo x > {deerflow.box('outputs')}/a")
    assert deerflow.runtime is not None
    for box in deerflow.runtime.boxes.values():
        box.die()
    provider.release(sandbox_id)
    assert deerflow.artifact("t", "mnt/user-data/outputs/a") == b"x\n"


def test_missing_host_path_of_a_mount_is_an_error_at_the_start(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mount = {"host_path": str(tmp_path / "missing"), "container_path": "/data"}
    deerflow = Local(project, monkeypatch, "bash", mounts=[mount])
    with pytest.raises(ConfigError, match=r"mounts.0.host_path: .*missing is no directory"):
        deerflow.provider()
    deerflow.forget()


# Several gateway workers


def test_a_second_worker_on_the_same_home_says_what_to_set(deerflow: Local) -> None:
    code = """
import sys
from deerflow_boxlite import BoxliteConfig, BoxliteProvider, HomeInUseError
try:
    BoxliteProvider(config=BoxliteConfig(home_dir=sys.argv[1]))
except HomeInUseError as error:
    print(error)
"""
    home = deerflow.provider().config.home_dir
    command = [sys.executable, "-c", code, str(home)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": _path()}
    )
    assert str(home) in done.stdout
    assert str(os.getpid()) in done.stdout
    assert "home_dir" in done.stdout
    assert "worker" in done.stdout


def _path() -> str:
    return str(Path(deerflow_boxlite.__file__).parent.parent)
