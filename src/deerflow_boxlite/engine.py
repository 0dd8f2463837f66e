"""The engine: runtime, loop and pool of one BoxLite home in this process, shared by the providers on it.

The pool decides, the crew carries out, and this is the face they show to threads and to other event loops.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .crew import Crew
from .errors import BoxDiedError, BoxError
from .guest.channel import ChannelBroken
from .home import HomeClaim
from .identity import Identity, box_name
from .loop import Loop
from .pool import Pool, Works
from .runtime import BoxGone, RuntimeFault
from .settings import EngineSettings
from .slots import Kind, Lease
from .stats import Stats, Timer

if TYPE_CHECKING:
    from .guest import Guest

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Engine:
    """The boxes of one home. Every method may be called from any thread; those that wait say so."""

    def __init__(self, home: Path, settings: EngineSettings) -> None:
        """Claim the home. Boots nothing, and opens no runtime until a box is needed.

        Raises `HomeInUseError`, `OSError`.
        """
        self.home = home
        self._claim = HomeClaim(home)
        self._pool = Pool(settings.limits)
        self._crew = Crew(home, self._pool, settings)
        self._loop = Loop(f"deerflow-boxlite engine of {home}")
        self._acquire_times = Timer()
        # Belongs to the loop: sandboxes in which something was done since their last release.
        self._worked: set[str] = set()
        self._close_lock = threading.RLock()
        self._closed = False

    def acquire(self, identity: Identity) -> str:
        """Hold the identity's box, booting it when it does not run, and return the sandbox id. Waits.

        Raises `CapacityError`, `BoxBootError`, `HostError`, `ImageError`, `HomeInUseError`, `ClosedError`, and
        `ImportError` without BoxLite.
        """
        return self._loop.run(self._acquire(identity))

    async def acquire_async(self, identity: Identity) -> str:
        """`acquire` for a caller on any event loop, which is not blocked. Cancelling it leaves nothing held."""
        return await asyncio.wrap_future(self._loop.submit(self._acquire(identity)))

    def operate(self, sandbox_id: str, operation: Callable[[Guest], Awaitable[T]], *, uploads: bool = False) -> T:
        """Do something in a sandbox's box, booting it when it does not run, and return the result. Waits.

        `uploads` says that the operation only puts a file in; a hold that saw nothing else can be stopped for room.
        Raises what the operation raises, `BoxDiedError` when the box goes away under it, and what `acquire` raises.
        """
        return self._loop.run(self._operate(sandbox_id, operation, "upload" if uploads else "work"))

    def stream(self, sandbox_id: str, operation: Callable[[Guest], AsyncIterator[T]]) -> Iterator[T]:
        """`operate` for what comes in pieces. Each piece waits; closing the iterator early ends the operation."""
        queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue(maxsize=64)

        async def pump(guest: Guest) -> None:
            async for piece in operation(guest):
                await queue.put((piece,))

        async def produce() -> None:
            try:
                await self._operate(sandbox_id, pump, "work")
            except asyncio.CancelledError:
                raise  # The consumer has gone away.
            except BaseException:
                await queue.put(None)
                raise
            await queue.put(None)

        producer = self._loop.submit(produce())
        try:
            while (piece := self._loop.run(queue.get())) is not None:
                yield piece[0]
            producer.result()
        finally:
            producer.cancel()

    def release(self, sandbox_id: str) -> None:
        """Let go of a box. Waits for the release hook; operations in flight go on. An unknown id is no error."""
        self._loop.run(self._release(sandbox_id))

    def reset(self) -> None:
        """Nobody holds anything any more; the boxes stay, for the next provider."""
        self._loop.run(self._perform(lambda: self._pool.reset(time.monotonic())))

    def configure(self, settings: EngineSettings) -> None:
        """Take the settings of a newer provider. Boxes that run are not touched."""

        def take() -> Works:
            self._crew.settings = settings
            return self._pool.configure(settings.limits, time.monotonic())

        self._loop.run(self._perform(take))

    def __contains__(self, sandbox_id: str) -> bool:
        """Whether this engine knows the sandbox. Looks at memory only."""
        return sandbox_id in self._pool

    def holds(self, sandbox_id: str) -> bool:
        """Whether the sandbox is acquired, and not released since. Looks at memory only."""
        return self._pool.holds(sandbox_id)

    def stats(self) -> Stats:
        """Counts and times. Looks at memory only."""
        now = self._pool.snapshot()
        return Stats(
            replicas=self._crew.settings.limits.replicas,
            slots=now.states,
            in_flight=now.in_flight,
            waiting=now.waiting,
            counters=now.counters,
            boot_seconds=self._crew.boot_times.summary(),
            acquire_seconds=self._acquire_times.summary(),
        )

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self, timeout: float = 10.0) -> None:
        """Stop everything and let go of the home. Blocks for at most about `timeout` seconds. Twice is once.

        Commands that run are ended; their callers, and all later ones, get `ClosedError`.
        """
        with self._close_lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._loop.run(self._crew.close(timeout * 0.8), timeout * 0.9)
            except TimeoutError:
                logger.error("boxes of %s did not stop within %g s", self.home, timeout, extra={"event": "close.late"})
            finally:
                if not self._loop.stop(timeout * 0.1):
                    logger.error("the loop of %s did not end", self.home, extra={"event": "close.loop"})
                self._claim.release()

    # On the loop

    async def _acquire(self, identity: Identity) -> str:
        since = time.monotonic()
        sandbox_id = identity.sandbox_id
        self._crew.identities[sandbox_id] = identity
        ticket, _ = await self._crew.obtain(sandbox_id, hold=True)
        try:
            lease = self._pool.begin(sandbox_id)
            if lease is not None:
                await self._hook(lease, "acquire", self._crew.settings.hooks.on_acquire)
        except asyncio.CancelledError:
            self._crew.give_back(ticket)
            raise
        self._acquire_times.add(time.monotonic() - since)
        return sandbox_id

    async def _operate(self, sandbox_id: str, operation: Callable[[Guest], Awaitable[T]], kind: Kind) -> T:
        _, lease = await self._crew.obtain(sandbox_id, hold=False)
        try:
            return await operation(self._crew.guest(lease))
        except (BoxGone, BoxDiedError) as error:
            raise self._crew.died(lease, error) from error
        except ChannelBroken as error:
            raise await self._crew.broke(lease, error) from error
        except RuntimeFault as error:
            raise BoxError(f"the box {box_name(sandbox_id)}: {error}") from error
        finally:
            if kind == "work":
                self._worked.add(sandbox_id)
            self._crew.perform(self._pool.end(lease, kind, time.monotonic()))

    async def _release(self, sandbox_id: str) -> None:
        # The lease first: without it, the box could be stopped for room before the hook has seen it.
        lease = self._pool.begin(sandbox_id)
        self._crew.perform(self._pool.release(sandbox_id, time.monotonic()))
        worked = sandbox_id in self._worked
        self._worked.discard(sandbox_id)
        hook = self._crew.settings.hooks.on_release
        if lease is not None and await self._hook(lease, "release", hook):
            return
        if worked and (lease := await self._booted_for_release(sandbox_id)) is not None:
            await self._hook(lease, "release", hook)

    async def _booted_for_release(self, sandbox_id: str) -> Lease | None:
        """A lease on a box that died, or was stopped for idleness, between its turn's work and its release."""
        if not self._crew.settings.hooks.needs_release(self._crew.identities[sandbox_id]):
            return None
        try:
            _, lease = await self._crew.obtain(sandbox_id, hold=False)
        except BoxError as error:
            logger.error(
                "box %s: the release hook was left out: %s",
                box_name(sandbox_id),
                error,
                extra={"event": "release.failed", "box": box_name(sandbox_id)},
            )
            return None
        return lease

    async def _hook(self, lease: Lease, what: str, hook: Callable[[Guest, Identity], Awaitable[None]]) -> bool:
        """Call a hook, and end its lease. It does not keep a box from being used, or let go of: errors are logged.

        Returns whether the box outlived it.
        """
        name = box_name(lease.sandbox_id)
        try:
            await hook(self._crew.guest(lease), self._crew.identities[lease.sandbox_id])
        except (BoxGone, BoxDiedError) as error:
            logger.error("%s", self._crew.died(lease, error), extra={"event": f"{what}.died", "box": name})
            return False
        except Exception:  # A hook is anyone's code.
            logger.exception("box %s: the %s hook failed", name, what, extra={"event": f"{what}.failed", "box": name})
        finally:
            self._crew.perform(self._pool.end(lease, "sync", time.monotonic()))
        return True

    async def _perform(self, decide: Callable[[], Works]) -> None:
        self._crew.perform(decide())
