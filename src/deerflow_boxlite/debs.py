"""Debian packages, fetched and unpacked without installing anything.

apt does the work, with a state directory of its own: the machine's package lists may be empty or stale, its dpkg
database must not be touched, and none of this needs root. The machine's sources, keys and proxy settings are used
as they are, so every file is verified the way ``apt-get install`` would.

Standard library only: the lab's runner loads this module on a machine where nothing is installed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

__all__ = ["DebsError", "apt_options", "fetch", "unpack", "update"]

# Read after the machine's own configuration, so that it overrides it. The update hooks are cleared because they
# are about the machine's cache (and may need root); APT::Sandbox::User because "_apt" cannot enter private
# directories; the retries and the timeout because one slow or dead mirror must not decide the outcome.
_APT_CONF = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Sandbox::User "";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::http::Timeout "30";
Acquire::https::Timeout "30";
Dir::State "{state}";
Dir::State::status "{state}/status";
Dir::Cache "{state}/cache";
Dir::Log "{state}/log";
"""

_ONLY_SOURCES = """\
Dir::Etc::sourcelist "{state}/sources.list";
Dir::Etc::sourceparts "-";
"""

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class DebsError(RuntimeError):
    """A package could not be found, downloaded, verified or unpacked; the message holds the tool's own words."""


def _silent(_line: str) -> None:
    pass


def apt_options(state_dir: Path) -> list[str]:
    """Return the options that make apt's tools use `state_dir` instead of the machine's state.

    Creates what apt expects to find there: an empty dpkg status (nothing counts as installed, so a dependency
    closure is whole) and a configuration file, which names the file ``sources.list`` in `state_dir` in the place of the
    machine's sources where there is one. Package lists come with :func:`update`. For ``apt-get`` and
    ``apt-cache`` alike; put them right after the program's name.
    """
    state = state_dir.absolute()
    for name in ("lists/partial", "cache/archives/partial", "log"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    only = _ONLY_SOURCES.format(state=state) if (state / "sources.list").exists() else ""
    (state / "apt.conf").write_text(_APT_CONF.format(state=state) + only, encoding="utf-8")
    return ["-c", str(state / "apt.conf")]


def update(state_dir: Path) -> str:
    """Download the package lists of the machine's sources into `state_dir` and return what apt warned of.

    Blocks for the download (about 9 MB for Debian; each unreachable source can add a minute or two). A source that
    fails is no error here: others may have all that is wanted, and :func:`fetch` fails if they have not.

    Raises:
        DebsError: there is no apt here.
    """
    return _run(["apt-get", *apt_options(state_dir), "-q", "update"], check=False).stderr


def fetch(
    packages: Sequence[str],
    into: Path,
    *,
    recurse: bool = False,
    release: str | None = None,
    log: Callable[[str], None] = _silent,
) -> list[Path]:
    """Download `packages` by name into the directory `into` and return the paths of the .deb files.

    With `recurse`, everything they depend on comes too, down to libc (recommended packages do not). With `release`,
    they come from that release of Debian ("trixie") at the mirror that the machine has for its own, and from there
    alone. Files are verified by apt and appear under `into` complete or not at all; `into` is created if missing.

    Blocks for the download. `log` gets a line now and then, to show that something goes on.

    Raises:
        DebsError: no such package, no source answered, a signature or checksum did not match, no apt here, or none of
            the machine's sources is Debian's and a `release` is asked for.
    """
    into.mkdir(parents=True, exist_ok=True)
    # Beside the result: a rename within one filesystem is what makes a file appear all at once.
    with tempfile.TemporaryDirectory(dir=into, prefix=".apt-") as temporary:
        state = Path(temporary)
        log("reading Debian's package lists")
        warnings = update(state)
        if release is not None:
            _restrict(state, release)
            warnings = update(state)
        log(f"downloading {' '.join(packages)}{' and what they depend on' if recurse else ''}")
        try:
            if recurse:
                what = ["install", "--download-only", "--yes"]
                _run(["apt-get", *apt_options(state), "-q", *what, "--", *packages])
            else:
                archives = state / "cache" / "archives"
                _run(["apt-get", *apt_options(state), "-q", "download", "--", *packages], cwd=archives)
        except DebsError as error:
            if not warnings.strip():
                raise
            raise DebsError(f"{error}\napt-get update had said:\n{warnings.strip()}") from None
        found = sorted((state / "cache" / "archives").glob("*.deb"))
        if not found:
            raise DebsError(f"apt-get downloaded nothing for {' '.join(packages)}")
        return [deb.replace(into / deb.name) for deb in found]


def _restrict(state: Path, release: str) -> None:
    """Have one release of Debian in the place of the machine's sources, whose lists were downloaded before."""
    wanted = ["--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages"]
    known = _run(["apt-get", *apt_options(state), "indextargets", *wanted]).stdout.splitlines()
    mirror = next((words[2] for line in known if (words := line.split())[:2] == ["Debian", "Debian"]), None)
    if mirror is None:
        raise DebsError(f"no source of this machine is a mirror of Debian, to have {release} from")
    signed = f"[signed-by={_KEYRING}] " if Path(_KEYRING).exists() else ""
    (state / "sources.list").write_text(f"deb {signed}{mirror} {release} main\n", encoding="utf-8")


def unpack(debs: Iterable[Path], root: Path) -> None:
    """Unpack the files of `debs` under the directory `root`, as far as they are files: no maintainer script runs.

    Blocks for the unpacking. `root` is created if missing and is left half filled if this fails, so unpack into a
    temporary directory and rename it.

    Raises:
        DebsError: a package is damaged, the disk is full, or no dpkg-deb here.
    """
    root.mkdir(parents=True, exist_ok=True)
    for deb in debs:
        _run(["dpkg-deb", "-x", str(deb), str(root)])


def _run(command: Sequence[str], *, cwd: Path | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run one of Debian's tools, untranslated and never asking anything; its failure becomes a DebsError."""
    environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    # Would be read instead of what the options say, or before it.
    environment.pop("APT_CONFIG", None)
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except FileNotFoundError as error:
        raise DebsError(f"{command[0]} is needed to get Debian's packages and is not on this machine") from error
    if check and done.returncode != 0:
        raise DebsError(f"{command[0]} failed with exit code {done.returncode}:\n{done.stderr.strip()}")
    return done
