"""The shell scripts of this package, as text."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def script(name: str) -> str:
    """The text of a script of this package: `loop.sh`, say. Raises `FileNotFoundError`."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def scripts(*names: str) -> str:
    """The texts of several, one after the other."""
    return "\n".join(script(name) for name in names)


@cache
def bare(name: str) -> str:
    """A script without its comment lines, for where it shows: in an argument list."""
    return "\n".join(line for line in script(name).splitlines() if not line.startswith("#"))


@cache
def one_line(name: str) -> str:
    """A script on one line and without its comments. It has to be written so that this changes nothing."""
    return " ".join(line.strip() for line in bare(name).splitlines())
