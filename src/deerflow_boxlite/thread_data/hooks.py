"""What is done to a thread's box before and after its turns: files and skills in, outputs out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..errors import BoxDiedError, BoxError
from ..identity import Identity, box_name
from ..runtime import BoxGone, RuntimeFault, Volume
from . import names, skills
from .courier import Courier
from .manifest import Manifest
from .paths import ThreadPaths, skill_source, thread_paths
from .pull import Caps, Pull
from .push import Push
from .report import Report
from .tree import HostTree

if TYPE_CHECKING:
    from ..config import BoxliteConfig
    from ..guest import Guest

logger = logging.getLogger(__name__)

_MEGABYTE = 1_000_000
_REPORTS = 1000
_PASS = "pass-"
_JUST_NOW = 5.0
"""Seconds in which an acquire is taken for the one that has booted the box."""


class ThreadData:
    """The engine's hooks for one home. The methods run on its loop; what blocks goes to threads."""

    def __init__(self, config: BoxliteConfig) -> None:
        self._config = config
        self._folder = config.home_dir / "deerflow-boxlite" / "sync"
        self._caps = Caps(
            int(config.sync_max_file_mb * _MEGABYTE),
            int(config.sync_max_total_mb * _MEGABYTE),
            config.sync_max_files,
            config.sync_timeout,
        )
        # Passes of one box share what they know; it is read again when none is under way.
        self._manifests: WeakValueDictionary[str, Manifest] = WeakValueDictionary()
        self._pulls: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._pushes: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._booted: dict[str, float] = {}
        # Used again, since what is left in one is overwritten by the next pass.
        self._stages: WeakKeyDictionary[Guest, dict[str, str]] = WeakKeyDictionary()
        self._tidied = False
        self.reports: OrderedDict[str, Report] = OrderedDict()
        """The last pass of each box to the host, by sandbox id."""

    @property
    def mounts(self) -> bool:
        """Whether a thread's directories are volumes (`thread_data: mount`)."""
        return self._config.thread_data == "mount"

    def volumes(self, identity: Identity) -> tuple[Volume, ...]:
        """What is to be mounted in an identity's box besides `mounts`. Makes the directories. Blocks."""
        paths = thread_paths(identity) if self.mounts else None
        if paths is None:
            return ()
        paths.make()
        # One for all three, since a box has two at most (`config.MAX_VOLUMES`).
        return (Volume(paths.user_data, f"{names.GUEST_BASE}/user-data"),)

    async def on_boot(self, guest: Guest, identity: Identity, fresh: bool) -> None:
        """After a boot, before anyone uses the box: what the host has goes in. `fresh`: its disk is new."""
        manifest = await self._manifest(identity)
        if fresh:
            await asyncio.to_thread(manifest.clear)
        await self._bring_in(guest, identity, manifest, fresh=fresh)
        self._booted[identity.sandbox_id] = time.monotonic()

    async def on_acquire(self, guest: Guest, identity: Identity) -> None:
        """Before a turn in a box that may have been running since an earlier one: what changed on the host goes in."""
        if time.monotonic() - self._booted.pop(identity.sandbox_id, -_JUST_NOW) < _JUST_NOW:
            return
        await self._bring_in(guest, identity, await self._manifest(identity), fresh=False)

    async def on_release(self, guest: Guest, identity: Identity) -> None:
        """After a turn: what the agent left in outputs and workspace goes to the host. At most `sync_timeout`."""
        self._booted.pop(identity.sandbox_id, None)
        paths = None if self.mounts else thread_paths(identity)
        if paths is None:
            return
        lock = self._pulls.setdefault(identity.sandbox_id, asyncio.Lock())
        async with lock:
            manifest = await self._manifest(identity)
            report = Report("to_host")
            try:
                async with self._courier(guest, "pull") as courier:
                    await Pull(HostTree(paths.thread), manifest, self._caps, report).run(courier)
            finally:
                await asyncio.to_thread(manifest.save)
                self._told(identity, report)

    def needs_release(self, identity: Identity) -> bool:
        """Whether `on_release` has anything to do for an identity."""
        return not self.mounts and thread_paths(identity) is not None

    async def _bring_in(self, guest: Guest, identity: Identity, manifest: Manifest, *, fresh: bool) -> None:
        """Never keeps a box from being used: what does not work is logged, except that the box is gone."""
        paths = None if self.mounts else thread_paths(identity)
        lock = self._pushes.setdefault(identity.sandbox_id, asyncio.Lock())
        try:
            async with lock, self._courier(guest, "push") as courier:
                if paths is not None:
                    await self._push(courier, identity, paths, manifest, fresh=fresh)
                await self._skills(courier, manifest)
        except (BoxGone, BoxDiedError):
            raise
        except (BoxError, RuntimeFault, OSError, ValueError) as error:
            logger.error(
                "box %s: the host's files could not be brought in: %s",
                box_name(identity.sandbox_id),
                error,
                extra={"event": "sync.failed", "box": box_name(identity.sandbox_id)},
            )

    async def _push(
        self, courier: Courier, identity: Identity, paths: ThreadPaths, manifest: Manifest, *, fresh: bool
    ) -> None:
        report = Report("to_box")
        before = len(manifest.files)
        try:
            await Push(HostTree(paths.thread), manifest, report).run(courier, fresh=fresh)
        finally:
            if report.copied or report.removed or len(manifest.files) != before:
                await asyncio.to_thread(manifest.save)
            self._told(identity, report)

    async def _skills(self, courier: Courier, manifest: Manifest) -> None:
        source = await asyncio.to_thread(skill_source)
        if source is None or self._is_mounted(source.target):
            return
        files = await asyncio.to_thread(skills.skill_files, source)
        digest = skills.digest(source.target, files)
        if digest == manifest.skills or (not files and manifest.skills is None):
            return
        packed = courier.folder / "put"
        await asyncio.to_thread(skills.pack, files, packed)
        await courier.replace_skills(packed, source.target)
        manifest.skills = digest
        await asyncio.to_thread(manifest.save)

    def _is_mounted(self, target: str) -> bool:
        """Whether the settings mount something there, which then is the operator's to fill."""
        mounted = [Path(mount.container_path) for mount in self._config.mounts]
        return any(path.is_relative_to(target) or Path(target).is_relative_to(path) for path in mounted)

    async def _manifest(self, identity: Identity) -> Manifest:
        known = self._manifests.get(identity.sandbox_id)
        if known is None:
            loaded = await asyncio.to_thread(Manifest.load, self._folder / f"{identity.sandbox_id}.json")
            known = self._manifests.setdefault(identity.sandbox_id, loaded)
        return known

    @contextlib.asynccontextmanager
    async def _courier(self, guest: Guest, what: str) -> AsyncIterator[Courier]:
        await asyncio.to_thread(self._tidy)
        with tempfile.TemporaryDirectory(prefix=_PASS, dir=self._folder) as folder:
            stages = self._stages.setdefault(guest, {})
            yield Courier(guest, Path(folder), stages.setdefault(what, guest.staging()))

    def _tidy(self) -> None:
        """Make our folder; once, remove what a killed process left there: the home is this process's alone."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._tidied:
            self._tidied = True
            for left in self._folder.glob(_PASS + "*"):
                shutil.rmtree(left)

    def _told(self, identity: Identity, report: Report) -> None:
        """Say what a pass did, as loudly as it deserves."""
        if report.direction == "to_host":
            self.reports[identity.sandbox_id] = report
            self.reports.move_to_end(identity.sandbox_id)
            while len(self.reports) > _REPORTS:
                self.reports.popitem(last=False)
        quiet = report.clean and not report.conflicts
        logger.log(
            logging.DEBUG if quiet else logging.WARNING,
            "box %s: %s: %s",
            box_name(identity.sandbox_id),
            "files to the host" if report.direction == "to_host" else "files to the box",
            report,
            extra={"event": f"sync.{report.direction}", "box": box_name(identity.sandbox_id), "report": report},
        )
