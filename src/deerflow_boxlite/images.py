"""The image of a box: what the setting `image` means, and how an image is made where no registry can be reached.

An image is an OCI reference (``python:3.12-slim``), which BoxLite pulls from its registry, or a local OCI layout
directory: an absolute path, a path from ``~``, or ``oci:`` and any path. :func:`build` makes such a directory.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from deerflow_boxlite import bases, oci
from deerflow_boxlite.bases import Base, Log
from deerflow_boxlite.errors import ImageError
from deerflow_boxlite.oci import ImageConfig, Layer

__all__ = ["ImageConfig", "ImageError", "ImageSource", "build", "cached", "image_config", "resolve"]

# <name> of the OCI distribution specification 1.1 ("Pulling manifests"), before it a registry's host and port as in
# RFC 3986, after it a <reference>: a tag, or a digest of the image specification's descriptor.md.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*"
_HOST = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9A-Fa-f:]+\])(?::[0-9]+)?"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}"
_DIGEST = r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[A-Za-z0-9=_-]{32,}"
_NAME = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_REFERENCE = re.compile(rf"(?:(?P<host>{_HOST})/)?(?P<name>[^:@]*)(?::{_TAG})?(?:@{_DIGEST})?")
# Characters; the specification warns that many clients take no more.
_NAME_LIMIT = 255

_REFERENCE_RULE = (
    "An OCI reference is [HOST[:PORT]/]NAME[:TAG][@DIGEST]; NAME is lower-case letters and digits, in parts divided "
    "by `/`, and within a part by `.`, `_`, `__` or `-`: python:3.12-slim, ghcr.io/me/tools:1. A local OCI layout is "
    "an absolute path, a path from `~`, or `oci:PATH`."
)

# The annotation by which a layout is known to be ours and of what; the value is the recipe as JSON.
_RECIPE = "deerflow-boxlite.recipe"

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SHELL: Mapping[Base, tuple[str, ...]] = {"busybox": ("/bin/sh",), "debian": ("/bin/bash",), "empty": ()}
_USER = re.compile(r"(?P<user>[a-z]+|[0-9]{1,10})(?::(?P<group>[a-z]+|[0-9]{1,10}))?")


@dataclass(frozen=True)
class ImageSource:
    """Where an image comes from: `reference` of a registry or `layout` on the disk, exactly one of them set."""

    reference: str | None = None
    layout: Path | None = None

    def __post_init__(self) -> None:
        if (self.reference is None) == (self.layout is None):
            raise ValueError("an image is either a reference or a layout")

    def __str__(self) -> str:
        return str(self.layout or self.reference)


def resolve(image: str) -> ImageSource:
    """Return what the setting `image` means; a layout is an absolute path in it, and has been looked at.

    Blocks for a few small reads if it is a layout. A reference is not looked up anywhere, only checked for its form.

    Raises:
        ImageError: a malformed reference, or a directory that is no OCI layout with an image for this machine.
    """
    path = image.removeprefix("oci:")
    if path != image or path.startswith(("/", "~")):
        if not path:
            raise ImageError(f"the image {image!r} names no directory. {_REFERENCE_RULE}")
        layout = _absolute(Path(path))
        oci.read_config(layout)
        return ImageSource(layout=layout)
    _check_reference(image)
    return ImageSource(reference=image)


def image_config(layout: Path) -> ImageConfig:
    """Return what the image in the OCI layout `layout` says about its processes. Blocks for a few small reads.

    Raises:
        ImageError: `layout` is no OCI layout, has no image for this machine, or lacks a part of it.
    """
    return oci.read_config(layout)


def build(
    base: Base,
    into: Path,
    *,
    user: str | None = None,
    entrypoint: Sequence[str] | None = None,
    cmd: Sequence[str] | None = None,
    cache: Path | None = None,
    log: Log = lambda _line: None,
) -> Path:
    """Make the directory `into` an OCI layout of a small image, from Debian's packages, and return it absolute.

    `base` is ``busybox`` (Debian's busybox-static, about 2 MB), ``debian`` (a minimal Debian with Python 3, about
    170 MB) or ``empty`` (one text file and no program, for tests). The first two have the accounts root, agent
    (1000:1000, with a home) and nobody. `user`, `entrypoint` and `cmd` go into the image's config; by default root,
    none, and a shell.

    `into` appears whole or not at all. If it is already a layout made from the same arguments it is left as it is;
    an empty directory is filled. The root file system is kept in `cache` (by default
    ``$XDG_CACHE_HOME/deerflow-boxlite/images``) for the next image of the same base, however old it is by then:
    delete it there to get newer packages. Two builders at once make it once.

    Blocks for the downloads and the disk: from a second to a minute, and much less when the root file system is
    there. `log` gets a line for every step.

    Raises:
        ImageError: `into` is something else already, an argument makes no sense, or the build's tools failed.
        DebsError: Debian's packages cannot be had.
        OSError: the disk's own trouble.
    """
    into = _absolute(into)
    cache = _cache_directory(cache)
    root = _root_recipe(base)
    config = ImageConfig(
        user=_checked_user(user, base),
        entrypoint=tuple(entrypoint or ()),
        cmd=_SHELL[base] if cmd is None else tuple(cmd),
        env={"PATH": _PATH},
        workdir="/",
    )
    recipe = json.dumps([root, config.user, config.entrypoint, config.cmd])
    if _is_built(into, recipe):
        log(f"{into} is there already")
        return into
    layer = _cached_layer(base, root, cache, log)
    log(f"writing {into} ({layer.size / 1e6:.0f} MB)")
    _write_whole(into, layer, config, recipe)
    return into


def cached(
    base: Base,
    *,
    user: str | None = None,
    entrypoint: Sequence[str] | None = None,
    cmd: Sequence[str] | None = None,
    cache: Path | None = None,
    log: Log = lambda _line: None,
) -> Path:
    """Return a layout in `cache` made by :func:`build` from these arguments; do not change it, others use it too.

    For whoever needs such an image and does not care where it is, the tests above all. Raises and blocks as
    :func:`build` does, which is not at all if the layout is there.
    """
    cache = _cache_directory(cache)
    into = cache / f"{base}-{_key([_root_recipe(base), user, entrypoint, cmd])}.layout"
    return build(base, into, user=user, entrypoint=entrypoint, cmd=cmd, cache=cache, log=log)


def _cache_directory(given: Path | None) -> Path:
    return _absolute(given or user_cache_path("deerflow-boxlite") / "images")


def _key(recipe: object) -> str:
    """Return a short name for anything that can be written as JSON."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]


def _absolute(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ImageError(f"{path}: {error}. Give an absolute path.") from error


def _check_reference(image: str) -> None:
    if not image:
        raise ImageError(f"the image is empty. {_REFERENCE_RULE}")
    match = _REFERENCE.fullmatch(image)
    if match is None:
        raise ImageError(f"the image {image!r} is no OCI reference. {_REFERENCE_RULE}")
    host, name = match["host"], match["name"]
    # A first part that looks like no host is a part of the name, as all tools have it: library/python.
    if host and host != "localhost" and not re.search(r"[.:]", host):
        name = f"{host}/{name}"
    if _NAME.fullmatch(name) is None or len(name) > _NAME_LIMIT:
        raise ImageError(f"the image {image!r} is no OCI reference: its name {name!r} is not. {_REFERENCE_RULE}")


def _checked_user(user: str | None, base: Base) -> str:
    match = _USER.fullmatch(user or "root")
    accounts = () if base == "empty" else bases.ACCOUNTS
    named = [part for part in match.groups() if part and not part.isdecimal()] if match else [user]
    if user and not all(part in accounts for part in named):
        known = f"one of {', '.join(accounts)}, or a number" if accounts else "a number"
        raise ImageError(f"the image's user {user!r} must be {known}, or two of these with `:` between them")
    return user or ""


def _root_recipe(base: Base) -> dict[str, str | int]:
    """Everything that decides what is in the root file system, except which packages are the newest that day."""
    if base not in bases.BASES:
        raise ImageError(f"there is no base image {base!r}; choose one of {', '.join(bases.BASES)}")
    return {
        "base": base,
        "suite": bases.suite(),
        "architecture": oci.architecture(),
        "epoch": bases.epoch(),
        "revision": bases.REVISION,
    }


def _is_built(into: Path, recipe: str) -> bool:
    """Whether `into` is a layout made from `recipe`; if not, it must be free for one."""
    if not into.exists() or (into.is_dir() and not any(into.iterdir())):
        return False
    found = oci.read_annotations(into).get(_RECIPE)
    if found != recipe:
        what = "an image made from other arguments, or by another version" if found else "something else"
        raise ImageError(f"{into} exists and is {what}. Give another directory, or delete this one.")
    try:
        oci.read_config(into)
    except ImageError as error:
        raise ImageError(f"{error} To make it again, delete {into} first.") from error
    return True


def _cached_layer(base: Base, root: Mapping[str, str | int], cache: Path, log: Log) -> Layer:
    """Return the layer of `base`'s root file system, out of `cache` or made for it now."""
    kept = cache / f"{base}-{_key(root)}"
    partial = kept.with_suffix(".partial")
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(kept.with_suffix(".lock"), lambda: log(f"waiting for another builder of {base}")):
        if not kept.exists():
            log(f"building {base} ({root['suite']}, {root['architecture']})")
            shutil.rmtree(partial, ignore_errors=True)  # A killed builder's; the lock says nobody is at it.
            try:
                partial.mkdir()
                bases.make_root(base, partial / "layer.tar", log)
                (partial / "digest").write_text(oci.digest_of(partial / "layer.tar"))
                partial.rename(kept)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
        else:
            made = date.fromtimestamp(kept.stat().st_mtime)
            log(f"using {base} as made on {made}; delete {kept} for newer packages")
        tar = kept / "layer.tar"
        return Layer(tar, (kept / "digest").read_text(), tar.stat().st_size)


@contextmanager
def _lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_wait()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _write_whole(into: Path, layer: Layer, config: ImageConfig, recipe: str) -> None:
    """Write the layout beside `into` and put it there at once, so that nobody ever sees a part of it."""
    into.parent.mkdir(parents=True, exist_ok=True)
    partial = into.parent / f".{into.name}.{secrets.token_hex(4)}.partial"
    partial.mkdir()
    try:
        oci.write_layout(partial, layer, config, {_RECIPE: recipe})
        try:
            partial.rename(into)
        except OSError:
            # Another builder's may have got there first.
            if not _is_built(into, recipe):
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
