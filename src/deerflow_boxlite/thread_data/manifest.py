"""What the last passes left on both sides, per box: what tells "changed since then" from "as it was".

It lies in the BoxLite home, which no box and no agent sees. Losing it loses no file: all then counts as never seen, is
compared by content, and nothing is removed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from . import names
from .tree import HostStat

logger = logging.getLogger(__name__)

VERSION = 1


@dataclass(frozen=True)
class GuestStat:
    """What tells whether a file of a box is still the one it was. Times are whole seconds of the box's clock."""

    size: int
    mtime: int
    ctime: int
    inode: int
    """0 for one that was put in by us: only its size and time are known, and `ctime` is the latest it can have."""
    executable: bool

    def still(self, now: GuestStat) -> bool:
        """Whether `now` is the same file, unchanged. `self` is what was noted."""
        if (self.size, self.mtime, self.executable) != (now.size, now.mtime, now.executable):
            return False
        if self.inode == 0:
            return now.ctime <= self.ctime
        return (self.ctime, self.inode) == (now.ctime, now.inode)


@dataclass
class Entry:
    """A file that both sides have had."""

    host: HostStat
    guest: GuestStat
    digest: str
    """Of the content that both had (`digest_of`)."""
    certain: bool = True
    """Whether a change in the box after that shows in `guest` in every case; else the content is compared once more."""


@dataclass
class Manifest:
    """The files of one box that both sides have had, by their paths. Whoever uses it holds `lock`, briefly."""

    path: Path
    files: dict[bytes, Entry] = field(default_factory=dict)
    skills: str | None = None
    """Digest of the skills that were put into the box."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read it; an empty one when there is none, or it cannot be understood (which is logged). Blocks."""
        try:
            content = json.loads(path.read_text(encoding="ascii"))
            if content["version"] != VERSION:
                raise ValueError(f"version {content['version']}")
            files = {names.data(name): _entry(sides) for name, sides in content["files"].items()}
            return cls(path, files, content["skills"])
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("the list of copied files %s cannot be used, all files are compared: %s", path, error)
            return cls(path)

    def clear(self) -> None:
        """Forget everything, on the disk too: the box has a new disk. Blocks."""
        with self.lock:
            self.files.clear()
            self.skills = None
            self.path.unlink(missing_ok=True)

    def save(self) -> None:
        """Write it, all at once or not at all. Blocks. Raises `OSError`."""
        with self.lock:
            content = {
                "version": VERSION,
                "skills": self.skills,
                "files": {names.text(name): _row(entry) for name, entry in self.files.items()},
            }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        with temporary.open("w", encoding="ascii") as file:
            json.dump(content, file, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def _row(entry: Entry) -> list[Any]:
    return [list(vars(entry.host).values()), list(vars(entry.guest).values()), entry.digest, entry.certain]


def _entry(row: list[Any]) -> Entry:
    host, guest, digest, certain = row
    return Entry(HostStat(*host), GuestStat(*guest), digest, certain)


def digest_of(content: IO[bytes]) -> str:
    """Of the whole of an open file, from its start. Blocks."""
    content.seek(0)
    digest = hashlib.blake2b(digest_size=16)
    while piece := content.read(1024 * 1024):
        digest.update(piece)
    return digest.hexdigest()
