"""The engines of this process, one per BoxLite home, and the providers that count on each.

BoxLite allows one runtime per home, while DeerFlow may construct a provider twice and shut one of them down, and drops
one by `reset()` without shutting it down, expecting the next to find the same boxes.
"""

from __future__ import annotations

import atexit
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from weakref import WeakSet

from .engine import Engine
from .settings import EngineSettings


@dataclass(eq=False)
class _Entry:
    engine: Engine
    # Weak: a provider that was dropped without a shutdown counts on nothing any more.
    providers: WeakSet[object] = field(default_factory=WeakSet)


# Reentrant: a signal handler that shuts down may interrupt a construction.
_lock = threading.RLock()
_entries: dict[Path, _Entry] = {}


def attach(provider: object, home: Path, settings: EngineSettings) -> Engine:
    """The engine of a home, made if there is none, with one more provider counting on it; the newest settings hold.

    Blocks for some file operations, and while an engine is being shut down. Raises `HomeInUseError`, `OSError`.
    """
    home = home.resolve()
    with _lock:
        entry = _entries.get(home)
        if entry is None:
            entry = _entries[home] = _Entry(Engine(home, settings))
        else:
            entry.engine.configure(settings)
        entry.providers.add(provider)
        return entry.engine


def hand_on(provider: object, engine: Engine) -> None:
    """The provider no longer counts on the engine, which goes on with its boxes until the next one comes."""
    with _lock:
        entry = _entries.get(engine.home)
        if entry is not None and entry.engine is engine:
            entry.providers.discard(provider)
            if not entry.providers:
                engine.reset()


def detach(provider: object, engine: Engine, timeout: float) -> None:
    """The provider no longer counts on the engine, which is closed when no other does. Blocks for about `timeout` s."""
    with _lock:
        entry = _entries.get(engine.home)
        if entry is None or entry.engine is not engine:
            return
        entry.providers.discard(provider)
        if not entry.providers:
            try:
                engine.close(timeout)
            finally:
                del _entries[engine.home]


def close_all(timeout: float = 10.0) -> None:
    """Close every engine, whoever counts on it. Blocks for about `timeout` seconds for each."""
    with _lock:
        for home, entry in list(_entries.items()):
            try:
                entry.engine.close(timeout)
            finally:
                del _entries[home]


def _forget() -> None:
    # The engines are the parent's: their loops do not run in a forked child, and their boxes are not its own.
    global _lock
    _lock = threading.RLock()
    _entries.clear()


atexit.register(close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
