"""What runs inside a box, shell scripts as files, and the host's side of talking to it."""

from __future__ import annotations

from .guest import Guest, GuestSettings
from .scripts import bare

__all__ = ["INIT", "Guest", "GuestSettings"]

INIT = ("/bin/sh", "-c", bare("init.sh"))
"""The command of a box's process 1, in the place of the image's ENTRYPOINT and CMD."""
