"""The root file systems that images are built of, each a single tar file made from Debian's packages.

Deterministic: the same packages give the same bytes, with every file dated ``SOURCE_DATE_EPOCH`` (seconds; see
reproducible-builds.org), by default 0. Owners are in the tar alone, so most of this needs no root.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deerflow_boxlite import debs
from deerflow_boxlite.errors import ImageError

__all__ = ["ACCOUNTS", "BASES", "REVISION", "Base", "Log", "epoch", "make_root", "suite"]

Base = Literal["busybox", "debian", "empty"]
Log = Callable[[str], None]

BASES: tuple[Base, ...] = ("busybox", "debian", "empty")

REVISION = 1
"""Raise it with every change to what the files of an image are, so that kept ones are not taken for the new."""

ACCOUNTS = ("root", "agent", "nobody")
"""The accounts that are in every image but the empty one; `agent` is 1000:1000."""

_BUSYBOX_FILES = {
    "etc/passwd": (
        "root:x:0:0:root:/root:/bin/sh\n"
        "agent:x:1000:1000:agent:/home/agent:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/bin/false\n"
    ),
    "etc/group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "etc/profile": "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
}

# python3 and not python3-minimal, which has neither json nor shutil.
_DEBIAN_PACKAGES = "python3,ca-certificates"

# What Debian's own slim images leave out too. Licences stay, as they must.
_DEBIAN_EXCLUDED = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/bash-completion/*",
)

# Shell, run by mmdebstrap with the new root as $1. The two files are copies of the building machine's.
_CUSTOMIZE = (
    'chroot "$1" useradd --create-home --uid 1000 --user-group --shell /bin/bash agent',
    'rm "$1/etc/hostname" "$1/etc/resolv.conf"',
)

_NOT_ROOT = (
    "Without root, mmdebstrap needs user namespaces: the package uidmap, and a range for you in /etc/subuid and "
    "/etc/subgid. Or build as root: the layout works for everyone."
)

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def suite() -> str:
    """Return the Debian release to build: the machine's own by its codename, or bookworm where it is not Debian."""
    try:
        host = platform.freedesktop_os_release()
    except OSError:
        return "bookworm"
    return host.get("VERSION_CODENAME", "bookworm") if host["ID"] == "debian" else "bookworm"


def epoch() -> int:
    """Return the date of all files in an image, in seconds: ``SOURCE_DATE_EPOCH`` if it is set, else 0.

    Raises:
        ImageError: it is set to something that is no number.
    """
    value = os.environ.get("SOURCE_DATE_EPOCH", "0")
    if not value.isdecimal():
        raise ImageError(f"SOURCE_DATE_EPOCH is {value!r}; it must be a number of seconds since 1970")
    return int(value)


def make_root(base: Base, tar: Path, log: Log) -> None:
    """Write the root file system `base` to the file `tar`.

    Blocks: a few seconds for busybox, half a minute for debian, some of it for downloads. A half-written `tar` is
    left there if this fails, and nothing else.

    Raises:
        DebsError: Debian's packages cannot be had, or are damaged.
        ImageError: the tools that build a Debian root are not there or failed.
    """
    # Not in the cache, which may be in a private home directory: without root, mmdebstrap works under user ids
    # that may not look in there.
    with tempfile.TemporaryDirectory(prefix="deerflow-boxlite-") as directory:
        work = Path(directory)
        work.chmod(0o755)
        match base:
            case "empty":
                _write_tar(tar, [_File("README", b"This image has no programs.\n")])
            case "busybox":
                _make_busybox(tar, work, log)
            case "debian":
                _make_debian(tar, work, log)


# Busybox


@dataclass(frozen=True)
class _File:
    """An entry of a tar: a directory if it has neither content nor target."""

    name: str
    content: bytes | None = None
    target: str = ""
    mode: int = 0o755
    owner: int = 0
    """The uid and the gid."""


def _make_busybox(tar: Path, work: Path, log: Log) -> None:
    debs.unpack(debs.fetch(["busybox-static"], work / "debs", log=log), work / "busybox")
    # In /bin, or in /usr/bin since Debian's packages follow the merged /usr.
    program = next((path for path in work.glob("busybox/**/bin/busybox") if path.is_file()), None)
    if program is None:
        raise ImageError("Debian's package busybox-static holds no busybox where it used to")
    # Statically linked and for this machine, so it can tell its applets itself: bin/ls, sbin/mdev, ...
    listing = subprocess.run([program, "--list-full"], capture_output=True, text=True, check=True).stdout
    _write_tar(tar, _busybox_files(program.read_bytes(), listing.split()))


def _busybox_files(program: bytes, applets: Iterable[str]) -> list[_File]:
    # One name, linuxrc, is for / itself: of no use here.
    links = (_File(name, target="/bin/busybox") for name in applets if "/" in name)
    texts = (_File(name, text.encode(), mode=0o644) for name, text in _BUSYBOX_FILES.items())
    return [
        *links,
        _File("bin/busybox", program),
        *texts,
        *(_File(name) for name in ("dev", "home", "mnt", "proc", "run", "sys", "usr/local/bin")),
        _File("home/agent", owner=1000),
        _File("root", mode=0o700),
        _File("tmp", mode=0o1777),
        _File("var/tmp", mode=0o1777),
    ]


def _write_tar(path: Path, files: Iterable[_File]) -> None:
    """Write `files` sorted by name, with the directories they need."""
    wanted = {file.name: file for file in files}
    for name in list(wanted):
        for parent in Path(name).parents[:-1]:
            wanted.setdefault(str(parent), _File(str(parent)))
    # The default pax format has records of its own only for what does not fit the plain header: nothing here.
    with tarfile.open(path, "w") as tar:
        for name in sorted(wanted):
            tar.addfile(_tar_info(wanted[name]), io.BytesIO(wanted[name].content or b""))


def _tar_info(file: _File) -> tarfile.TarInfo:
    info = tarfile.TarInfo(file.name)
    info.mtime = epoch()
    info.uid = info.gid = file.owner
    info.mode = file.mode
    if file.content is not None:
        info.size = len(file.content)
    elif file.target:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, file.target, 0o777
    else:
        info.type = tarfile.DIRTYPE
    return info


# Debian


def _make_debian(tar: Path, work: Path, log: Log) -> None:
    for tool in ("perl", "setpriv"):
        if shutil.which(tool) is None:
            raise ImageError(f"a Debian image is made by mmdebstrap, for which this machine lacks {tool}")
    wanted = ["mmdebstrap"] if _KEYRING.exists() else ["mmdebstrap", "debian-archive-keyring"]
    tools = work / "tools"
    debs.unpack(debs.fetch(wanted, work / "debs", log=log), tools)
    options = [f"--dpkgopt={line}" for line in _DEBIAN_EXCLUDED]
    options += [f"--customize-hook={line}" for line in _CUSTOMIZE]
    if not _KEYRING.exists():
        options.append(f"--keyring={tools}{_KEYRING}")
    command = [
        *_confinement(),
        "perl",
        str(tools / "usr/bin/mmdebstrap"),
        # Its third way, fakechroot, fails for Debian 12: the package usrmerge cannot be configured under it.
        f"--mode={'root' if os.geteuid() == 0 else 'unshare'}",
        "--variant=minbase",
        f"--include={_DEBIAN_PACKAGES}",
        # The guest brings its own; unpacking device nodes needs root.
        "--skip=output/dev",
        *options,
        "--format=tar",
        suite(),
        # Its standard output: in unshare mode it has another uid, which may not write where we may.
        "-",
    ]
    environment = {
        **os.environ,
        # mmdebstrap looks for its companion mmtarfilter there.
        "PATH": f"{tools}/usr/bin:{os.environ.get('PATH', os.defpath)}",
        # Or dpkg would read the user's ~/.dpkg.cfg.
        "HOME": str(tools),
        "LC_ALL": "C",
        "SOURCE_DATE_EPOCH": str(epoch()),
    }
    with tar.open("wb") as output:
        _run(command, output.fileno(), environment, log)
    with tarfile.open(tar, "a") as archive:
        archive.addfile(_tar_info(_File("./dev")))


def _confinement() -> list[str]:
    """Return a command to put before mmdebstrap's, so that it leaves nothing behind if this process is killed."""
    # mmdebstrap cleans up on SIGTERM, which it then gets.
    confinement = ["setpriv", "--pdeathsig", "TERM"]
    # What root mounts in the new root would stay mounted on this machine if that failed. Where this is not allowed,
    # as in most containers, mounting is not either, and mmdebstrap does without.
    unshare = ["unshare", "--mount"]
    if os.geteuid() == 0 and subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode == 0:
        confinement += unshare
    return confinement


def _run(command: list[str], output: int, environment: Mapping[str, str], log: Log) -> None:
    """Run mmdebstrap with its standard output to the descriptor `output`, passing on what it says as it goes."""
    last: deque[str] = deque(maxlen=20)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
    ) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                last.append(line)
                if line.startswith("I: "):
                    log(line.removeprefix("I: ").rstrip())
        except BaseException:
            # On SIGTERM it unmounts and removes its temporary directory; waiting for that is Popen's exit.
            process.terminate()
            raise
    if process.returncode != 0:
        hint = "" if os.geteuid() == 0 else f"\n{_NOT_ROOT}"
        raise ImageError(f"mmdebstrap failed with exit code {process.returncode}:\n{''.join(last).rstrip()}{hint}")
