"""The emulated host's first file system: a busybox, the kernel modules it needs, and two shell scripts."""

from __future__ import annotations

import lzma
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# What the emulated host needs beyond what Debian's kernel has built in, with parameters where the defaults do not
# do. Under emulation a KVM timer that may fire every 200 us keeps its thread busy until the kernel calls it locked
# up; nested virtualization inside the nested guest is of no use here.
MODULES: Mapping[str, str] = {
    "virtio_pci": "",
    "virtio_console": "",
    "virtio_blk": "",
    "virtio_rng": "",
    "9pnet_virtio": "",
    "9p": "",
    "overlay": "",
    # ext4 asks for it by its algorithm's name, which modules.dep does not know.
    "crc32c_generic": "",
    "ext4": "",
    "fuse": "",
    "tun": "",
    "kvm": "min_timer_period_us=5000",
    "kvm_amd": "nested=0",
}


@dataclass(frozen=True)
class Entry:
    """One file, directory or device of a cpio archive: `mode` with the type bits, `device` as (major, minor)."""

    name: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(name: str) -> Entry:
    """Return the entry of a directory that everyone may read."""
    return Entry(name, stat.S_IFDIR | 0o755)


def executable(name: str, data: bytes) -> Entry:
    """Return the entry of a file that everyone may run."""
    return Entry(name, stat.S_IFREG | 0o755, data)


def cpio(entries: Iterable[Entry]) -> bytes:
    """Return `entries` as an archive in the "newc" format, the one that the Linux kernel unpacks.

    Parents must come before what they hold: the kernel does not make missing directories.
    """
    archive = bytearray()
    for number, entry in enumerate([*entries, Entry("TRAILER!!!", 0)], start=1):
        name = entry.name.encode() + b"\0"
        # inode, mode, uid, gid, links, mtime, size, device of the file system (2), of the node (2), name, checksum
        fields = (number, entry.mode, 0, 0, 1, 0, len(entry.data), 0, 0, *entry.device, len(name), 0)
        archive += b"070701" + b"".join(b"%08X" % field for field in fields) + name
        archive += bytes(-len(archive) % 4)
        archive += entry.data
        archive += bytes(-len(archive) % 4)
    return bytes(archive)


def module_name(path: str) -> str:
    """Return the name that a module file goes by: "kernel/arch/x86/kvm/kvm-amd.ko.xz" is "kvm_amd"."""
    return Path(path).name.split(".ko")[0].replace("-", "_")


def load_order(modules_dep: str, wanted: Iterable[str]) -> list[str]:
    """Return the files of the modules `wanted` and of all that they depend on, in an order in which they load.

    `modules_dep` is the text of depmod's file. A name that it does not know is skipped: a kernel may have it built
    in, and the emulated host's start fails soon enough, and says at what, if it does not.
    """
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in modules_dep.splitlines():
        path, _, dependencies = line.partition(":")
        needs[module_name(path)] = (path, [module_name(needed) for needed in dependencies.split()])
    order: list[str] = []

    def add(name: str) -> None:
        path, dependencies = needs.get(name, ("", []))
        if path and path not in order:
            for needed in dependencies:
                add(needed)
            order.append(path)

    for name in wanted:
        add(module_name(name))
    return order


def build(modules: Path, busybox: Path, scripts: Mapping[str, bytes]) -> bytes:
    """Return the initramfs for the kernel whose modules are in the directory `modules`.

    `scripts` are executables for its root, "init" among them. It finds there /bin/busybox, the modules under
    /modules, and /modules/order: one line for each, its file and parameters, in the order to load them in.

    Raises:
        OSError: a file is missing (depmod has not run on `modules`, for one).
    """
    order = load_order((modules / "modules.dep").read_text(), MODULES)
    files = [(module_name(path), _plain((modules / path).read_bytes())) for path in order]
    lines = [f"/modules/{name}.ko {MODULES.get(name, '')}".rstrip() for name, _ in files]
    return cpio(
        [
            *_directories(["bin", "dev", "proc", "sys", "modules", "scratch", "lower", "root"]),
            # The kernel opens it for init before anything is mounted.
            Entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1)),
            executable("bin/busybox", busybox.read_bytes()),
            *(Entry(f"modules/{name}.ko", stat.S_IFREG | 0o644, data) for name, data in files),
            Entry("modules/order", stat.S_IFREG | 0o644, "".join(f"{line}\n" for line in lines).encode()),
            *(executable(name, text) for name, text in scripts.items()),
        ]
    )


def _directories(names: Sequence[str]) -> list[Entry]:
    return [directory(name) for name in names]


def _plain(module: bytes) -> bytes:
    """Return a module as its plain ELF file: newer kernels' packages compress them, which busybox cannot undo."""
    return lzma.decompress(module) if module.startswith(b"\xfd7zXZ\0") else module
