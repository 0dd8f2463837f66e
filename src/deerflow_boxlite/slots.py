"""What the pool keeps and what it hands out: slots, tickets, leases, and the work that a decision brings.

Plain data. `pool.py` decides, `engine.py` carries out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["work", "upload", "sync"]
"""What an operation is: `upload` only puts a file in, `sync` is our own (a hook), `work` is everything else."""


class State(Enum):
    """The states of a slot. All but STOPPED take one of the `replicas` places."""

    BOOTING = "booting"
    ACTIVE = "active"
    WARM = "warm"
    CHECKING = "checking"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Phase(Enum):
    """What the VM of a slot does. With `Slot.held` it makes the `State`."""

    BOOTING = "booting"
    RUNNING = "running"
    CHECKING = "checking"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Usage(Enum):
    """What a hold has been used for so far. One that has only received uploads may be stopped for room."""

    NOTHING = 0
    UPLOADS = 1
    WORK = 2


@dataclass(eq=False)
class Slot:
    """One identity's place in the pool. Times are monotonic seconds."""

    sandbox_id: str
    phase: Phase = Phase.STOPPED
    held: bool = False
    usage: Usage = Usage.NOTHING
    in_flight: int = 0
    life: int = 0
    """Counts the lives of its VM, so that what belongs to an earlier one cannot touch a later one."""
    last_used: float = 0.0
    """End of the last operation, acquire or release."""
    released_at: float | None = None
    """When it was let go of, until something has shown since then that it still answers."""

    @property
    def state(self) -> State:
        if self.phase is Phase.RUNNING:
            return State.ACTIVE if self.held else State.WARM
        return State(self.phase.value)

    @property
    def may_stop(self) -> bool:
        """Whether its place may be given to another: nothing in flight, and nobody works in it."""
        unused = not self.held or self.usage is Usage.UPLOADS
        return self.phase is Phase.RUNNING and self.in_flight == 0 and unused


@dataclass(eq=False)
class Ticket:
    """A caller that waits for a running box: to hold it (`acquire`), or for one operation on it."""

    sandbox_id: str
    hold: bool
    since: float
    """When it came, in monotonic seconds."""
    deadline: float
    """When it gives up waiting for a place, in monotonic seconds."""
    found_life: int | None = None
    """The life of the box if it ran when the ticket came."""
    lease: Lease | None = None
    """Set when it was served."""
    took_hold: bool = False
    """Whether it was this ticket that made the slot held."""


@dataclass(frozen=True, eq=False)
class Lease:
    """The right to use one life of a box; ends with `Pool.end`, or with that life."""

    sandbox_id: str
    life: int


@dataclass(frozen=True)
class Boot:
    """Boot the box, then report `booted` or `boot_failed`."""

    sandbox_id: str
    life: int


@dataclass(frozen=True)
class Check:
    """Ask the box whether it answers, then report `checked`."""

    sandbox_id: str
    life: int


StopReason: TypeAlias = Literal["idle", "evicted", "crashed", "unhealthy", "shutdown"]


@dataclass(frozen=True)
class Stop:
    """Stop the box, then report `stopped`."""

    sandbox_id: str
    life: int
    reason: StopReason


@dataclass(frozen=True)
class Grant:
    """Tell the ticket's owner that its box runs; the lease is in the ticket."""

    ticket: Ticket


@dataclass(frozen=True)
class Refuse:
    """Tell the ticket's owner that it gets no box."""

    ticket: Ticket
    error: BaseException


@dataclass(frozen=True)
class Moved:
    """A slot went from one state to another; for the log."""

    sandbox_id: str
    before: State
    after: State
    why: str


Work: TypeAlias = Boot | Check | Stop | Grant | Refuse | Moved


@dataclass
class Counters:
    """How often things happened since the pool was made."""

    boots: int = 0
    boot_failures: int = 0
    warm_hits: int = 0
    """Acquires served by a box that ran already."""
    evictions: int = 0
    idle_stops: int = 0
    crashes: int = 0
    unhealthy: int = 0
    waits: int = 0
    """Requests that found no place free at once."""
    timeouts: int = 0
    """Requests that gave up waiting (`CapacityError`)."""


@dataclass(frozen=True)
class Limits:
    """The settings that bind the pool. Seconds; 0 turns `idle_timeout` and `skip_check` off."""

    replicas: int = 3
    idle_timeout: float = 600.0
    acquire_timeout: float = 120.0
    skip_check: float = 0.0


@dataclass
class Snapshot:
    """The pool at one moment."""

    states: dict[State, int] = field(default_factory=dict)
    in_flight: int = 0
    waiting: int = 0
    counters: Counters = field(default_factory=Counters)
