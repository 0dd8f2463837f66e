"""Searching a box: `glob` and `grep`, each with one walk through the tree."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from ..contract import GrepMatch
from .files_copy import Guest, Scratch
from .files_errors import checked
from .pattern import translate
from .search_hunt import Hunt
from .search_names import EVERY_NAME, NO_NAME, ignored, matcher, name_filter, pruning
from .search_walk import walk

__all__ = ["Search"]


class Search:
    """Searches in one running box, as the box's user sees its files. For use in one event loop.

    Both raise the matching `OSError` about the root, `ValueError` for one that is not absolute, `PermissionError` for
    one with `..`, and whatever `Guest.call` raises when the box is gone. Directories with names that DeerFlow ignores
    are not walked; the root's own name does not matter. What cannot be read further down is passed over. Links are not
    followed, but for the root.
    """

    def __init__(self, guest: Guest, scratch: Scratch | None = None) -> None:
        self._guest = guest
        self._scratch = scratch or Scratch(guest)

    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        """Files below `path` whose relative path matches `pattern`: the first `max_results` in order, and if that is
        not all.

        A pattern means what it means to `PurePosixPath.match`, where a leading `**/` may stand for nothing. As in
        DeerFlow, a link to a directory counts as one: with `include_dirs` alone. Raises `ValueError` for an empty
        pattern.
        """
        root = checked(path)
        matches = matcher(pattern)
        names = name_filter(pattern)
        directories = names if include_dirs else NO_NAME
        found = await walk(self._guest, self._scratch, root, pruning(), directories, names)
        paths = sorted(
            f"{root.rstrip('/')}/{entry.path}"
            for entry in found
            if include_dirs or not entry.is_directory
            if matches(entry.path) and not ignored(entry.name)
        )
        return paths[: max(0, max_results)], len(paths) > max_results

    async def grep(
        self,
        path: str,
        pattern: str,
        *,
        glob: str | None = None,
        literal: bool = False,
        case_sensitive: bool = False,
        max_results: int = 100,
    ) -> tuple[list[GrepMatch], bool]:
        """Lines of text files below `path` that a Python regular expression is found in, in order of path and number.

        At most `max_results`, and whether there are more; then these need not be the first ones. `glob` limits the
        files as `glob()` would. As in DeerFlow, files of more than 1,000,000 bytes, with a NUL in their first 8 KiB,
        and lines of more than 2000 characters are left out. A line is matched without its end, `\\n` or `\\r\\n`.

        Raises `re.error` for an invalid pattern, `TimeoutError` for one that backtracks too long, and `OSError`
        (`EFBIG`) when too much of the tree may match to be looked at.
        """
        root = checked(path)
        wanted = re.compile(re.escape(pattern) if literal else pattern, 0 if case_sensitive else re.IGNORECASE)
        within = _scope(glob)
        superset = translate(wanted)
        if superset is None:
            # Nothing can match, but a root that is not there is an error all the same.
            await walk(self._guest, self._scratch, root, ("-maxdepth", "0"), NO_NAME, NO_NAME)
            return [], False
        async with self._scratch.file() as scratch:
            hunt = Hunt(self._guest, root, wanted, within, max_results)
            return await hunt.run(superset, EVERY_NAME if glob is None else name_filter(glob), scratch)


def _scope(glob: str | None) -> Callable[[str], bool]:
    """Which files are searched, by their relative paths. Raises `ValueError` for a pattern that can match nothing."""
    matches = None if glob is None else matcher(glob)

    @functools.cache
    def within(path: str) -> bool:
        return not ignored(path.rpartition("/")[2]) and (matches is None or matches(path))

    return within
