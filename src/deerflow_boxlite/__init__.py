"""A computer of its own for every agent thread: BoxLite micro-VMs behind DeerFlow's sandbox contract.

The names below are imported when they are first used, so that importing the package costs only the standard library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .box import BoxliteBox
    from .config import BoxliteConfig
    from .contract import GrepMatch
    from .errors import (
        BoxBootError,
        BoxDiedError,
        BoxError,
        CapacityError,
        ClosedError,
        ConfigError,
        HomeInUseError,
        HostError,
        ImageError,
    )
    from .guest.result import CommandResult
    from .provider import BoxliteProvider

    __version__: str

__all__ = [
    "BoxBootError",
    "BoxDiedError",
    "BoxError",
    "BoxliteBox",
    "BoxliteConfig",
    "BoxliteProvider",
    "CapacityError",
    "ClosedError",
    "CommandResult",
    "ConfigError",
    "GrepMatch",
    "HomeInUseError",
    "HostError",
    "ImageError",
    "__version__",
]

_OTHER_HOMES = {
    "BoxliteBox": ".box",
    "BoxliteConfig": ".config",
    "BoxliteProvider": ".provider",
    "CommandResult": ".guest.result",
    "GrepMatch": ".contract",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "__version__":
        value: Any = _installed_version()
    else:
        value = getattr(importlib.import_module(_OTHER_HOMES.get(name, ".errors"), __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _installed_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("deerflow-boxlite")
    except PackageNotFoundError:
        # Imported from a source tree that was never installed.
        return "0+unknown"
