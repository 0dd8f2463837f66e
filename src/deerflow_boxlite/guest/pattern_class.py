"""Single characters in POSIX regular expressions: escapes and bracket expressions, for LC_ALL=C."""

from __future__ import annotations

from collections.abc import Collection, Iterator

_SPECIAL = frozenset(b".[\\()*+?{|^$")
_CAREFUL = b"]\\[^-"
"""What means something within brackets, in an order in which, after all others, it doesn't."""


def escaped(byte: int) -> bytes:
    """A byte that stands for itself in an ERE."""
    return b"\\" + bytes([byte]) if byte in _SPECIAL else bytes([byte])


def byte_class(members: Collection[int], beyond: bool) -> bytes:
    """An ERE for one byte of `members` (ASCII codes, not a newline) or, if `beyond`, any byte above 0x7F.

    A NUL can only be among what brackets do not list: no argument can hold one. At least one byte must be meant.
    """
    if 0 in members:
        return _except([code for code in range(1, 128) if code not in members and code != 10], beyond)
    if len(members) == 1 and not beyond:
        return escaped(next(iter(members)))
    return b"[" + _listed(members, beyond) + b"]"


def _except(others: Collection[int], beyond: bool) -> bytes:
    return b"[^" + _listed(others, not beyond) + b"]" if others or not beyond else b"."


def _listed(members: Collection[int], beyond: bool) -> bytes:
    plain = b"".join(_ranges(sorted(set(members) - set(_CAREFUL)))) + (b"\x80-\xff" if beyond else b"")
    careful = [bytes([code]) for code in _CAREFUL if code in members]
    if b"]" in careful:
        plain = b"]" + plain
        careful.remove(b"]")
    if not plain and careful[:1] == [b"^"]:
        careful.reverse()
    return plain + b"".join(careful)


def _ranges(codes: list[int]) -> Iterator[bytes]:
    start = 0
    for at, code in enumerate(codes):
        if at + 1 == len(codes) or codes[at + 1] != code + 1:
            first, last = bytes([codes[start]]), bytes([code])
            yield first if first == last else first + (last if at == start + 1 else b"-" + last)
            start = at + 1
