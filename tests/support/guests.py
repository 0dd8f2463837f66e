"""A whole `Guest` in a local box, for the tests of channels and commands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from deerflow_boxlite.guest import Guest, GuestSettings

from .local_runtime import LocalBox, LocalRuntime

T = TypeVar("T")

SHELLS = ("dash", "bash", "busybox")

DEADLINE = 60.0
"""Seconds after which a test hangs. None measures time by it."""


@dataclass
class Bench:
    """A running box with its guest."""

    runtime: LocalRuntime
    box: LocalBox
    guest: Guest
    state: Path

    def calls(self, since: int = 0) -> list[str]:
        """The names of the SDK calls made, after the first `since` of them."""
        return [call[0] for call in self.runtime.calls[since:]]

    def running(self, text: str) -> list[str]:
        """The command lines in the box with `text` in them."""
        return [line for line in self.box.processes() if text in line]

    async def gone(self, text: str) -> None:
        """Return when no command line in the box has `text` in it. A test that waits for ever here fails by hanging."""
        while self.running(text):
            await asyncio.sleep(0.01)


def settings_for(runtime: LocalRuntime, root: Path, **given: Any) -> GuestSettings:
    """Settings that keep a guest within `root`."""
    return GuestSettings(
        image="test-image",
        state_dir=str(root / "state"),
        directories=(str(root / "mnt/workspace"), str(root / "mnt/skills")),
        tool_path=str(runtime.path),
        **given,
    )


def with_guest(
    root: Path,
    shell: str,
    test: Callable[[Bench], Awaitable[T]],
    *,
    prepare: Callable[[LocalBox], None] | None = None,
    without: tuple[str, ...] = (),
    **settings: Any,
) -> T:
    """Run a test with a guest in a new box. `prepare` gets the box first; `settings` are `GuestSettings`'."""

    async def run() -> T:
        runtime = LocalRuntime(root / "runtime", shell, without=without, shared=True)
        try:
            async with asyncio.timeout(DEADLINE):
                box = await runtime.box()
                if prepare is not None:
                    prepare(box)
                guest = await Guest.open(box, settings_for(runtime, root, **settings))
                try:
                    return await test(Bench(runtime, box, guest, root / "state"))
                finally:
                    await guest.close()
        finally:
            await runtime.close()

    return asyncio.run(run())
