"""Running a command whose output is wanted as it comes: in a shell of its own, its streams the runtime's."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Literal

from ..loop import finish
from ..runtime import BoxHandle, Process
from . import request
from .commands import KILLED
from .control import Control
from .scripts import bare, one_line
from .shells import Login
from .wire import library_line, new_nonce, quote

Piece = tuple[Literal["stdout", "stderr", "exit"], str]

_DRAIN = 2.0
"""Seconds for the rest of the output to arrive once the shell has ended without a mark at the end."""


async def stream(
    box: BoxHandle, login: Login, control: Control, command: str, env: Mapping[str, str], seconds: float | None
) -> AsyncGenerator[Piece, None]:
    """Run a command and yield `("stdout" | "stderr", text)` as it prints, then `("exit", code)`.

    Arguments as checked by request.py. Nothing is cut. The command is killed with its descendants at the deadline,
    which a last piece of `stderr` tells, and when the iterator is closed or its task cancelled.
    """
    mark, nonce = request.new_mark(), new_nonce()
    boot = one_line("boot_stream.sh")
    process = await box.exec(
        ("/bin/sh", "-c", bare("open_stream.sh"), "sh", *login.argv, "-c", boot, login.path.rpartition("/")[2]),
        env=login.env,
    )
    run = Run(process, nonce)
    try:
        words = (nonce, request.variables(env, mark), command)
        call = b"dfb_stream " + b" ".join(quote(word) for word in words)
        text = "\n".join(("dfb_flags=$-", login.library("stream.sh"), call.decode("utf-8", "surrogateescape")))
        with contextlib.suppress(BrokenPipeError):
            await process.write(library_line(text))
        deadline = None if seconds is None else asyncio.get_running_loop().time() + seconds
        async for piece in run.pieces(deadline):
            yield piece
        if not run.ended:
            await control.retry("dfb_kill", str(run.pid or 0), mark)
            async for piece in run.pieces(asyncio.get_running_loop().time() + _DRAIN):
                yield piece
            yield "stderr", f"Command timed out after {seconds:g} seconds; it was killed with all it had started\n"
        yield "exit", str(run.exit_code if run.exit_code is not None else KILLED)
    finally:
        await finish(_end(run, control, mark))


async def _end(run: Run, control: Control, mark: str) -> None:
    ended = run.ended
    if not ended:
        await control.retry("dfb_kill", str(run.pid or 0), mark)
    await run.close()
    if not ended:
        # Once more, now that the shell can start nothing any more.
        await control.retry("dfb_kill", str(run.pid or 0), mark)


class Run:
    """One process whose two streams are read at once. `pid` is its number in the box, once it has told."""

    def __init__(self, process: Process, nonce: str) -> None:
        self.pid: int | None = None
        self.exit_code: int | None = None
        self._process = process
        self._nonce = nonce
        self._queue: asyncio.Queue[Piece | None] = asyncio.Queue(maxsize=64)
        self._open = 2
        self._tasks = [
            asyncio.create_task(self._read("stdout", process.stdout())),
            asyncio.create_task(self._read("stderr", process.stderr())),
            asyncio.create_task(self._wait()),
        ]

    @property
    def ended(self) -> bool:
        """Whether all of it is in: the exit code, and both streams to their end."""
        return self.exit_code is not None and self._open == 0

    async def pieces(self, deadline: float | None) -> AsyncIterator[Piece]:
        """What is printed, until it has ended or a point in the loop's time. Raises what the runtime raises."""
        while not self.ended or not self._queue.empty():
            try:
                # Around this alone: at a `yield` the time would run out in the consumer's code.
                async with asyncio.timeout_at(deadline):
                    piece = await self._queue.get()
            except TimeoutError:
                return
            for task in self._tasks:
                if task.done() and not task.cancelled():
                    task.result()
            if piece is not None:
                yield piece

    async def _read(self, name: Literal["stdout", "stderr"], pieces: AsyncIterator[str]) -> None:
        """Pass on what comes, up to the nonce. On standard output the shell's process id comes first."""
        rest = "" if name == "stderr" else None
        first = ""
        try:
            async for text in pieces:
                if rest is None:
                    first += text
                    if self._nonce not in first or "\n" not in first.partition(self._nonce)[2]:
                        continue
                    pid, _, text = first.partition(self._nonce)[2].partition("\n")
                    self.pid, rest = int(pid), ""
                before, end, _ = (rest + text).partition(self._nonce)
                rest = "" if end else _beginning(before, self._nonce)
                if said := before[: len(before) - len(rest)]:
                    await self._queue.put((name, said))
                if end:
                    return
            if rest:
                await self._queue.put((name, rest))
        finally:
            self._open -= 1
            self._nudge()

    async def _wait(self) -> None:
        try:
            code = await self._process.wait()
            # Without the nonce at their end (`kill -9 $$`), the streams last as long as a background child.
            await asyncio.wait(self._tasks[:2], timeout=_DRAIN)
            for task in self._tasks[:2]:
                task.cancel()
            self.exit_code = 128 - code if code < 0 else code
        finally:
            self._nudge()

    def _nudge(self) -> None:
        """Have the consumer look again. When the queue is full it will."""
        with contextlib.suppress(asyncio.QueueFull):
            self._queue.put_nowait(None)

    async def close(self) -> None:
        """End the reading, and the shell if it has not ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._process.kill()
        await self._process.close_stdin()


def _beginning(text: str, nonce: str) -> str:
    """The end of a text that may be the beginning of the nonce."""
    return next((text[-n:] for n in range(min(len(nonce) - 1, len(text)), 0, -1) if nonce.startswith(text[-n:])), "")
