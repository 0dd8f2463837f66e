"""OCI image layouts: reading one, and writing one of a single layer.

The rules are those of the OCI image specification 1.1: image-layout.md (the directory), image-index.md, manifest.md,
config.md and descriptor.md (what the files in it say).

Standard library only.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deerflow_boxlite.errors import ImageError

__all__ = ["ImageConfig", "Layer", "architecture", "digest_of", "read_annotations", "read_config", "write_layout"]

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
# Plain tar, not gzip: what zlib makes of the same bytes differs between its versions, so the digest would too, and
# a layout on the local disk is read far more often than it is sent.
_LAYER = "application/vnd.oci.image.layer.v1.tar"

# Docker's types for the same documents, which tools that copy from a registry leave as they are.
_INDEXES = {_INDEX, "application/vnd.docker.distribution.manifest.list.v2+json"}
_MANIFESTS = {_MANIFEST, "application/vnd.docker.distribution.manifest.v2+json"}

# Go's names (GOARCH), which config.md prescribes, for what the kernel calls its machines.
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

_ANY_PLATFORM = "no platform named"

_SHA256 = re.compile(r"sha256:([0-9a-f]{64})")
# Bytes. The distribution specification lets a registry refuse manifests over 4 MiB, so nothing real is larger.
_DOCUMENT_LIMIT = 4 * 1024 * 1024

_HINT = "Give a directory that holds `oci-layout`, `index.json` and `blobs`, or make one with `image build`."


@dataclass(frozen=True)
class ImageConfig:
    """What an image says about the processes run from it (``config`` in the specification's config.md)."""

    user: str = ""
    """``user``, ``uid``, ``user:group`` or ``uid:gid``; empty means root."""
    entrypoint: tuple[str, ...] = ()
    cmd: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = ""
    """Absolute path in the image; empty means the root directory."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Layer:
    """A tar file and its digest (``sha256:...``). Uncompressed, so the digest is also what config.md calls DiffID."""

    path: Path
    digest: str
    size: int
    """Bytes."""


def architecture() -> str:
    """Return this machine's architecture by its OCI name: ``amd64`` or ``arm64``.

    Raises:
        ImageError: it is neither, and BoxLite runs on no other.
    """
    machine = platform.machine().lower()
    try:
        return _ARCHITECTURES[machine]
    except KeyError:
        raise ImageError(f"this machine is {machine}; BoxLite has images for amd64 and arm64 only") from None


def read_config(layout: Path) -> ImageConfig:
    """Return the config of the image in `layout`, having checked that it is all there and for this machine.

    Every blob it names is looked at for its size, none but the small documents is read: enough to notice a copy that
    was cut short, and quick. Blocks for a few small reads.

    Raises:
        ImageError: `layout` is no OCI layout, its image is for another machine, or it lacks a part.
    """
    _check_directory(layout)
    wanted = f"linux/{architecture()}"
    manifest = _read_blob(layout, _chosen(layout, wanted))
    document = _read_blob(layout, manifest.get("config"))
    found = _platform(document)
    if found != wanted:
        raise _for_another(layout, wanted, [found])
    for layer in manifest.get("layers") or ():
        _blob(layout, layer)
    try:
        return _parse_config(document.get("config") or {})
    except (AttributeError, TypeError, ValueError) as error:
        raise ImageError(f"{layout} is damaged: its image config is malformed. Make or copy it again.") from error


def read_annotations(layout: Path) -> dict[str, str]:
    """Return the annotations of `layout`'s index: empty where there are none, or no readable index at all.

    Blocks for a small read. Raises nothing: meant for directories that may be anything.
    """
    try:
        found = _read_json(layout, layout / "index.json").get("annotations")
    except ImageError:
        return {}
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


def digest_of(path: Path) -> str:
    """Return the digest of the file `path`, as ``sha256:...``. Blocks for reading it whole."""
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def write_layout(into: Path, layer: Layer, config: ImageConfig, notes: Mapping[str, str]) -> None:
    """Write an OCI layout of one image with one layer into the existing directory `into`.

    The image is for this machine's architecture. `notes` become annotations of the index. The same arguments give
    the same bytes: no time of day is written. Blocks for the copying of the layer; no half-written state is hidden
    or cleaned up, that is the caller's part.

    Raises:
        ImageError: the layer's file is not what its digest says.
        OSError: the disk's own trouble.
    """
    blobs = into / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    blob = blobs / layer.digest.removeprefix("sha256:")
    shutil.copyfile(layer.path, blob)
    if digest_of(blob) != layer.digest:
        raise ImageError(f"{layer.path} is damaged: it has another digest than {layer.digest}. Delete it.")
    machine = {"architecture": architecture(), "os": "linux"}
    document = {
        **machine,
        "config": _config_document(config),
        "rootfs": {"type": "layers", "diff_ids": [layer.digest]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _write_blob(blobs, _CONFIG, document),
        "layers": [{"mediaType": _LAYER, "digest": layer.digest, "size": layer.size}],
    }
    index = {
        "schemaVersion": 2,
        "mediaType": _INDEX,
        "manifests": [{**_write_blob(blobs, _MANIFEST, manifest), "platform": machine}],
        "annotations": dict(notes),
    }
    (into / "index.json").write_bytes(_dump(index))
    (into / "oci-layout").write_bytes(_dump({"imageLayoutVersion": "1.0.0"}))


def _check_directory(layout: Path) -> None:
    if not layout.is_dir():
        what = "is no directory" if layout.exists() else "does not exist"
        raise ImageError(f"the image {layout} {what}. {_HINT}")
    missing = [name for name in ("oci-layout", "index.json", "blobs") if not (layout / name).exists()]
    if missing:
        raise ImageError(f"{layout} is no OCI image layout: it lacks {', '.join(missing)}. {_HINT}")


def _chosen(layout: Path, wanted: str) -> dict[str, Any]:
    """Return the descriptor of the image manifest that BoxLite 0.10 takes.

    It takes the first entry of `index.json`, for whichever machine it is, and ignores the rest. Only if that entry is
    an index itself, as tools that build for several machines make it, does it choose there by platform.
    """
    first = next(iter(_descriptors(_read_json(layout, layout / "index.json"))), None)
    if first is None:
        raise ImageError(f"{layout} has no image for {wanted}: its index.json names none. {_HINT}")
    is_index = first.get("mediaType") in _INDEXES
    offered = _descriptors(_read_blob(layout, first)) if is_index else [first]
    for entry in offered:
        # The platform of a descriptor is optional (image-index.md). Where it is another, the blobs may be missing.
        if _platform(entry.get("platform")) in (wanted, _ANY_PLATFORM) and entry.get("mediaType") in _MANIFESTS:
            return entry
    raise _for_another(layout, wanted, [_describe(entry) for entry in offered])


def _describe(entry: Mapping[str, Any]) -> str:
    return f"{entry.get('mediaType')} ({_platform(entry.get('platform'))})"


def _for_another(layout: Path, wanted: str, offered: list[str]) -> ImageError:
    return ImageError(
        f"{layout} has no image for {wanted} where BoxLite looks, which is the first entry of index.json: found "
        f"{', '.join(offered) or 'nothing'}. Make a layout of the {wanted} image alone."
    )


def _descriptors(index: Mapping[str, Any]) -> list[dict[str, Any]]:
    entries = index.get("manifests")
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def _platform(named: Any) -> str:
    """Return "os/architecture" of a descriptor's `platform`, or of a config, which has the same two keys."""
    return f"{named.get('os')}/{named.get('architecture')}" if isinstance(named, dict) else _ANY_PLATFORM


def _blob(layout: Path, descriptor: Any) -> Path:
    """Return the path of the blob that `descriptor` names, having checked that it is there in full length."""
    digest = str(descriptor.get("digest")) if isinstance(descriptor, dict) else "a missing descriptor"
    match = _SHA256.fullmatch(digest)
    if match is None:
        raise ImageError(f"{layout} is damaged: {digest!r} is no sha256 digest. Make or copy it again.")
    path = layout / "blobs" / "sha256" / match[1]
    if not path.is_file():
        raise ImageError(f"{layout} is incomplete: it lacks blobs/sha256/{match[1]}. Make or copy it again.")
    size, named = path.stat().st_size, descriptor.get("size")
    if size != named:
        raise ImageError(f"{path} is damaged: it has {size} bytes, not {named}. Make or copy {layout} again.")
    return path


def _read_blob(layout: Path, descriptor: Any) -> dict[str, Any]:
    return _read_json(layout, _blob(layout, descriptor))


def _read_json(layout: Path, path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_DOCUMENT_LIMIT))
    except (OSError, ValueError) as error:
        raise ImageError(f"{path} cannot be read: {error}. Make or copy {layout} again.") from error
    if not isinstance(document, dict):
        raise ImageError(f"{path} is damaged: it holds no JSON object. Make or copy {layout} again.")
    return document


def _parse_config(config: Mapping[str, Any]) -> ImageConfig:
    env = (entry.partition("=") for entry in config.get("Env") or ())
    return ImageConfig(
        user=config.get("User") or "",
        entrypoint=tuple(config.get("Entrypoint") or ()),
        cmd=tuple(config.get("Cmd") or ()),
        env={name: value for name, _, value in env},
        workdir=config.get("WorkingDir") or "",
        labels=dict(config.get("Labels") or {}),
    )


def _config_document(config: ImageConfig) -> dict[str, Any]:
    document = {
        "User": config.user,
        "Entrypoint": list(config.entrypoint),
        "Cmd": list(config.cmd),
        "Env": [f"{name}={value}" for name, value in config.env.items()],
        "WorkingDir": config.workdir,
        "Labels": dict(config.labels),
    }
    return {key: value for key, value in document.items() if value}


def _write_blob(blobs: Path, media_type: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Write `document` as a blob and return its descriptor."""
    content = _dump(document)
    digest = hashlib.sha256(content).hexdigest()
    (blobs / digest).write_bytes(content)
    return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}


def _dump(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
