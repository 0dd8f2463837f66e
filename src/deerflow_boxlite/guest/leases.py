"""Who has which channel of a box: channels are leased, opened when there is none, and thrown away when in doubt."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar


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

    def __init__(self, open_channel: Callable[[], Awaitable[C]], bound: int) -> None:
        self._open = open_channel
        self._places = asyncio.Semaphore(bound)
        self._idle: list[C] = []
        self._closed = False

    @asynccontextmanager
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
        return await self._open()

    async def close(self) -> None:
        """Close those that are idle now, and the others when they come back."""
        self._closed = True
        while self._idle:
            await self._idle.pop().close()
