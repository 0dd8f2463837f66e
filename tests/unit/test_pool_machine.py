"""A state machine that drives the pool through everything that can happen, in any order, and holds its promises."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from deerflow_boxlite.errors import BoxBootError, CapacityError, ClosedError
from deerflow_boxlite.pool import Pool, Works
from deerflow_boxlite.slots import Boot, Check, Grant, Lease, Limits, Moved, Refuse, State, Stop, Ticket

NAMES = st.sampled_from("abcde")
KINDS = st.sampled_from(["work", "upload", "sync"])
PICK = st.integers(0, 1000)


class PoolMachine(RuleBasedStateMachine):
    leases = Bundle("leases")

    @initialize(
        replicas=st.integers(1, 4),
        idle=st.sampled_from([0.0, 5.0, 50.0]),
        timeout=st.sampled_from([0.0, 3.0, 30.0]),
        skip=st.sampled_from([0.0, 10.0]),
    )
    def start(self, replicas: int, idle: float, timeout: float, skip: float) -> None:
        self.limits = Limits(replicas, idle, timeout, skip)
        self.pool = Pool(self.limits)
        self.now = 0.0
        self.closed = False
        # What the world looks like to the one who does the work.
        self.booting: dict[str, Boot] = {}
        self.checking: dict[str, Check] = {}
        self.stopping: dict[str, Stop] = {}
        self.alive: set[str] = set()
        self.waiting: list[Ticket] = []
        self.in_flight: list[Lease] = []
        self.worked: set[str] = set()
        self.over_cap = 0

    # What callers do

    def request(self, name: str, hold: bool) -> Ticket:
        ticket, works = self.pool.request(name, self.now, hold=hold)
        self.waiting.append(ticket)
        self.perform(works)
        return ticket

    @rule(name=NAMES)
    def acquire(self, name: str) -> None:
        self.request(name, True)

    @rule(target=leases, name=NAMES)
    def operate(self, name: str) -> Ticket:
        return self.request(name, False)

    @rule(name=NAMES, kind=KINDS)
    def use(self, name: str, kind: str) -> None:
        """A whole turn but its end, which single rules seldom add up to: acquire, boot, one operation."""
        self.request(name, True)
        if name in self.booting:
            self.alive.add(name)
            self.perform(self.pool.booted(self.booting.pop(name), self.now))
        operation = self.request(name, False)
        self.end(operation, kind)

    @rule(ticket=consumes(leases), kind=KINDS)
    def end(self, ticket: Ticket, kind: str) -> None:
        if ticket.lease is None:
            self.give_up(ticket)
            return
        if ticket.lease in self.in_flight:
            self.in_flight.remove(ticket.lease)
            if kind == "work":
                self.worked.add(ticket.sandbox_id)
        self.perform(self.pool.end(ticket.lease, kind, self.now))  # type: ignore[arg-type]

    @rule(ticket=consumes(leases))
    def cancel_operation(self, ticket: Ticket) -> None:
        if ticket.lease in self.in_flight:
            self.in_flight.remove(ticket.lease)
        self.give_up(ticket)

    @precondition(lambda self: self.waiting)
    @rule(pick=PICK)
    def cancel_waiting(self, pick: int) -> None:
        self.give_up(self.waiting[pick % len(self.waiting)])

    def give_up(self, ticket: Ticket) -> None:
        if ticket in self.waiting:
            self.waiting.remove(ticket)
        self.perform(self.pool.cancel(ticket, self.now))

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        self.worked.discard(name)
        self.perform(self.pool.release(name, self.now))

    @rule()
    def reset(self) -> None:
        self.worked.clear()
        self.perform(self.pool.reset(self.now))

    @rule(replicas=st.integers(1, 4))
    def configure(self, replicas: int) -> None:
        self.over_cap = max(0, self.places() - replicas)
        self.limits = Limits(replicas, self.limits.idle_timeout, self.limits.acquire_timeout, self.limits.skip_check)
        self.perform(self.pool.configure(self.limits, self.now))

    @precondition(lambda self: len(self.alive) + len(self.booting) > 2)
    @rule()
    def close(self) -> None:
        self.closed = True
        self.perform(self.pool.close(self.now))

    # What the world does

    @rule(ticket=leases)
    def crash(self, ticket: Ticket) -> None:
        if ticket.lease is not None:
            self.perform(self.pool.crashed(ticket.lease))

    @precondition(lambda self: self.booting)
    @rule(pick=PICK, well=st.sampled_from([True, True, True, False]))
    def boot_ends(self, pick: int, well: bool) -> None:
        name = sorted(self.booting)[pick % len(self.booting)]
        work = self.booting.pop(name)
        if well:
            self.alive.add(name)
            self.perform(self.pool.booted(work, self.now))
        else:
            self.perform(self.pool.boot_failed(work, BoxBootError(name), self.now))

    @precondition(lambda self: self.checking)
    @rule(pick=PICK, well=st.booleans())
    def check_ends(self, pick: int, well: bool) -> None:
        name = sorted(self.checking)[pick % len(self.checking)]
        self.perform(self.pool.checked(self.checking.pop(name), well, self.now))

    @precondition(lambda self: self.stopping)
    @rule(pick=PICK)
    def stop_ends(self, pick: int) -> None:
        name = sorted(self.stopping)[pick % len(self.stopping)]
        self.alive.discard(name)
        self.perform(self.pool.stopped(self.stopping.pop(name), self.now))

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.pool.tick(self.now))
        due = self.pool.next_deadline()
        assert due is None or due > self.now, "what is due was done"

    # What is promised

    def perform(self, works: Works) -> None:
        for work in works:
            match work:
                case Boot(name):
                    assert name not in self.alive | set(self.booting) | set(self.stopping), "one box per identity"
                    self.booting[name] = work
                case Check(name):
                    assert name in self.alive
                    assert name not in self.checking or self.closed
                    self.checking[name] = work
                case Stop(name, _, reason):
                    assert name in self.alive
                    assert name not in self.stopping
                    lost = [lease for lease in self.in_flight if lease.sandbox_id == name]
                    assert not lost or reason in ("crashed", "shutdown"), "nothing in flight is stopped"
                    self.in_flight = [lease for lease in self.in_flight if lease not in lost]
                    self.stopping[name] = work
                case Moved(name, State.ACTIVE, State.WARM, _):
                    self.worked.discard(name)
                case Moved(name, State.ACTIVE, State.STOPPING, "evicted"):
                    assert name not in self.worked, "whoever works in a box keeps it"
                case Grant(ticket):
                    assert ticket.sandbox_id in self.alive - set(self.stopping) - set(self.checking)
                    self.waiting.remove(ticket)
                    assert ticket.lease is not None
                    if ticket.took_hold:
                        self.worked.discard(ticket.sandbox_id)
                    if not ticket.hold:
                        self.in_flight.append(ticket.lease)
                case Refuse(ticket, error):
                    self.waiting.remove(ticket)
                    assert isinstance(error, CapacityError | BoxBootError | ClosedError)
                    if isinstance(error, CapacityError):
                        assert ticket.deadline <= self.now

    def places(self) -> int:
        return len(self.booting) + len(self.alive)

    @invariant()
    def cap(self) -> None:
        assert self.places() <= self.limits.replicas + self.over_cap
        # Once they are fewer they stay so.
        self.over_cap = min(self.over_cap, max(0, self.places() - self.limits.replicas))

    @invariant()
    def counts_agree(self) -> None:
        now = self.pool.snapshot()
        assert sum(count for state, count in now.states.items() if state is not State.STOPPED) == self.places()
        assert now.states.get(State.BOOTING, 0) == len(self.booting)
        assert now.states.get(State.STOPPING, 0) == len(self.stopping)
        assert now.in_flight == len(self.in_flight)
        assert now.waiting == len(self.waiting)

    @invariant()
    def no_waiter_is_forgotten(self) -> None:
        """Whoever waits does so for work that is under way, or for a place where each is in use."""
        under_way = set(self.booting) | set(self.checking) | set(self.stopping)
        for ticket in self.waiting:
            if ticket.sandbox_id not in under_way:
                assert ticket.sandbox_id not in self.alive, "its box runs"
                assert self.places() >= self.limits.replicas, "there is a place"
                due = self.pool.next_deadline()
                assert self.closed or (due is not None and due <= ticket.deadline), "it would wait for ever"

    def teardown(self) -> None:
        """Let everything come to its end: nobody is left waiting, and every boot is accounted for."""
        if not hasattr(self, "pool"):
            return
        for lease in list(self.in_flight):
            self.in_flight.remove(lease)
            self.perform(self.pool.end(lease, "work", self.now))
        for _ in range(200):
            if not (self.booting or self.checking or self.stopping or self.waiting):
                break
            for name in list(self.booting):
                self.alive.add(name)
                self.perform(self.pool.booted(self.booting.pop(name), self.now))
            for name in list(self.checking):
                self.perform(self.pool.checked(self.checking.pop(name), True, self.now))
            for name in list(self.stopping):
                self.alive.discard(name)
                self.perform(self.pool.stopped(self.stopping.pop(name), self.now))
            for lease in list(self.in_flight):
                self.in_flight.remove(lease)
                self.perform(self.pool.end(lease, "work", self.now))
            self.perform(self.pool.reset(self.now))
        assert not self.waiting
        assert not self.booting
        self.perform(self.pool.close(self.now))
        for name in list(self.stopping):
            self.alive.discard(name)
            self.perform(self.pool.stopped(self.stopping.pop(name), self.now))
        assert not self.alive, "no VM is left"


PoolMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
TestPoolMachine = PoolMachine.TestCase
