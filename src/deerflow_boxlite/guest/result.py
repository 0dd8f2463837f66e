"""What a command comes back with, and how it is told to a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CommandResult:
    """The end of a command. Its output is text: bytes that are not UTF-8 are replaced by U+FFFD."""

    exit_code: int
    """128 + n when signal n ended it, as a shell has it."""
    stdout: str
    stderr: str
    timed_out: bool = False
    """Its deadline passed: it and all its descendants were killed, and this is what it had printed."""
    truncated: bool = False
    """A stream was longer than `max_output_bytes`: a line in it says how much was cut from its middle."""

    def told(self) -> str:
        """As DeerFlow's local sandbox tells it: standard output, standard error, an exit code other than 0."""
        parts = [self.stdout] if self.stdout else []
        if self.stderr:
            parts.append(f"\nStd Error:\n{self.stderr}" if self.stdout else self.stderr)
        if self.exit_code != 0:
            parts.append(f"\nExit Code: {self.exit_code}")
        return "".join(parts) or "(no output)"
