"""Bulk between the host and one box: a listing, archives each way. Everything is staged on the box's root disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import BoxDiedError, BoxError
from ..guest.channel import ChannelBroken
from ..guest.files_copy import Guest, fetch_to
from ..guest.wire import Reply
from ..runtime import NoSuchPath
from . import names

CALL_TIMEOUT = 60.0
"""Seconds that one step in the box may take."""


class BadTransfer(BoxError):
    """A box sent something else than it was asked for, or nothing. It still runs, as far as is known."""


class Courier:
    """Carries between a box and `folder`, a directory of the host for files on their way."""

    def __init__(self, guest: Guest, folder: Path, stage: str) -> None:
        """`stage`: how the names of its files on the box's root disk begin. Two at once need two."""
        self.folder = folder
        self._guest = guest
        self._stage = stage
        self._littered = False

    async def list(self, roots: Sequence[bytes], limit: int) -> bytes:
        """The box's listing of its files below the roots, at most `limit` bytes of it (see listing.py)."""
        await self._call("dfb_td_list", self._stage, names.GUEST_BASE, str(limit), *roots)
        return (await self._fetch("list", limit)).read_bytes()

    async def pack(self, paths: Sequence[bytes], limit: int) -> Path:
        """A host file with archives of the box's files, at most `limit` bytes of them."""
        await self._send("names", paths)
        self._littered = True
        await self._call("dfb_td_pack", self._stage, names.GUEST_BASE, str(limit))
        return await self._fetch("pack", limit)

    async def put(self, archive: Path | None, gone: Sequence[bytes]) -> tuple[int, str]:
        """Unpack an archive and remove files. The box's clock afterwards, and what went wrong or ""."""
        if archive is not None:
            await self._guest.copy_in(archive, f"{self._stage}.put")
        if gone:
            await self._send("gone", gone)
        reply = await self._call("dfb_td_put", self._stage, names.GUEST_BASE)
        status, clock = reply.words
        return int(clock), "" if status == "0" else reply.parts[0] or f"exit code {status}"

    async def replace_skills(self, archive: Path, target: str) -> None:
        """Put the content of an archive in the place of a directory. Raises `BoxError`."""
        await self._guest.copy_in(archive, f"{self._stage}.put")
        reply = await self._call("dfb_td_skills", self._stage, target)
        if reply.words != ("0",):
            raise BoxError(f"the skills could not be put into the box at {target}: {reply.parts[0].strip()}")

    async def done(self) -> None:
        """Remove what would take room in the box."""
        if self._littered:
            self._littered = False
            await self._call("dfb_td_done", self._stage)

    async def _call(self, function: str, *words: str | bytes) -> Reply:
        try:
            return await self._guest.call((function, *words), CALL_TIMEOUT)
        except ChannelBroken as error:
            raise BadTransfer(f"the box did not do its part of the copying: {error}") from error

    async def _send(self, name: str, paths: Sequence[bytes]) -> None:
        file = self.folder / name
        file.write_bytes(b"".join(path + b"\0" for path in paths))
        await self._guest.copy_in(file, f"{self._stage}.{name}")

    async def _fetch(self, name: str, limit: int) -> Path:
        """Copy a staged file out: a regular file, as it is looked at here, and no larger than was asked for."""
        target = self.folder / "fetched" / name
        target.parent.mkdir(exist_ok=True)
        for left in target.parent.iterdir():
            left.unlink()
        try:
            await fetch_to(self._guest, f"{self._stage}.{name}", target, limit, name)
        except (NoSuchPath, OSError) as error:
            if isinstance(error, BoxDiedError):
                raise
            raise BadTransfer(f"the box sent something else than a file of at most {limit} bytes: {error}") from error
        return target
