"""What a caller asks of a command, checked and in the words that the guest's functions take. Pure, no I/O."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Mapping

from .wire import quote

# A name in POSIX.1-2017, XBD 3.235: what a shell can set.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

_LONGEST_VARIABLE = 128 * 1024 - 1
"""Bytes of `NAME=value` that Linux passes on to a program: MAX_ARG_STRLEN (its binfmts.h), which counts a NUL."""


def new_mark() -> str:
    """What tells the processes of one command from all others. No secret: it stands in their environment."""
    return secrets.token_hex(8)


def check_env(env: Mapping[str, str]) -> None:
    """Raise `ValueError` for a name that is not a POSIX name, or a value with a NUL."""
    for name, value in env.items():
        if not _NAME.match(name):
            raise ValueError(
                f"{name!r} cannot be the name of an environment variable: letters, digits and `_`, no digit first"
            )
        if "\0" in value:
            raise ValueError(f"the environment variable {name} has a NUL in it, which no program can be given")


def deadline(timeout: float | None, default: float) -> float | None:
    """Seconds that a command may take; None for no limit. Raises `ValueError` for a negative number or NaN."""
    seconds = default if timeout is None else timeout
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"timeout is {seconds}: it must be a number of seconds, or 0 for no limit")
    return None if seconds == 0 or math.isinf(seconds) else float(seconds)


def passes(name: str, value: str) -> bool:
    """Whether a program can be given a variable of that length."""
    return len(name.encode()) + 1 + len(value.encode("utf-8", "surrogateescape")) <= _LONGEST_VARIABLE


def variables(env: Mapping[str, str], mark: str) -> bytes:
    """Shell text on one line that sets the variables of a command, and its mark."""
    return assignments({**env, "DEERFLOW_BOXLITE_COMMAND": mark})


def assignments(env: Mapping[str, str]) -> bytes:
    """Shell text on one line that sets variables, and exports them.

    Those too long to be passed on are not exported: with one of them in its environment no program would start.
    """
    return b"; ".join(
        b"export " + assignment(name, value)
        if passes(name, value)
        else b"unset %s; %s" % (name.encode(), assignment(name, value))
        for name, value in env.items()
    )


def assignment(name: str, value: str) -> bytes:
    """`NAME=value` as shell text."""
    return name.encode() + b"=" + quote(value)


def check_command(command: str) -> None:
    """Raise `ValueError` for a NUL."""
    if "\0" in command:
        raise ValueError("the command has a NUL in it, which no shell can be given")
