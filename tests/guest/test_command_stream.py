"""Commands whose output is wanted as it comes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deerflow_boxlite.runtime import BoxGone
from support.guests import SHELLS, Bench, with_guest

pytestmark = pytest.mark.parametrize("shell", SHELLS)


async def collected(bench: Bench, command: str, **options: float) -> dict[str, str]:
    found = {"stdout": "", "stderr": "", "exit": ""}
    async for name, text in bench.guest.stream(command, **options):
        assert not found["exit"], "nothing comes after the exit code"
        found[name] += text
    return found


COMMANDS = {
    "echo a; echo b >&2; printf c; exit 4": ("a\nc", "b\n", "4"),
    "true": ("", "", "0"),
    "cat; read x; echo $?": ("1\n", "", "0"),
    "sleep 66 & echo hi": ("hi\n", "", "0"),
    "sleep 66 & echo hi; kill -9 $$": ("hi\n", "", "137"),
    "sh -c 'exec sh -c \"exit 5\"'": ("", "", "5"),
    "head -c 300000 /dev/zero | tr '\\0' x": ("x" * 300_000, "", "0"),
}


def test_output_and_exit_code(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        results = await asyncio.gather(*(collected(bench, command) for command in COMMANDS))
        for (command, expected), result in zip(COMMANDS.items(), results, strict=True):
            assert tuple(result.values()) == expected, command

    with_guest(tmp_path, shell, test)


def test_output_comes_as_it_is_printed(tmp_path: Path, shell: str) -> None:
    """The command goes on only when its first line has been received."""

    async def test(bench: Bench) -> None:
        go = tmp_path / "go"
        pieces = bench.guest.stream(f"echo first; until [ -e {go} ]; do sleep 0.02; done; echo second")
        assert await anext(pieces) == ("stdout", "first\n")
        go.touch()
        assert [piece async for piece in pieces] == [("stdout", "second\n"), ("exit", "0")]

    with_guest(tmp_path, shell, test)


def test_env_and_environment(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        pieces = bench.guest.stream('sh -c "echo \\$A \\$B"', env={"B": "call's\n"})
        assert [piece async for piece in pieces] == [("stdout", "settings call's\n\n"[:-1]), ("exit", "0")]

    with_guest(tmp_path, shell, test, environment={"A": "settings", "B": "settings"})


def test_case_02_the_deadline_kills(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        found = await collected(bench, "echo out; setsid sleep 4000 & sleep 4000", timeout=0.4)
        assert found["stdout"] == "out\n"
        assert found["stderr"] == "Command timed out after 0.4 seconds; it was killed with all it had started\n"
        assert found["exit"] == "137"
        await bench.gone("sleep 4000")

    with_guest(tmp_path, shell, test)


def test_closing_early_kills(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        pieces = bench.guest.stream("echo out; yes & sleep 4000")
        assert (await anext(pieces))[0] == "stdout"
        await pieces.aclose()
        await bench.gone("sleep 4000")
        await bench.gone("yes")

    with_guest(tmp_path, shell, test)


def test_cancelling_kills(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        task = asyncio.create_task(collected(bench, "sleep 4000"))
        while not bench.running("sleep 4000"):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await bench.gone("sleep 4000")

    with_guest(tmp_path, shell, test)


def test_case_26_the_box_dies(tmp_path: Path, shell: str) -> None:
    async def test(bench: Bench) -> None:
        task = asyncio.create_task(collected(bench, "sleep 4000"))
        while not bench.running("sleep 4000"):
            await asyncio.sleep(0.01)
        bench.box.die()
        with pytest.raises(BoxGone):
            await task

    with_guest(tmp_path, shell, test)
