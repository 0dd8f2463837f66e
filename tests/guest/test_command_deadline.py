"""Deadlines and cancellation: a command that is to end is dead, with all it started, and nothing else is."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from deerflow_boxlite.guest import commands
from support.guests import SHELLS, Bench, with_guest

pytestmark = pytest.mark.parametrize("shell", SHELLS)

DEADLINE = 0.4
TOLD = "Command timed out after 0.4 seconds; it was killed with all it had started\n"

FORKING = (
    'python3 -c "import os, time\nfor n in range(3): os.fork()\nif os.fork() == 0: os.setsid()\n'
    "os.execvp('sleep', ['sleep', '4000'])\""
)
DAEMON = (
    'python3 -c "import os\nif os.fork() == 0:\n os.setsid()\n'
    " if os.fork() == 0: os.execvp('sleep', ['sleep', '4000'])\n os._exit(0)\"; sleep 4000"
)
COMMANDS = (
    "sleep 4000; true",
    'sh -c "sleep 4000; true"',
    "trap '' TERM; sleep 4000; sleep 4000",
    "trap 'sleep 4000' EXIT; sleep 4000",
    "sleep 4000 | cat | cat",
    "setsid sleep 4000; true",
    "(setsid sleep 4000 &) ; sleep 4000",
    "(sleep 4000 &) ; sleep 4000",
    "while :; do sleep 0.1; done; sleep 4000",
    "nohup sleep 4000 >/dev/null 2>&1 & sleep 4000",
    "exec sleep 4000",
    "exec >/dev/null 2>&1; sleep 4000",
    FORKING,
    DAEMON,
)


def test_case_02_a_deadline_is_final(tmp_path: Path, shell: str) -> None:
    """Whatever a command has started is dead; what an earlier one left in the same shell lives on."""
    commands = [command for command in COMMANDS if shell != "busybox" or "python3" not in command]

    async def one(bench: Bench, command: str) -> None:
        result = await bench.guest.run(f"echo out; echo err >&2; {command}", timeout=DEADLINE)
        assert (result.timed_out, result.exit_code) == (True, 137), command
        assert result.stdout == "out\n", command
        assert result.stderr == "err\n" + TOLD, command

    async def test(bench: Bench) -> None:
        daemons = await asyncio.gather(
            *(bench.guest.run("(sleep 5000 >/dev/null 2>&1 &); sleep 5001 & echo started") for _ in range(8))
        )
        assert [daemon.stdout for daemon in daemons] == ["started\n"] * 8
        opened = bench.calls().count("exec")
        # At once after them: in the same tick of the clock, perhaps, that a process's age is told in.
        await asyncio.gather(*(one(bench, command) for command in commands))
        await bench.gone("sleep 4000")
        assert len(bench.running("sleep 5000")) == 8
        assert len(bench.running("sleep 5001")) == 8
        assert (await bench.guest.run("echo usable")).stdout == "usable\n"
        assert bench.calls().count("exec") == opened

    with_guest(tmp_path, shell, test)


def test_case_04_silence_under_a_deadline_is_no_end(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        result = await bench.guest.run("sleep 0.5; echo at last", timeout=50)
        assert (result.stdout, result.timed_out) == ("at last\n", False)
        assert (await bench.guest.run("sleep 0.5; echo at last", timeout=0)).stdout == "at last\n"

    with_guest(tmp_path, shell, test, command_timeout=0.1)


def test_the_default_deadline(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        assert (await bench.guest.run("sleep 4000")).timed_out
        await bench.gone("sleep 4000")

    with_guest(tmp_path, shell, test, command_timeout=0.2)


def test_a_stopped_shell_is_thrown_away(tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that stops its own shell: it is killed, what it had printed comes back, the box stays usable."""
    monkeypatch.setattr(commands, "GRACE", 0.2)

    async def test(bench: Bench) -> None:
        result = await bench.guest.run("echo out; kill -STOP $$; sleep 4000", timeout=DEADLINE)
        assert (result.timed_out, result.exit_code, result.stdout) == (True, 137, "out\n")
        assert "stopped answering" in result.stderr
        await bench.gone("sleep 4000")
        assert (await bench.guest.run("echo usable")).stdout == "usable\n"

    with_guest(tmp_path, shell, test)


def test_a_deadline_that_comes_before_the_command_does(tmp_path: Path, shell: str) -> None:
    """The shell is still busy with what is to be done after the last command when the time is up."""

    async def test(bench: Bench) -> None:
        for _ in range(2):
            assert (await bench.guest.run("sleep 66 & echo hi")).stdout == "hi\n"
            result = await bench.guest.run("echo begun; sleep 4000", timeout=0.001)
            assert (result.timed_out, result.exit_code) == (True, 137)
            await bench.gone("sleep 4000")

    with_guest(tmp_path, shell, test)


def test_cancelling_kills_the_command(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        running = asyncio.create_task(bench.guest.run("setsid sleep 4000 & sleep 4000"))
        while len(bench.running("sleep 4000")) < 2:
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await bench.gone("sleep 4000")
        opened = bench.calls().count("exec")
        assert (await bench.guest.run("echo usable")).stdout == "usable\n"
        assert bench.calls().count("exec") == opened

    with_guest(tmp_path, shell, test)


def test_case_26_cancelling_when_the_box_has_died(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        running = asyncio.create_task(bench.guest.run("sleep 4000"))
        while not bench.running("sleep 4000"):
            await asyncio.sleep(0.01)
        running.cancel()
        bench.box.die()
        with pytest.raises(asyncio.CancelledError):
            await running

    with_guest(tmp_path, shell, test)


def test_killed_collectors_are_replaced(tmp_path: Path, shell: str) -> None:
    """`pkill cat` hits what collects the output. What is printed then is lost, nothing after it, and nothing hangs."""

    async def test(bench: Bench) -> None:
        await bench.guest.run("true")
        running = asyncio.create_task(bench.guest.run("echo before; sleep 0.5; echo between; exit 3"))
        while not bench.running("sleep 0.5"):
            await asyncio.sleep(0.01)
        for pid, line in bench.box.command_lines().items():
            if line.strip() == "cat":
                os.kill(pid, signal.SIGKILL)
        result = await running
        assert (result.exit_code, result.stdout, result.timed_out) == (3, "before\n", False)
        assert "output may be incomplete" in result.stderr
        assert (await bench.guest.run("echo after; printf '%9000s' x")).stdout == "after\n" + "x".rjust(9000)

    with_guest(tmp_path, shell, test)
