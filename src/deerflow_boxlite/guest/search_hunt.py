"""One search for lines in a box: what its grep finds, window by window, is told apart on the host."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Sequence

from ..contract import DEFAULT_MAX_FILE_SIZE_BYTES, GrepMatch, truncate_line
from .files_copy import INLINE_OF_MANY, Guest, ScratchFile, call
from .files_errors import check_message
from .pattern import Superset
from .search_lines import Candidate, LineParser
from .search_names import pruning
from .search_verify import matching
from .search_walk import check_walk

__all__ = ["LONGEST_LINE", "Hunt"]

LONGEST_LINE = 2000
"""Characters. As in DeerFlow, longer lines are not looked at."""

FIRST_WINDOW = 2 * 1024 * 1024
WINDOW = 8 * 1024 * 1024
"""Bytes of lines that come to the host at once. Either holds any line of a file of 1,000,000 bytes, with its name."""

TOTAL_LIMIT = 256 * 1024 * 1024
"""Bytes of lines that one search may look at. Each window searches the tree again up to where it begins."""


class Hunt:
    """A search for at most `most` lines, and for one more to know whether that is all."""

    def __init__(
        self, guest: Guest, root: str, wanted: re.Pattern[str], within: Callable[[str], bool], most: int
    ) -> None:
        """`within` tells which files are searched, by their paths relative to `root`."""
        self._guest = guest
        self._root = root
        self._wanted = wanted
        self._within = within
        self._most = max(0, most)

    async def run(self, superset: Superset, names: str, scratch: ScratchFile) -> tuple[list[GrepMatch], bool]:
        """Search files whose names match `names` (find's pattern). Raises as `Search.grep` says."""
        what: list[str | bytes] = [
            superset.option,
            superset.text,
            names,
            str(DEFAULT_MAX_FILE_SIZE_BYTES + 1),
            *pruning(),
        ]
        found = await self._lines("quick", what, scratch)
        if found is None:
            found = await self._lines("exact", what, scratch)
            assert found is not None, "an exact search knows what is binary"
        found.sort(key=lambda match: (match.path, match.number))
        return [self._told(match) for match in found[: self._most]], len(found) > self._most

    async def _lines(self, how: str, what: Sequence[str | bytes], scratch: ScratchFile) -> list[Candidate] | None:
        """The matches, or enough of them; None when a `quick` search does not know."""
        parser = LineParser()
        matches: list[Candidate] = []
        window = FIRST_WINDOW
        while True:
            before = parser.taken
            matches += await self._matching(parser.feed(await self._window(how, what, scratch, before, window)))
            if len(matches) > self._most:
                return matches
            if parser.outcome is not None:
                check_walk(parser.outcome.status, parser.outcome.message, self._root)
                return None if parser.unsure else matches
            if parser.taken == before or parser.taken > TOTAL_LIMIT:
                text = "too many lines may match: narrow the path, the glob or the pattern"
                raise OSError(errno.EFBIG, text, self._root)
            window = WINDOW

    async def _window(
        self, how: str, what: Sequence[str | bytes], scratch: ScratchFile, start: int, size: int
    ) -> bytes:
        where = [self._root, scratch.path, str(INLINE_OF_MANY), how, str(start + 1), str(size)]
        answer = await call(self._guest, self._root, "dfb_search", *where, *what)
        check_message(answer.parts[1], self._root)
        whole = int(answer.words[1]) <= INLINE_OF_MANY
        return await scratch.bytes(answer.parts[0], whole=whole, limit=size, name=self._root)

    async def _matching(self, candidates: list[Candidate]) -> list[Candidate]:
        looked_at = [found for found in candidates if len(found.text) <= LONGEST_LINE and self._within(found.path)]
        indices = await matching(self._wanted, [found.text for found in looked_at])
        return [looked_at[index] for index in indices]

    def _told(self, match: Candidate) -> GrepMatch:
        return GrepMatch(f"{self._root.rstrip('/')}/{match.path}", match.number, truncate_line(match.text))
