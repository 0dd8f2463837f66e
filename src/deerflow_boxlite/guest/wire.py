"""What goes over a channel: requests as lines of shell text, replies framed by a nonce. Pure, no I/O.

A request is one line, `dfb_call NONCE FUNCTION WORD...`, that the guest's shell evaluates. A reply is a header line
(`NONCE` `H` and words), any number of parts (a text, then `NONCE` `P`) and an end (`NONCE` `E`). A text is whatever
stands between two marks, to the character: the runtime gives us decoded text, so a length in bytes could not frame it.
The nonce is random for each request and known to nothing that a command can print: no output looks like a frame.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

NONCE_DIGITS = 32

_LOST = "\N{REPLACEMENT CHARACTER}"
_WORD = re.compile(rb"[A-Za-z0-9_@%+=:,./-]+\Z")
_HEADER_LIMIT = 65536


class BadReply(Exception):
    """What came is no reply to the request: the shell at the other end is not what it was."""


@dataclass(frozen=True)
class Reply:
    """The answer of a guest function: the words of its header, and its texts."""

    words: tuple[str, ...]
    parts: tuple[str, ...]


def exact(text: str) -> bool:
    """Whether no byte of a text was lost to decoding. A U+FFFD that really was there counts as lost."""
    return _LOST not in text


def new_nonce() -> str:
    """128 random bits in hex."""
    return secrets.token_hex(NONCE_DIGITS // 2)


def quote(word: str | bytes) -> bytes:
    """A word as shell text on a single line. Newlines become `"$dfb_nl"` (boot.sh).

    A str is encoded as UTF-8, lone surrogates as the bytes they stand for (PEP 383). Raises `ValueError` for a NUL.
    """
    raw = word.encode("utf-8", "surrogateescape") if isinstance(word, str) else word
    if b"\0" in raw:
        raise ValueError("a NUL cannot be given to a shell")
    if _WORD.match(raw):
        return raw
    return b"'" + raw.replace(b"'", b"'\\''").replace(b"\n", b"'\"$dfb_nl\"'") + b"'"


def request_line(nonce: str, words: Iterable[str | bytes]) -> bytes:
    """The line that asks for a function. Raises `ValueError` for a NUL in a word."""
    return b" ".join((b"dfb_call", nonce.encode("ascii"), *(quote(word) for word in words))) + b"\n"


def library_line(text: str) -> bytes:
    """The line that boot.sh evaluates: `text` is shell text of any number of lines."""
    return b"eval " + quote(text) + b"\n"


class ReplyParser:
    """Takes the text of a channel as it comes and finds the reply to one nonce in it.

    Text before the header belongs to no reply (a background child got hold of the descriptor) and is skipped.
    """

    def __init__(self, nonce: str, limit: int) -> None:
        """`limit`: how many characters to take in all before the other end counts as gone mad."""
        self._nonce = nonce
        self._left = limit
        self._rest = ""
        self._text: list[str] = []
        self._words: tuple[str, ...] | None = None
        self._parts: list[str] = []

    def feed(self, text: str) -> Reply | None:
        """Take more text; the reply when it is whole. Raises `BadReply`."""
        self._left -= len(text)
        if self._left < 0:
            raise BadReply("the reply has no end")
        self._rest += text
        while (at := self._rest.find(self._nonce)) >= 0:
            self._take(self._rest[:at])
            self._rest = self._rest[at:]
            line, newline, after = self._rest.partition("\n")
            if not newline:
                if len(line) > _HEADER_LIMIT:
                    raise BadReply("a mark without an end")
                return None
            self._rest = after
            if self._mark(line[NONCE_DIGITS:]):
                return Reply(self._words or (), tuple(self._parts))
        self._take(self._rest[: 1 - NONCE_DIGITS])
        self._rest = self._rest[1 - NONCE_DIGITS :]
        return None

    def _take(self, text: str) -> None:
        if text and self._words is not None:
            self._text.append(text)

    def _mark(self, mark: str) -> bool:
        """Act on a mark; whether it is the last."""
        if self._words is None and mark.startswith("H "):
            self._words = tuple(mark[2:].split(" "))
        elif self._words is not None and mark == "P":
            self._parts.append("".join(self._text))
            self._text.clear()
        elif self._words is not None and mark == "E":
            if self._text:
                raise BadReply("text after the last part")
            return True
        else:
            raise BadReply(f"unexpected mark {mark[:80]!r}")
        return False
