"""A directory of the host in which nothing is trusted: every step from its root is taken without following a symlink.

Files there can be written by a box (mounted as a volume) or have been, and the gateway writes there at the same time.
So no path is ever handed to the kernel as a whole: each component is opened from the one before (`openat`, POSIX) with
`O_NOFOLLOW`, and what was opened is looked at, not the name. All functions block for file operations.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .names import MAX_DEPTH

_DIRECTORY = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)

TEMPORARY_PREFIX = b".boxlite-"
TEMPORARY_SUFFIX = b".partial"

_DAY = 86400.0
_PIECE = 1024 * 1024


class Blocked(OSError):
    """Something that is no directory, or no regular file, is where one is needed."""


@dataclass(frozen=True)
class HostStat:
    """What tells whether a file of the host is still the one it was."""

    size: int
    mtime_ns: int
    inode: int
    executable: bool

    @classmethod
    def of(cls, status: os.stat_result) -> HostStat:
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, bool(status.st_mode & 0o111))


class HostTree:
    """A directory of the host and everything below it. Its own path is the operator's and is followed as it stands."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def scan(self, top: bytes, leave_out: Callable[[bytes], bool]) -> dict[bytes, HostStat] | None:
        """The regular files below `top` and what they are, by their paths from the root; None when there is no `top`.

        Symlinks and special files are left out, as is what `leave_out` says and what is deeper than `MAX_DEPTH`. One
        that goes away meanwhile is no error. Temporary files that a killed process left are removed: nothing may
        `install` now.
        """
        found: dict[bytes, HostStat] = {}
        try:
            with self._directory(top) as directory:
                self._scan_into(directory, top, leave_out, found)
        except (FileNotFoundError, Blocked):
            return None
        return found

    def _scan_into(
        self, directory: int, path: bytes, leave_out: Callable[[bytes], bool], found: dict[bytes, HostStat]
    ) -> None:
        for name in sorted(os.listdir(directory)):
            raw = os.fsencode(name)
            below = path + b"/" + raw
            if leave_out(below) or below.count(b"/") >= MAX_DEPTH:
                continue
            if is_temporary(below):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError, PermissionError):
                    os.unlink(raw, dir_fd=directory)
                continue
            with contextlib.suppress(FileNotFoundError, PermissionError, Blocked):
                status = os.stat(raw, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    found[below] = HostStat.of(status)
                elif stat.S_ISDIR(status.st_mode):
                    with _opened(raw, directory) as child:
                        self._scan_into(child, below, leave_out, found)

    def stat(self, path: bytes) -> HostStat | None:
        """What a path is; None when there is nothing. Raises `Blocked` for what is no regular file, and `OSError`."""
        try:
            with self._parent(path) as (directory, name):
                status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(status.st_mode):
            raise Blocked(f"{path!r} is no regular file")
        return HostStat.of(status)

    @contextlib.contextmanager
    def reading(self, path: bytes) -> Iterator[tuple[IO[bytes], HostStat]]:
        """A regular file opened for reading. Raises `Blocked` for what is none, else the matching `OSError`."""
        with self._parent(path) as (directory, name), _blocking_symlinks(path):
            descriptor = os.open(name, _FILE, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise Blocked(f"{path!r} is no regular file")
            yield file, HostStat.of(status)

    def same(self, path: bytes, other: IO[bytes]) -> bool:
        """Whether a file has the content of another. False when it is missing, or is no regular file."""
        other.seek(0)
        try:
            with self.reading(path) as (file, _):
                while True:
                    mine, theirs = file.read(_PIECE), other.read(_PIECE)
                    if mine != theirs:
                        return False
                    if not mine:
                        return True
        except (FileNotFoundError, Blocked):
            return False

    def install(self, source: IO[bytes], path: bytes, *, executable: bool, mtime: float, now: float) -> HostStat:
        """Make a file with the content of `source`: all at once, or not at all. Missing directories are made.

        It is written beside the target and renamed. `mtime` (Unix seconds) is set as far as it makes sense: one before
        1970 or more than a day from now is taken for `now`. A symlink or special file in its place is `Blocked`, as is
        a directory; so is a file in the place of one of its directories.
        """
        self.stat(path)
        with self._parent(path, make=True) as (directory, name):
            temporary = TEMPORARY_PREFIX + os.urandom(8).hex().encode("ascii") + TEMPORARY_SUFFIX
            descriptor = os.open(temporary, _NEW, 0o600, dir_fd=directory)
            try:
                with os.fdopen(descriptor, "wb") as target:
                    source.seek(0)
                    while piece := source.read(_PIECE):
                        target.write(piece)
                    target.flush()
                    os.fchmod(descriptor, 0o755 if executable else 0o644)
                    sensible = mtime if 0 <= mtime <= now + _DAY else now
                    os.utime(descriptor, (sensible, sensible))
                    # What is in the manifest must be on the disk.
                    os.fsync(descriptor)
                    status = os.fstat(descriptor)
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=directory)
                raise
            return HostStat.of(status)

    def keep_beside(self, path: bytes) -> bytes:
        """Give a file a second name, NAME.host-1 or the next that is free, and return that path. Raises `OSError`."""
        with self._parent(path) as (directory, name):
            number = 1
            while True:
                second = name + b".host-%d" % number
                try:
                    os.link(name, second, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
                except FileExistsError:
                    number += 1
                else:
                    return path[: len(path) - len(name)] + second

    def remove(self, path: bytes, depth: int) -> None:
        """Remove a file and then those of its directories that are empty, up to `depth` components from the root.

        One that is gone is no error. Raises `Blocked` for what is no regular file.
        """
        if self.stat(path) is None:
            return
        with self._parent(path) as (directory, name), contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        parts = path.split(b"/")[:-1]
        while len(parts) > depth:
            with self._parent(b"/".join(parts)) as (directory, name):
                try:
                    os.rmdir(name, dir_fd=directory)
                except OSError:
                    return  # It is not empty.
            parts.pop()

    @contextlib.contextmanager
    def _parent(self, path: bytes, *, make: bool = False) -> Iterator[tuple[int, bytes]]:
        above, _, name = path.rpartition(b"/")
        with self._directory(above, make=make) as directory:
            yield directory, name

    @contextlib.contextmanager
    def _directory(self, path: bytes, *, make: bool = False) -> Iterator[int]:
        with contextlib.ExitStack() as stack:
            if make:
                self._root.mkdir(parents=True, exist_ok=True)
            current = os.open(self._root, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
            stack.callback(os.close, current)
            for part in path.split(b"/") if path else ():
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o777, dir_fd=current)
                current = stack.enter_context(_opened(part, current))
            yield current


def is_temporary(path: bytes) -> bool:
    """Whether a path is a file of ours that a process which was killed could not rename."""
    name = path.rpartition(b"/")[2]
    return name.startswith(TEMPORARY_PREFIX) and name.endswith(TEMPORARY_SUFFIX)


@contextlib.contextmanager
def _opened(name: bytes, parent: int) -> Iterator[int]:
    with _blocking_symlinks(name):
        descriptor = os.open(name, _DIRECTORY, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _blocking_symlinks(path: bytes) -> Iterator[None]:
    """`Blocked` for what opening a symlink with `O_NOFOLLOW`, or a file as a directory, raises (ELOOP, ENOTDIR)."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
            raise Blocked(f"{path!r}: {error.strerror}") from error
        raise
