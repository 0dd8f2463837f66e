"""Whether BoxLite's home can be used, and whether the host has room for boxes on its disk and in its memory."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from .config import BoxliteConfig, check_mounts
from .doctor_report import Finding, Host, ok, problem, warning
from .errors import ConfigError
from .home import in_use, in_use_message

# An unpacked image and its disk take some hundred MB each, BoxLite's own programs 150 MB.
_LITTLE_DISK = 1 << 30
_SCARCE_DISK = 5 << 30

# BoxLite's own, for a box without `memory_mib`.
_DEFAULT_MEMORY_MIB = 512
# A VM's process takes this much beside its guest's memory.
_OVERHEAD_MIB = 50


def home_findings(config: BoxliteConfig) -> Iterator[Finding]:
    """Say whether the home can be written to, and whether it is free. Makes nothing."""
    home = config.home_dir
    nearest = _nearest_existing(home)
    if not nearest.is_dir():
        yield problem("home", f"home_dir {home}: {nearest} is no directory", "Set home_dir to another path")
        return
    if not os.access(nearest, os.R_OK | os.W_OK | os.X_OK):
        yield problem(
            "home", f"home_dir {home}: no permission to write in {nearest}", "Set home_dir to a directory of your own"
        )
        return
    if in_use(home):
        seen, _, cure = in_use_message(home).partition(". ")
        yield problem("home", seen, cure)
        return
    yield ok("home", f"{home} is free" if home.exists() else f"{home} will be made")
    yield _disk_finding(nearest)


def _nearest_existing(path: Path) -> Path:
    return next(parent for parent in (path, *path.parents) if parent.exists())


def _disk_finding(directory: Path) -> Finding:
    free = shutil.disk_usage(directory).free
    seen = f"{_gb(free)} free at {directory}"
    if free < _LITTLE_DISK:
        return problem("disk", f"only {seen}", "Free some space, or set home_dir to a larger disk; 5 GB do for a start")
    if free < _SCARCE_DISK:
        return warning("disk", f"only {seen}", "Images and boxes may soon fill it; set home_dir to a larger disk")
    return ok("disk", seen)


def programs_findings(environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Say whether BoxLite can unpack its own programs, 76 MB: not into its home, but into the user's data directory."""
    if sys.platform != "linux":
        return
    # Its rule is that of the XDG base directory specification: a relative path does not count.
    named = environ.get("XDG_DATA_HOME", "")
    directory = Path(named) if named.startswith("/") else Path(environ.get("HOME") or "~").expanduser() / ".local/share"
    nearest = _nearest_existing(directory)
    if not os.access(nearest, os.W_OK | os.X_OK):
        yield problem(
            "programs",
            f"no permission to write in {nearest}, where BoxLite unpacks its programs ({directory / 'boxlite'})",
            "Set the environment variable XDG_DATA_HOME, or HOME, to a directory of your own",
        )


def memory_findings(config: BoxliteConfig, host: Host) -> Iterator[Finding]:
    """Say how many boxes fit in memory if each uses all of its own."""
    available = _available_memory(host)
    if available is None:
        return
    each = config.memory_mib or _DEFAULT_MEMORY_MIB
    fits = available // ((each + _OVERHEAD_MIB) << 20)
    seen = f"{_gb(available)} available: {fits} box{'' if fits == 1 else 'es'} of {each} MiB"
    if fits >= config.replicas:
        yield ok("memory", seen)
        return
    # A guest takes memory as it uses it, so that this is no reason not to try.
    yield warning(
        "memory",
        f"{seen}, fewer than replicas ({config.replicas})",
        "Boxes that use all their memory will be killed; lower replicas or memory_mib",
    )


def cpu_findings(config: BoxliteConfig) -> Iterator[Finding]:
    """Say whether a box is to have more CPUs than there are."""
    here = os.cpu_count()
    if config.cpus and here and config.cpus > here:
        yield warning("CPUs", f"cpus is {config.cpus}, but this host has {here}", f"Set cpus to at most {here}")


def mount_findings(config: BoxliteConfig) -> Iterator[Finding]:
    """Say which mounts have no directory on this host."""
    try:
        check_mounts(config)
    except ConfigError as error:
        for line in str(error).splitlines():
            seen, _, cure = line.partition("; ")
            yield problem("mounts", seen, cure[:1].upper() + cure[1:])


def _available_memory(host: Host) -> int | None:
    """Bytes that can be had without swapping, within the limit of our control group (cgroup v2) if it has one."""
    available = None
    for line in (host.read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            available = int(value.split()[0]) * 1024
    limit, used = host.number("/sys/fs/cgroup/memory.max"), host.number("/sys/fs/cgroup/memory.current")
    if available is not None and limit is not None and used is not None:
        return min(available, max(0, limit - used))
    return available


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
