"""The lines that grep found in a box: parsing what it printed, window by window. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_LINE = re.compile(rb"(?:(\./[^:\n]*):)?(\d+):(.*)", re.DOTALL)

_BINARY = (b"?", b"Binary file ")
"""How a line begins that says that grep took a file for binary (search.sh)."""


@dataclass(frozen=True)
class Candidate:
    """A line that may match. `path` is relative to the root, `text` without its line end, bad bytes as U+FFFD."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """How the walk went: find's exit status, and the last message of find or of a grep."""

    status: int
    message: str


class LineParser:
    """Takes the windows of one search in order. What is cut at the end of a window belongs to the next one."""

    def __init__(self) -> None:
        self.taken = 0
        """How many bytes of the whole have been used: the next window begins there."""
        self.outcome: Outcome | None = None
        """Set when the whole has been read."""
        self.unsure = False
        """Set when grep took a file for binary that may be text to DeerFlow: its lines are not here, or not all."""
        self._odd: str | None = None
        self._header: list[bytes] = []

    def feed(self, window: bytes) -> list[Candidate]:
        """The candidates of a window. Raises `ValueError` for what no search prints."""
        whole, newline, _ = window.rpartition(b"\n")
        self.taken += len(whole) + len(newline)
        return [] if not newline else [found for line in whole.split(b"\n") for found in self._line(line)]

    def _line(self, line: bytes) -> Iterable[Candidate]:
        if line.startswith(b"/"):
            self._header.append(line[1:])
        elif line == b"=":
            self._odd = _decoded(b"\n".join(self._header))
            self._header.clear()
        elif line.startswith(b"="):
            status, _, message = line[1:].partition(b" ")
            self.outcome = Outcome(int(status), message.decode("utf-8", "replace"))
        elif found := _LINE.match(line):
            name, number, text = found.groups()
            path = self._odd if name is None else _decoded(name)
            if path is None:
                raise ValueError(f"a line of no file: {line[:80]!r}")
            yield Candidate(path, int(number), text.removesuffix(b"\r").decode("utf-8", "replace"))
        elif line.startswith(_BINARY):
            self.unsure = True
        else:
            raise ValueError(f"not what a search prints: {line[:80]!r}")


def _decoded(name: bytes) -> str:
    return name.removeprefix(b"./").decode("utf-8", "surrogateescape")
