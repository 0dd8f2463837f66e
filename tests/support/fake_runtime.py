"""A runtime of boxes that are nothing but bookkeeping: for what is about boxes as such, not about what runs in them.

A `FakeHome` is the disk: it outlives the runtimes opened on it. Faults, delays and gates are set on it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from deerflow_boxlite.boot import Recipe
from deerflow_boxlite.runtime import (
    BoxGone,
    BoxHandle,
    BoxMissing,
    BoxRecord,
    BoxSpec,
    BoxState,
    HomeLocked,
    Process,
)
from deerflow_boxlite.settings import EngineSettings, NoHooks
from deerflow_boxlite.slots import Limits


class Gate:
    """Holds whoever comes to it until it is opened, and lets a test wait until somebody has come."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()

    def open(self) -> None:
        if not self._opened.done():
            self._opened.set_result(None)

    async def passing(self) -> None:
        self.reached.set()
        await asyncio.shield(asyncio.wrap_future(self._opened))


@dataclass
class FakeBox:
    """One box on the disk: its files, and whether its VM runs."""

    name: str
    spec: BoxSpec
    files: dict[str, bytes] = field(default_factory=dict)
    running: bool = False
    life: int = 0
    started_at: float | None = None
    size: int = 0


@dataclass
class FakeHome:
    """What is on the disk, what went on, and what is to go wrong. `before` is awaited with (event, box name)."""

    boxes: dict[str, FakeBox] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    open_runtimes: int = 0
    open_guests: int = 0
    most_running: int = 0
    gates: dict[str, Gate] = field(default_factory=dict)
    faults: dict[str, list[BaseException]] = field(default_factory=dict)
    before: Callable[[str, str], Awaitable[None]] | None = None
    seen_gone: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By box name: what a guest calls, on the engine's loop, once it sees that its box is gone."""

    def gate(self, event: str) -> Gate:
        return self.gates.setdefault(event, Gate())

    def fail(self, event: str, *errors: BaseException) -> None:
        """Let the next such events fail, one after the other."""
        self.faults.setdefault(event, []).extend(errors)

    async def happens(self, event: str, name: str) -> None:
        self.events.append((event, name))
        if (gate := self.gates.get(event)) is not None:
            await gate.passing()
        if self.before is not None:
            await self.before(event, name)
        if self.faults.get(event):
            raise self.faults[event].pop(0)

    def count(self, event: str) -> int:
        return Counter(what for what, _ in self.events)[event]

    @property
    def running(self) -> list[str]:
        return [box.name for box in self.boxes.values() if box.running]

    def kill(self, name: str | None = None) -> None:
        """SIGKILL to the VM of one box, or of all of them."""
        for box in self.boxes.values():
            if name in (None, box.name):
                box.running = False

    def open_runtime(self, _path: Path) -> FakeRuntime:
        if self.open_runtimes:
            raise HomeLocked("another runtime")
        self.open_runtimes += 1
        return FakeRuntime(self)


class FakeRuntime:
    def __init__(self, home: FakeHome) -> None:
        self.home = home
        self._closed = False

    async def find(self, name: str) -> BoxHandle | None:
        await self.home.happens("find", name)
        box = self.home.boxes.get(name)
        return None if box is None else FakeHandle(self.home, box)

    async def create(self, name: str, spec: BoxSpec) -> BoxHandle:
        if name in self.home.boxes:
            raise AssertionError(f"{name} exists")
        box = self.home.boxes[name] = FakeBox(name, spec)
        await self.home.happens("create", name)
        return FakeHandle(self.home, box)

    async def remove(self, name: str) -> None:
        await self.home.happens("remove", name)
        box = self.home.boxes.pop(name, None)
        if box is not None:
            box.running = False

    async def list(self) -> list[BoxRecord]:
        await self.home.happens("list", "")
        return [
            BoxRecord(box.name, "running" if box.running else "stopped", 0.0, box.started_at)
            for box in self.home.boxes.values()
        ]

    async def disk_usage(self, name: str) -> int:
        if name not in self.home.boxes:
            raise BoxMissing(name)
        return self.home.boxes[name].size

    async def close(self, timeout: float) -> None:
        assert not self._closed
        self._closed = True
        self.home.open_runtimes -= 1
        self.home.kill()


class FakeHandle:
    def __init__(self, home: FakeHome, box: FakeBox) -> None:
        self.home = home
        self.box = box

    @property
    def name(self) -> str:
        return self.box.name

    async def start(self) -> None:
        await self.home.happens("start", self.name)
        if not self.box.running:
            self.box.running = True
            self.box.life += 1
            self.home.most_running = max(self.home.most_running, len(self.home.running))

    async def stop(self) -> None:
        try:
            await self.home.happens("stop", self.name)
        finally:
            self.box.running = False

    async def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> Process:
        raise NotImplementedError

    async def copy_in(self, source: Path, target: str) -> None:
        raise NotImplementedError

    async def copy_out(self, source: str, target: Path) -> None:
        raise NotImplementedError

    async def state(self) -> BoxState:
        return "running" if self.box.running else "stopped"


class FakeGuest:
    """A guest whose operations read and write the fake disk. It is good for one life of its box."""

    def __init__(self, home: FakeHome, box: FakeBox) -> None:
        self.home = home
        self.box = box
        self.life = box.life
        self.closed = False
        home.open_guests += 1

    @classmethod
    async def open(cls, handle: BoxHandle) -> FakeGuest:
        assert isinstance(handle, FakeHandle)
        await handle.home.happens("open", handle.name)
        return cls(handle.home, handle.box)

    def _alive(self) -> None:
        if self.closed or not self.box.running or self.box.life != self.life:
            raise BoxGone(f"{self.box.name} is gone")

    @asynccontextmanager
    async def _operation(self, event: str) -> AsyncIterator[None]:
        self._alive()
        await self.home.happens(event, self.box.name)
        self._alive()
        yield

    async def write(self, path: str, data: bytes) -> None:
        async with self._operation("write"):
            self.box.files[path] = data

    async def read(self, path: str) -> bytes:
        async with self._operation("read"):
            if path not in self.box.files:
                raise FileNotFoundError(path)
            return self.box.files[path]

    async def run(self, command: str) -> str:
        """A command, which takes as long as the gate of its name is closed."""
        async with self._operation(command):
            return f"{command} done"

    async def stream(self, pieces: int) -> AsyncIterator[int]:
        for number in range(pieces):
            async with self._operation("piece"):
                pass
            yield number

    def when_gone(self, call: Callable[[], None]) -> None:
        self.home.seen_gone[self.box.name] = call

    async def ping(self, timeout: float) -> None:
        async with self._operation("ping"):
            pass

    async def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.home.open_guests -= 1


def settings_on(home: FakeHome, **changes: object) -> EngineSettings:
    """Engine settings for a fake home. Keywords are the fields of `Limits`, `Recipe` and `EngineSettings`."""

    def part(kind: type, defaults: dict[str, object]) -> dict[str, object]:
        names = kind.__dataclass_fields__
        return defaults | {name: changes.pop(name) for name in list(changes) if name in names}

    limits = Limits(**part(Limits, {"idle_timeout": 0.0, "acquire_timeout": 20.0}))  # type: ignore[arg-type]
    recipe = Recipe(
        **part(  # type: ignore[arg-type]
            Recipe,
            {
                "spec": lambda: BoxSpec(image="fake"),
                "open_guest": FakeGuest.open,
                "fingerprint": "image=fake",
                "boot_timeout": 20.0,
                "persist": True,
            },
        )
    )
    rest = part(
        EngineSettings,
        {"open_runtime": home.open_runtime, "check_host": lambda: None, "hooks": NoHooks()},
    )
    assert not changes, f"no such settings: {changes}"
    return EngineSettings(limits=limits, recipe=recipe, **rest)  # type: ignore[arg-type]
