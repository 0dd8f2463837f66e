"""Files of a box: reading, writing, and moving them to and from the host.

Small ones go over the channel, in one round trip; larger ones by `copy_in` and `copy_out`, which reach the root disk
only: what lies under a mount goes through a staging file there. Every path is absolute, and `..` in it is refused.
Names may be any bytes: in a str, those that are not UTF-8 are lone surrogates (PEP 383).
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from pathlib import Path
from secrets import token_hex

from ..runtime import CopyUnsupported, NoSuchPath
from .files_copy import (
    CALL_TIMEOUT,
    INLINE,
    PART,
    Guest,
    Scratch,
    call,
    fetch_in_parts,
    fetch_to,
    private_folder,
    publish,
    read_regular,
    staged,
)
from .files_errors import check_message, checked, checked_for_download, too_large
from .search_names import EVERY_NAME, ignored, pruning
from .search_walk import walk
from .wire import Reply, exact

__all__ = ["DOWNLOAD_LIMIT", "GROWTH", "READ_LIMIT", "Files"]

DOWNLOAD_LIMIT = 100 * 1024 * 1024
"""Bytes, of DeerFlow's contract for `download_file`."""

READ_LIMIT = 512 * 1024 * 1024
"""Bytes of text that are read at once. A sparse file in a box can be larger than this host's memory."""

GROWTH = 64 * 1024 * 1024
"""Bytes by which a file may grow while it is copied without a limit."""

_TEXT_LIMIT = 16 * 1024
"""Up to so many bytes are sent over the channel."""


class Files:
    """The files of one running box, as the box's user sees them. For use in one event loop.

    Beside what each method names, all raise the matching `OSError` (with `errno`, `strerror` and `filename`),
    `ValueError` for a path that is not absolute or holds a NUL, `PermissionError` for one with `..`, and whatever
    `Guest.call` raises when the box is gone.
    """

    def __init__(self, guest: Guest, scratch: Scratch | None = None) -> None:
        self._guest = guest
        self._scratch = scratch or Scratch(guest)
        # Whoever writes holds the path's lock, which lives as long as anybody does.
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    # -- reading ----------------------------------------------------------------------------------------------------

    async def read(self, path: str, start_line: int | None = None, end_line: int | None = None) -> str:
        """The text of a file, verbatim, or of its lines `start_line` to `end_line` (from 1, both included).

        A line ends with a newline, as for `grep` and `sed`. A range comes verbatim too, but without the end of its last
        line (`\\n` or `\\r\\n`). One end may be left open; an empty range, or one beyond the end, is the empty text;
        `start_line` below 1 means 1.

        Raises `UnicodeDecodeError` for what is not UTF-8, and `OSError` (`EFBIG`) above `READ_LIMIT`.
        """
        path = checked(path)
        if start_line is None and end_line is None:
            return (await self._read(path)).decode()
        return _without_end((await self._range(path, start_line, end_line)).decode())

    async def _read(self, path: str) -> bytes:
        reply = await self._call(path, "dfb_read", path, str(INLINE + 1))
        check_message(reply.parts[1], path)
        # Whatever may have been lost on the way is fetched as it is.
        if exact(reply.parts[0]) and len(raw := reply.parts[0].encode()) <= INLINE:
            return raw
        return await self._fetch(path, READ_LIMIT, "; read a range of its lines")

    async def _range(self, path: str, start_line: int | None, end_line: int | None) -> bytes:
        first = max(1, start_line or 1)
        count = "-" if end_line is None else str(max(0, end_line - first + 1))
        if count == "0":
            first = 1
        async with self._scratch.file() as scratch:
            reply = await self._call(path, "dfb_range", path, str(first), count, scratch.path, str(INLINE + 1))
            check_message(reply.parts[1], path)
            whole = len(reply.parts[0].encode()) <= INLINE
            return await scratch.bytes(reply.parts[0], whole=whole, limit=READ_LIMIT, name=path)

    async def download(self, path: str, limit: int = DOWNLOAD_LIMIT) -> bytes:
        """The bytes of a file under `/mnt/user-data`.

        Raises `PermissionError` for a path elsewhere, and `OSError` (`EFBIG`) at once above `limit` bytes. A link is
        followed within the box.
        """
        return await self._fetch(checked_for_download(path), limit)

    async def download_to(self, path: str, local: Path, limit: int | None = None) -> None:
        """Copy a file of any size, or of at most `limit` bytes, to the host file `local`, which is replaced at once.

        Raises `OSError` (`EFBIG`) above the limit, or when the file grows by more than `GROWTH` meanwhile.
        """
        async with private_folder(local.parent) as folder:
            target = folder / "file"
            await self._copy_out(checked(path), target, limit)
            await asyncio.to_thread(publish, target, local)

    async def _fetch(self, path: str, limit: int, advice: str = "") -> bytes:
        async with private_folder() as folder:
            target = folder / "file"
            await self._copy_out(path, target, limit, advice)
            return await asyncio.to_thread(read_regular, target, limit, path)

    async def _copy_out(self, path: str, target: Path, limit: int | None, advice: str = "") -> None:
        """Copy a file to `target`. Its size is looked at in the box first: too large a one is not moved at all."""
        size, direct = await self._stat(path)
        if limit is None:
            limit = size + GROWTH
        if size > limit:
            raise too_large(limit, path, advice)
        if size > PART:
            return await fetch_in_parts(self._guest, path, size, target)
        if direct:
            with contextlib.suppress(CopyUnsupported, NoSuchPath):
                return await fetch_to(self._guest, path, target, limit, path)
        staging = self._guest.staging()
        try:
            await self._call(path, "dfb_copy", path, staging, str(limit + 1))
            await fetch_to(self._guest, staging, target, limit, path)
        finally:
            await self._guest.call(("dfb_remove", staging), CALL_TIMEOUT)

    async def _stat(self, path: str) -> tuple[int, bool]:
        """The size of a regular file, and whether `copy_out` may find it by this path.

        Not if there is a link in it, or what is not UTF-8, which BoxLite takes no path with. And what has a size of 0
        may yet have something in it, under /proc, where only the box can copy it.
        """
        reply = await self._call(path, "dfb_stat", path)
        size = int(reply.words[1])
        return size, reply.words[2] == "direct" and size > 0 and _is_text(path)

    # -- writing ----------------------------------------------------------------------------------------------------

    async def write(self, path: str, content: str | bytes, append: bool = False) -> None:
        """Write a file, or add to its end, making missing parents. When this returns it is on the disk.

        A write replaces the file in one step and keeps its mode and owner, and a link that leads to it; a new file is
        0644. Where it cannot be replaced (its directory is not writable, it is a mount point) it is rewritten, which a
        death of the VM can interrupt. A failed write or append leaves the file as it was. Two at once on one path come
        one after the other, and appends by others (`O_APPEND`) are never lost.

        Raises `OSError` with `EINVAL` for what is no regular file: a device, a fifo, a socket.
        """
        raw = content.encode() if isinstance(content, str) else bytes(content)
        path = checked(path)
        text = _as_format(raw) if len(raw) <= _TEXT_LIMIT else None
        if text is not None and len(text) <= _TEXT_LIMIT:
            await self._put(path, "text", text, 0, append)
        else:
            await self._put_file(path, raw, append)

    async def upload_from(self, local: Path, path: str) -> None:
        """Write a host file of any size to a file of the box, as `write` does. Raises `OSError` for either."""
        await self._put_file(checked(path), local, append=False)

    async def _put_file(self, path: str, content: bytes | Path, append: bool) -> None:
        async with staged(self._guest, content, path) as (staging, size):
            await self._put(path, "file", staging, size, append)

    async def _put(self, path: str, kind: str, data: bytes | str, size: int, append: bool) -> None:
        async with self._lock(path):
            if append:
                await self._call(path, "dfb_append", path, kind, data, str(size))
            else:
                beside = f".dfb-{token_hex(6)}.tmp"
                await self._call(path, "dfb_write", path, beside, self._guest.staging(), kind, data, str(size))

    def _lock(self, path: str) -> asyncio.Lock:
        lock = self._locks.get(path)
        if lock is None:
            lock = self._locks[path] = asyncio.Lock()
        return lock

    # -- directories ------------------------------------------------------------------------------------------------

    async def list_dir(self, path: str, max_depth: int = 2) -> list[str]:
        """Absolute paths below a directory, `max_depth` levels deep, sorted; those of directories end in `/`.

        Names that DeerFlow ignores are left out. A link is listed by its own name, with a `/` if it leads to a
        directory, and not walked. A directory further down that cannot be read is listed without what is in it.
        """
        path = checked(path)
        tests = ("-maxdepth", str(max(0, max_depth)), *pruning())
        found = await walk(self._guest, self._scratch, path, tests, EVERY_NAME, EVERY_NAME)
        return sorted(
            f"{path.rstrip('/')}/{entry.path}{'/' if entry.is_directory else ''}"
            for entry in found
            if not ignored(entry.name)
        )

    async def _call(self, path: str, *words: bytes | str) -> Reply:
        return await call(self._guest, path, *words)


def _as_format(raw: bytes) -> bytes:
    """Bytes as a format for the shell's printf, since no word can hold a NUL."""
    text = raw.replace(b"\\", b"\\\\").replace(b"%", b"%%").replace(b"\0", b"\\000")
    # A leading dash would begin an option.
    return b"\\055" + text[1:] if text[:1] == b"-" else text


def _is_text(path: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in path)


def _without_end(lines: str) -> str:
    return lines.removesuffix("\n").removesuffix("\r") if lines.endswith("\n") else lines
