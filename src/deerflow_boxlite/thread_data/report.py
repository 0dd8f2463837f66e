"""What a pass of copying did, and what it left out and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class Reason(Enum):
    """Why something was not copied."""

    NOT_A_FILE = "not a regular file"
    """A symlink, FIFO, socket or device."""
    BAD_NAME = "its name leads out of the thread's directory, or cannot be a file name here"
    TOO_LARGE = "larger than sync_max_file_mb"
    OVER_TOTAL = "beyond sync_max_total_mb"
    CHANGED = "changed or went away while it was being copied"
    BLOCKED = "something else is in its place on the other side"
    FAILED = "could not be written"


EXAMPLES = 20
"""How many paths a report names. It counts them all."""


@dataclass
class Report:
    """One pass, in one direction. Paths are relative to the thread's directory, undecodable bytes as surrogates."""

    direction: Literal["to_box", "to_host"]
    copied: int = 0
    """Files written at the destination."""
    bytes: int = 0
    """Bytes in them."""
    same: int = 0
    """Files fetched that turned out to have the content the destination had."""
    removed: int = 0
    conflicts: int = 0
    """Files of the host that had changed there too; what the host had is kept under a second name."""
    skipped: Counter[Reason] = field(default_factory=Counter)
    examples: list[tuple[str, Reason]] = field(default_factory=list)
    """The first of what was skipped."""
    truncated: str | None = None
    """What ended the pass early, or kept it from seeing all; then nothing was removed. None: the pass is complete."""

    def skip(self, path: str, reason: Reason) -> None:
        """Note one that is not copied."""
        self.skipped[reason] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((path, reason))

    def cut(self, why: str) -> None:
        """Note that the pass is not complete. The first reason stays."""
        self.truncated = self.truncated or why

    @property
    def clean(self) -> bool:
        """Whether everything was copied."""
        return not self.skipped and self.truncated is None

    def __str__(self) -> str:
        parts = [f"{self.copied} files of {self.bytes} bytes copied"]
        if self.removed:
            parts.append(f"{self.removed} removed")
        if self.conflicts:
            parts.append(f"{self.conflicts} changed on both sides (the host's are kept beside as *.host-N)")
        parts += [f"{count} skipped ({reason.value})" for reason, count in self.skipped.items()]
        if self.truncated is not None:
            parts.append(f"NOT COMPLETE, so nothing was removed: {self.truncated}")
        if self.examples:
            parts.append("for example " + ", ".join(ascii(path) for path, _ in self.examples[:5]))
        return "; ".join(parts)
