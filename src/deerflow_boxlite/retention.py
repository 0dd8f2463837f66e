"""Which stopped boxes are removed: those beyond `retain_days`, then the least recently used beyond `retain_gb`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from .identity import sandbox_id_of
from .marks import Marks
from .runtime import BoxRecord, Runtime, RuntimeFault

DAY = 86_400.0
GB = 1_000_000_000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kept:
    """A stopped box of ours: when it was last used (Unix seconds), and the bytes its disk takes."""

    name: str
    last_use: float
    size: int


def surplus(boxes: list[Kept], now: float, days: float, gigabytes: float) -> list[Kept]:
    """The boxes to remove, least recently used first. 0 days or gigabytes is no limit."""
    oldest_first = sorted(boxes, key=lambda box: (box.last_use, box.name))
    left = sum(box.size for box in boxes)
    removed = []
    for box in oldest_first:
        too_old = days > 0 and now - box.last_use > days * DAY
        too_much = gigabytes > 0 and left > gigabytes * GB
        if not (too_old or too_much):
            break
        removed.append(box)
        left -= box.size
    return removed


async def prune(
    runtime: Runtime,
    marks: Marks,
    remove: Callable[[str], Awaitable[bool]],
    *,
    now: float,
    days: float,
    gigabytes: float,
) -> list[str]:
    """Remove the surplus, and return the names of the boxes that are gone.

    `remove` removes one box unless it is in use by now, and says whether it did; so a box that is taken up meanwhile
    stays. Boxes that are not ours are not looked at. Raises `RuntimeFault` and `OSError`; what was removed before stays
    removed.
    """
    if days == 0 and gigabytes == 0:
        return []
    kept = []
    for record in await runtime.list():
        if record.state != "running" and sandbox_id_of(record.name) is not None:
            size = await runtime.disk_usage(record.name) if gigabytes > 0 else 0
            kept.append(Kept(record.name, _last_use(marks, record, now), size))
    gone = []
    for box in surplus(kept, now, days, gigabytes):
        try:
            if await remove(box.name):
                marks.forget(box.name)
                gone.append(box.name)
        except RuntimeFault as error:
            # One that cannot be removed must not keep the others.
            logger.error("the box %s could not be removed: %s", box.name, error)
    return gone


def _last_use(marks: Marks, record: BoxRecord, now: float) -> float:
    mark = marks.last_use(record.name)
    if mark is not None:
        return mark
    known = record.started_at or record.created_at
    return now if known is None else known
