"""Two ways to do the same, timed in turn."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """One operation, done by us and by the raw SDK.

    `ours` and `raw` get the number of the round, and return what `check` then asserts to be right; only they are timed.
    """

    name: str
    ours: Callable[[int], Any]
    raw: Callable[[int], Awaitable[Any]]
    check: Callable[[int, Any], None]
    rounds: int = 15


@dataclass(frozen=True)
class Row:
    """The medians of a case on an image, in milliseconds."""

    image: str
    name: str
    ours_ms: float
    raw_ms: float

    @property
    def ratio(self) -> float:
        """Ours in terms of the raw SDK's: below 1, ours is faster."""
        return self.ours_ms / self.raw_ms


def measure(image: str, case: Case, loop: asyncio.AbstractEventLoop, rounds: int | None = None) -> Row:
    """Run a case. The two take turns in going first, so that neither is always the one that finds things cached.

    Two rounds more come before, and count only if they go wrong: what is opened on demand is open then.
    """
    times: dict[str, list[float]] = {"ours": [], "raw": []}

    def ours(number: int) -> float:
        start = time.perf_counter()
        result = case.ours(number)
        spent = time.perf_counter() - start
        case.check(number, result)
        return spent

    def raw(number: int) -> float:
        async def timed() -> tuple[float, Any]:
            start = time.perf_counter()
            result = await case.raw(number)
            return time.perf_counter() - start, result

        spent, result = loop.run_until_complete(timed())
        case.check(number, result)
        return spent

    ways = (("ours", ours), ("raw", raw))
    warm_up = 2
    for number in range(warm_up + (rounds or case.rounds)):
        for name, way in ways if number % 2 else ways[::-1]:
            # A different number for each, so that nobody is praised for what the other one did.
            spent = way(2 * number + (name == "raw"))
            if number >= warm_up:
                times[name].append(spent)
    ours_ms, raw_ms = (statistics.median(spent) * 1000 for spent in times.values())
    return Row(image, case.name, round(ours_ms, 2), round(raw_ms, 2))
