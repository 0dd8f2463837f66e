"""What the engine counts and times, for `provider.stats()` and the metrics."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from .slots import Counters, State


@dataclass(frozen=True)
class Summary:
    """Durations since the start, in seconds."""

    count: int = 0
    total: float = 0.0
    longest: float = 0.0

    @property
    def mean(self) -> float:
        """Seconds; 0 when there was none."""
        return self.total / self.count if self.count else 0.0


class Timer:
    """Collects durations. Any thread may add and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._summary = Summary()

    def add(self, seconds: float) -> None:
        with self._lock:
            was = self._summary
            self._summary = Summary(was.count + 1, was.total + seconds, max(was.longest, seconds))

    def summary(self) -> Summary:
        with self._lock:
            return self._summary


@dataclass(frozen=True)
class Stats:
    """What a provider's engine did since it was made, and how it stands now. Shared by the providers of one home."""

    replicas: int
    slots: dict[State, int] = field(default_factory=dict)
    """How many identities are in each state; STOPPED are those that this process has seen."""
    in_flight: int = 0
    waiting: int = 0
    """Callers that wait for a box at this moment."""
    counters: Counters = field(default_factory=Counters)
    boot_seconds: Summary = field(default_factory=Summary)
    """Boots that went well."""
    acquire_seconds: Summary = field(default_factory=Summary)
    """Acquires that went well, cold and warm."""

    @property
    def running(self) -> int:
        """Places taken."""
        return sum(count for state, count in self.slots.items() if state is not State.STOPPED)
