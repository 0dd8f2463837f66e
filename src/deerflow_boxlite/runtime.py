"""Boxes as the rest of the package sees them: a small async protocol, and the errors it raises.

`bxl.py` implements it with BoxLite; the tests implement it with local processes. Nothing here is particular to an
embedded runtime, so that a BoxLite server can stand behind it too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

BoxState = Literal["running", "stopped", "other"]


class RuntimeFault(Exception):
    """Base of what a runtime raises. Callers turn these into the package's public errors."""


class BoxGone(RuntimeFault):
    """The box is not running (any more): it was stopped, its VM died, or it stopped answering."""


class BoxMissing(RuntimeFault):
    """No box of that name exists."""


class NoSuchProgram(RuntimeFault):
    """The program to execute does not exist in the box, or cannot be executed."""


class NoSuchPath(RuntimeFault):
    """The path to copy does not exist in the box."""


class CopyUnsupported(RuntimeFault):
    """The path lies under a mount (tmpfs or a volume), which `copy_in` and `copy_out` do not reach."""


class BadImage(RuntimeFault):
    """The image does not exist or cannot be fetched."""


class HomeLocked(RuntimeFault):
    """Another runtime holds the home."""


class RuntimeFailure(RuntimeFault):
    """Anything else that the runtime reported, in its own words."""


@dataclass(frozen=True)
class Volume:
    """A host directory mounted in a box."""

    host: Path
    guest: str
    read_only: bool = False


@dataclass(frozen=True)
class Network:
    """Outbound policy of a box. `allow` lists host patterns, IPs or CIDRs; empty allows all."""

    enabled: bool = True
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class SecretRule:
    """A secret that the host puts into the box's outbound HTTPS requests to `hosts`; it never enters the box."""

    name: str
    value: str = field(repr=False)
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class BoxSpec:
    """What to make a box from. Exactly one of `image` (an OCI reference) and `layout` (an OCI layout) is set."""

    image: str | None = None
    layout: Path | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    disk_size_gb: int | None = None
    command: tuple[str, ...] = ()
    volumes: tuple[Volume, ...] = ()
    network: Network | None = None
    secrets: tuple[SecretRule, ...] = ()


@dataclass(frozen=True)
class BoxRecord:
    """A box as the runtime lists it. Times are Unix seconds."""

    name: str
    state: BoxState
    created_at: float | None = None
    started_at: float | None = None


class Process(Protocol):
    """A program started in a box. Its standard input stays open until `close_stdin`."""

    async def write(self, data: bytes) -> None:
        """Send bytes to its standard input. Raises `BoxGone`, or `BrokenPipeError` when it no longer reads."""

    async def close_stdin(self) -> None:
        """End its standard input."""

    def stdout(self) -> AsyncIterator[str]:
        """Its standard output, as it comes: pieces of text, undecodable bytes replaced by U+FFFD."""

    def stderr(self) -> AsyncIterator[str]:
        """Its standard error, likewise."""

    async def wait(self) -> int:
        """Its exit code, negative for a signal. Raises `BoxGone` when the VM went away first."""

    async def kill(self) -> None:
        """SIGKILL to it alone, not to its children."""


class BoxHandle(Protocol):
    """One box. After `stop` the handle is dead: ask the runtime for a new one."""

    @property
    def name(self) -> str:
        """Its unique name."""

    async def start(self) -> None:
        """Boot it. Returns when programs can be executed in it; does nothing when it runs."""

    async def stop(self) -> None:
        """Stop its VM and keep its disk. Stopping a stopped box does nothing."""

    async def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Process:
        """Start a program. `user` (`uid:gid`) defaults to the image's. No argument may exceed about 120 KiB.

        Raises `NoSuchProgram`, `BoxGone`.
        """

    async def copy_in(self, source: Path, target: str) -> None:
        """Copy a host file to exactly `target` in the box, making missing parents, replacing what is there."""

    async def copy_out(self, source: str, target: Path) -> None:
        """Copy a file of the box to exactly `target`. Raises `NoSuchPath`, `CopyUnsupported`, `BoxGone`."""

    async def state(self) -> BoxState:
        """Whether it runs, as the runtime knows at this moment."""


class Runtime(Protocol):
    """All the boxes of one home."""

    async def find(self, name: str) -> BoxHandle | None:
        """A handle on an existing box, running or not."""

    async def create(self, name: str, spec: BoxSpec) -> BoxHandle:
        """Make a box, not yet started. Raises `BadImage`, `RuntimeFailure`."""

    async def remove(self, name: str) -> None:
        """Delete a box and its disk, stopping it first. One that does not exist is no error."""

    async def list(self) -> list[BoxRecord]:
        """Every box of the home, ours or not."""

    async def disk_usage(self, name: str) -> int:
        """Bytes that the box's own disk really takes on the host."""

    async def close(self, timeout: float) -> None:
        """Stop every box and let go of the home, within `timeout` seconds."""
