"""`BoxliteProvider`: DeerFlow's `SandboxProvider` whose sandboxes are BoxLite micro-VMs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from . import registry
from .box import BoxliteBox
from .contract import DEERFLOW_INSTALLED, SandboxProvider
from .errors import ClosedError
from .identity import DEFAULT_USER, Identity
from .pool import CLOSED
from .settings import Hooks, engine_settings

if TYPE_CHECKING:
    from .config import BoxliteConfig
    from .engine import Engine
    from .runtime import Runtime
    from .stats import Stats

SHUTDOWN_TIMEOUT = 10.0
"""Seconds that `shutdown` may take."""


class BoxliteProvider(SandboxProvider):
    """Gives every `(user, thread)` a box of its own. Safe to use from any thread, and inside a running event loop.

    Providers on one home in one process share their boxes: BoxLite allows one runtime per home.
    """

    needs_upload_permission_adjustment = False
    """DeerFlow need not change the mode of uploaded files: they are copied into the box with rights that fit."""

    def __init__(
        self,
        config: BoxliteConfig | None = None,
        *,
        runtime_factory: Callable[[Path], Runtime] | None = None,
        hooks: Hooks | None = None,
        **_: Any,
    ) -> None:
        """Read the settings and claim the home; no box is booted, and BoxLite is not imported.

        `config` is by default DeerFlow's, or that of `config.yaml`. `runtime_factory` opens the runtime of a home in
        place of BoxLite, and `hooks` are called at boots and releases. Other keywords, which DeerFlow may pass on, have
        no meaning. Blocks for some file operations. Raises `ConfigError`, `HomeInUseError`, `OSError`.
        """
        if config is None:
            from .config_source import load_config

            config = load_config()
        from .config import check_mounts

        check_mounts(config)
        self.config = config
        # Whether the thread's host directories are mounted in its box, so that DeerFlow need not copy uploads into it.
        self.uses_thread_data_mounts = config.thread_data == "mount"
        self._settings = engine_settings(config, open_runtime=runtime_factory, hooks=hooks)
        # Reentrant: a signal handler that shuts down may interrupt a call that has it.
        self._lock = threading.RLock()
        self._closed = False
        self._handed_on = False
        self._engine = registry.attach(self, config.home_dir, self._settings)

    def acquire(self, thread_id: str | None = None, *, user_id: str | None = None) -> str:
        """Hold the box of a thread, booting it when it does not run, and return its sandbox id.

        `thread_id` None gives a box of its own that no other call gets. `user_id` None is DeerFlow's current user where
        DeerFlow is installed and knows one, else the default user. Blocks the calling thread: for a boot, or for up to
        `acquire_timeout` when all `replicas` are in use.

        Raises `CapacityError`, `BoxBootError`, `HostError`, `ImageError`, `HomeInUseError`, `ClosedError`, and
        `ImportError` without BoxLite.
        """
        return self._attached().acquire(_identity(thread_id, user_id))

    async def acquire_async(self, thread_id: str | None = None, *, user_id: str | None = None) -> str:
        """`acquire` without blocking the caller's event loop. Cancelling it leaves nothing held, nothing half-made."""
        return await self._attached().acquire_async(_identity(thread_id, user_id))

    def get(self, sandbox_id: str) -> BoxliteBox | None:
        """The sandbox of an id that is held: acquired in this process and not released since, else None.

        DeerFlow acquires anew when it gets None, and only then does what the host has for a turn come into the box.
        Handles taken earlier go on working all the same. Looks at memory only.
        """
        engine = self._engine
        return BoxliteBox(sandbox_id, engine) if engine.holds(sandbox_id) else None

    def release(self, sandbox_id: str) -> None:
        """Let go of a box, which stays warm for `idle_timeout`. What runs in it goes on, and handles work on.

        Blocks for what is to be done at the end of a turn (copying the thread's files to the host). An id that is not
        known, or not held, is no error: DeerFlow releases what an earlier process acquired.
        """
        engine = self._engine
        if sandbox_id in engine:
            engine.release(sandbox_id)

    def reset(self) -> None:
        """Hand the boxes on to the next provider of this home, as DeerFlow does when its settings change.

        Nothing is stopped. Without a next provider, boxes stop by their idle timeout, or when the process ends. This
        one takes them up again when it is used again.
        """
        with self._lock:
            self._handed_on = True
            registry.hand_on(self, self._engine)

    def shutdown(self) -> None:
        """Stop all boxes, unless another provider of this process uses them too. Their disks stay (`persist`).

        Blocks for at most about 10 seconds, also with commands running; those get `ClosedError`. Twice is once.
        """
        with self._lock:
            self._closed = True
            registry.detach(self, self._engine, SHUTDOWN_TIMEOUT)

    def stats(self) -> Stats:
        """Counts and times of the boxes of this home in this process. Looks at memory only."""
        return self._engine.stats()

    def _attached(self) -> Engine:
        with self._lock:
            if self._closed:
                raise ClosedError(CLOSED)
            if self._handed_on:
                self._engine = registry.attach(self, self.config.home_dir, self._settings)
                self._handed_on = False
            return self._engine

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.shutdown()


def _identity(thread_id: str | None, user_id: str | None) -> Identity:
    # In the caller's thread: DeerFlow's current user is a context variable.
    user = current_user() if user_id is None else user_id
    return Identity.anonymous(user) if thread_id is None else Identity(user, thread_id)


def current_user() -> str:
    """DeerFlow's current user where DeerFlow is installed and has that notion, else the default user."""
    if not DEERFLOW_INSTALLED:
        return DEFAULT_USER
    try:
        from deerflow.runtime.user_context import get_effective_user_id
    except ModuleNotFoundError as error:
        # An older DeerFlow, without users.
        if error.name not in ("deerflow.runtime", "deerflow.runtime.user_context"):
            raise
        return DEFAULT_USER
    return str(get_effective_user_id())
