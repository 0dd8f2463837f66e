"""What the lab is made of: qemu, a kernel, a busybox and mke2fs from Debian's packages, kept in a cache directory."""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deerflow_boxlite import debs
from lab import initramfs

KERNEL = ("linux-image-amd64",)
TOOLS = ("qemu-system-x86", "busybox-static", "e2fsprogs", "kmod")
TOOLS_RELEASE = "trixie"
"""For qemu 10. With bookworm's 7.2 a VM in the emulated host died in every other copy of 100 MB, and the host itself
panicked now and then."""
# In the key of what is cached: raise it when this module unpacks or builds differently.
_GENERATION = "2"
_LIBRARIES = ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")
_FIRMWARE = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")


class PartsError(RuntimeError):
    """Something that the lab needs is not where it must be, or cannot be made."""


@dataclass(frozen=True)
class Parts:
    """The lab's software: `root` holds the unpacked packages; `kernel` and `initramfs` are ready to boot."""

    root: Path
    kernel: Path
    initramfs: Path

    def command(self, program: str) -> list[str]:
        """Return how to run one of the unpacked programs ("usr/bin/qemu-system-x86_64").

        With the loader and the libraries that came with it, so this machine's own may be older or other ones.
        """
        return _command(self.root, program)

    def find(self, *patterns: str) -> str:
        """Return the path under `root` of the first match of `patterns`, for :meth:`command`."""
        return str(_find(self.root, *patterns).relative_to(self.root))

    def firmware_options(self) -> list[str]:
        """Return qemu's options for the directories that its firmware was unpacked into."""
        return [word for name in _FIRMWARE for word in ("-L", str(self.root / name))]

    def environment(self) -> dict[str, str]:
        """Return the environment for qemu: this process's, and where its plug-ins were unpacked."""
        return {**os.environ, "QEMU_MODULE_DIR": str(_find(self.root, "usr/lib/x86_64-linux-gnu/qemu"))}


def cache_directory() -> Path:
    """Return the directory that all of the lab's files are kept in, by the XDG rules."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "deerflow-boxlite" / "lab"


def prepare(cache: Path, log: Callable[[str], None]) -> Parts:
    """Return the lab's parts, after downloading and building what `cache` does not hold yet.

    Blocks for the download the first time (about 120 MB), and while another process does the same. What is in
    `cache` under its final name is complete.

    Raises:
        PartsError, DebsError, OSError: it cannot be had or made; a later call starts over.
    """
    if os.uname().machine != "x86_64":
        raise PartsError(f"the lab is for x86-64 machines; this one is {os.uname().machine}")
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock", log):
        # Whoever was making these is gone: we have the lock.
        for left in cache.glob("partial-*"):
            shutil.rmtree(left, ignore_errors=True)
        root = cache / f"root-{_key(_GENERATION, *KERNEL, *TOOLS, TOOLS_RELEASE)}"
        if not root.exists():
            _make_root(root, log)
        modules = _find(root, "lib/modules/*", "usr/lib/modules/*")
        here = Path(__file__).parent
        scripts = {"init": (here / "init.sh").read_bytes(), "guest.sh": (here / "guest.sh").read_bytes()}
        code = Path(initramfs.__file__).read_bytes()
        image = cache / f"initramfs-{_key(root.name, modules.name, code, *scripts.values())}"
        if not image.exists():
            log("building the initramfs")
            _publish(image, initramfs.build(modules, _find(root, "bin/busybox", "usr/bin/busybox"), scripts))
        return Parts(root=root, kernel=root / "kernel", initramfs=image)


def _make_root(root: Path, log: Callable[[str], None]) -> None:
    """Download and unpack the packages into a directory that gets the name `root` when all is done."""
    with tempfile.TemporaryDirectory(dir=root.parent, prefix="partial-") as temporary:
        partial = Path(temporary) / "root"
        folder = Path(temporary) / "debs"
        kernels = [file for file in debs.fetch(KERNEL, folder, recurse=True, log=log) if file.name.startswith("linux-")]
        tools = _fetch_tools(folder / "tools", log)
        log(f"unpacking {len(kernels) + len(tools)} packages")
        debs.unpack([*kernels, *tools], partial)
        shutil.rmtree(partial / "usr/share/doc", ignore_errors=True)
        modules = _find(partial, "lib/modules/*", "usr/lib/modules/*")
        _depmod(partial, modules)
        kernel = _find(partial, "boot/vmlinuz-*")
        (partial / "kernel").write_bytes(plain_kernel(kernel.read_bytes()))
        # Or a crash of this machine could leave the name and not the contents.
        os.sync()
        partial.rename(root)


def _fetch_tools(folder: Path, log: Callable[[str], None]) -> list[Path]:
    try:
        return debs.fetch(TOOLS, folder, recurse=True, release=TOOLS_RELEASE, log=log)
    except debs.DebsError as error:
        log(f"no packages of {TOOLS_RELEASE}; with this machine's own qemu VMs may die more often: {error}")
        return debs.fetch(TOOLS, folder, recurse=True, log=log)


def _depmod(root: Path, modules: Path) -> None:
    """Write modules.dep for the kernel's `modules`: its package leaves that to the machine it is installed on."""
    kmod = _find(root, "bin/kmod", "usr/bin/kmod").relative_to(root)
    # It takes what contains lib/modules, and the version.
    options = ["-b", str(modules.parents[2]), modules.name]
    done = subprocess.run(
        [*_command(root, str(kmod), called="depmod"), *options], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise PartsError(f"depmod failed with exit code {done.returncode}: {done.stderr.strip()}")


def _command(root: Path, program: str, *, called: str = "") -> list[str]:
    loader = _find(root, *(f"{name}/ld-linux-x86-64.so.2" for name in _LIBRARIES))
    libraries = ":".join(str(root / name) for name in _LIBRARIES)
    name = ["--argv0", called] if called else []
    return [str(loader), "--library-path", libraries, *name, str(root / program)]


def _find(root: Path, *patterns: str) -> Path:
    """Return the first match under `root`; Debian's releases differ in what is under /usr."""
    for pattern in patterns:
        for path in sorted(root.glob(pattern)):
            return path
    raise PartsError(f"Debian's packages have no {' or '.join(patterns)} any more (under {root})")


def plain_kernel(image: bytes) -> bytes:
    """Return the ELF kernel inside a bzImage packed with xz, or `image` itself if it is another kind.

    qemu boots either. Emulated, a kernel takes seconds to unpack itself; here it takes a fraction of one, once.
    """
    setup_sectors = image[0x1F1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = image[start : start + length]
    if not payload.startswith(b"\xfd7zXZ\0"):
        return image
    # The payload ends in the unpacked size, which is none of xz's business: a decompressor object leaves it.
    return lzma.LZMADecompressor().decompress(payload)


def _key(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def _publish(path: Path, data: bytes) -> None:
    """Write a file so that it appears under its name complete or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="partial-") as temporary:
        partial = Path(temporary) / path.name
        partial.write_bytes(data)
        partial.rename(path)


@contextmanager
def _locked(path: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Hold a lock among processes; it goes with the process that holds it, however that ends."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("waiting for another lab/run, which is preparing the lab's software")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
