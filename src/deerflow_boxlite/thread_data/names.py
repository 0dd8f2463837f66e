"""Names of files as they go between a box and the host: relative paths in bytes, below the thread's directory.

The thread's directory on the host and `/mnt` in a box have the same layout below them, so a file has one name for both.
"""

from __future__ import annotations

GUEST_BASE = "/mnt"
UPLOADS = b"user-data/uploads"
WORKSPACE = b"user-data/workspace"
OUTPUTS = b"user-data/outputs"
ACP_WORKSPACE = b"acp-workspace"
"""Where DeerFlow's other agents (ACP) leave their results, for the box to read."""

FROM_HOST = (UPLOADS, ACP_WORKSPACE)
"""What only the host writes, as far as the host is concerned: never copied from the box."""
BOTH_WAYS = (OUTPUTS, WORKSPACE)
"""What the agent writes, in the order of what matters when a cap cuts a pass short."""

LEFT_IN_BOX = (b"node_modules", b"__pycache__", b".venv", b"venv", b".tox", b".nox", b".mypy_cache", b".pytest_cache")
"""Directories of the workspace that stay in the box: tools make them again, and they are thousands of files."""

MAX_DEPTH = 64
"""How many directories deep a file may lie: enough for people, and few enough to hold one descriptor for each."""

_LONGEST_NAME = 255
_LONGEST_PATH = 4096


def is_safe(path: bytes) -> bool:
    """Whether a path is one below the roots, in the only way to write it, so that it cannot lead anywhere else."""
    parts = path.split(b"/")
    return (
        0 < len(path) < _LONGEST_PATH
        and path.count(b"/") < MAX_DEPTH
        and b"\0" not in path
        and all(0 < len(part) <= _LONGEST_NAME and part not in (b".", b"..") for part in parts)
        and root_of(path) is not None
    )


def root_of(path: bytes) -> bytes | None:
    """Which of the roots a path lies below; None for none. A root does not lie below itself."""
    for root in (*BOTH_WAYS, *FROM_HOST):
        if path.startswith(root + b"/"):
            return root
    return None


def stays_in_box(path: bytes) -> bool:
    """Whether a path lies in a directory of the workspace that is not copied."""
    return path.startswith(WORKSPACE + b"/") and any(part in LEFT_IN_BOX for part in path.split(b"/")[2:-1])


def text(path: bytes) -> str:
    """A path as text, for reports and the manifest. `data` turns it back."""
    return path.decode("utf-8", "surrogateescape")


def data(path: str) -> bytes:
    """A path from its text."""
    return path.encode("utf-8", "surrogateescape")
