"""The claim of this process on a BoxLite home, and who has it otherwise.

BoxLite locks a home itself, but only once the first box is needed; a second gateway on the same home would start and
then fail on every command. Our own lock is taken when the engine is made, so that it fails at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from filelock import FileLock, Timeout

from .errors import HomeInUseError

BOXLITE_LOCK = ".lock"
"""BoxLite's own lock in a home (0.10.8): held by `flock` for as long as a runtime is open on it."""

OUR_DIRECTORY = "deerflow-boxlite"
"""Our files in the home."""


class HomeClaim:
    """This process's claim on a home, from construction until `release` or the end of the process."""

    def __init__(self, home: Path) -> None:
        """Take the claim. Blocks for a few file operations.

        Raises `HomeInUseError` when another process has it, or any BoxLite runtime is open on the home, and `OSError`
        when the home cannot be made or written.
        """
        self._directory = home / OUR_DIRECTORY
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self._directory / "claim.lock", thread_local=False)
        self._holder = self._directory / "claim.holder"
        try:
            self._lock.acquire(blocking=False)
        except Timeout:
            raise HomeInUseError(in_use_message(home)) from None
        if _flocked(home / BOXLITE_LOCK):
            self._lock.release()
            raise HomeInUseError(in_use_message(home))
        self._holder.write_text(f"{os.getpid()}\n", encoding="ascii")

    def release(self) -> None:
        """Give the claim up. Doing so twice does nothing."""
        if self._lock.is_locked:
            self._holder.unlink(missing_ok=True)
            self._lock.release()


def in_use_message(home: Path) -> str:
    """What to tell the one who finds the home in use: which home, who has it, and what to do."""
    return (
        f"the BoxLite home {home} is in use by {_holder(home)}. Only one process at a time can run boxes in a home: "
        "stop that process, or set `home_dir` in the sandbox settings to another directory for this one "
        "(with several gateway workers: one worker, or a home for each)"
    )


def _holder(home: Path) -> str:
    for lock in (home / OUR_DIRECTORY / "claim.lock", home / BOXLITE_LOCK):
        pid = _flock_holder(lock)
        if pid is not None:
            return _process(pid)
    with contextlib.suppress(OSError, ValueError):
        return _process(int((home / OUR_DIRECTORY / "claim.holder").read_text(encoding="ascii")))
    return "another process"


def _process(pid: int) -> str:
    if pid == os.getpid():
        return f"another BoxLite runtime in this same process ({pid})"
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return f"process {pid}"
    command = " ".join(b" ".join(words).decode("utf-8", "replace").split())
    return f"process {pid} ({command[:200]})" if command else f"process {pid}"


def _flock_holder(path: Path) -> int | None:
    """The process that holds the `flock` on a file, from `/proc/locks` (proc(5)); None where that cannot be told."""
    try:
        status = path.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in lines:
        # "1: FLOCK  ADVISORY  WRITE 20987 fe:00:2146317 0 EOF"; a process of another namespace is 0 or below.
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5] == wanted and int(fields[4]) > 0:
            return int(fields[4])
    return None


def _flocked(path: Path) -> bool:
    """Whether someone holds the `flock` on a file. Leaves the lock as it was."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def in_use(home: Path) -> bool:
    """Whether anyone, this process too, has a claim on the home or a BoxLite runtime open on it. Changes nothing."""
    return any(_flocked(lock) for lock in (home / OUR_DIRECTORY / "claim.lock", home / BOXLITE_LOCK))
