"""The listing that `list.sh` makes of a box's files, read with suspicion: a box can send anything."""

from __future__ import annotations

import stat
from dataclasses import dataclass, field

from . import names
from .manifest import GuestStat
from .report import Reason, Report


class BadListing(ValueError):
    """What came is no listing."""


@dataclass
class Listing:
    """The files of a box, as it told them."""

    clock: int
    """The box's clock when the listing began, in whole seconds."""
    files: dict[bytes, GuestStat] = field(default_factory=dict)
    links: dict[bytes, bytes] = field(default_factory=dict)
    """Files that have several names (hard links), and what those have in common."""
    directories: set[bytes] = field(default_factory=set)
    others: set[bytes] = field(default_factory=set)
    """Symlinks and special files."""
    whole: set[bytes] = field(default_factory=set)
    """The roots below which nothing was missed. Only there does a missing name mean that the file is gone."""

    def is_gone(self, path: bytes) -> bool:
        """Whether the box certainly has no file of this name any more. A symlink in its place is not taken for that."""
        if path in self.files or path in self.others:
            return False
        return path in self.directories or names.root_of(path) in self.whole or self.is_below_a_file(path)

    def is_below_a_file(self, path: bytes) -> bool:
        """Whether what would be one of its directories is a file."""
        parts = path.split(b"/")
        return any(b"/".join(parts[:count]) in self.files for count in range(2, len(parts)))


def parse(content: bytes, limit: int, report: Report) -> Listing:
    """Read a listing of at most `limit` files; the report is told what is left out. Raises `BadListing`.

    It is: the clock and a newline; batches of a number N, N lines `MODE SIZE MTIME CTIME DEVICE:INODE LINKS` and N
    names ended by NUL; for each root a line `= STATUS NAME`; a last line `.`. Without that the listing was cut off.
    """
    reader = _Reader(content)
    listing = Listing(clock=0)
    ended: list[tuple[bytes, bool]] = []
    try:
        listing.clock = _integer(reader.line())
        _read(reader, listing, limit, ended, report)
    except EOFError:
        report.cut("the box's list of its files ended early")
    for root, well in ended:
        # A root that is no directory (any more) says nothing about what was below it.
        if well and root in listing.directories and not report.truncated:
            listing.whole.add(root)
        elif not well:
            report.cut(f"the box could not list all of {root.decode('ascii', 'replace')}")
    return listing


def _read(reader: _Reader, listing: Listing, limit: int, ended: list[tuple[bytes, bool]], report: Report) -> None:
    while (line := reader.line()) != b".":
        if line.startswith(b"= "):
            _, status, root = (line + b"  ").split(b" ", 2)
            ended.append((root.rstrip(b" "), status == b"0"))
            continue
        rows = [reader.line() for _ in range(_integer(line))]
        for row in rows:
            _add(listing, row, reader.name(), report)
            if len(listing.files) > limit:
                report.cut(f"more than {limit} files (sync_max_files)")
                return


def _add(listing: Listing, row: bytes, path: bytes, report: Report) -> None:
    fields = row.split()
    if len(fields) != 6:
        raise BadListing(f"{row[:80]!r} is no line of a listing")
    try:
        mode = int(fields[0], 16)
    except ValueError as error:
        raise BadListing(str(error)) from None
    size, mtime, ctime, links = (_integer(fields[column]) for column in (1, 2, 3, 5))
    if stat.S_ISDIR(mode):
        listing.directories.add(path)
        return
    if not names.is_safe(path):
        report.skip(names.text(path), Reason.BAD_NAME)
        return
    if names.stays_in_box(path):
        return
    if not stat.S_ISREG(mode):
        listing.others.add(path)
        report.skip(names.text(path), Reason.NOT_A_FILE)
        return
    inode = _integer(fields[4].rpartition(b":")[2])
    if links > 1:
        listing.links[path] = fields[4]
    listing.files[path] = GuestStat(size, mtime, ctime, inode, bool(mode & 0o111))


def _integer(text: bytes) -> int:
    # No more digits than 64 bits have: Python's own limit would raise something else.
    if len(text) > 20:
        raise BadListing("a number that is too long")
    try:
        return int(text)
    except ValueError:
        raise BadListing(f"{text[:40]!r} is no number") from None


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def line(self) -> bytes:
        return self._until(b"\n")

    def name(self) -> bytes:
        return self._until(b"\0")

    def _until(self, end: bytes) -> bytes:
        stop = self._content.find(end, self._at)
        if stop < 0:
            raise EOFError
        found = self._content[self._at : stop]
        self._at = stop + 1
        return found
