"""Moving bytes between a box and the host, and what this part of the package needs of a guest.

Nothing from a box is trusted: what it sends lands in a private directory, is looked at without following links, and is
given up on as soon as it grows beyond what was agreed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from ..runtime import RuntimeFailure
from .files_errors import os_error, too_large
from .wire import Reply, exact

__all__ = [
    "CALL_TIMEOUT",
    "INLINE",
    "INLINE_OF_MANY",
    "PART",
    "Guest",
    "Scratch",
    "ScratchFile",
    "call",
    "fetch_in_parts",
    "fetch_to",
    "private_folder",
    "publish",
    "read_regular",
    "staged",
]

INLINE = 16 * 1024
"""Up to so many bytes are answered over the channel; more come by `copy_out`. A KiB costs some milliseconds there."""

INLINE_OF_MANY = 8 * 1024
"""The same for what a walk finds, which is copied from where the box has it anyhow."""

MIB = 1024 * 1024
_SCRATCH_KEPT = MIB
"""Bytes that a scratch file may keep until its next use: emptying it is a round trip."""

PART = 16 * MIB
"""Bytes that are copied at once. BoxLite's transfers of 50 MB and more break off in small or busy boxes."""

CALL_TIMEOUT = 600.0
"""Seconds after which a call that only looks at files, or moves them within the box, counts as hung."""

_LOOK_EVERY = 0.05
_REMOVALS = 5


class Guest(Protocol):
    """What files and search need of a box's guest."""

    async def call(self, words: Sequence[bytes | str], timeout: float | None = None) -> Reply:
        """Run a function of files.sh, files_write.sh or search.sh in the box: one round trip."""

    async def copy_in(self, local: Path, path: str) -> None:
        """Copy a host file to the box's root disk."""

    async def copy_out(self, path: str, local: Path) -> None:
        """Copy a file from the box's root disk. Raises `NoSuchPath` (also for links), `CopyUnsupported`."""

    def staging(self) -> str:
        """A path on the root disk, writable by the box's user, that nobody else uses."""


class Scratch:
    """Files in the box for answers whose size is not known beforehand. They are used again: removing one costs time."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest
        self._free: list[str] = []

    @contextlib.asynccontextmanager
    async def file(self) -> AsyncIterator[ScratchFile]:
        """One that nobody else uses. After a failure it is not used again: who knows what still writes to it."""
        path = self._free.pop() if self._free else self._guest.staging()
        yield ScratchFile(self._guest, path)
        self._free.append(path)


class ScratchFile:
    """A file that a call fills, and of which it answers the beginning."""

    def __init__(self, guest: Guest, path: str) -> None:
        self._guest = guest
        self.path = path

    async def bytes(self, answered: str, *, whole: bool, limit: int, name: str) -> bytes:
        """What is in it: what was answered, if that is the whole and exact, else by `copy_out`.

        Raises `OSError` (`EFBIG`, naming `name`) if it holds more than `limit` bytes.
        """
        if whole and exact(answered):
            return answered.encode()
        async with private_folder() as folder:
            target = folder / "file"
            await fetch_to(self._guest, self.path, target, limit, name)
            raw = await asyncio.to_thread(read_regular, target, limit, name)
        if len(raw) > _SCRATCH_KEPT:
            await self._guest.call(("dfb_clear", self.path), CALL_TIMEOUT)
        return raw


@contextlib.asynccontextmanager
async def private_folder(parent: Path | None = None) -> AsyncIterator[Path]:
    """A new directory that is nobody else's (0700), in `parent` or where temporary files are. Gone afterwards."""
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=".deerflow-boxlite-", dir=parent))
    try:
        yield folder
    finally:
        for attempt in range(_REMOVALS):
            try:
                await asyncio.to_thread(shutil.rmtree, folder)
            except OSError:
                # A copy that was given up may have made a file in between.
                if attempt == _REMOVALS - 1:
                    raise
                await asyncio.sleep(_LOOK_EVERY)
            else:
                break


async def fetch_to(guest: Guest, path: str, target: Path, limit: int, name: str) -> None:
    """Copy a file on the box's root disk to `target`, in a directory that is nobody else's.

    Raises `NoSuchPath` and `CopyUnsupported` as `copy_out` does; `OSError` (`EFBIG`) once more than `limit` bytes have
    come: the box may have made the file larger since its size was asked for, and must not fill this host's disk.
    """
    before = _size(target.parent)
    copying = asyncio.ensure_future(guest.copy_out(path, target))
    try:
        while not (await asyncio.wait((copying,), timeout=_LOOK_EVERY))[0]:
            if _size(target.parent) - before > limit:
                raise too_large(limit, name)
        await copying
    finally:
        if not copying.done():
            copying.cancel()
            await asyncio.wait((copying,))
    _inspect(target, limit, name)


def _inspect(path: Path, limit: int, name: str) -> None:
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "what came from the box is not a regular file", name)
    if found.st_size > limit:
        raise too_large(limit, name)
    # Its mode is what it was in the box: perhaps not readable by us.
    path.chmod(0o600)


def _size(folder: Path) -> int:
    """Bytes in a directory, as far as it stays the same while we look."""
    total = 0
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_size
    return total


def read_regular(path: Path, limit: int, name: str) -> bytes:
    """What a box sent, without following a link. Blocks. Raises `OSError` (`EFBIG`) above `limit` bytes."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123 - a descriptor
        raw = file.read(limit + 1)
    if len(raw) > limit:
        raise too_large(limit, name)
    return raw


def publish(path: Path, target: Path) -> None:
    """Make a regular file that a box sent the host file `target`, with mode 0644 whatever it had there. Blocks."""
    path.chmod(0o644)
    path.replace(target)


async def call(guest: Guest, path: str, *words: bytes | str) -> Reply:
    """Run a function in the box that answers with an error in a tool's words, or with something else.

    Raises the `OSError` about `path` that these words mean.
    """
    reply = await guest.call(words, CALL_TIMEOUT)
    if reply.words[0] == "error":
        raise os_error(reply.parts[0], path)
    return reply


async def fetch_in_parts(guest: Guest, path: str, size: int, target: Path) -> None:
    """Copy a large regular file of any place in the box to `target`, in a directory that is nobody else's.

    `size` is what its size is taken for: hardly anything that is added meanwhile is copied.
    """
    staging = guest.staging()
    part = target.with_name("part")
    try:
        for start in range(0, size, PART):
            length = min(PART, size - start)
            await call(guest, path, "dfb_part", path, staging, str(start // MIB), str(length))
            await fetch_to(guest, staging, part, PART, path)
            await asyncio.to_thread(_append, part, target)
    finally:
        await guest.call(("dfb_remove", staging), CALL_TIMEOUT)


def _append(part: Path, target: Path) -> None:
    with part.open("rb") as source, target.open("ab") as file:
        shutil.copyfileobj(source, file)
    part.unlink()


@contextlib.asynccontextmanager
async def staged(guest: Guest, content: bytes | Path, name: str) -> AsyncIterator[tuple[str, int]]:
    """Put bytes or a host file on the box's root disk, readable by its user: the path there, and the size.

    The call that uses it has to remove it. Raises `OSError` about `name` when there is no room for it.
    """
    path = guest.staging()
    size = len(content) if isinstance(content, bytes) else await asyncio.to_thread(_size_of, content)
    async with private_folder() as folder:
        part = folder / "part"
        for start in range(0, max(size, 1), PART):
            await asyncio.to_thread(_cut, content, start, part)
            there = path if size <= PART else f"{path}.part"
            try:
                await guest.copy_in(part, there)
            except RuntimeFailure as exc:
                # BoxLite tells a full disk from other failures only in its text; the box tells it by what is left.
                room = await guest.call(("dfb_room", there, path), CALL_TIMEOUT)
                if int(room.words[1]) * 1024 < min(size, PART):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name) from exc
                raise OSError(errno.EIO, str(exc), name) from exc
            if there != path:
                await call(guest, name, "dfb_join", there, path)
    yield path, size


def _size_of(path: Path) -> int:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        code = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise OSError(code, os.strerror(code), str(path))
    return found.st_size


def _cut(content: bytes | Path, start: int, part: Path) -> None:
    """Make a host file of what is to be sent. BoxLite keeps its mode, not its owner: the box's user has to read it."""
    if isinstance(content, bytes):
        part.write_bytes(content[start : start + PART])
    else:
        with content.open("rb") as source, part.open("wb") as file:
            source.seek(start)
            file.write(source.read(PART))
    part.chmod(0o644)
