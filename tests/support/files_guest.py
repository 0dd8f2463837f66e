"""A guest for the tests of files and search: one channel to a local box, and nothing else of `Guest`."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import shutil
import tempfile
import unittest.mock
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from deerflow_boxlite.guest.channel import Channel, Shell
from deerflow_boxlite.guest.files import Files
from deerflow_boxlite.guest.scripts import scripts
from deerflow_boxlite.guest.search import Search
from deerflow_boxlite.guest.wire import Reply

from . import local_runtime
from .local_runtime import LocalBox, LocalRuntime
from .local_runtime import make_userland as local_make_userland

T = TypeVar("T")

LIBRARY = ("files.sh", "files_write.sh", "search.sh")


class FilesGuest:
    """What `Files` and `Search` need, with the calls counted by function."""

    def __init__(self, box: LocalBox, state: Path) -> None:
        self.box = box
        self.state = state
        self.called: list[str] = []
        self.copied: list[str] = []
        self._channels: list[Channel] = []
        self._number = 0
        self.files = Files(self)
        self.search = Search(self)

    async def call(self, words: Sequence[bytes | str], timeout: float | None = None) -> Reply:
        self.called.append(str(words[0]))
        channel = self._channels.pop() if self._channels else await self._open()
        reply = await channel.request(words, timeout=timeout)
        self._channels.append(channel)
        return reply

    async def _open(self) -> Channel:
        shell = Shell(argv=("/bin/sh",), library=scripts(*LIBRARY), env={"LC_ALL": "C"})
        return await Channel.open(self.box, shell, timeout=30)

    async def copy_in(self, local: Path, path: str) -> None:
        self.copied.append("in")
        await self.box.copy_in(local, path)
        # BoxLite keeps the mode.
        await asyncio.to_thread(shutil.copymode, local, path)

    async def copy_out(self, path: str, local: Path) -> None:
        self.copied.append("out")
        # BoxLite takes none that is not UTF-8.
        path.encode()
        await self.box.copy_out(path, local)

    def staging(self) -> str:
        self._number += 1
        return f"{self.state}/{self._number}"

    async def close(self) -> None:
        for channel in self._channels:
            await channel.close()


@functools.cache
def _userland(shell: str) -> Path:
    """A userland that boxes share: it is a thousand links."""
    folder = Path(tempfile.mkdtemp(prefix="userland-"))
    atexit.register(shutil.rmtree, folder)
    folder.chmod(0o755)
    make_userland(folder / shell, shell)
    return folder / shell


def make_userland(folder: Path, shell: str, without: Sequence[str] = ()) -> None:
    """`local_runtime.make_userland`, where `sync` does nothing: most tests would wait for this machine's disk."""
    local_make_userland(folder, shell, without=without)
    (folder / "sync").unlink()
    (folder / "sync").write_text("#!/bin/sh\n")
    (folder / "sync").chmod(0o755)


def _linked(folder: Path, shell: str, without: Sequence[str] = ()) -> None:
    folder.parent.mkdir(parents=True)
    folder.symlink_to(_userland(shell))


@contextlib.asynccontextmanager
async def files_guest(
    root: Path, shell: str, *, own_userland: bool = False, **settings: Any
) -> AsyncIterator[FilesGuest]:
    """A guest in a new box. `settings` are `LocalRuntime`'s. A test that changes programs needs its own userland."""
    with unittest.mock.patch.object(local_runtime, "make_userland", make_userland if own_userland else _linked):
        runtime = LocalRuntime(root / "runtime", shell, **settings)
    state = root / "state"
    state.mkdir(parents=True)
    if runtime.user is not None:
        os.chown(state, *map(int, runtime.user.split(":")))
    guest = FilesGuest(await runtime.box(), state)
    try:
        yield guest
    finally:
        await guest.close()
        await runtime.close()


@contextlib.contextmanager
def place_for(shell: str) -> Iterator[Place]:
    """A place that other users can reach, as pytest's own directories cannot be."""
    with tempfile.TemporaryDirectory(prefix="box-") as folder:
        Path(folder).chmod(0o755)
        yield Place(Path(folder), shell)


@dataclass
class Place:
    """Where a test's box and files are. `files` may be written by the box's user."""

    root: Path
    shell: str

    @property
    def files(self) -> Path:
        folder = self.root / "files"
        folder.mkdir(exist_ok=True)
        return folder

    def run(self, test: Callable[[FilesGuest], Awaitable[T]], **settings: Any) -> T:
        """Run a test in a new box of this place. `settings` are `LocalRuntime`'s."""

        async def run() -> T:
            async with files_guest(self.root / uuid.uuid4().hex, self.shell, **settings) as guest:
                return await test(guest)

        return asyncio.run(run())
