"""Paths and errors of files in a box. Pure."""

from __future__ import annotations

import errno
import os
import posixpath

from ..contract import VIRTUAL_PATH_PREFIX

PATH_MAX = 4096
"""Linux's bound for a path in bytes, with its ending NUL."""

_CODES = (
    errno.ENOENT,
    errno.EACCES,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.EPERM,
    errno.ENOSPC,
    errno.EROFS,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.EINVAL,
    errno.EBUSY,
    errno.ETXTBSY,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EIO,
    errno.EMFILE,
    errno.ENXIO,
    errno.EXDEV,
    errno.ESTALE,
)

_OTHER_WORDS = {
    # dash and busybox
    "no such file": errno.ENOENT,
    "directory nonexistent": errno.ENOENT,
    "nonexistent directory": errno.ENOENT,
    # musl
    "filename too long": errno.ENAMETOOLONG,
    "symbolic link loop": errno.ELOOP,
    "resource busy": errno.EBUSY,
    "quota exceeded": errno.EDQUOT,
    "i/o error": errno.EIO,
}
_WORDS = {os.strerror(code).lower(): code for code in _CODES} | _OTHER_WORDS


def checked(path: str) -> str:
    """The path without empty and `.` parts. Raises `ValueError` for one that is not absolute or holds a NUL.

    Raises `PermissionError` for one with `..`, and `OSError` (`ENAMETOOLONG`) for one that no file can have.
    """
    if "\0" in path:
        raise ValueError("embedded null character in path")
    if not path.startswith("/"):
        raise ValueError(f"a path in a box is absolute, and this is not: {path!r}")
    if ".." in path.split("/"):
        raise PermissionError(errno.EACCES, "Access denied: a path in a box may not hold '..'", path)
    if len(path.encode("utf-8", "surrogateescape")) >= PATH_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    return "/" + posixpath.normpath(path).lstrip("/")


def checked_for_download(path: str) -> str:
    """`checked`, and `PermissionError` for all that is not under `/mnt/user-data` (DeerFlow's contract)."""
    if not path.startswith("/"):
        raise PermissionError(errno.EACCES, f"Access denied: path must be under '{VIRTUAL_PATH_PREFIX}'", path)
    inside = checked(path)
    if inside != VIRTUAL_PATH_PREFIX and not inside.startswith(f"{VIRTUAL_PATH_PREFIX}/"):
        raise PermissionError(errno.EACCES, f"Access denied: path must be under '{VIRTUAL_PATH_PREFIX}'", path)
    return inside


def code_of(message: str) -> int | None:
    """The `errno` that a tool's message tells at its end, in the C locale; None if it tells none we know."""
    words = message.rstrip().rstrip(".'\"").lower()
    return next((code for text, code in _WORDS.items() if words.endswith(text)), None)


def os_error(message: str, path: str) -> OSError:
    """The error for a tool's message: of the matching class, with `errno`, `strerror` and `filename`."""
    code = code_of(message)
    if code is None:
        return OSError(errno.EIO, f"the box reports: {message.strip() or 'no reason'}", path)
    return OSError(code, os.strerror(code), path)


def too_large(limit: int, path: str, advice: str = "") -> OSError:
    """`EFBIG`."""
    return OSError(errno.EFBIG, f"File exceeds maximum size of {limit} bytes{advice}", path)


def check_message(message: str, path: str) -> None:
    """Raise the `OSError` that a tool's message means, if there is one. A reader that had enough is no error."""
    if message and not message.rstrip().endswith("Broken pipe"):
        raise os_error(message, path)
