"""What a walk in a box looks for by name, and the names it comes back with. Pure.

Names are bytes in a box and str here, undecodable bytes as lone surrogates (PEP 383), so that every name survives the
way there and back.
"""

from __future__ import annotations

import fnmatch
import functools
import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from ..contract import IGNORE_PATTERNS, path_matches

Kind = Literal["file", "directory", "link", "link to directory"]

END = b"/\0"
"""How a listing ends that is whole."""

EVERY_NAME = "*"
NO_NAME = ""
"""For find's `-name`: no file has an empty name."""


class Found(NamedTuple):
    """A file below the root of a walk. `path` is relative to it."""

    path: str
    kind: Kind

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def is_directory(self) -> bool:
        """Whether it is one, or leads to one."""
        return self.kind in ("directory", "link to directory")


_IGNORED = frozenset(pattern for pattern in IGNORE_PATTERNS if not set(pattern) & set("*?["))
_IGNORED_KINDS = re.compile("|".join(fnmatch.translate(kind) for kind in IGNORE_PATTERNS if kind not in _IGNORED))


def ignored(name: str) -> bool:
    """DeerFlow's `should_ignore_name`, for tens of thousands of names."""
    return name in _IGNORED or _IGNORED_KINDS.match(name) is not None


def pruning() -> list[str]:
    """find's expression that leaves out directories with ignored names, before it walks them.

    The root is `.` to find, so its own name does not matter.
    """
    names: list[str] = []
    for pattern in IGNORE_PATTERNS:
        names += ["-o", "-name", pattern]
    return ["-type", "d", "(", *names[1:], ")", "-prune", "-o"]


def name_filter(pattern: str) -> str:
    """A pattern for find's `-name` that matches the last part of every path which the glob `pattern` matches.

    Looser than Python's where the two differ: sets, single characters (find sees bytes), backslashes.
    """
    last = [part for part in pattern.split("/") if part not in ("", ".")][-1:]
    if not last or last[0] == "**":
        return EVERY_NAME
    loose: list[str] = []
    rest = last[0]
    while rest:
        char, rest = rest[0], rest[1:]
        if char == "[" and "]" in rest[1:]:
            # Where the set ends is Python's business: nothing after its beginning counts.
            loose.append("*")
            break
        loose.append("*" if char in "*?[" else f"\\{char}" if char == "\\" else char)
    return "".join(loose)


def matcher(pattern: str) -> Callable[[str], bool]:
    """DeerFlow's `path_matches` with this glob, for tens of thousands of paths as walks have them.

    Raises `ValueError` for a pattern that can match nothing, as that does.
    """
    path_matches(pattern, "x")
    if "[" in pattern:
        # What a set may hold differs between releases of Python.
        return functools.partial(path_matches, pattern)
    # "**" is one "*" to `match`, so that whatever matches with it matches without.
    way = (_parts(pattern.removeprefix("**/")) if pattern.startswith("**/") else []) or _parts(pattern)
    if len(way) == 1:
        (alone,) = way
        return lambda path: alone(path.rpartition("/")[2]) is not None

    def matches(path: str) -> bool:
        parts = path.split("/")
        return 0 < len(way) <= len(parts) and all(
            match(part) for match, part in zip(way, parts[-len(way) :], strict=True)
        )

    return matches


def _parts(pattern: str) -> list[Callable[[str], re.Match[str] | None]]:
    """What matches the last parts of a path; nothing for an absolute pattern, which no relative path matches."""
    if pattern.startswith("/"):
        return []
    return [re.compile(fnmatch.translate(part)).match for part in pattern.split("/") if part not in ("", ".")]


def parse_listing(raw: bytes) -> list[Found]:
    """The answer of a walk, which has to be whole. The root itself is left out."""
    return [found for found in _records(raw.removesuffix(END)) if found.path]


def _records(raw: bytes) -> Iterator[Found]:
    names = raw.decode("utf-8", "surrogateescape").split("\0")
    names.pop()
    at = 0
    while at < len(names):
        name = names[at]
        at += 1
        if name.startswith(("d./", "l./")):
            yield Found(name[3:], "link to directory" if name[0] == "d" else "link")
        elif at < len(names) and names[at] == name:
            at += 1
            yield Found(name[2:], "directory")
        else:
            yield Found(name[2:], "file")
