"""What `contract` gives where DeerFlow is not installed: the same names with the same meaning.

A test compares these with DeerFlow's own (`deerflow.sandbox`) where that is installed.
"""

from __future__ import annotations

import asyncio
import fnmatch
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

# Names that searches leave out, at any depth: version control, dependencies, caches, build output, editors' leavings.
IGNORE_PATTERNS = [
    *(".git", ".svn", ".hg", ".bzr"),
    *("node_modules", "__pycache__", ".venv", "venv", ".env", "env", ".tox", ".nox", ".eggs", "*.egg-info"),
    *("site-packages", "dist", "build", ".next", ".nuxt", ".output", ".turbo", "target", "out"),
    *(".idea", ".vscode", "*.swp", "*.swo", "*~", ".project", ".classpath", ".settings"),
    *(".DS_Store", "Thumbs.db", "desktop.ini", "*.lnk"),
    *("*.log", "*.tmp", "*.temp", "*.bak", "*.cache", ".cache", "logs"),
    *(".coverage", "coverage", ".nyc_output", "htmlcov", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
]

# `grep` leaves larger files out, and cuts longer lines.
DEFAULT_MAX_FILE_SIZE_BYTES = 1_000_000
DEFAULT_LINE_SUMMARY_LENGTH = 200


@dataclass(frozen=True)
class GrepMatch:
    """A line that `grep` found: the file's absolute path, the line's number from 1, and its text, perhaps cut."""

    path: str
    line_number: int
    line: str


def should_ignore_name(name: str) -> bool:
    """Whether searches leave out a file or directory of this name."""
    return any(fnmatch.fnmatch(name, pattern) for pattern in IGNORE_PATTERNS)


def path_matches(pattern: str, rel_path: str) -> bool:
    """Whether a path relative to the search's root matches a glob pattern. A leading ``**/`` may stand for nothing."""
    path = PurePosixPath(rel_path)
    return path.match(pattern) or (pattern.startswith("**/") and path.match(pattern[3:]))


def truncate_line(line: str, max_chars: int = DEFAULT_LINE_SUMMARY_LENGTH) -> str:
    """Return `line` without its line end, cut to `max_chars` characters with ``...`` at its end if it is longer."""
    text = line.rstrip("\n\r")
    return text if len(text) <= max_chars else text[: max_chars - 3] + "..."


class SandboxError(Exception):
    """Base of errors about a sandbox: a message, and details that are appended to it."""

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}

    def __str__(self) -> str:
        if not self.details:
            return self.message
        return f"{self.message} ({', '.join(f'{key}={value}' for key, value in self.details.items())})"


class Sandbox(ABC):
    """A computer that an agent works on. Every method blocks."""

    def __init__(self, id: str) -> None:
        self._id = id

    @property
    def id(self) -> str:
        """The id its provider knows it by."""
        return self._id

    @abstractmethod
    def execute_command(self, command: str, env: Mapping[str, str] | None = None, timeout: float | None = None) -> str:
        """Run a shell command and return what it printed. `timeout` is in seconds."""

    @abstractmethod
    def read_file(self, path: str, start_line: int | None = None, end_line: int | None = None) -> str:
        """Return a file's text, or its lines from `start_line` to `end_line`, both counted from 1 and included."""

    @abstractmethod
    def download_file(self, path: str) -> bytes:
        """Return a file's bytes. Raises `PermissionError` outside `VIRTUAL_PATH_PREFIX`, any `OSError` else."""

    @abstractmethod
    def list_dir(self, path: str, max_depth: int = 2) -> list[str]:
        """Return the paths below a directory, down to `max_depth` levels."""

    @abstractmethod
    def write_file(self, path: str, content: str, append: bool = False) -> None:
        """Write text to a file, or append it."""

    @abstractmethod
    def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        """Return the paths below `path` that match `pattern`, and whether there are more than `max_results`."""

    @abstractmethod
    def grep(
        self,
        path: str,
        pattern: str,
        *,
        glob: str | None = None,
        literal: bool = False,
        case_sensitive: bool = False,
        max_results: int = 100,
    ) -> tuple[list[GrepMatch], bool]:
        """Return the lines below `path` that match `pattern`, and whether there are more than `max_results`."""

    @abstractmethod
    def update_file(self, path: str, content: bytes) -> None:
        """Write bytes to a file."""


class SandboxProvider(ABC):
    """Gives threads their sandboxes. Every method blocks except `get` and, for the event loop, `acquire_async`."""

    # Whether the thread's directories on the host are the sandbox's own, so that uploads need no copying.
    uses_thread_data_mounts: bool = False
    # Whether the gateway must make uploaded files writable for the sandbox's user.
    needs_upload_permission_adjustment: bool = True

    @abstractmethod
    def acquire(self, thread_id: str | None = None, *, user_id: str | None = None) -> str:
        """Return the id of the thread's sandbox, ready for use; of a new one without a thread."""

    async def acquire_async(self, thread_id: str | None = None, *, user_id: str | None = None) -> str:
        """Do as `acquire`, without blocking the event loop."""
        return await asyncio.to_thread(self.acquire, thread_id, user_id=user_id)

    @abstractmethod
    def get(self, sandbox_id: str) -> Sandbox | None:
        """Return the sandbox of that id, or None when there is none."""

    @abstractmethod
    def release(self, sandbox_id: str) -> None:
        """End the use of a sandbox for now."""

    def reset(self) -> None:  # noqa: B027 - DeerFlow's is not abstract either: a provider may have nothing to do.
        """Clear what would survive this provider's replacement by another."""
