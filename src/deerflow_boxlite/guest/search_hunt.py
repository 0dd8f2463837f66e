"""One search for lines in a box: what its grep finds, window by window, is told apart on the host."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable

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

_FILES_AT_ONCE = 100


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
        self._matches: list[Candidate] = []
        self._binary: dict[str, bool] = {}

    async def run(self, superset: Superset, names: str, scratch: ScratchFile) -> tuple[list[GrepMatch], bool]:
        """Search files whose names match `names` (find's pattern). Raises as `Search.grep` says."""
        parser = LineParser()
        window = FIRST_WINDOW
        while True:
            before = parser.taken
            await self._take(parser.feed(await self._window(superset, names, scratch, before, window)))
            if parser.outcome is not None:
                check_walk(parser.outcome.status, parser.outcome.message, self._root)
                found = await self._texts()
                break
            if len(self._matches) > self._most and len(found := await self._texts()) > self._most:
                break
            if parser.taken == before or parser.taken > TOTAL_LIMIT:
                text = "too many lines may match: narrow the path, the glob or the pattern"
                raise OSError(errno.EFBIG, text, self._root)
            window = WINDOW
        return [self._told(match) for match in found[: self._most]], len(found) > self._most

    async def _window(self, superset: Superset, names: str, scratch: ScratchFile, start: int, size: int) -> bytes:
        where: list[bytes | str] = [self._root, scratch.path, str(INLINE_OF_MANY), str(start + 1), str(size)]
        what: list[bytes | str] = [superset.option, superset.text, names, str(DEFAULT_MAX_FILE_SIZE_BYTES + 1)]
        answer = await call(self._guest, self._root, "dfb_search", *where, *what, *pruning())
        check_message(answer.parts[1], self._root)
        text = answer.parts[0]
        whole = len(text.encode()) < INLINE_OF_MANY
        return await scratch.bytes(text, whole=whole, limit=size, name=self._root)

    async def _take(self, candidates: list[Candidate]) -> None:
        looked_at = [found for found in candidates if len(found.text) <= LONGEST_LINE and self._within(found.path)]
        indices = await matching(self._wanted, [found.text for found in looked_at])
        self._matches += (looked_at[index] for index in indices)

    async def _texts(self) -> list[Candidate]:
        """The matches in text files, in order, up to one more than are wanted."""
        self._matches.sort(key=lambda match: (match.path, match.number))
        found: list[Candidate] = []
        for at, match in enumerate(self._matches):
            if match.path not in self._binary:
                await self._look(self._matches[at:])
            if not self._binary[match.path]:
                found.append(match)
                if len(found) > self._most:
                    break
        return found

    async def _look(self, matches: list[Candidate]) -> None:
        """Ask the box which of the next files are binary: one call for many."""
        paths: dict[str, None] = {}
        for match in matches[: self._most + 1]:
            if match.path not in self._binary and len(paths) < _FILES_AT_ONCE:
                paths[match.path] = None
        names = [f"./{path}" for path in paths]
        reply = await call(self._guest, self._root, "dfb_binaries", self._root, *names)
        binary = {int(word) for word in reply.words[1:]}
        self._binary.update((path, index in binary) for index, path in enumerate(paths))

    def _told(self, match: Candidate) -> GrepMatch:
        return GrepMatch(f"{self._root.rstrip('/')}/{match.path}", match.number, truncate_line(match.text))
