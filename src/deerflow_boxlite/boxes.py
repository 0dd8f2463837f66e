"""The boxes that a home keeps, looked at and removed with no provider: for the command line and the doctor.

Opens BoxLite's runtime on the home, and so fails with `HomeInUseError` while a provider or another process has it open.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import bxl
from .errors import HomeInUseError
from .home import in_use_message
from .identity import box_name, sandbox_id_of
from .marks import Marks
from .runtime import BoxState, HomeLocked, Runtime

_CLOSE_SECONDS = 10.0


@dataclass(frozen=True)
class KeptBox:
    """A box of ours: the bytes that its disk takes, and its last use in Unix seconds where that is known."""

    sandbox_id: str
    state: BoxState
    size: int
    last_use: float | None


def list_boxes(home: Path) -> list[KeptBox]:
    """Return our boxes in a home, the most recently used first. Blocks; must not be called from an event loop's thread.

    Raises `HomeInUseError`, and `RuntimeFault` for what BoxLite reports.
    """
    return asyncio.run(_list(home)) if home.is_dir() else []


def remove_boxes(home: Path, sandbox_ids: Sequence[str]) -> list[str]:
    """Delete boxes with their disks, and return the ids of those that were there. Blocks and raises as `list_boxes`."""
    return asyncio.run(_remove(home, sandbox_ids)) if home.is_dir() else []


async def _list(home: Path) -> list[KeptBox]:
    marks = Marks(home)
    async with _opened(home) as runtime:
        boxes = []
        for record in await runtime.list():
            if (sandbox_id := sandbox_id_of(record.name)) is not None:
                size = await runtime.disk_usage(record.name)
                last_use = marks.last_use(record.name) or record.started_at or record.created_at
                boxes.append(KeptBox(sandbox_id, record.state, size, last_use))
    return sorted(boxes, key=lambda box: box.last_use or 0.0, reverse=True)


async def _remove(home: Path, sandbox_ids: Sequence[str]) -> list[str]:
    marks = Marks(home)
    removed = []
    async with _opened(home) as runtime:
        there = {record.name for record in await runtime.list()}
        for sandbox_id in sandbox_ids:
            name = box_name(sandbox_id)
            if name in there:
                await runtime.remove(name)
                marks.forget(name)
                removed.append(sandbox_id)
    return removed


@contextlib.asynccontextmanager
async def _opened(home: Path) -> AsyncIterator[Runtime]:
    try:
        runtime = bxl.open_runtime(home)
    except HomeLocked:
        # Who has it is told better by the home itself than by BoxLite.
        raise HomeInUseError(in_use_message(home)) from None
    try:
        yield runtime
    finally:
        await runtime.close(_CLOSE_SECONDS)
