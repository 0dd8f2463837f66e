"""Who may run: slots, their transitions, the cap. Pure: no I/O, no clock of its own, no loop, one lock.

Every method takes the time where it needs it (monotonic seconds), decides under the lock, and returns the work that
follows from the decision; the caller carries it out, outside the lock, and reports back. Nothing here blocks.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from dataclasses import replace
from typing import TypeAlias

from .errors import CapacityError, ClosedError
from .slots import (
    Boot,
    Check,
    Counters,
    Grant,
    Kind,
    Lease,
    Limits,
    Phase,
    Refuse,
    Slot,
    Snapshot,
    Stop,
    StopReason,
    Ticket,
    Usage,
    Work,
)
from .table import Table, moved

Works: TypeAlias = list[Work]

_NEVER = math.inf

CLOSED = "the provider was shut down; make a new one"


class Pool:
    """All the slots of one engine."""

    def __init__(self, limits: Limits) -> None:
        self._lock = threading.Lock()
        self._limits = limits
        self._table = Table()
        self._queue: list[Ticket] = []
        self._closed = False
        self._counters = Counters()

    # Requests

    def request(self, sandbox_id: str, now: float, *, hold: bool) -> tuple[Ticket, Works]:
        """A caller wants a running box. It is told by a `Grant` or a `Refuse` of the ticket, at once or later."""
        with self._lock:
            ticket = Ticket(sandbox_id, hold, now, now + self._limits.acquire_timeout)
            if self._closed:
                return ticket, [Refuse(ticket, ClosedError(CLOSED))]
            slot = self._table.get_or_add(sandbox_id)
            if slot.phase in (Phase.RUNNING, Phase.CHECKING):
                ticket.found_life = slot.life
            self._queue.append(ticket)
            works = self._assign(now)
            self._counters.waits += slot.phase is Phase.STOPPED
            return ticket, works

    def cancel(self, ticket: Ticket, now: float) -> Works:
        """The ticket's owner has gone away, whether it was served meanwhile or not. A boot goes on, and ends WARM."""
        with self._lock:
            works: Works = []
            if ticket in self._queue:
                self._queue.remove(ticket)
            elif ticket.lease is not None and (slot := self._of(ticket.lease)) is not None:
                before = slot.state
                if not ticket.hold:
                    slot.in_flight -= 1
                elif ticket.took_hold:
                    self._let_go(slot, now)
                works += moved(slot, before, "cancelled")
            return works + self._assign(now)

    def begin(self, sandbox_id: str) -> Lease | None:
        """Start an operation of our own on a box that runs, or None when it does not. Waits for nothing."""
        with self._lock:
            slot = self._table.running.get(sandbox_id)
            if slot is None or slot.phase is not Phase.RUNNING:
                return None
            slot.in_flight += 1
            return Lease(sandbox_id, slot.life)

    def end(self, lease: Lease, kind: Kind, now: float) -> Works:
        """The operation of this lease is over."""
        with self._lock:
            slot = self._of(lease)
            if slot is None:
                return []
            slot.in_flight -= 1
            slot.last_used = now
            if kind == "upload" and slot.usage is Usage.NOTHING:
                slot.usage = Usage.UPLOADS
            elif kind == "work":
                slot.usage = Usage.WORK
            return self._assign(now)

    def release(self, sandbox_id: str, now: float) -> Works:
        """The box is no longer held. Operations in flight go on, and later ones work too."""
        with self._lock:
            slot = self._table.get(sandbox_id)
            if slot is None or not slot.held:
                return []
            before = slot.state
            self._let_go(slot, now)
            return [*moved(slot, before, "released"), *self._assign(now)]

    def reset(self, now: float) -> Works:
        """Nobody holds anything any more; the boxes stay for whoever comes next."""
        with self._lock:
            works: Works = []
            for slot in list(self._table):
                before = slot.state
                self._let_go(slot, now)
                works += moved(slot, before, "reset")
            return works + self._assign(now)

    def close(self, now: float) -> Works:
        """Refuse everyone who waits and whoever comes, and stop what runs, whatever is in flight."""
        with self._lock:
            self._closed = True
            works: Works = [Refuse(ticket, ClosedError(CLOSED)) for ticket in self._queue]
            self._queue.clear()
            for slot in list(self._table.running.values()):
                if slot.phase in (Phase.RUNNING, Phase.CHECKING):
                    works += self._stop(slot, "shutdown")
            return works

    def configure(self, limits: Limits, now: float) -> Works:
        """Take new settings. With fewer `replicas` than boxes run, they become fewer as they are let go of."""
        with self._lock:
            self._limits = limits
            return self._assign(now)

    # Reports

    def booted(self, work: Boot, now: float) -> Works:
        """The box runs."""
        with self._lock:
            slot = self._table.running[work.sandbox_id]
            self._counters.boots += 1
            slot.last_used, slot.released_at = now, None
            works = self._table.enter(slot, Phase.RUNNING, "booted")
            if self._closed:
                return works + self._stop(slot, "shutdown")
            works += self._assign(now)
            if not slot.held:
                slot.released_at = now
            return works

    def boot_failed(self, work: Boot, error: BaseException, now: float) -> Works:
        """The box could not be booted, and is stopped: whoever waits for it gets `error`. It is not tried again."""
        with self._lock:
            slot = self._table.running[work.sandbox_id]
            self._counters.boot_failures += 1
            waiting = [ticket for ticket in self._queue if ticket.sandbox_id == work.sandbox_id]
            self._queue = [ticket for ticket in self._queue if ticket.sandbox_id != work.sandbox_id]
            works = self._table.enter(slot, Phase.STOPPED, "boot failed")
            works += [Refuse(ticket, error) for ticket in waiting]
            return works + self._assign(now)

    def checked(self, work: Check, healthy: bool, now: float) -> Works:
        """The box answered, or did not. One that did not is stopped, and booted again for whoever waits."""
        with self._lock:
            slot = self._of(work)
            if slot is None or slot.phase is not Phase.CHECKING:
                return []
            if not healthy:
                self._counters.unhealthy += 1
                return self._stop(slot, "unhealthy")
            released_at, slot.released_at = slot.released_at, None
            works = [*self._table.enter(slot, Phase.RUNNING, "healthy"), *self._assign(now)]
            if not slot.held:
                slot.released_at = released_at
            return works

    def crashed(self, lease: Lease) -> Works:
        """An operation found the box gone. Reports of a life that is over change nothing."""
        with self._lock:
            slot = self._of(lease)
            if slot is None or slot.phase not in (Phase.RUNNING, Phase.CHECKING):
                return []
            self._counters.crashes += 1
            return self._stop(slot, "crashed")

    def stopped(self, work: Stop, now: float) -> Works:
        """The box is stopped."""
        with self._lock:
            slot = self._table.running[work.sandbox_id]
            return [*self._table.enter(slot, Phase.STOPPED, work.reason), *self._assign(now)]

    def tick(self, now: float) -> Works:
        """Do what is due: stop idle boxes, turn away those who waited too long."""
        with self._lock:
            works: Works = []
            for slot in list(self._table.running.values()):
                if self._idle_at(slot) <= now:
                    before, slot.held = slot.state, False
                    works += moved(slot, before, "idle")
                    works += self._stop(slot, "idle")
            for ticket in [ticket for ticket in self._queue if self._gives_up_at(ticket) <= now]:
                self._queue.remove(ticket)
                self._counters.timeouts += 1
                works.append(Refuse(ticket, self._capacity_error()))
            return works + self._assign(now)

    # Questions

    def next_deadline(self) -> float | None:
        """When `tick` has something to do, in monotonic seconds; None when there is nothing to wait for."""
        with self._lock:
            times = [self._idle_at(slot) for slot in self._table.running.values()]
            times += [self._gives_up_at(ticket) for ticket in self._queue]
            soonest = min(times, default=_NEVER)
            return None if soonest == _NEVER else soonest

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self._table

    def holds(self, sandbox_id: str) -> bool:
        """Whether somebody has acquired the box and not released it."""
        slot = self._table.get(sandbox_id)
        return slot is not None and slot.held

    def runs(self, sandbox_id: str) -> bool:
        """Whether the box runs, is about to, or is still being stopped."""
        with self._lock:
            return sandbox_id in self._table.running

    def is_current(self, lease: Lease) -> bool:
        """Whether the life of the box that the lease is for is not over."""
        with self._lock:
            return self._of(lease) is not None

    def snapshot(self) -> Snapshot:
        """Everything worth counting, at one moment."""
        with self._lock:
            slots = list(self._table)
            return Snapshot(
                states=dict(Counter(slot.state for slot in slots)),
                in_flight=sum(slot.in_flight for slot in slots),
                waiting=len(self._queue),
                counters=replace(self._counters),
            )

    # Decisions. All of them expect the lock to be held.

    def _assign(self, now: float) -> Works:
        """Give every waiting ticket what there is: its running box, or a place to boot it in, first come first served.

        Running boxes first: they cost nobody a place, and serving them keeps them from being stopped for room.
        """
        works: Works = []
        for ticket in list(self._queue):
            slot = self._table.running.get(ticket.sandbox_id)
            if slot is None or slot.phase is not Phase.RUNNING:
                continue
            if ticket.hold and self._needs_check(slot, now):
                works += [*self._table.enter(slot, Phase.CHECKING, "reclaimed"), Check(slot.sandbox_id, slot.life)]
            else:
                works += self._serve(ticket, slot, now)
        return works + self._make_room()

    def _serve(self, ticket: Ticket, slot: Slot, now: float) -> Works:
        self._queue.remove(ticket)
        ticket.lease = Lease(slot.sandbox_id, slot.life)
        if not ticket.hold:
            slot.in_flight += 1
            return [Grant(ticket)]
        before = slot.state
        ticket.took_hold = not slot.held
        if ticket.took_hold or slot.usage is Usage.UPLOADS:
            # Whoever comes now has done nothing yet, and must not lose the box for what others have done.
            slot.usage = Usage.NOTHING
        slot.held, slot.last_used, slot.released_at = True, now, None
        if ticket.found_life == slot.life:
            self._counters.warm_hits += 1
        return [*moved(slot, before, "acquired"), Grant(ticket)]

    def _make_room(self) -> Works:
        """Boot the boxes that are waited for, as far as there are places, and stop others to make some."""
        works: Works = []
        # Places that are free once what is being stopped has stopped; below 0 after `replicas` was lowered.
        room = self._limits.replicas - len(self._table.running) + self._table.count(Phase.STOPPING)
        wanted = dict.fromkeys(ticket.sandbox_id for ticket in self._queue if ticket.sandbox_id in self._table.stopped)
        for sandbox_id in wanted:
            while room < 1 and (victim := self._table.least_recently_used()) is not None:
                works += self._stop(victim, "evicted")
                room += 1
            if room < 1:
                break
            room -= 1
            if len(self._table.running) < self._limits.replicas:
                slot = self._table.stopped[sandbox_id]
                works += [*self._table.enter(slot, Phase.BOOTING, "wanted"), Boot(sandbox_id, slot.life)]
        return works

    def _stop(self, slot: Slot, reason: StopReason) -> Works:
        # The leases of this life are void from here on, and so is what they would report.
        slot.life += 1
        slot.in_flight = 0
        self._counters.evictions += reason == "evicted"
        self._counters.idle_stops += reason == "idle"
        return [*self._table.enter(slot, Phase.STOPPING, reason), Stop(slot.sandbox_id, slot.life, reason)]

    def _let_go(self, slot: Slot, now: float) -> None:
        if slot.held:
            slot.held, slot.last_used, slot.released_at = False, now, now

    def _needs_check(self, slot: Slot, now: float) -> bool:
        if slot.held or slot.in_flight or slot.released_at is None:
            return False
        return now - slot.released_at >= self._limits.skip_check

    def _of(self, lease: Lease | Check) -> Slot | None:
        """The slot, if the life of the box that the lease is for is not over."""
        slot = self._table.running.get(lease.sandbox_id)
        return slot if slot is not None and slot.life == lease.life else None

    def _idle_at(self, slot: Slot) -> float:
        if self._limits.idle_timeout == 0 or slot.phase is not Phase.RUNNING or slot.in_flight:
            return _NEVER
        return slot.last_used + self._limits.idle_timeout

    def _gives_up_at(self, ticket: Ticket) -> float:
        # Boots and checks have bounds of their own; the deadline is for those that have no place.
        slot = self._table.running.get(ticket.sandbox_id)
        return ticket.deadline if slot is None or slot.phase is Phase.STOPPING else _NEVER

    def _capacity_error(self) -> CapacityError:
        replicas, timeout = self._limits.replicas, self._limits.acquire_timeout
        return CapacityError(
            f"no box came free within {timeout:g} s: {len(self._table.running)} of {replicas} boxes are in use. "
            "Raise `replicas` (how many run at once) or `acquire_timeout` (how long to wait) in the sandbox settings"
        )
