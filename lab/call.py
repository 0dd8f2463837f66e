"""A command as the emulated host gets it: files in a directory that it can read, and the mark that ends the output."""

from __future__ import annotations

import os
import re
import resource
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# What means nothing there: displays, agents and buses are not reached, and temporary files have a disk of their own.
_LEFT_OUT = frozenset(
    {
        "DBUS_SESSION_BUS_ADDRESS",
        "DISPLAY",
        "SSH_AUTH_SOCK",
        "TEMP",
        "TMP",
        "WAYLAND_DISPLAY",
        "XAUTHORITY",
        "XDG_RUNTIME_DIR",
    }
)
_SET = {"LAB_OUT": "/lab/out", "TMPDIR": "/lab/tmp"}


def environment(caller: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command in the lab, given that of its caller."""
    return {**{name: value for name, value in caller.items() if name not in _LEFT_OUT}, **_SET}


def script(command: Sequence[str], directory: str, variables: Mapping[str, str], open_files: tuple[int, int]) -> bytes:
    """Return the shell script that runs `command` in `directory` with exactly the environment `variables`.

    `open_files` are the soft and hard limits of open files, in that order. The script's exit status is the
    command's, 128+n for signal n, 127 if there is no such program, 126 if it cannot be run.
    """
    soft, hard = open_files
    # env sets any name, where a shell would drop those that are not identifiers; and setsid, which is an argument
    # here, lets the command's own name have a "=". Both the machine's own: busybox would run its applets in the
    # place of programs of the same name.
    words = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in variables.items()), "/usr/bin/setsid"]
    lines = [
        f"ulimit -H -n {hard}",
        f"ulimit -S -n {soft}",
        f"cd -- {shlex.quote(directory)} || exit 126",
        f"exec {shlex.join([*words, *command])}",
    ]
    return os.fsencode("\n".join(lines) + "\n")


def open_file_limits() -> tuple[int, int]:
    """Return this process's limits of open files, as far as a Linux with default settings allows them."""
    soft, hard = (1024 * 1024 if limit < 0 else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE))
    return min(soft, 1024 * 1024), min(hard, 1024 * 1024)


def new_mark() -> bytes:
    """Return the bytes that end the output of one run: no command prints them by chance."""
    return b"\0lab:" + secrets.token_hex(16).encode() + b":"


def write(directory: Path, command: bytes, mark: bytes) -> None:
    """Write what guest.sh reads: the script and the mark."""
    directory.mkdir()
    (directory / "command").write_bytes(command)
    (directory / "mark").write_bytes(mark)


@dataclass
class Output:
    """Splits what comes from the emulated host into the command's output and, after the mark, its exit status."""

    mark: bytes
    status: int | None = None
    _held: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> bytes:
        """Take what arrived and return what to print now; `status` is set when the end has been read.

        Holds back no more than what may be the beginning of the mark.
        """
        self._held += data
        found = self._held.find(self.mark)
        if found < 0:
            return self._take(len(self._held) - self._overlap())
        end = re.match(rb"(\d+)\n", self._held[found + len(self.mark) :])
        if end:
            self.status = int(end[1])
        return self._take(found)

    def rest(self) -> bytes:
        """Return what was held back, when nothing more will come."""
        return self._take(len(self._held))

    def _overlap(self) -> int:
        """Return how many bytes at the end could be the mark's first ones."""
        start = self._held.rfind(self.mark[:1], -len(self.mark))
        while 0 <= start < len(self._held):
            if self.mark.startswith(bytes(self._held[start:])):
                return len(self._held) - start
            start = self._held.find(self.mark[:1], start + 1)
        return 0

    def _take(self, length: int) -> bytes:
        taken = bytes(self._held[:length])
        del self._held[:length]
        return taken
