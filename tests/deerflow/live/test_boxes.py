"""DeerFlow's tools and turns on real boxes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deerflow.config.paths import get_paths

from .. import tools
from ..harness import skill
from .conftest import Live, Start

WORKSPACE, UPLOADS, OUTPUTS = (f"/mnt/user-data/{name}" for name in ("workspace", "uploads", "outputs"))


def outputs_on_host(thread: str) -> Path:
    return get_paths().sandbox_outputs_dir(thread, user_id="default")


def test_tools(start: Start) -> None:
    deerflow = start()
    for name in ("bash", "errors"):
        deerflow.turn("tools", ("bash", {"command": f"mkdir -p {WORKSPACE}/{name}"}))
    tools.check_bash(deerflow, f"{WORKSPACE}/bash")
    tools.check_files(deerflow, f"{WORKSPACE}/files")
    tools.check_search(deerflow, f"{WORKSPACE}/search")
    tools.check_errors(deerflow, f"{WORKSPACE}/errors")


class Gateway:
    """A gateway in a process of its own."""

    def __init__(self, project: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("gateway.py")), str(project)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )

    def turn(self, thread: str, *calls: tuple[str, dict[str, Any]]) -> list[str]:
        self.begin(thread, *calls)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the gateway ended"
        answers: list[str] = json.loads(line)
        return answers

    def begin(self, thread: str, *calls: tuple[str, dict[str, Any]]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([thread, calls]) + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def gateways(project: Path) -> Iterator[list[Gateway]]:
    made: list[Gateway] = []
    yield made
    for gateway in made:
        gateway.kill()


def test_case_27_three_turns_and_a_gateway_that_is_killed(
    start: Start, project: Path, gateways: list[Gateway], settings: dict[str, Any]
) -> None:
    deerflow = Live(project, settings)
    skill(project, "analysis", "Look closely.")
    data = project / "data.csv"
    data.write_text("1,2\n")
    deerflow.upload("turns", data)
    gateways.append(Gateway(project))
    answers = gateways[0].turn(
        "turns",
        ("bash", {"command": f"cat {UPLOADS}/data.csv; tail -n 1 /mnt/skills/public/analysis/SKILL.md"}),
        ("write_file", {"path": f"{OUTPUTS}/report.md", "content": "# Report"}),
        (
            "bash",
            {"command": f"mkdir {WORKSPACE}/d; cd {WORKSPACE}/d; head -c 3000000 /dev/urandom > big; sha256sum < big"},
        ),
        ("present_files", {"filepaths": [f"{OUTPUTS}/report.md"]}),
    )
    assert answers[0] == "1,2\nLook closely.\n"
    assert answers[3] == "Successfully presented files"
    # The turn is over: the artifact route serves what it left.
    assert deerflow.artifact("turns", f"{OUTPUTS}/report.md") == b"# Report"
    big = deerflow.artifact("turns", f"{WORKSPACE}/d/big")
    assert hashlib.sha256(big).hexdigest() == answers[2].split()[0]

    second = gateways[0].turn(
        "turns", ("bash", {"command": f"cat {OUTPUTS}/report.md {UPLOADS}/data.csv; echo two > {WORKSPACE}/two"})
    )
    assert second == ["# Report1,2\n"]

    gateways[0].begin(
        "turns", ("bash", {"command": f"echo half > {WORKSPACE}/half; sync; echo > {OUTPUTS}/started; sleep 600"})
    )
    time.sleep(5)
    gateways[0].kill()
    data.write_text("replaced while no gateway ran\n")
    deerflow.upload("turns", data)
    gateways.append(Gateway(project))
    third = gateways[1].turn("turns", ("bash", {"command": f"cat {WORKSPACE}/two {WORKSPACE}/half {UPLOADS}/data.csv"}))
    assert third == ["two\nhalf\nreplaced while no gateway ran\n"]
    assert deerflow.artifact("turns", f"{WORKSPACE}/half") == b"half\n"


def test_upload_route_to_a_warm_and_to_a_stopped_box(start: Start) -> None:
    deerflow = start()
    provider = deerflow.provider()
    content = bytes(range(256)) * 1000
    deerflow.upload_by_route("route", "a.bin", content)
    command = f"wc -c < {UPLOADS}/a.bin; sha256sum < {UPLOADS}/a.bin"
    first = deerflow.turn("route", ("bash", {"command": command}))
    assert first[0].startswith("256000\n")
    provider.shutdown()
    deerflow.forget()
    deerflow.upload_by_route("route", "a.bin", content + b"more")
    assert deerflow.turn("route", ("bash", {"command": command}))[0].startswith("256004\n")


def test_hostile_outputs_leave_the_host_untouched_and_are_reported(start: Start, project: Path) -> None:
    deerflow = start(sync_max_files=2000)
    outside = project / "outside"
    outside.write_text("untouched")
    command = f"""
        cd {OUTPUTS}
        ln -s /etc/shadow shadow; ln -s {outside} link; ln -s / root; mkfifo fifo
        dd if=/dev/null of=huge bs=1 seek=10737418240 2>/dev/null
        touch -t 203801010000 far; touch -t 197001020000 past
        printf x > "$(printf 'a\\nb')"; printf x > '$(id)'; printf x > "$(printf '\\377')"
        mkdir '..a'; echo x > ..a/..b
        ln -s {outside} ..a/in; ln huge hard; echo fine > fine; echo done
    """
    assert deerflow.turn("hostile", ("bash", {"command": command})) == ["done\n"]
    root = outputs_on_host("hostile")
    found = sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
    assert found == sorted(["$(id)", "..a/..b", "a\nb", "far", "fine", "past", "\udcff"])
    assert not any(path.is_symlink() for path in root.rglob("*"))
    assert outside.read_text() == "untouched"
    report = next(iter(deerflow.provider()._settings.hooks.reports.values()))
    assert {reason.name: count for reason, count in report.skipped.items()} == {"NOT_A_FILE": 5, "TOO_LARGE": 2}
    assert report.truncated is None

    many = f"cd {OUTPUTS}; mkdir many; cd many; i=0; while [ $i -lt 10000 ]; do : > $i; i=$((i+1)); done; rm ../fine"
    deerflow.turn("hostile", ("bash", {"command": many}))
    report = next(iter(deerflow.provider()._settings.hooks.reports.values()))
    assert "sync_max_files" in str(report.truncated)
    assert (root / "fine").exists(), "a pass that did not see all removes nothing"


def test_file_swapped_for_a_symlink_all_the_time(start: Start) -> None:
    deerflow = start()
    loop = "while [ -e go ]; do rm -f a; ln -s /etc/shadow a; rm -f a; echo x > a; done"
    deerflow.turn("swap", ("bash", {"command": f"cd {OUTPUTS}; : > go; echo x > a; ({loop}) >/dev/null 2>&1 &"}))
    for _ in range(5):
        assert deerflow.turn("swap", ("bash", {"command": f"ls {OUTPUTS}/go"})) == [f"{OUTPUTS}/go\n"]
        assert (outputs_on_host("swap") / "go").exists()
        path = outputs_on_host("swap") / "a"
        assert not path.is_symlink()
        assert not path.exists() or path.read_text() in ("x\n", "")


def test_image_that_the_agent_made_can_be_viewed(start: Start) -> None:
    deerflow = start()
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(1000)).decode()
    command = f"echo {png} | base64 -d > {OUTPUTS}/plot.png"
    deerflow.turn("image", ("bash", {"command": command}))
    answers = deerflow.turn("image", ("view_image", {"image_path": f"{OUTPUTS}/plot.png"}))
    assert answers == ["Successfully read image"]


def test_skills_are_read_only_in_the_box(start: Start, project: Path) -> None:
    skill(project, "analysis", "Look closely.")
    deerflow = start()
    answers = deerflow.turn(
        "skills", ("bash", {"command": "ls -l /mnt/skills/public/analysis/SKILL.md; ls -ld /mnt/skills"})
    )
    assert "-r--r--r--" in answers[0]
    assert "dr-xr-xr-x" in answers[0]
    skill(project, "analysis", "Look more closely.")
    command = "tail -n 1 /mnt/skills/public/analysis/SKILL.md"
    assert deerflow.turn("skills", ("bash", {"command": command})) == ["Look more closely.\n"]


# Mounts


def test_mounted_thread_and_what_is_seen_of_changes_on_the_host(start: Start) -> None:
    deerflow = start(thread_data="mount")
    assert deerflow.provider().uses_thread_data_mounts
    answers = deerflow.turn("mounted", ("bash", {"command": f"echo from the box > {OUTPUTS}/a; cat {OUTPUTS}/a"}))
    host = outputs_on_host("mounted")
    assert (host / "a").read_text() == "from the box\n"
    (host / "new").write_text("from the host")
    (host / "a").write_text("changed in place, and longer\n")
    (host / "b").write_text("whole\n")
    answers = deerflow.turn(
        "mounted",
        ("bash", {"command": f"cat {OUTPUTS}/new"}),
        ("read_file", {"path": f"{OUTPUTS}/b"}),
        ("bash", {"command": f"sleep 5; cat {OUTPUTS}/a"}),
        ("write_file", {"path": f"{OUTPUTS}/c", "content": "written by the tool"}),
    )
    assert answers[0] == "from the host", "new files are seen at once"
    assert answers[1] == "whole\n"
    assert answers[2] in ("changed in place, and longer\n", "changed in pl"), "and changed ones after some seconds"
    assert (host / "c").read_text() == "written by the tool"
    (host / "draft").write_text("replaced\n")
    (host / "draft").replace(host / "b")
    wait = (
        f'i=0; until [ $i = 60 ] || [ "$(cat {OUTPUTS}/b)" = replaced ]; do sleep 1; i=$((i+1)); done; cat {OUTPUTS}/b'
    )
    first, later = deerflow.turn("mounted", ("bash", {"command": f"cat {OUTPUTS}/b"}), ("bash", {"command": wait}))
    assert first in ("whole\n", "replaced\n"), "a file replaced by rename goes on as it was for some seconds"
    assert later == "replaced\n", "and is seen in the end"


def test_configured_mounts_are_in_the_box(start: Start, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "a").write_text("x")
    mount = {"host_path": str(tmp_path / "shared"), "container_path": "/data", "read_only": True}
    deerflow = start(mounts=[mount])
    answers = deerflow.turn("mounts", ("bash", {"command": "cat /data/a; echo y > /data/b"}))
    assert answers[0].startswith("x")
    assert "Read-only" in answers[0]
    assert not (tmp_path / "shared" / "b").exists()
