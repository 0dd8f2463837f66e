"""DeerFlow's contract for sandboxes: its own classes and search rules where it is installed, equal ones elsewhere.

The equal ones are in `contract_fallback`, and are also what the type checker sees. They are the newest generation of
the contract (with `user_id`, `env`, `timeout`, `start_line`, `end_line`). An implementation of that one serves a
DeerFlow of the older generation too, since all of these have defaults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Under this directory of a box are the thread's own files (`deerflow.config.paths.VIRTUAL_PATH_PREFIX`).
VIRTUAL_PATH_PREFIX = "/mnt/user-data"

if TYPE_CHECKING:
    from .contract_fallback import (
        DEFAULT_LINE_SUMMARY_LENGTH,
        DEFAULT_MAX_FILE_SIZE_BYTES,
        IGNORE_PATTERNS,
        GrepMatch,
        Sandbox,
        SandboxError,
        SandboxProvider,
        path_matches,
        should_ignore_name,
        truncate_line,
    )

    DEERFLOW_INSTALLED: bool
else:
    try:
        from deerflow.sandbox.exceptions import SandboxError
        from deerflow.sandbox.sandbox import Sandbox
        from deerflow.sandbox.sandbox_provider import SandboxProvider
        from deerflow.sandbox.search import (
            DEFAULT_LINE_SUMMARY_LENGTH,
            DEFAULT_MAX_FILE_SIZE_BYTES,
            IGNORE_PATTERNS,
            GrepMatch,
            path_matches,
            should_ignore_name,
            truncate_line,
        )
    except ModuleNotFoundError as error:
        # This project's own deerflow/community/boxlite makes an importable namespace package `deerflow`, so that
        # without DeerFlow it is `deerflow.sandbox` that is missing. Anything else missing means a broken DeerFlow,
        # which must not pass for an absent one: our classes would then not be the ones it checks for.
        if error.name not in ("deerflow", "deerflow.sandbox"):
            raise
        from .contract_fallback import (
            DEFAULT_LINE_SUMMARY_LENGTH,
            DEFAULT_MAX_FILE_SIZE_BYTES,
            IGNORE_PATTERNS,
            GrepMatch,
            Sandbox,
            SandboxError,
            SandboxProvider,
            path_matches,
            should_ignore_name,
            truncate_line,
        )

        DEERFLOW_INSTALLED = False
    else:
        DEERFLOW_INSTALLED = True

__all__ = [
    "DEERFLOW_INSTALLED",
    "DEFAULT_LINE_SUMMARY_LENGTH",
    "DEFAULT_MAX_FILE_SIZE_BYTES",
    "IGNORE_PATTERNS",
    "VIRTUAL_PATH_PREFIX",
    "GrepMatch",
    "Sandbox",
    "SandboxError",
    "SandboxProvider",
    "path_matches",
    "should_ignore_name",
    "truncate_line",
]
