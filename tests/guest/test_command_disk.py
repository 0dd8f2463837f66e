"""Commands in a box whose disk is full, or whose user is not root: needs root, for a mount and another user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from deerflow_boxlite.guest import Guest
from support.guests import SHELLS, settings_for
from support.local_runtime import LocalRuntime

pytestmark = [
    pytest.mark.parametrize("shell", SHELLS),
    pytest.mark.skipif(os.getuid() != 0, reason="needs a mount and another user: run as root"),
]

FULL = "deerflow-boxlite: the box's disk is full; output may be incomplete\n"


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    """What shells that were killed leave in memory is removed when the next one opens; there is none here."""
    yield
    for path in Path("/dev/shm").glob("dfb-*.*.*"):
        if not Path(f"/proc/{path.suffix[1:]}").exists():
            shutil.rmtree(path)


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"mounting is not allowed here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_case_11_a_full_disk_is_told_and_the_box_usable_after(tmp_path: Path, shell: str) -> None:
    async def run(disk: Path) -> None:
        runtime = LocalRuntime(tmp_path / "runtime", shell, mounts=("/dev/shm",), shared=True)
        box = await runtime.box()
        guest = await Guest.open(box, settings_for(runtime, disk))
        try:
            filled = await guest.run(f"echo out; head -c 1000000 /dev/zero >{disk}/big; echo $?")
            assert filled.stdout == "out\n1\n"
            assert filled.stderr.startswith("head: ")
            # Little output fits into what was set aside, and it is told when that did not do. Then memory is used.
            assert (await guest.run("echo little")).stdout == "little\n"
            full = await guest.run("echo runs; printf '%9000s' x")
            assert full.stdout.startswith("runs\n   ")
            assert full.stderr == FULL
            full = await guest.run("echo runs; printf '%9000s' x")
            assert full.stdout == "runs\n" + "x".rjust(9000)
            assert full.stderr == FULL
            assert (await guest.run("echo runs >&2; exit 3")).exit_code == 3
            long = await guest.run("head -c 3000000 /dev/zero | tr '\\0' x")
            assert long.truncated
            assert long.stdout.startswith("x" * 1000)
            await guest.run(f"rm {disk}/big")
            assert (await guest.run("echo free")).stdout == "free\n"
            assert (await guest.run("echo free; printf '%9000s' x")).stderr == ""
        finally:
            await guest.close()
            await runtime.close()

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(run(disk))


def test_case_11_an_output_that_does_not_fit_on_the_disk(tmp_path: Path, shell: str) -> None:
    async def run(disk: Path) -> None:
        runtime = LocalRuntime(tmp_path / "runtime", shell, mounts=("/dev/shm",), shared=True)
        box = await runtime.box()
        guest = await Guest.open(box, settings_for(runtime, disk))
        try:
            result = await guest.run("head -c 900000 /dev/zero | tr '\\0' x; echo err >&2; exit 3")
            assert result.exit_code == 3
            assert result.stdout.startswith("x" * 1000)
            assert result.stderr == "err\n" + FULL
            assert (await guest.run("echo after; printf '%9000s' x")).stdout == "after\n" + "x".rjust(9000)
        finally:
            await guest.close()
            await runtime.close()

    with small_disk(tmp_path / "disk") as disk:
        asyncio.run(run(disk))


def test_a_user_that_is_not_root(shell: str) -> None:
    """The directories are made as root and belong to the user, who runs the commands."""

    async def run(root: Path) -> None:
        runtime = LocalRuntime(root / "runtime", shell, user="1234:2345", shared=True)
        box = await runtime.box()
        guest = await Guest.open(box, settings_for(runtime, root))
        try:
            assert (root / "mnt/workspace").stat().st_uid == 1234
            result = await guest.run(f"id -u; id -g; echo x >{root}/mnt/workspace/x; echo again >/dev/stdout")
            assert (result.stdout, result.stderr) == ("1234\n2345\nagain\n", "")
            assert (await guest.run("printf '%9000s' x")).stdout == "x".rjust(9000)
            assert (await guest.run("sleep 66 & echo hi")).stdout == "hi\n"
            assert (await guest.run("echo hi; kill -9 $$")).stdout == "hi\n"
            assert (await guest.run("echo hi; setsid sleep 4000 & sleep 4000", timeout=0.3)).timed_out
            assert [line for line in box.processes() if "sleep 4000" in line] == []
        finally:
            await guest.close()
            await runtime.close()

    with tempfile.TemporaryDirectory(prefix="box-") as folder:
        Path(folder).chmod(0o755)
        asyncio.run(run(Path(folder)))
