"""The control channel of a box: root's, never leased, for what must get through while all others are busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..runtime import BoxHandle
from .channel import Channel, ChannelBroken, Shell
from .scripts import scripts
from .wire import Reply

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ROOT = "0:0"

_ANSWER_TIMEOUT = 15.0


class Control:
    """Calls functions of control.sh, one at a time. A channel that broke is replaced at the next call."""

    def __init__(self, box: BoxHandle, env: dict[str, str]) -> None:
        """`env`: as tools have it."""
        self._box = box
        self._shell = Shell(("sh",), scripts("control.sh"), env, ROOT)
        self._channel: Channel | None = None
        self._lock = asyncio.Lock()
        self._closed = False
        self.on_gone: Callable[[], None] | None = None
        """Called when the box is seen to have gone away while this channel was open."""

    async def call(self, *words: str, timeout: float = _ANSWER_TIMEOUT) -> Reply:
        """Call a function, at most `timeout` seconds. Raises `BoxGone`, `NoSuchProgram`, `ChannelBroken`."""
        async with self._lock:
            return await (await self._opened(timeout)).request(words, timeout=timeout)

    async def retry(self, *words: str) -> Reply:
        """`call` for a function that may run twice: once more on a new channel when the first one broke."""
        try:
            return await self.call(*words)
        except ChannelBroken:
            return await self.call(*words)

    async def open(self, timeout: float) -> None:
        """Have it open. Raises as `call` does."""
        async with self._lock:
            await self._opened(timeout)

    async def _opened(self, timeout: float) -> Channel:
        if self._channel is not None and not self._channel.alive:
            await self._drop()
        if self._closed:
            raise ChannelBroken("the guest was closed")
        if self._channel is None:
            self._channel = await Channel.open(self._box, self._shell, timeout=timeout, on_gone=self._gone)
        return self._channel

    def _gone(self) -> None:
        if self.on_gone is not None:
            self.on_gone()

    async def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """End the channel, and open none any more."""
        self._closed = True
        await self._drop()
