"""The emulated host: its qemu process, its run directory, and the two sockets it speaks over."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.parts import Parts, PartsError

_SCRATCH = "32G"
_KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable"


@dataclass(frozen=True)
class Host:
    """A running emulated host; `output` and `pulse` are this side's ends of its two ports."""

    process: subprocess.Popen[bytes]
    output: socket.socket
    pulse: socket.socket


@contextmanager
def run_directory(cache: Path) -> Iterator[Path]:
    """Make a directory for the files of one run and remove it at the end.

    Also removes those whose process was killed before it could: a run holds a lock in its own.
    """
    runs = cache / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        # Nobody may look for dead ones while a new one has no lock yet.
        with (cache / "runs-lock").open("w") as all_runs:
            fcntl.flock(all_runs, fcntl.LOCK_EX)
            for left in runs.iterdir():
                _remove_if_dead(left)
            directory = Path(tempfile.mkdtemp(dir=runs))
            held.callback(shutil.rmtree, directory, ignore_errors=True)
            fcntl.flock(held.enter_context((directory / "lock").open("w")), fcntl.LOCK_EX)
        yield directory


def _remove_if_dead(directory: Path) -> None:
    try:
        with (directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(directory, ignore_errors=True)
    except (BlockingIOError, FileNotFoundError):
        # Alive, or gone by itself just now.
        pass


def make_scratch(parts: Parts, file: Path) -> None:
    """Make a sparse file with an empty ext4 file system: it takes disk space only for what is written to it."""
    options = ["-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-i", "65536"]
    command = [*parts.command(parts.find("sbin/mke2fs", "usr/sbin/mke2fs")), *options, str(file), _SCRATCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PartsError(f"mke2fs failed with exit code {done.returncode}: {done.stderr.strip()}")


def default_memory() -> int:
    """Return the emulated host's memory in MiB: 8 GiB, or three quarters of what this machine has if that is less.

    It is taken as it is used, not at once.
    """
    here = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return min(8192, here * 3 // 4)


def qemu_options(parts: Parts, directory: Path, out: Path, memory: int, output: int, pulse: int) -> list[str]:
    """Return qemu's options: `memory` in MiB, `output` and `pulse` the numbers of inherited sockets."""
    # With "max" in the place of EPYC, the emulated host's processors locked up after a while.
    machine = ["-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "EPYC,+svm,+npt"]
    size = ["-smp", str(min(len(os.sched_getaffinity(0)), 4)), "-m", str(memory)]
    nothing_else = ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    kernel = ["-kernel", str(parts.kernel), "-initrd", str(parts.initramfs), "-append", _KERNEL_OPTIONS]
    console = ["-chardev", f"file,id=console,path={_escaped(directory / 'console')}", "-serial", "chardev:console"]
    ports = ["-device", "virtio-serial-pci"]
    for name, number in (("output", output), ("pulse", pulse)):
        ports += ["-chardev", f"socket,id={name},fd={number}"]
        ports += ["-device", f"virtserialport,chardev={name},name={name}"]
    # Nothing on the scratch disk outlives the run, so nothing needs to reach the real disk.
    disk = f"file={_escaped(directory / 'scratch')},format=raw,if=virtio,cache=unsafe,discard=unmap"
    return [
        *("-name", "deerflow-lab,process=lab-qemu"),
        *nothing_else,
        *machine,
        *size,
        *parts.firmware_options(),
        *kernel,
        *console,
        *ports,
        *("-drive", disk),
        *("-device", "virtio-rng-pci"),
        *_share("root", Path("/"), writable=False),
        *_share("call", directory / "call", writable=False),
        *_share("out", out, writable=True),
    ]


def _share(tag: str, path: Path, *, writable: bool) -> list[str]:
    # remap: inode numbers of different file systems under one share must not collide.
    options = f"local,id={tag},path={_escaped(path)},security_model=none,multidevs=remap"
    readonly = "" if writable else ",readonly=on"
    return ["-fsdev", options + readonly, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]


def _escaped(path: Path) -> str:
    """Return a path as a value in qemu's option lists, where a comma ends one."""
    return str(path).replace(",", ",,")


@contextmanager
def started(parts: Parts, directory: Path, out: Path, memory: int) -> Iterator[Host]:
    """Start the emulated host; at the end kill it. It dies with this process even if that is killed.

    What qemu itself says goes to the file "qemu" in `directory`, the kernel's console to "console".
    """
    output, output_there = socket.socketpair()
    pulse, pulse_there = socket.socketpair()
    with output, output_there, pulse, pulse_there, (directory / "qemu").open("wb") as messages:
        numbers = (output_there.fileno(), pulse_there.fileno())
        options = qemu_options(parts, directory, out, memory, *numbers)
        process = subprocess.Popen(
            [*parts.command("usr/bin/qemu-system-x86_64"), *options],
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=messages,
            env=parts.environment(),
            pass_fds=numbers,
            # Ctrl-C is for lab/run alone, which then ends qemu.
            start_new_session=True,
            preexec_fn=_die_with_parent(os.getpid()),
        )
        try:
            output_there.close()
            pulse_there.close()
            yield Host(process, output, pulse)
        finally:
            process.kill()
            process.wait()


def _die_with_parent(parent: int) -> Callable[[], None]:
    """Return what a child process does before it becomes qemu. No thread runs in this process, so that is safe."""
    libc = ctypes.CDLL(None, use_errno=True)
    set_parent_death_signal = 1

    def prepare() -> None:
        libc.prctl(set_parent_death_signal, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        # 9p keeps files open for the emulated host.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    return prepare
