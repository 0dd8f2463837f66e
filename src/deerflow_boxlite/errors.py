"""The errors this package raises.

File operations raise the matching built-in `OSError`, and text that is not UTF-8 a `UnicodeDecodeError`, as DeerFlow's
tools expect. What is here is the rest: what can go wrong with a box, its image, its host or its settings. Each is
also DeerFlow's `SandboxError` where DeerFlow is installed, so that its tools report the message as it stands.
"""

from __future__ import annotations

import errno

from .contract import SandboxError


class BoxError(SandboxError):
    """Something about a box that is not the fault of the command or the file operation itself."""


class BoxDiedError(BoxError, OSError):
    """The box's VM died, or stopped answering, while an operation ran. Its disk is kept.

    The operation may or may not have taken effect and is never repeated by us; the next one boots the same disk. It is
    an `OSError` (`EIO`) too, since a caller of a file operation expects one.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.EIO
        self.strerror = message


class ChannelLostError(BoxError, OSError):
    """A shell in the box that carried an operation ended or fell silent. The box itself runs, and is usable.

    The operation may or may not have taken effect and is never repeated by us. An `OSError` (`EIO`) too, as above.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.errno = errno.EIO
        self.strerror = message


class BoxBootError(BoxError):
    """A box could not be made or booted. Nothing half-made is left; a disk that existed before is kept."""


class CapacityError(BoxError):
    """No place came free under `replicas` within `acquire_timeout`."""


class HomeInUseError(BoxError):
    """Another process, or another runtime in this one, holds the BoxLite home."""


class HostError(BoxError):
    """This host cannot run a box: no KVM, no wheel for the platform, no disk space. The message names the cure."""


class ImageError(BoxError):
    """The image does not exist, cannot be fetched, or lacks what a box needs (a POSIX shell, say)."""


class ClosedError(BoxError):
    """The provider was shut down."""


class ConfigError(ValueError):
    """A setting is wrong. The message names its key, the value and what is allowed."""
