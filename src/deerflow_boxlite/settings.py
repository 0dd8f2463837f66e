"""What an engine is made with, and how that follows from the `sandbox:` settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .boot import Recipe
from .identity import Identity
from .runtime import BoxHandle, Runtime, Volume
from .slots import Limits

if TYPE_CHECKING:
    from .config import BoxliteConfig
    from .guest import Guest


class Hooks(Protocol):
    """What is done to a box besides what its callers do. Counts as in flight while it runs."""

    async def on_boot(self, guest: Guest, identity: Identity, fresh: bool) -> None:
        """After a boot, before anyone else uses the box. `fresh`: its disk is new. Raising makes the boot fail."""

    async def on_acquire(self, guest: Guest, identity: Identity) -> None:
        """When a box is acquired, whether it was booted for that or not; `acquire` waits for it. Errors are logged."""

    async def on_release(self, guest: Guest, identity: Identity) -> None:
        """When a running box is released; `release` waits for it, the next acquire does not. Errors are logged."""

    def needs_release(self, identity: Identity) -> bool:
        """Whether a box that no longer runs at its release has to boot for `on_release`. Looks at memory only."""

    def volumes(self, identity: Identity) -> tuple[Volume, ...]:
        """What to mount in an identity's box besides the settings' `mounts`. Called when the box is made. Blocks."""


class NoHooks:
    """Hooks that do nothing."""

    async def on_boot(self, guest: Guest, identity: Identity, fresh: bool) -> None:
        """Do nothing."""

    async def on_acquire(self, guest: Guest, identity: Identity) -> None:
        """Do nothing."""

    async def on_release(self, guest: Guest, identity: Identity) -> None:
        """Do nothing."""

    def needs_release(self, identity: Identity) -> bool:
        """No."""
        return False

    def volumes(self, identity: Identity) -> tuple[Volume, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True)
class EngineSettings:
    """All that an engine is made with. `retain_days` and `retain_gb` of 0 are no limit."""

    limits: Limits
    recipe: Recipe
    open_runtime: Callable[[Path], Runtime]
    check_host: Callable[[], None]
    """Raises `HostError` when this host cannot run a box. Called before every boot, so it has to be quick."""
    hooks: Hooks
    retain_days: float = 30.0
    retain_gb: float = 50.0


def engine_settings(
    config: BoxliteConfig,
    *,
    open_runtime: Callable[[Path], Runtime] | None = None,
    hooks: Hooks | None = None,
) -> EngineSettings:
    """What the settings mean for an engine. Looks nothing up.

    With a runtime given (the tests' fake), nothing is asked of the host. `hooks` are by default those that bring a
    thread's files and skills in and its outputs out (`thread_data`).
    """
    from .spec import box_spec, fingerprint, open_guest
    from .thread_data import ThreadData

    async def opened(handle: BoxHandle) -> Guest:
        return await open_guest(handle, config)

    def check_host() -> None:
        from . import doctor

        doctor.check_host()

    return EngineSettings(
        limits=Limits(
            replicas=config.replicas,
            idle_timeout=config.idle_timeout,
            acquire_timeout=config.acquire_timeout,
            skip_check=config.health_check_skip_seconds,
        ),
        recipe=Recipe(
            spec=lambda: box_spec(config),
            open_guest=opened,
            fingerprint=fingerprint(config),
            boot_timeout=config.boot_timeout,
            persist=config.persist,
        ),
        open_runtime=open_runtime or _open_boxlite,
        check_host=check_host if open_runtime is None else _no_check,
        hooks=hooks or ThreadData(config),
        retain_days=config.retain_days,
        retain_gb=config.retain_gb,
    )


def _open_boxlite(home: Path) -> Runtime:
    # Imported when a box is needed, and not before.
    from .bxl import open_runtime

    return open_runtime(home)


def _no_check() -> None:
    pass
