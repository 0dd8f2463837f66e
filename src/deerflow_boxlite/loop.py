"""A private asyncio loop on a daemon thread, and the way to it from synchronous and asynchronous callers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import threading
from collections.abc import Awaitable, Coroutine
from functools import partial
from typing import Any, TypeVar

from .errors import ClosedError

T = TypeVar("T")


class Loop:
    """One event loop on one daemon thread, from construction until `stop`.

    It is a daemon so that a program that forgets `stop` still ends; `stop` works from `atexit`, when daemon threads
    still run. A loop does not survive `fork`: in the child every call raises `ClosedError` instead of hanging.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._pid = os.getpid()
        # Orders `submit` against `stop`: what is submitted before is run or cancelled, what comes later is refused.
        # Reentrant: a signal handler that shuts down may interrupt a call that has it.
        self._lock = threading.RLock()
        self._open = True
        self._loop = asyncio.new_event_loop()
        # Ours, so that it can be ended without starting a thread, which an exiting interpreter refuses (Python 3.12).
        self._executor = concurrent.futures.ThreadPoolExecutor(2, thread_name_prefix=name)
        self._loop.set_default_executor(self._executor)
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)
        self._thread.start()

    def _main(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._finish()

    def _finish(self) -> None:
        """Cancel what is left and close the loop, on its own thread."""
        while left := asyncio.all_tasks(self._loop):
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._executor.shutdown()

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Start `coroutine` on the loop and return at once. Cancelling the future cancels the coroutine.

        Raises `ClosedError` after `stop` and in a forked child.
        """
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._start(coroutine, future)
        return future

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run `coroutine` on the loop and return its result. Blocks the calling thread, and nothing else.

        A caller that is interrupted (`KeyboardInterrupt`), or whose `timeout` (seconds) passes, cancels the coroutine.
        Raises what the coroutine raises, `TimeoutError`, `ClosedError`, and `RuntimeError` on the loop's own thread,
        where waiting would never end.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError(f"{self._name} cannot wait for itself: this is its own thread")
        # Before the start, so that an interrupt at any moment after it finds something to cancel.
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            self._start(coroutine, future)
            return future.result(timeout)
        except concurrent.futures.CancelledError as error:
            raise ClosedError(f"{self._name} was shut down while this call ran") from error
        finally:
            # Does nothing when it is done.
            future.cancel()

    def _start(self, coroutine: Coroutine[Any, Any, T], future: concurrent.futures.Future[T]) -> None:
        def begin() -> None:
            task = self._loop.create_task(coroutine)
            task.add_done_callback(partial(_settle, future))
            future.add_done_callback(partial(self._cancel, task))

        if self._pid != os.getpid():
            coroutine.close()
            raise ClosedError(f"{self._name} was made before this process was forked; make a new provider in the child")
        with self._lock:
            if self._open:
                self._loop.call_soon_threadsafe(begin)
                return
        coroutine.close()
        raise ClosedError(f"{self._name} was shut down")

    def _cancel(self, task: asyncio.Task[T], future: concurrent.futures.Future[T]) -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):  # The loop is closed, and the task with it.
                self._loop.call_soon_threadsafe(task.cancel)

    def stop(self, timeout: float = 5.0) -> bool:
        """End the loop: cancel what runs on it, close it, join the thread. True when the thread has ended.

        Blocks for at most `timeout` seconds. Stopping twice does nothing.
        """
        if self._pid != os.getpid():
            return True
        with self._lock:
            if self._open:
                self._open = False
                self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout)
        return not self._thread.is_alive()


def _settle(future: concurrent.futures.Future[T], task: asyncio.Task[T]) -> None:
    """Pass the outcome of a task on to whoever waits for it in another thread."""
    if task.cancelled():
        future.cancel()
    # From here on it cannot be cancelled any more; if it was, nobody waits for the outcome.
    wanted = future.set_running_or_notify_cancel()
    error = None if task.cancelled() else task.exception()
    if not wanted:
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


async def finish(work: Awaitable[None]) -> None:
    """Await to the end, even while the calling task is being cancelled (once more): for what must not be half done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
    task.result()
