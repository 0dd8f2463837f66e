"""The pool's table: every slot, by sandbox id."""

from __future__ import annotations

from collections.abc import Iterator

from .slots import Moved, Phase, Slot, State, Work


class Table:
    """A slot is in exactly one of the two, so that no decision has to look at those that only exist on disk."""

    def __init__(self) -> None:
        self.running: dict[str, Slot] = {}
        """Those that take a place: all but the stopped ones."""
        self.stopped: dict[str, Slot] = {}

    def __contains__(self, sandbox_id: str) -> bool:
        return sandbox_id in self.running or sandbox_id in self.stopped

    def __iter__(self) -> Iterator[Slot]:
        yield from self.running.values()
        yield from self.stopped.values()

    def get(self, sandbox_id: str) -> Slot | None:
        """The slot of a sandbox, if there is one."""
        return self.running.get(sandbox_id) or self.stopped.get(sandbox_id)

    def get_or_add(self, sandbox_id: str) -> Slot:
        """The slot of a sandbox, added as stopped if there was none."""
        return self.running.get(sandbox_id) or self.stopped.setdefault(sandbox_id, Slot(sandbox_id))

    def count(self, phase: Phase) -> int:
        """How many running slots are in a phase."""
        return sum(slot.phase is phase for slot in self.running.values())

    def enter(self, slot: Slot, phase: Phase, why: str) -> list[Work]:
        """Put a slot into a phase, and return the move for the log."""
        before, slot.phase = slot.state, phase
        into, out = (self.stopped, self.running) if phase is Phase.STOPPED else (self.running, self.stopped)
        # Into the new one first: `__contains__` looks without the lock, and must never miss a slot.
        into[slot.sandbox_id] = slot
        out.pop(slot.sandbox_id, None)
        return moved(slot, before, why)

    def least_recently_used(self) -> Slot | None:
        """The slot to stop for room, or None when each is in use."""
        candidates = (slot for slot in self.running.values() if slot.may_stop)
        return min(candidates, key=lambda slot: slot.last_used, default=None)


def moved(slot: Slot, before: State, why: str) -> list[Work]:
    """The move of a slot that was in state `before`, if it is in another by now."""
    return [] if before is slot.state else [Moved(slot.sandbox_id, before, slot.state, why)]
