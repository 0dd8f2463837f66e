"""Tar archives between a box and the host: written for the box's `tar`, and read as if an enemy had written them.

`tarfile` is not used for reading: it does more than is wanted here (sparse members, links, PAX sizes), and each such
thing is a way to make it read or write what we did not mean. Format: POSIX ustar, and GNU's long names.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

BLOCK = 512

_LONG_NAME_LIMIT = 8192
_PAX_LIMIT = 65536


class BadArchive(ValueError):
    """What came is no archive, or one with a member that has no business in it."""


@dataclass(frozen=True)
class Member:
    """A member of an archive."""

    path: bytes
    size: int
    regular: bool
    """Whether it is a regular file. Anything else has no content that is to be used."""


class Writer:
    """Writes regular files to an archive that GNU tar, busybox and bsdtar unpack."""

    def __init__(self, target: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8")  # noqa: SIM115

    def add(self, path: bytes, content: IO[bytes], size: int, mtime: int, executable: bool) -> None:
        """Add `size` bytes of a file. Raises `OSError` when it has fewer; the archive is then of no more use."""
        member = tarfile.TarInfo(path.decode("utf-8", "surrogateescape"))
        member.size = size
        member.mtime = mtime
        member.mode = 0o755 if executable else 0o644
        self._tar.addfile(member, content)

    def close(self) -> None:
        """Write the end mark."""
        self._tar.close()


class Reader:
    """Iterates over the members of archives that stand one after the other. The content of one is read before the next.

    Ends where the data ends, also in the middle of a member: what was announced and did not come is the caller's to
    miss.
    """

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._left = 0
        self._padding = 0

    def __iter__(self) -> Iterator[Member]:
        """Raises `BadArchive`."""
        long_name: bytes | None = None
        while (header := self._header()) is not None:
            kind = header[156:157]
            size = _number(header[124:136])
            self._left, self._padding = size, -size % BLOCK
            if kind == b"L":
                long_name = self._whole(size, _LONG_NAME_LIMIT).rstrip(b"\0")
            elif kind == b"x":
                long_name = _pax_path(self._whole(size, _PAX_LIMIT)) or long_name
            elif kind in b"gK":
                self._whole(size, _PAX_LIMIT)
            else:
                yield Member(long_name or _name(header), size, kind in (b"0", b"\0"))
                long_name = None
            self._skip()

    def read(self, limit: int) -> bytes:
        """The next part of the content of the member at hand; empty at its end, or at that of the data."""
        piece = self._source.read(min(limit, self._left))
        self._left -= len(piece)
        return piece

    def _header(self) -> bytes | None:
        while True:
            header = self._source.read(BLOCK)
            if len(header) < BLOCK:
                return None
            if any(header):
                break
        # Of the checksum (POSIX ustar: the sum of all bytes, with spaces in its own place).
        if _number(header[148:156]) != sum(header[:148]) + 8 * 32 + sum(header[156:]):
            raise BadArchive("a member's header is damaged")
        return header

    def _whole(self, size: int, limit: int) -> bytes:
        if size > limit:
            raise BadArchive("a member's name is too long")
        return self.read(size)

    def _skip(self) -> None:
        rest = self._left + self._padding
        while rest > 0 and (piece := self._source.read(min(rest, io.DEFAULT_BUFFER_SIZE * 16))):
            rest -= len(piece)
        self._left = self._padding = 0


def _name(header: bytes) -> bytes:
    name = header[:100].split(b"\0", 1)[0]
    if header[257:263] == b"ustar\0" and (prefix := header[345:500].split(b"\0", 1)[0]):
        return prefix + b"/" + name
    return name


def _number(field: bytes) -> int:
    """A number in octal, or with its top bit set in base 256 (GNU). A negative one is refused."""
    if field[0] & 0x80:
        if field[0] != 0x80:
            raise BadArchive("a negative number")
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0", 1)[0].strip() or b"0"
    if not all(0x30 <= digit <= 0x37 for digit in digits):
        raise BadArchive("a number that is not octal")
    return int(digits, 8)


def _pax_path(records: bytes) -> bytes | None:
    """The `path` among PAX records (POSIX pax: `LENGTH KEY=VALUE\\n`)."""
    found = None
    while records:
        length, space, _ = records.partition(b" ")
        if not space or not length.isdigit() or len(length) > 6 or not len(length) + 1 < int(length) <= len(records):
            raise BadArchive("a PAX record that is none")
        key, _, value = records[len(length) + 1 : int(length)].partition(b"=")
        if key == b"path":
            found = value.removesuffix(b"\n")
        elif key == b"size" or key.startswith(b"GNU.sparse"):
            raise BadArchive("a member whose size is told twice")
        records = records[int(length) :]
    return found
