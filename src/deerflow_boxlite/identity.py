"""Whose box it is, and the names that follow from that."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

BOX_PREFIX = "deer-flow-boxlite-"
"""How the names of our boxes begin in BoxLite's home. Boxes named otherwise belong to someone else."""

DEFAULT_USER = "default"
"""The user where none is given; the same as DeerFlow's `DEFAULT_USER_ID`."""


@dataclass(frozen=True)
class Identity:
    """One user's thread. It has one box, and no other identity ever gets that box."""

    user_id: str
    thread_id: str

    @property
    def sandbox_id(self) -> str:
        """32 hex digits, the same in every process and release; DeerFlow reserves ids that begin with `local`.

        Each part is hashed with its length in front, so that ("a:b", "c") and ("a", "b:c") differ.
        """
        digest = hashlib.sha256(b"deerflow-boxlite identity 1\n")
        for part in (self.user_id, self.thread_id):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(data) + data)
        return digest.hexdigest()[:32]

    @classmethod
    def anonymous(cls, user_id: str = DEFAULT_USER) -> Identity:
        """An identity that nobody has had before, for `acquire(None)`."""
        return cls(user_id, f"anonymous-{uuid.uuid4()}")


def box_name(sandbox_id: str) -> str:
    """The name of a sandbox's box in BoxLite's home."""
    return BOX_PREFIX + sandbox_id


def sandbox_id_of(name: str) -> str | None:
    """The sandbox whose box has this name, or None when it is not one of ours."""
    rest = name.removeprefix(BOX_PREFIX)
    ours = rest != name and len(rest) == 32 and set(rest) <= set("0123456789abcdef")
    return rest if ours else None
