"""Following a run: the command's output as it comes, and whether the emulated host is still alive."""

from __future__ import annotations

import re
import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lab.call import Output
from lab.host import Host

BOOT_LIMIT = 120.0
SILENCE_LIMIT = 60.0

_TROUBLE = re.compile(
    r"soft lockup|hard LOCKUP|blocked for more than|rcu.*(?:stall|starved)|Kernel panic|Oops|BUG:|general protection"
    r"|Out of memory|WARNING:|Call Trace"
)


class HostLost(RuntimeError):
    """The emulated host did not start, ended by itself, or locked up; the message says which."""


@dataclass
class Watchdog:
    """Knows since when nothing was heard of the emulated host. Times are monotonic seconds."""

    started: float
    heard: float | None = None

    def beat(self, now: float) -> None:
        """Note a sign of life."""
        self.heard = now

    def check(self, now: float) -> None:
        """Raise HostLost if the last sign of life is too long ago; the first one has more time."""
        if self.heard is None:
            if now - self.started > BOOT_LIMIT:
                raise HostLost(f"the emulated host did not start within {BOOT_LIMIT:.0f} s")
        elif now - self.heard > SILENCE_LIMIT:
            raise HostLost(f"the emulated host has locked up: no sign of life for {SILENCE_LIMIT:.0f} s")


def follow(host: Host, mark: bytes, write: Callable[[bytes], None]) -> int:
    """Pass the command's output to `write` as it comes and return its exit status.

    Blocks until the command ends. Raises HostLost if the emulated host does not live that long; what the command
    had printed by then has been written.
    """
    output = Output(mark)
    watchdog = Watchdog(time.monotonic())
    with selectors.DefaultSelector() as selector:
        selector.register(host.output, selectors.EVENT_READ)
        selector.register(host.pulse, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select(timeout=1.0)}
            now = time.monotonic()
            # Before writing, which blocks for as long as our reader does: that is no silence of the host's.
            if host.pulse in ready and host.pulse.recv(4096):
                watchdog.beat(now)
            watchdog.check(now)
            if host.output in ready:
                data = host.output.recv(65536)
                write(output.feed(data) if data else output.rest())
                if output.status is not None:
                    return output.status
                if not data:
                    raise HostLost(f"the emulated host ended by itself (qemu's exit code: {host.process.wait()})")


def trouble(console: Iterable[str]) -> list[str]:
    """Return those of the kernel's console lines that tell of a lock-up, a panic and the like."""
    return [line for line in console if _TROUBLE.search(line)]
