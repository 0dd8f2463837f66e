"""From a box to the host: what the agent left in outputs and workspace, at the end of a turn.

A file is fetched when the box's listing of it is not what was noted at the last pass. It is written when its content is
not what the host has. Rules where both sides changed: the box's version gets the name, since the agent goes on working
with it, and the host's is kept beside it (`NAME.host-1`). A file of which the box's side did not change is left as the
host has it, changed or deleted; `push` carries that into the box.
"""

from __future__ import annotations

import asyncio
import errno
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from . import archive, names
from .courier import BadTransfer, Courier
from .listing import BadListing, Listing, parse
from .manifest import Entry, GuestStat, Manifest, digest_of
from .report import Reason, Report
from .tree import Blocked, HostStat, HostTree

LIST_BYTES_PER_FILE = 1024
"""What a file's line in a listing may take on average."""

PACK_BYTES = 32 * 1024 * 1024
PACK_FILES = 1000
"""What is fetched at once: enough for one round trip to be worth it, and no more than a small guest can send."""

_OVERHEAD = 4 * archive.BLOCK
_SPOOL = 1024 * 1024


@dataclass(frozen=True)
class Caps:
    """What one pass may do. Bytes and seconds."""

    file_bytes: int
    total_bytes: int
    files: int
    seconds: float


@dataclass
class Plan:
    """What a pass fetches, in the order in which it does."""

    fetch: list[bytes] = field(default_factory=list)
    also: dict[bytes, list[bytes]] = field(default_factory=dict)
    """Further names for the content of one that is fetched."""


class Pull:
    """One pass from the box to the host."""

    def __init__(self, tree: HostTree, manifest: Manifest, caps: Caps, report: Report) -> None:
        self._tree = tree
        self._manifest = manifest
        self._caps = caps
        self._report = report
        self._stop = threading.Event()
        self._listing = Listing(0)

    async def run(self, courier: Courier) -> None:
        """Do it. What is fetched stays fetched when this is cancelled or runs out of time."""
        try:
            async with asyncio.timeout(self._caps.seconds):
                await self._run(courier)
        except TimeoutError:
            self._report.cut(f"it took more than {self._caps.seconds:g} s (sync_timeout)")
        except BadListing as error:
            self._report.cut(f"the box's list of its files makes no sense: {error}")
        except (HostFull, BadTransfer) as error:
            self._report.cut(str(error))
        except archive.BadArchive as error:
            self._report.cut(f"the box sent a damaged archive: {error}")
        finally:
            self._stop.set()

    async def _run(self, courier: Courier) -> None:
        content = await courier.list(names.BOTH_WAYS, self._caps.files * LIST_BYTES_PER_FILE)
        self._listing = parse(content, self._caps.files, self._report)
        plan = await asyncio.to_thread(self._plan)
        await asyncio.to_thread(self._remove, self._in_the_way)
        for paths in _loads(plan.fetch, self._listing.files):
            sizes = sum(self._listing.files[path].size + len(path) + _OVERHEAD for path in paths)
            packed = await courier.pack(paths, sizes + PACK_FILES * _OVERHEAD)
            await asyncio.to_thread(self._unpack, packed, set(paths), plan.also, courier.folder)
        # Not after a pass that did not see all.
        if self._report.truncated is None:
            await asyncio.to_thread(self._remove, self._listing.is_gone)
        await courier.done()

    def _plan(self) -> Plan:
        """Decide what to fetch; note what is only to be noted."""
        plan = Plan()
        firsts: dict[bytes, bytes] = {}
        total = 0
        order = {root: number for number, root in enumerate(names.BOTH_WAYS)}
        for path in sorted(self._listing.files, key=lambda path: (order.get(names.root_of(path) or b"", 9), path)):
            size = self._listing.files[path].size
            if names.root_of(path) not in names.BOTH_WAYS or not self._is_wanted(path):
                continue
            if size > self._caps.file_bytes:
                self._report.skip(names.text(path), Reason.TOO_LARGE)
                continue
            total += size
            if total > self._caps.total_bytes:
                self._report.skip(names.text(path), Reason.OVER_TOTAL)
                self._report.cut(f"more than {self._caps.total_bytes} bytes to copy (sync_max_total_mb)")
                continue
            inode = self._listing.links.get(path)
            first = path if inode is None else firsts.setdefault(inode, path)
            if first != path:
                plan.also[first].append(path)
            else:
                plan.fetch.append(path)
                plan.also[path] = []
        return plan

    def _is_wanted(self, path: bytes) -> bool:
        with self._manifest.lock:
            entry = self._manifest.files.get(path)
        return entry is None or not entry.certain or not entry.guest.still(self._listing.files[path])

    def _unpack(self, packed: Path, wanted: set[bytes], also: dict[bytes, list[bytes]], folder: Path) -> None:
        with packed.open("rb") as source:
            reader = archive.Reader(source)
            for member in reader:
                if self._stop.is_set():
                    return
                if member.path not in wanted or not member.regular or member.size > self._caps.file_bytes:
                    continue
                with tempfile.SpooledTemporaryFile(_SPOOL, dir=str(folder)) as content:
                    if _copy(reader, content) != member.size:
                        break
                    wanted.discard(member.path)
                    for path in (member.path, *also[member.path]):
                        self._install(content, path)
        packed.unlink(missing_ok=True)
        for path in sorted(wanted):
            self._report.skip(names.text(path), Reason.CHANGED)

    def _install(self, content: IO[bytes], path: bytes) -> None:
        """Bring the host's file to this content, if the box changed it, and note both sides."""
        guest = self._listing.files[path]
        digest = digest_of(content)
        try:
            with self._manifest.lock:
                known = self._manifest.files.get(path)
                if known is not None and known.digest == digest:
                    host = known.host
                    self._report.same += 1
                else:
                    host = self._written(content, path, guest, None if known is None else known.host)
                certain = guest.size == content.seek(0, 2) and max(guest.ctime, guest.mtime) < self._listing.clock - 1
                self._manifest.files[path] = Entry(host, guest, digest, certain)
        except Blocked:
            self._report.skip(names.text(path), Reason.BLOCKED)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise HostFull(f"the host could not take it: {error.strerror}") from error
            self._report.skip(names.text(path), Reason.FAILED)

    def _written(self, content: IO[bytes], path: bytes, guest: GuestStat, noted: HostStat | None) -> HostStat:
        host = self._tree.stat(path)
        if host is not None and host.size == content.seek(0, 2) and self._tree.same(path, content):
            self._report.same += 1
            return host
        if host is not None and host != noted:
            self._tree.keep_beside(path)
            self._report.conflicts += 1
        self._report.copied += 1
        self._report.bytes += content.seek(0, 2)
        return self._tree.install(content, path, executable=guest.executable, mtime=float(guest.mtime), now=time.time())

    def _in_the_way(self, path: bytes) -> bool:
        """Whether a file has become a directory in the box, or one of its directories a file."""
        return path in self._listing.directories or self._listing.is_below_a_file(path)

    def _remove(self, is_gone: Callable[[bytes], bool]) -> None:
        """Remove from the host what the box has removed since both had it, unless the host has changed it."""
        with self._manifest.lock:
            for path, entry in list(self._manifest.files.items()):
                if names.root_of(path) not in names.BOTH_WAYS or names.stays_in_box(path) or not is_gone(path):
                    continue
                if self._stop.is_set():
                    return
                try:
                    if self._tree.stat(path) == entry.host:
                        self._tree.remove(path, depth=2)
                        self._report.removed += 1
                except OSError:
                    # Something else is there by now, which is not ours to remove.
                    self._report.skip(names.text(path), Reason.BLOCKED)
                del self._manifest.files[path]


class HostFull(OSError):
    """The host has no room for what the box has."""


def _loads(paths: list[bytes], files: dict[bytes, GuestStat]) -> Iterator[list[bytes]]:
    """Cut what is to be fetched into loads."""
    load: list[bytes] = []
    size = 0
    for path in paths:
        if load and (size + files[path].size > PACK_BYTES or len(load) >= PACK_FILES):
            yield load
            load, size = [], 0
        load.append(path)
        size += files[path].size
    if load:
        yield load


def _copy(reader: archive.Reader, target: IO[bytes]) -> int:
    total = 0
    while piece := reader.read(_SPOOL):
        target.write(piece)
        total += len(piece)
    return total
