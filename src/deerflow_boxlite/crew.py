"""Carries out what the pool decides, on the engine's loop: boots, checks, stops, removals, and the answers to callers.

Everything here runs on the one thread of that loop, so that nothing needs a lock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from . import boot, retention
from .boot import RunningBox
from .errors import BoxBootError, BoxDiedError, BoxError, ChannelLostError, ClosedError, HomeInUseError
from .home import in_use_message
from .identity import Identity, box_name, sandbox_id_of
from .marks import Marks
from .pool import CLOSED, Pool, Works
from .runtime import BoxSpec, HomeLocked, Runtime, RuntimeFault
from .settings import EngineSettings
from .slots import Boot, Check, Grant, Lease, Moved, Refuse, Stop, Ticket
from .stats import Timer

if TYPE_CHECKING:
    from .guest import Guest

logger = logging.getLogger(__name__)


class Crew:
    """The boxes that run, the runtime they run in, and the tasks that see to them."""

    def __init__(self, home: Path, pool: Pool, settings: EngineSettings) -> None:
        self.settings = settings
        self.boot_times = Timer()
        self.identities: dict[str, Identity] = {}
        self._home = home
        self._pool = pool
        self._marks = Marks(home)
        self._runtime: Runtime | None = None
        self._opening = asyncio.Lock()
        # BoxLite gives a VM 30 s to start. More starts at once than processors only make each of them miss that.
        self._starting = asyncio.Semaphore(os.cpu_count() or 1)
        self._closing = False
        self._boxes: dict[str, RunningBox] = {}
        self._waiting: dict[Ticket, asyncio.Future[Lease]] = {}
        # One for each box that is being booted or removed, so that neither sees the other half done.
        self._names: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._stops: set[asyncio.Task[None]] = set()
        self._others: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._pruning = False

    # What the engine uses

    async def obtain(self, sandbox_id: str, *, hold: bool) -> tuple[Ticket, Lease]:
        """Wait for a running box: to hold it, or for one operation, which `Pool.end` ends. Cancelling gives it back."""
        ticket, works = self._pool.request(sandbox_id, time.monotonic(), hold=hold)
        future: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = future
        self.perform(works)
        try:
            return ticket, await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled():
                future.exception()  # Looked at, so that asyncio does not report a refusal as never retrieved.
            self.give_back(ticket)
            raise
        finally:
            del self._waiting[ticket]

    def give_back(self, ticket: Ticket) -> None:
        """Its owner has gone away. The pool knows whether it was served, and what it alone took."""
        self.perform(self._pool.cancel(ticket, time.monotonic()))

    def guest(self, lease: Lease) -> Guest:
        """The guest of a running box."""
        return self._boxes[lease.sandbox_id].guest

    def died(self, lease: Lease, error: Exception) -> BoxError:
        """An operation found its box gone: see to it, and return what to tell the operation's caller."""
        name = box_name(lease.sandbox_id)
        if self._closing:
            return ClosedError(f"the provider was shut down while this operation ran in the box {name}")
        self.perform(self._pool.crashed(lease))
        kept = "its files are kept" if self.settings.recipe.persist else "its files are gone (`persist: false`)"
        return BoxDiedError(
            f"the box {name} died or stopped answering during this operation, which may or may not have taken effect "
            f"({error}); {kept}, and the next operation boots it again"
        )

    async def broke(self, lease: Lease, error: Exception) -> BoxError:
        """A channel broke under an operation: find out whether its box is gone, and return what to tell the caller."""
        if self._pool.is_current(lease):
            box = self._boxes[lease.sandbox_id]
            if await boot.answers(box.guest, box.handle.name):
                return ChannelLostError(
                    f"the shell in the box {box.handle.name} that carried this operation broke ({error}). The box goes "
                    "on, and later operations get another shell; this one may or may not have taken effect"
                )
        return self.died(lease, error)

    def perform(self, works: Works) -> None:
        """Carry out what the pool decided. Nothing here waits: what takes time becomes a task that reports back."""
        for work in works:
            match work:
                case Boot():
                    self._spawn(self._boot(work), self._others)
                case Check():
                    self._spawn(self._check(work), self._others)
                case Stop():
                    self._spawn(self._stop(work, self._boxes.pop(work.sandbox_id, None)), self._stops)
                case Grant(ticket):
                    self._answer(ticket, None)
                case Refuse(ticket, error):
                    self._answer(ticket, error)
                case Moved():
                    _log_move(work)
        self._arm()

    async def close(self, timeout: float) -> None:
        """Stop everything within `timeout` seconds. Whatever is left after that goes with the runtime."""
        until = time.monotonic() + timeout
        patience = until - timeout * 0.3
        self._closing = True
        self.perform(self._pool.close(time.monotonic()))
        for task in self._others:
            task.cancel()
        # A boot that ends just now is stopped in its turn.
        while (tasks := self._stops | self._others) and (left := patience - time.monotonic()) > 0:
            await asyncio.wait(tasks, timeout=left)
        self._boxes.clear()
        if self._runtime is not None:
            runtime, self._runtime = self._runtime, None
            try:
                await runtime.close(max(1.0, until - time.monotonic()))
            except RuntimeFault as error:
                logger.error("BoxLite on %s did not shut down: %s", self._home, error, extra={"event": "runtime.close"})

    # Answers, timer, tasks

    def _answer(self, ticket: Ticket, error: BaseException | None) -> None:
        future = self._waiting[ticket]
        if future.done():
            return  # Its owner was cancelled, and is about to say so to the pool.
        if error is not None:
            future.set_exception(error)
        elif ticket.lease is not None:
            future.set_result(ticket.lease)

    def _arm(self) -> None:
        """Set the timer for the pool's next deadline. Where nothing is due there is no timer."""
        deadline = None if self._closing else self._pool.next_deadline()
        if self._timer is not None:
            if deadline is not None and self._timer.when() <= deadline:
                return  # It rings early, and is set anew then: cheaper than once per operation.
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            # asyncio's clock is `time.monotonic`.
            self._timer = asyncio.get_running_loop().call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.perform(self._pool.tick(time.monotonic()))

    def _spawn(self, work: Coroutine[Any, Any, None], tasks: set[asyncio.Task[None]]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    # Work

    async def _boot(self, work: Boot) -> None:
        since = time.monotonic()
        sandbox_id, name = work.sandbox_id, box_name(work.sandbox_id)
        try:
            self.settings.check_host()
            runtime = await self._open()
            async with self._name(name), self._starting:
                box = await boot.boot(
                    runtime, self._marks, sandbox_id, self._recipe(sandbox_id), self._on_boot(sandbox_id)
                )
        except asyncio.CancelledError:
            self.perform(self._pool.boot_failed(work, ClosedError(CLOSED), time.monotonic()))
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits for the box must get it
            logger.warning("box %s: boot failed: %s", name, error, extra={"event": "boot.failed", "box": name})
            self.perform(self._pool.boot_failed(work, error, time.monotonic()))
        else:
            self._boxes[sandbox_id] = box
            life = Lease(sandbox_id, work.life)
            box.guest.when_gone(lambda: self.perform(self._pool.crashed(life)))
            self.boot_times.add(time.monotonic() - since)
            self.perform(self._pool.booted(work, time.monotonic()))

    def _recipe(self, sandbox_id: str) -> boot.Recipe:
        """The settings' recipe, with the identity's own volumes."""
        recipe, hooks, identity = self.settings.recipe, self.settings.hooks, self.identities[sandbox_id]

        def spec() -> BoxSpec:
            made = recipe.spec()
            return replace(made, volumes=made.volumes + hooks.volumes(identity))

        return replace(recipe, spec=spec)

    def _on_boot(self, sandbox_id: str) -> boot.OnBoot:
        identity = self.identities[sandbox_id]

        async def on_boot(guest: Guest, fresh: bool) -> None:
            await self.settings.hooks.on_boot(guest, identity, fresh)

        return on_boot

    async def _check(self, work: Check) -> None:
        box = self._boxes[work.sandbox_id]
        healthy = await boot.answers(box.guest, box.handle.name)
        self.perform(self._pool.checked(work, healthy, time.monotonic()))

    async def _stop(self, work: Stop, box: RunningBox | None) -> None:
        try:
            runtime = await self._open()
            await boot.halt(runtime, self._marks, work.sandbox_id, box, persist=self.settings.recipe.persist)
        finally:
            self.perform(self._pool.stopped(work, time.monotonic()))
        self._prune_soon()

    async def _open(self) -> Runtime:
        async with self._opening:
            if self._runtime is None:
                if self._closing:
                    raise ClosedError(CLOSED)
                try:
                    self._runtime = self.settings.open_runtime(self._home)
                except HomeLocked as error:
                    raise HomeInUseError(in_use_message(self._home)) from error
                except RuntimeFault as error:
                    raise BoxBootError(f"BoxLite could not open its home {self._home} (`home_dir`): {error}") from error
                self._prune_soon()
            return self._runtime

    def _name(self, name: str) -> asyncio.Lock:
        return self._names.setdefault(name, asyncio.Lock())

    # Retention

    def _prune_soon(self) -> None:
        if not self._pruning and not self._closing:
            self._pruning = True
            self._spawn(self._prune(), self._others)

    async def _prune(self) -> None:
        settings = self.settings
        try:
            removed = await retention.prune(
                await self._open(),
                self._marks,
                self._remove_unused,
                now=time.time(),
                days=settings.retain_days,
                gigabytes=settings.retain_gb,
            )
        except (RuntimeFault, OSError) as error:
            logger.error("stopped boxes could not be looked through: %s", error, extra={"event": "retention.failed"})
            return
        finally:
            self._pruning = False
        for name in removed:
            logger.info("box %s: removed for its age or size", name, extra={"event": "retention.removed", "box": name})

    async def _remove_unused(self, name: str) -> bool:
        sandbox_id = sandbox_id_of(name)
        async with self._name(name):
            if sandbox_id is None or self._pool.runs(sandbox_id) or self._runtime is None:
                return False
            await self._runtime.remove(name)
            return True


def _log_move(move: Moved) -> None:
    logger.info(
        "box %s: %s -> %s (%s)",
        box_name(move.sandbox_id),
        move.before.value,
        move.after.value,
        move.why,
        extra={
            "event": f"box.{move.after.value}",
            "box": box_name(move.sandbox_id),
            "identity": move.sandbox_id,
            "before": move.before.value,
            "why": move.why,
        },
    )
