"""A channel: a shell that stays open in a box and answers one request at a time, each in one round trip."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..runtime import BoxGone, BoxHandle, Process, RuntimeFault
from .scripts import bare, one_line, scripts
from .wire import BadReply, Reply, ReplyParser, library_line, new_nonce, request_line

__all__ = ["BoxGone", "Channel", "ChannelBroken", "Reply", "Shell"]

_REPLY_LIMIT = 64 * 1024 * 1024
_WAIT_AFTER_EOF = 10.0


class ChannelBroken(RuntimeFault):
    """A channel can no longer be used: its shell ended, sent something else than a reply, or sent nothing in time.

    The request that met this may have been carried out or not. `exit_code` is the shell's, negative for a signal;
    None when it had not ended.
    """

    def __init__(self, message: str, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Shell:
    """How to start the shell of a channel."""

    argv: tuple[str, ...]
    """The program, found by PATH, and its options, to which `-c` and a text are added."""

    library: str
    """Shell text that defines the functions to be called; loop.sh comes before it by itself."""

    env: Mapping[str, str]
    user: str | None = None
    """`uid:gid`; None for the image's."""

    @property
    def name(self) -> str:
        """Its `$0`, which begins its messages."""
        return self.argv[0].rpartition("/")[2]


class Channel:
    """A shell that stays open in a box. Not for two requests at once: whoever holds it has it alone."""

    def __init__(self, process: Process, on_gone: Callable[[], None] | None) -> None:
        """Used by `open`."""
        self._process = process
        self._on_gone = on_gone
        self._parser: ReplyParser | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._broken: Exception | None = None
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls, box: BoxHandle, shell: Shell, *, timeout: float, on_gone: Callable[[], None] | None = None
    ) -> Channel:
        """Start the shell and wait until it answers, at most `timeout` seconds.

        `on_gone` is called once, also between requests, when the box is seen to have gone away.

        Raises `BoxGone`, `NoSuchProgram` (the box has no `sh`), and `ChannelBroken` when the shell ended or did not
        answer: its profile may have seen to that. The shell is ended then.
        """
        argv = ("/bin/sh", "-c", bare("open.sh"), "sh", *shell.argv, "-c", one_line("boot.sh"), shell.name)
        process = await box.exec(argv, env=shell.env, user=shell.user)
        channel = cls(process, on_gone)
        try:
            text = "\n".join((scripts("loop.sh"), shell.library))
            await channel._ask(library_line(text), ("dfb_ping",), timeout)
        except BaseException:
            await asyncio.shield(channel.close())
            raise
        return channel

    @property
    def alive(self) -> bool:
        """Whether it may be used, as far as is known without asking it."""
        return self._broken is None

    async def request(self, words: Sequence[str | bytes], *, timeout: float | None = None) -> Reply:
        """Call a function of the library with words (any bytes but NUL) and return what it replied.

        `timeout` is in seconds; None waits for ever. Raises `ValueError` for a NUL; `BoxGone`; `ChannelBroken`, also
        when no reply came in time. After either of these, and after a cancellation, the channel is of no more use.
        """
        return await self._ask(b"", words, timeout)

    async def _ask(self, before: bytes, words: Sequence[str | bytes], timeout: float | None) -> Reply:
        nonce = new_nonce()
        line = before + request_line(nonce, words)
        if self._broken is not None:
            raise self._broken
        assert self._answer is None, "two requests at once on one channel"
        self._parser = ReplyParser(nonce, _REPLY_LIMIT)
        self._answer = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout):
                # When the shell has ended there is nobody to read this; the reader then says how it ended.
                with contextlib.suppress(BrokenPipeError):
                    await self._process.write(line)
                return await self._answer
        except TimeoutError:
            self._broken = ChannelBroken(f"no reply within {timeout} s")
            raise self._broken from None
        except BaseException as exc:
            self._broken = exc if isinstance(exc, Exception) else ChannelBroken("a request on it was cancelled")
            raise
        finally:
            if self._answer.done() and not self._answer.cancelled():
                # Else asyncio would complain of an exception that nobody looked at.
                self._answer.exception()
            self._parser = self._answer = None

    async def close(self) -> None:
        """End the shell and what the request in flight waits for. Commands' background children live on."""
        self._fail(ChannelBroken("the channel was closed"))
        self._reader.cancel()
        await asyncio.wait({self._reader})
        await self._process.kill()
        await self._process.close_stdin()

    def _fail(self, reason: Exception) -> None:
        if self._broken is None:
            self._broken = reason
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(reason)

    async def _read(self) -> None:
        """Take all that comes, also between requests, so that the end of an idle shell is known before its next use."""
        try:
            async for piece in self._process.stdout():
                reply = self._parser.feed(piece) if self._parser is not None else None
                if reply is not None:
                    self._parser = None
                    if self._answer is not None and not self._answer.done():
                        self._answer.set_result(reply)
            await self._ended()
        except BadReply as exc:
            self._fail(ChannelBroken(str(exc)))
        except Exception as exc:  # noqa: BLE001 - whatever the runtime raises belongs to the request in flight
            self._fail(exc)
            if isinstance(exc, BoxGone) and self._on_gone is not None:
                self._on_gone()

    async def _ended(self) -> None:
        """The output ended: the shell did, unless it only closed it."""
        try:
            async with asyncio.timeout(_WAIT_AFTER_EOF):
                code = await self._process.wait()
        except TimeoutError:
            self._fail(ChannelBroken("its shell closed its output"))
        else:
            self._fail(ChannelBroken(f"its shell ended with exit code {code}", code))
