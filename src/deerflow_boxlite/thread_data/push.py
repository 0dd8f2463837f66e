"""From the host to a box: a thread's files, before the agent's turn.

A new disk gets everything. Later the box gets what has changed on the host since the last pass. In uploads (and in what
other agents left for it) the host always wins: changed files are replaced, removed ones removed. In outputs and
workspace a file goes in when the box's side did not change meanwhile; where it did, `pull` settles it at the end of the
turn. What was removed from outputs and workspace on the host stays in the box: the agent may still need it.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import archive, names
from .courier import Courier
from .listing import Listing, parse
from .manifest import Entry, GuestStat, Manifest, digest_of
from .pull import LIST_BYTES_PER_FILE
from .report import Reason, Report
from .tree import HostStat, HostTree

PACK_BYTES = 32 * 1024 * 1024

_SPOOL = 1024 * 1024
_LIST_FILES = 100_000
_ROOTS = (*names.FROM_HOST, *names.BOTH_WAYS)


@dataclass
class Changes:
    """What is to be done in the box."""

    put: dict[bytes, HostStat] = field(default_factory=dict)
    gone: list[bytes] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.put or self.gone)

    def of(self, wanted: Callable[[bytes | None], bool]) -> Changes:
        """Those below the roots that are wanted."""
        return Changes(
            {path: host for path, host in self.put.items() if wanted(names.root_of(path))},
            [path for path in self.gone if wanted(names.root_of(path))],
        )


class Push:
    """One pass from the host to the box."""

    def __init__(self, tree: HostTree, manifest: Manifest, report: Report) -> None:
        self._tree = tree
        self._manifest = manifest
        self._report = report
        self._stop = threading.Event()

    async def run(self, courier: Courier, *, fresh: bool) -> None:
        """Do it; no round trip when nothing changed. `fresh`: the box's disk is new, and has nothing of all this."""
        try:
            changes = await asyncio.to_thread(self._changes)
            if not changes:
                return
            if not fresh:
                changes = await self._reconciled(courier, changes)
            # Where the image's user is not root, that directory may not be the user's to make: the rest goes first.
            await self._carry(courier, changes.of(lambda root: root != names.ACP_WORKSPACE))
            await self._carry(courier, changes.of(lambda root: root == names.ACP_WORKSPACE))
        finally:
            self._stop.set()

    def _changes(self) -> Changes:
        changes = Changes()
        with self._manifest.lock:
            for root in _ROOTS:
                found = self._tree.scan(root, names.stays_in_box)
                for path, host in sorted((found or {}).items()):
                    entry = self._manifest.files.get(path)
                    if entry is None or entry.host != host:
                        changes.put[path] = host
                if found is not None and root in names.FROM_HOST:
                    # With the whole directory away nothing is concluded: the disk it is on may not be mounted.
                    changes.gone += [
                        path for path in self._manifest.files if names.root_of(path) == root and path not in found
                    ]
        return changes

    async def _reconciled(self, courier: Courier, changes: Changes) -> Changes:
        """The changes without those that the box's side stands against."""
        touched = [*changes.put, *changes.gone]
        ours = [path for path in touched if names.root_of(path) in names.BOTH_WAYS or path in changes.gone]
        if not ours:
            return changes
        roots = sorted({root for path in ours if (root := names.root_of(path)) is not None})
        aside = Report("to_host")
        listing = parse(await courier.list(roots, _LIST_FILES * LIST_BYTES_PER_FILE), _LIST_FILES, aside)
        if aside.truncated is not None:
            self._report.cut(f"{aside.truncated}; only what is in uploads was copied")
        return Changes(
            {path: host for path, host in changes.put.items() if self._may_put(path, listing)},
            [path for path in changes.gone if self._is_unchanged(path, listing)],
        )

    def _may_put(self, path: bytes, listing: Listing) -> bool:
        if names.root_of(path) in names.FROM_HOST:
            return True
        return self._is_unchanged(path, listing) or (
            names.root_of(path) in listing.whole and path not in listing.files and path not in listing.others
        )

    def _is_unchanged(self, path: bytes, listing: Listing) -> bool:
        with self._manifest.lock:
            entry = self._manifest.files.get(path)
        return entry is not None and path in listing.files and entry.guest.still(listing.files[path])

    async def _carry(self, courier: Courier, changes: Changes) -> None:
        if not changes:
            return
        paths = iter(changes.put)
        gone = changes.gone
        more = True
        while more or gone:
            packed = courier.folder / "put"
            noted, more = await asyncio.to_thread(self._pack, packed, paths)
            if noted or gone:
                clock, trouble = await courier.put(packed if noted else None, gone)
                if trouble:
                    self._report.cut(f"the box could not take all of it: {trouble.strip()[:500]}")
                else:
                    await asyncio.to_thread(self._note, noted, gone, clock)
            gone = []
        packed.unlink(missing_ok=True)

    def _pack(self, target: Path, paths: Iterator[bytes]) -> tuple[dict[bytes, tuple[HostStat, str]], bool]:
        """Fill one archive. What is in it, and whether there is more to come."""
        noted: dict[bytes, tuple[HostStat, str]] = {}
        size = 0
        with target.open("wb") as file:
            writer = archive.Writer(file)
            for path in paths:
                if self._stop.is_set():
                    return {}, False
                # A copy first: one that is written to meanwhile has no size to announce.
                with tempfile.SpooledTemporaryFile(_SPOOL, dir=str(target.parent)) as copy:
                    try:
                        with self._tree.reading(path) as (content, host):
                            shutil.copyfileobj(content, copy)
                    except OSError:
                        self._report.skip(names.text(path), Reason.CHANGED)
                        continue
                    noted[path] = host, digest_of(copy)
                    length = copy.seek(0, 2)
                    copy.seek(0)
                    writer.add(path, copy, length, _mtime(host), host.executable)
                size += length
                if size >= PACK_BYTES:
                    writer.close()
                    return noted, True
            writer.close()
        return noted, False

    def _note(self, noted: dict[bytes, tuple[HostStat, str]], gone: list[bytes], clock: int) -> None:
        with self._manifest.lock:
            for path, (host, digest) in noted.items():
                guest = GuestStat(host.size, _mtime(host), clock, 0, host.executable)
                self._manifest.files[path] = Entry(host, guest, digest, certain=guest.mtime < clock - 1)
                self._report.copied += 1
                self._report.bytes += host.size
            for path in gone:
                del self._manifest.files[path]
                self._report.removed += 1


def _mtime(host: HostStat) -> int:
    return max(0, host.mtime_ns // 10**9)
