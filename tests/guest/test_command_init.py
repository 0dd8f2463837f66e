"""Process 1 of a box, as process 1 of a process namespace: needs root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deerflow_boxlite.guest import INIT
from support.guests import SHELLS
from support.local_runtime import shared_userland

pytestmark = pytest.mark.parametrize("shell", SHELLS)


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@contextmanager
def init(shell: str, before: str = "") -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Run our process 1, after some other shell text, in a namespace of its own. Everything in it ends with it."""
    program = shared_userland(shell) / "sh"
    command = [shutil.which("unshare") or "unshare", "--pid", "--fork", "--kill-child", program, "-c", before + INIT[2]]
    process = subprocess.Popen(command, env={"PATH": str(program.parent)}, stderr=subprocess.PIPE)
    try:
        while not (found := children(process.pid)):
            if process.poll() is not None:
                assert process.stderr is not None
                pytest.skip(f"no namespace to be had here: {process.stderr.read().decode().strip()}")
            time.sleep(0.01)
        yield process, found[0]
    finally:
        process.kill()
        process.wait()


def test_orphans_are_reaped(shell: str) -> None:
    """Zombies that it did not start itself: without a reaper they stay for ever, and this hangs."""
    with init(shell, "(sleep 0.3 & sleep 0.3 &) ; (exec sleep 0.2) &\n") as (_, pid):
        while not children(pid):
            time.sleep(0.01)
        while len(children(pid)) > 1:
            time.sleep(0.01)
        # It sleeps itself, and does not spin.
        before = cpu(pid)
        time.sleep(0.3)
        assert cpu(pid) == before


def cpu(pid: int) -> list[str]:
    """User and system time, in clock ticks, of a process and of its children: proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[11:15]


def test_it_goes_at_sigterm(shell: str) -> None:
    with init(shell) as (process, pid):
        while not children(pid):
            time.sleep(0.01)
        os.kill(pid, signal.SIGTERM)
        assert process.wait(timeout=60) == 0
