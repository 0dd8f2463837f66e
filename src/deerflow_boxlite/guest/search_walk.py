"""Walks through a tree of a box: one `find` for each."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from .files_copy import INLINE_OF_MANY, Guest, Scratch, call
from .files_errors import code_of, os_error
from .search_names import END, Found, parse_listing

LISTING_LIMIT = 256 * 1024 * 1024
"""Bytes of names that one walk may bring back."""

_PASSED_OVER = frozenset({errno.EACCES, errno.EPERM, errno.ENOENT})
"""What may be wrong with a file further down: it is not ours to read, or is gone since it was listed."""


async def walk(
    guest: Guest, scratch: Scratch, root: str, tests: Sequence[str], directories: str, names: str
) -> list[Found]:
    """What is below a directory: directories named `directories`, all else named `names` (find's patterns).

    `tests` come first in find's expression. What cannot be read further down is passed over. Raises the matching
    `OSError` about the root.
    """
    async with scratch.file() as file:
        reply = await call(guest, root, "dfb_walk", root, file.path, str(INLINE_OF_MANY), directories, names, *tests)
        whole = int(reply.words[1]) <= INLINE_OF_MANY
        listing = await file.bytes(reply.parts[0], whole=whole, limit=LISTING_LIMIT, name=root)
    check_walk(int(reply.words[2]), reply.parts[1], root)
    if not listing.endswith(END):
        raise os_error(reply.parts[1] or "the listing is not whole", root)
    return parse_listing(listing)


def check_walk(status: int, message: str, root: str) -> None:
    """Raise `OSError` for a walk that ended for another reason than that some files could not be read."""
    if status > 1 or (message and code_of(message) not in _PASSED_OVER) or (status and not message):
        raise os_error(message or f"find ended with exit code {status}", root)
