"""The shell scripts of this package, as text.

They come without their comments and indentation: a shell reads them byte by byte (loop.sh), at a price, and some show
in argument lists. So no script may have a here-document, or a string in which a line begins with `#` or a tab.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def bare(name: str) -> str:
    """The code of a script of this package: `loop.sh`, say. Raises `FileNotFoundError`."""
    lines = files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines()
    stripped = (line.lstrip("\t") for line in lines)
    return "\n".join(line for line in stripped if line and not line.startswith("#"))


def scripts(*names: str) -> str:
    """The code of several, one after the other."""
    return "\n".join(bare(name) for name in names)


def one_line(name: str) -> str:
    """A script on one line. It has to be written so that this changes nothing."""
    return bare(name).replace("\n", " ")
