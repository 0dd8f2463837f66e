"""What an image offers, and what a box needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ImageError

NEEDED = (
    "cat", "chmod", "chown", "cp", "find", "grep", "head", "ls", "mkdir", "mkfifo", "mv", "rm", "sed", "sleep", "sort",
    "tail", "tr", "wc",
)  # fmt: skip
"""The programs that our scripts cannot do without. Every busybox and coreutils image has them."""


@dataclass(frozen=True)
class Userland:
    """What a look at a box found."""

    uid: int
    gid: int
    """Of the image's user."""
    bash: str | None
    """Its path."""


def read(words: Sequence[str], image: str) -> Userland:
    """The reply of dfb_look. Raises `ImageError`, naming the image and what it lacks."""
    uid, gid, bash, *missing = words
    if missing:
        raise ImageError(
            f"the image {image} lacks {', '.join(missing)}: a box needs a POSIX userland such as coreutils or busybox. "
            "Choose another `image`, or add what is missing to yours"
        )
    return Userland(int(uid), int(gid), None if bash == "none" else bash)
