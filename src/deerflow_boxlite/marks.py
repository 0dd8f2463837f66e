"""When each box was last used, and what it was made from: a small file per box in the home.

BoxLite knows when a box was started, not when it was last used, and nothing of our settings. The file's modification
time is the last use by the wall clock; its text is the box's `spec.fingerprint`.
"""

from __future__ import annotations

from pathlib import Path

from .home import OUR_DIRECTORY


class Marks:
    """The marks of one home. Every method blocks for one or two small file operations and may raise `OSError`."""

    def __init__(self, home: Path) -> None:
        self._directory = home / OUR_DIRECTORY / "boxes"

    def used(self, name: str) -> None:
        """The box is being used now."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / name).touch()

    def made(self, name: str, fingerprint: str) -> None:
        """The box was made just now, from these settings."""
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / name).write_text(fingerprint, encoding="utf-8")

    def last_use(self, name: str) -> float | None:
        """Unix seconds; None when nothing is known of the box."""
        try:
            return (self._directory / name).stat().st_mtime
        except FileNotFoundError:
            return None

    def fingerprint(self, name: str) -> str | None:
        """What the box was made from; None when that is not known."""
        try:
            return (self._directory / name).read_text(encoding="utf-8") or None
        except FileNotFoundError:
            return None

    def forget(self, name: str) -> None:
        """The box is gone."""
        (self._directory / name).unlink(missing_ok=True)
