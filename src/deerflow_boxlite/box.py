"""`BoxliteBox`: DeerFlow's synchronous `Sandbox` on one identity's box."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from .contract import GrepMatch, Sandbox

if TYPE_CHECKING:
    from .engine import Engine
    from .guest.guest import Guest
    from .guest.result import CommandResult

T = TypeVar("T")


class BoxliteBox(Sandbox):
    """A handle on the box of one identity. It never goes stale: an operation boots the box again when it was stopped.

    Every method blocks the calling thread until it is done, may be called from any thread, and several may run at once.
    Beside what each names, all of them raise `BoxDiedError` when the VM dies under them (the box's files are kept and
    the next operation boots it again), `BoxBootError`, `CapacityError` or `HostError` when it has to boot and cannot,
    and `ClosedError` after the provider's `shutdown()`.
    """

    def __init__(self, id: str, engine: Engine) -> None:
        super().__init__(id)
        self._engine = engine

    # -- commands ---------------------------------------------------------------------------------------------------

    def execute_command(self, command: str, env: Mapping[str, str] | None = None, timeout: float | None = None) -> str:
        """Run a shell command and give what it printed, told the way DeerFlow's local sandbox tells it.

        Standard output, then standard error, then the exit code when it is not 0; `(no output)` when there is nothing
        to say. `env` and `timeout` (seconds) are as for `run`, and so are the errors.
        """
        return self.run(command, env=env, timeout=timeout).told()

    def run(self, command: str, *, env: Mapping[str, str] | None = None, timeout: float | None = None) -> CommandResult:
        """Run a shell command and give its exit code, standard output and standard error apart.

        `env` is set for this command alone, over the configured `environment`. `timeout` is in seconds; `None` means
        the configured `command_timeout`, 0 none. At the deadline the command is killed with all its descendants, and
        what it had printed comes back with `timed_out` set. Standard input is at end of file. Background processes it
        leaves behind live on.

        Raises `ValueError` for a NUL in the command, a name in `env` that is not a POSIX name, or a bad timeout.
        """
        return self._operate(lambda guest: guest.run(command, env=env, timeout=timeout))

    def stream(
        self, command: str, *, env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> Iterator[tuple[str, str]]:
        """Run a shell command and yield `("stdout" | "stderr", text)` as it prints, then `("exit", code)`.

        Closing the iterator early kills the command. Otherwise as `run`; no output is cut.
        """
        return self._engine.stream(self.id, lambda guest: guest.stream(command, env=env, timeout=timeout))

    # -- files ------------------------------------------------------------------------------------------------------

    def read_file(self, path: str, start_line: int | None = None, end_line: int | None = None) -> str:
        """The text of a file, or of its lines `start_line` to `end_line` (from 1, both included), cut inside the box.

        Raises the matching `OSError`; `UnicodeDecodeError` for a file that is not UTF-8.
        """
        return self._operate(lambda guest: guest.files.read(path, start_line, end_line))

    def write_file(self, path: str, content: str, append: bool = False) -> None:
        """Write text to a file, making missing parents; `append` adds it at the end.

        Replacing is atomic and keeps the mode and owner of an existing file: a failed write leaves the old one whole.
        A write that has returned survives a crash of the VM. Raises the matching `OSError`.
        """
        self._operate(lambda guest: guest.files.write(path, content, append))

    def update_file(self, path: str, content: bytes) -> None:
        """Write bytes to a file, as `write_file` does. This is how DeerFlow's upload routes bring files in.

        They acquire and never release: a box that has seen nothing else may be stopped when another needs its place.
        """
        self._operate(lambda guest: guest.files.write(path, content), uploads=True)

    def upload_from(self, source: Path, path: str) -> None:
        """Write a host file of any size to a file of the box, as `write_file` does."""
        self._operate(lambda guest: guest.files.upload_from(source, path), uploads=True)

    def download_file(self, path: str) -> bytes:
        """The bytes of a file under `/mnt/user-data`, of at most 100 MB (DeerFlow's contract).

        Raises `PermissionError` for a path elsewhere or with `..`, `OSError` with `EFBIG` for a larger file, else the
        matching `OSError`.
        """
        return self._operate(lambda guest: guest.files.download(path))

    def download_to(self, path: str, target: Path) -> None:
        """Copy a file of any size from the box to a host file. Raises the matching `OSError`."""
        self._operate(lambda guest: guest.files.download_to(path, target))

    def list_dir(self, path: str, max_depth: int = 2) -> list[str]:
        """Absolute paths below a directory, sorted, directories ending in `/`, DeerFlow's ignored names left out.

        Raises the matching `OSError`; an empty list means an empty directory.
        """
        return self._operate(lambda guest: guest.files.list_dir(path, max_depth))

    # -- search -----------------------------------------------------------------------------------------------------

    def glob(
        self, path: str, pattern: str, *, include_dirs: bool = False, max_results: int = 200
    ) -> tuple[list[str], bool]:
        """Files below `path` that match a glob pattern, sorted, and whether there are more than `max_results`.

        Patterns mean what they mean to DeerFlow's local sandbox. Raises the matching `OSError`.
        """
        return self._operate(
            lambda guest: guest.search.glob(path, pattern, include_dirs=include_dirs, max_results=max_results)
        )

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
        """Lines of text files below `path` that a Python regular expression matches, and whether there are more.

        Raises `re.error` for an invalid pattern, else the matching `OSError`.
        """
        return self._operate(
            lambda guest: guest.search.grep(
                path, pattern, glob=glob, literal=literal, case_sensitive=case_sensitive, max_results=max_results
            )
        )

    def _operate(self, operation: Callable[[Guest], Awaitable[T]], *, uploads: bool = False) -> T:
        return self._engine.operate(self.id, operation, uploads=uploads)
