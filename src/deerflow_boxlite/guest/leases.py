"""Who has which channel of a box: channels are leased, opened when there is none, and thrown away when in doubt."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, Protocol, TypeVar


class Leasable(Protocol):
    """What is leased."""

    @property
    def alive(self) -> bool:
        """Whether it may be used once more."""

    async def close(self) -> None:
        """End it. Raises nothing that the holder should know."""


C = TypeVar("C", bound=Leasable)


class Leases(Generic[C]):
    """The channels of one kind of one box, at most `bound` at a time. Further callers wait in order."""

    def __init__(self, open_channel: Callable[[], Coroutine[Any, Any, C]], bound: int) -> None:
        self._open = open_channel
        self._places = asyncio.Semaphore(bound)
        self._idle: list[C] = []
        self._coming: asyncio.Task[C] | None = None
        self._closed = False

    def prepare(self) -> None:
        """Begin to open a channel in the background, for the next lease that finds none idle.

        If that goes wrong, nobody is told: the lease opens one itself. Call this once, before any lease.
        """
        self._coming = asyncio.create_task(self._open())

    @contextlib.asynccontextmanager
    async def lease(self) -> AsyncIterator[C]:
        """Have a channel alone. Waits for a place, then for the channel to open if none is idle.

        Raises what opening one raises. A channel that is not alive afterwards is closed, never used again.
        """
        async with self._places:
            channel = await self._take()
            try:
                yield channel
            finally:
                if channel.alive and not self._closed:
                    self._idle.append(channel)
                else:
                    await asyncio.shield(channel.close())

    async def _take(self) -> C:
        # The last one used first: the others stay idle, and their memory can be swapped out.
        while self._idle:
            channel = self._idle.pop()
            if channel.alive:
                return channel
            await asyncio.shield(channel.close())
        coming, self._coming = self._coming, None
        if coming is not None:
            # Whoever is cancelled while waiting here cancels the opening, as if it were its own.
            with contextlib.suppress(Exception):
                channel = await coming
                if channel.alive:
                    return channel
                await asyncio.shield(channel.close())
        return await self._open()

    async def close(self) -> None:
        """Close those that are idle now, and the others when they come back."""
        self._closed = True
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})
            if not self._coming.cancelled() and self._coming.exception() is None:
                self._idle.append(self._coming.result())
        while self._idle:
            await self._idle.pop().close()
