"""Python's regular expressions for the plain grep of any image.

No grep has the meaning of Python's `re`. What every grep can do is find the lines that *may* match: `translate` gives
an extended regular expression (POSIX ERE) that matches every line `re` would match, and as few others as is easy. What
it finds is then told apart by `re` itself, on the host.

It is made for LC_ALL=C, where grep sees bytes: each character of the pattern becomes its UTF-8 bytes, and what may
match a character outside ASCII becomes a run of bytes above 0x7F, which also covers bytes that are not UTF-8 (they are
read as U+FFFD). A line is matched without its line end, `\\n` or `\\r\\n`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

from .pattern_class import byte_class, escaped

__all__ = ["Superset", "translate"]

_FOLDED_OUTSIDE_ASCII = frozenset("iIkKsS")
"""ASCII letters that IGNORECASE also matches with letters outside ASCII: U+0130, U+0131, U+212A, U+017F."""

_WRITTEN_OUT = 64
"""A repetition is written out up to so many bytes. Its upper bound is never kept: grep's limits differ."""

_LONGEST = 60_000
"""Bytes of a pattern that can safely be an argument. A longer one becomes the one that matches every line."""


@dataclass(frozen=True)
class Superset:
    """What to look for in a box. `option` is grep's: `-E`, or `-F` for a plain text."""

    option: str
    text: bytes


class _Never(Exception):
    """This part of the pattern matches nothing that stands within one line."""


@dataclass(frozen=True)
class _Piece:
    """A part of an ERE.

    `atom`: a repetition can be put behind it as it stands. `run`: it is a bracket expression and `+`.
    """

    text: bytes
    atom: bool = False
    run: bool = False


_NOTHING = _Piece(b"")
_ANYTHING = _Piece(b".*")


def translate(pattern: re.Pattern[str]) -> Superset | None:
    """What a box's grep has to look for to find every line that `pattern` matches; None if no line can match.

    Pure. An empty text means every line.
    """
    tree = _parser.parse(pattern.pattern, pattern.flags)
    literal = _literal(tree, pattern.flags)
    try:
        found = Superset("-E", _sequence(tree, pattern.flags).text) if literal is None else Superset("-F", literal)
    except _Never:
        return None
    return found if len(found.text) <= _LONGEST else Superset("-E", b"")


def _literal(tree: Any, flags: int) -> bytes | None:
    """The bytes of a pattern that is nothing but text to be found as it stands."""
    if not len(tree) or any(op is not _constants.LITERAL for op, _ in tree):
        return None
    text = "".join(chr(code) for _, code in tree)
    if any(_stands_for_more(char, flags) or char in "\n\0" for char in text):
        return None
    return text.encode()


def _stands_for_more(char: str, flags: int) -> bool:
    """Whether a character of the pattern matches anything but its own UTF-8 bytes."""
    if char == "\N{REPLACEMENT CHARACTER}" or "\ud800" <= char <= "\udfff":
        return True
    return bool(flags & re.IGNORECASE) and (not char.isascii() or char.isalpha())


def _sequence(nodes: Iterable[Any], flags: int) -> _Piece:
    listed = list(nodes)
    pieces = [_node(op, given, flags, at == 0, at == len(listed) - 1) for at, (op, given) in enumerate(listed)]
    pieces = [piece for piece in pieces if piece.text]
    return pieces[0] if len(pieces) == 1 else _Piece(b"".join(piece.text for piece in pieces))


def _node(op: Any, given: Any, flags: int, first: bool, last: bool) -> _Piece:
    match op:
        case _constants.LITERAL:
            return _character(given, flags)
        case _constants.NOT_LITERAL | _constants.ANY | _constants.IN:
            return _one_of(op, given, flags)
        case _constants.BRANCH:
            return _branch(given[1], flags)
        case _constants.SUBPATTERN:
            _, added, removed, inner = given
            return _group(_sequence(inner, _combined(flags, added, removed)))
        case _constants.ATOMIC_GROUP:
            return _group(_sequence(given, flags))
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
            least, most, inner = given
            return _repeat(least, most, inner, flags)
        case _constants.GROUPREF:
            return _ANYTHING
        case _constants.GROUPREF_EXISTS:
            return _branch((given[1], given[2] or ()), flags)
        case _constants.AT:
            return _anchor(given, first, last)
        case _constants.ASSERT | _constants.ASSERT_NOT:
            # They take no room, and what they ask for is left to `re`.
            return _NOTHING
        case _constants.FAILURE:
            raise _Never
    return _ANYTHING


def _combined(flags: int, added: int, removed: int) -> int:
    """The flags within `(?flags-flags:...)`, as `re` combines them."""
    types: int = _constants.SRE_FLAG_ASCII | _constants.SRE_FLAG_LOCALE | _constants.SRE_FLAG_UNICODE
    if added & types:
        flags &= ~types
    return (flags | added) & ~removed


def _character(code: int, flags: int) -> _Piece:
    char = chr(code)
    if char == "\n":
        raise _Never
    if char == "\0":
        # No argument can hold one.
        return _ANYTHING
    if _stands_for_more(char, flags):
        return _one_of(_constants.LITERAL, code, flags)
    raw = char.encode()
    return _Piece(b"".join(map(escaped, raw)), atom=len(raw) == 1)


def _one_of(op: Any, given: Any, flags: int) -> _Piece:
    """What matches one character. Which ASCII ones it matches, `re` itself is asked."""
    state = _parser.State()
    state.str = ""
    matches = _compiler.compile(_parser.SubPattern(state, [(op, given)]), flags).match
    members = [code for code in range(128) if code != 10 and matches(chr(code))]
    beyond = _beyond_ascii(op, given, flags)
    if not members and not beyond:
        raise _Never
    if members == [0] and not beyond:
        return _ANYTHING
    return _Piece(byte_class(members, beyond) + (b"+" if beyond else b""), atom=not beyond, run=beyond)


def _beyond_ascii(op: Any, given: Any, flags: int) -> bool:
    """Whether it may match a character outside ASCII."""
    if op is _constants.IN:
        return any(_beyond_ascii(kind, value, flags) for kind, value in given)
    unicode = not flags & re.ASCII
    folded = unicode and bool(flags & re.IGNORECASE)
    if op is _constants.LITERAL:
        return given > 127 or (folded and chr(given) in _FOLDED_OUTSIDE_ASCII)
    if op is _constants.RANGE:
        low, high = given
        return high > 127 or (folded and any(low <= ord(char) <= high for char in _FOLDED_OUTSIDE_ASCII))
    if op is _constants.CATEGORY:
        return unicode or "NOT" in str(given)
    # NEGATE, NOT_LITERAL, ANY
    return True


def _group(piece: _Piece) -> _Piece:
    return piece if piece.atom or piece.run or not piece.text else _Piece(b"(" + piece.text + b")", atom=True)


def _branch(alternatives: Sequence[Iterable[Any]], flags: int) -> _Piece:
    texts: list[bytes] = []
    for alternative in alternatives:
        try:
            texts.append(_sequence(alternative, flags).text)
        except _Never:
            continue
    if not texts:
        raise _Never
    choice = b"(" + b"|".join(filter(None, texts)) + b")"
    if choice == b"()":
        return _NOTHING
    # An empty alternative is not POSIX.
    return _Piece(choice, atom=True) if all(texts) else _Piece(choice + b"?")


def _repeat(least: int, most: Any, inner: Iterable[Any], flags: int) -> _Piece:
    try:
        piece = _group(_sequence(inner, flags))
    except _Never:
        if least:
            raise
        return _NOTHING
    text = piece.text
    if most == 0 or not text or text.strip(b"()") in (b"^", b"\r?$", b".*"):
        # A repeated anchor is not POSIX.
        return _ANYTHING if b".*" in text else _NOTHING
    if piece.run:
        return _Piece(text[:-1] + (b"+" if least else b"*"), run=bool(least))
    if least == 0:
        return _Piece(text + (b"?" if most == 1 else b"*"))
    if len(text) * least <= _WRITTEN_OUT:
        return _Piece(text * least + (b"" if most == least else text + b"*"), atom=least == most == 1)
    return _Piece(text + b"+")


def _anchor(where: Any, first: bool, last: bool) -> _Piece:
    """An anchor, where grep surely takes it for one. Word boundaries and the others are left to `re`."""
    if first and where in (_constants.AT_BEGINNING, _constants.AT_BEGINNING_STRING):
        return _Piece(b"^")
    if last and where in (_constants.AT_END, _constants.AT_END_STRING):
        return _Piece(b"\r?$")
    return _NOTHING
