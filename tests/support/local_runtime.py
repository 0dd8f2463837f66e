"""The runtime protocol with local processes in the place of boxes: what the guest side's tests run on.

A box here is a directory and the processes started for it. They see this machine's files: whatever a test lets the
guest touch has to lie under its own temporary directory. They end with the box, by a mark in their environment.
"""

from __future__ import annotations

import asyncio
import atexit
import codecs
import contextlib
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from deerflow_boxlite import debs
from deerflow_boxlite.runtime import (
    BoxGone,
    BoxRecord,
    BoxSpec,
    BoxState,
    CopyUnsupported,
    NoSuchPath,
    NoSuchProgram,
)

PIECE = 1024
"""BoxLite's output comes in pieces of at most so many bytes."""

_MARK = "LOCAL_BOX_MARK"
_PROGRAMS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@functools.cache
def busybox() -> Path:
    """A busybox: this machine's, else Debian's busybox-static, fetched once into the cache. Fails loudly without."""
    if found := shutil.which("busybox"):
        return Path(found)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deerflow-boxlite" / "tests"
    program = cache / "busybox"
    if not program.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as folder:
            packages = debs.fetch(["busybox-static"], Path(folder) / "debs")
            debs.unpack(packages, Path(folder) / "root")
            (Path(folder) / "root/bin/busybox").replace(program)
    return program


def make_userland(folder: Path, shell: str, *, without: Sequence[str] = ()) -> None:
    """Fill a directory with links to the programs of an image whose `sh` is `shell`: dash, bash or busybox.

    busybox: its applets and nothing else. dash: this machine's programs but no bash. `without` leaves out some.
    """
    folder.mkdir(parents=True)
    if shell == "busybox":
        applets = subprocess.run([busybox(), "--list"], capture_output=True, text=True, check=True).stdout.split()
        # A copy: other users, whom tests use too, cannot reach a cache below a home.
        program = Path(shutil.copy(busybox(), folder / "busybox"))
        links = {name: program for name in applets if name != "busybox"}
    else:
        links = {path.name: path for where in _PROGRAMS for path in Path(where).glob("*")}
        links["sh"] = links[shell]
        if shell == "dash":
            del links["bash"]
    for name, target in links.items():
        if name not in without:
            (folder / name).symlink_to(target)


@functools.cache
def shared_userland(shell: str) -> Path:
    """A userland for all the tests of this process that leave it as it is. It is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="userland-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make_userland(folder / shell, shell)
    folder.chmod(0o755)
    return folder / shell


class LocalRuntime:
    """`runtime.Runtime`, local. `shell` is what `sh` is in its boxes: dash, bash or busybox.

    `calls` lists every call of the protocol that would cross into a box: its name, then what it was about.
    `before` is awaited with each of these first; it may sleep or raise.
    """

    def __init__(
        self,
        root: Path,
        shell: str = "dash",
        *,
        user: str | None = None,
        mounts: Sequence[str] = (),
        without: Sequence[str] = (),
        shared: bool = False,
    ) -> None:
        """`user` (`uid:gid`) is the image's, for tests that run as root; under `mounts` nothing can be copied.

        `shared` says that nobody changes the programs in `path`, so that they need not be this runtime's own.
        """
        self.root = root
        self.shell = shell
        self.user = user
        self.mounts = tuple(mounts)
        self.calls: list[tuple[str, ...]] = []
        self.before: Callable[[tuple[str, ...]], Awaitable[None]] | None = None
        self.boxes: dict[str, LocalBox] = {}
        if shared and not without:
            self.path = shared_userland(shell)
        else:
            self.path = root / "userland"
            make_userland(self.path, shell, without=without)

    async def note(self, *call: str) -> None:
        self.calls.append(call)
        if self.before is not None:
            await self.before(call)

    def count(self, name: str) -> int:
        """How many calls of that name there were."""
        return sum(call[0] == name for call in self.calls)

    async def find(self, name: str) -> LocalBox | None:
        return self.boxes.get(name)

    async def create(self, name: str, spec: BoxSpec | None = None) -> LocalBox:
        box = LocalBox(self, name)
        box.home.mkdir(parents=True)
        if self.user is not None:
            os.chown(box.home, *map(int, self.user.split(":")))
        self.boxes[name] = box
        return box

    async def box(self, name: str = "box") -> LocalBox:
        """A new running box."""
        box = await self.create(name)
        await box.start()
        return box

    async def remove(self, name: str) -> None:
        if (box := self.boxes.pop(name, None)) is not None:
            await box.stop()
            shutil.rmtree(box.home)

    async def list(self) -> list[BoxRecord]:
        return [BoxRecord(name, await box.state()) for name, box in self.boxes.items()]

    async def disk_usage(self, name: str) -> int:
        return sum(path.lstat().st_blocks * 512 for path in self.boxes[name].home.rglob("*"))

    async def close(self, timeout: float = 10.0) -> None:
        for box in self.boxes.values():
            await box.stop()


class LocalBox:
    """`runtime.BoxHandle`, local. Its home is where its programs start."""

    def __init__(self, runtime: LocalRuntime, name: str) -> None:
        self.runtime = runtime
        self.home = runtime.root / "boxes" / name
        self.env: dict[str, str] = {}
        """What the image would set."""
        self._name = name
        self._running = False
        self._mark = uuid.uuid4().hex
        self._processes: list[LocalProcess] = []

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        self._running = True

    async def stop(self) -> None:
        self.die()

    def die(self) -> None:
        """What a VM's death looks like: every process gone at once, and nothing to be executed any more."""
        self._running = False
        while running := [pid for pid in _all_processes() if self._owns(pid)]:
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.box_died()
        self._processes.clear()

    def _owns(self, pid: int) -> bool:
        """A zombie has no environment: it counts as gone."""
        try:
            return f"{_MARK}={self._mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def processes(self) -> list[str]:
        """The command lines of all that runs in the box."""
        return list(self.command_lines().values())

    def command_lines(self) -> dict[int, str]:
        """The same, by process id."""
        found = {}
        for pid in _all_processes():
            if self._owns(pid):
                with contextlib.suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                    found[pid] = words.decode(errors="replace")
        return found

    async def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> LocalProcess:
        await self.runtime.note("exec", *argv)
        self._check()
        assert all(len(word.encode(errors="surrogateescape")) < 120_000 for word in argv), "BoxLite would hang on this"
        # The opener of a channel executes a shell in its turn: that too has to be the box's, and not this machine's.
        words = [str(self.runtime.path / "sh") if word == "/bin/sh" else word for word in argv]
        program = words[0] if "/" in words[0] else str(self.runtime.path / words[0])
        if not os.access(program, os.X_OK):
            raise NoSuchProgram(f"spawn_failed: {argv[0]}")
        environment = {"PATH": str(self.runtime.path), "HOME": str(self.home), _MARK: self._mark, **self.env}
        environment.update(env or {})
        process = LocalProcess(self)
        await process.start([program, *words[1:]], argv[0], environment, self.home, self._ids(user))
        self._processes.append(process)
        return process

    def _ids(self, user: str | None) -> tuple[int, int] | None:
        wanted = user or self.runtime.user
        if wanted is None or os.getuid() != 0:
            return None
        uid, gid = wanted.split(":")
        return int(uid), int(gid)

    async def copy_in(self, source: Path, target: str) -> None:
        await self.runtime.note("copy_in", target)
        self._check_copy(target)
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        await asyncio.to_thread(shutil.copyfile, source, target)

    async def copy_out(self, source: str, target: Path) -> None:
        await self.runtime.note("copy_out", source)
        self._check_copy(source)
        if not Path(source).is_file() or Path(source).is_symlink():
            raise NoSuchPath(source)
        await asyncio.to_thread(shutil.copyfile, source, target)

    def _check(self) -> None:
        if not self._running:
            raise BoxGone(f"box {self._name} is not running")

    def _check_copy(self, path: str) -> None:
        self._check()
        if any(path.startswith(f"{mount}/") for mount in self.runtime.mounts):
            raise CopyUnsupported(path)

    async def state(self) -> BoxState:
        return "running" if self._running else "stopped"


class LocalProcess:
    """`runtime.Process`, local."""

    def __init__(self, box: LocalBox) -> None:
        self._box = box
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def start(
        self, argv: list[str], name: str, env: dict[str, str], cwd: Path, ids: tuple[int, int] | None
    ) -> None:
        self._popen = subprocess.Popen(
            [name, *argv[1:]],
            executable=argv[0],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
            user=None if ids is None else ids[0],
            group=None if ids is None else ids[1],
            extra_groups=None if ids is None else [],
        )
        self.pid = self._popen.pid
        loop = asyncio.get_running_loop()
        pidfd = os.pidfd_open(self.pid)
        loop.add_reader(pidfd, self._reap, pidfd)
        self._input, _ = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, self._popen.stdin)
        self._streams = [await _reader(pipe) for pipe in (self._popen.stdout, self._popen.stderr)]

    def _reap(self, pidfd: int) -> None:
        asyncio.get_running_loop().remove_reader(pidfd)
        os.close(pidfd)
        code = self._popen.wait()
        if not self._exit.done():
            self._exit.set_result(code)

    def box_died(self) -> None:
        """Its exit was the box's: `wait` says so, whether it had ended just before or not."""
        if not self._exit.done():
            self._exit.set_exception(BoxGone(f"the VM of box {self._box.name} went away"))
            self._exit.exception()
        self._input.close()

    async def write(self, data: bytes) -> None:
        await self._box.runtime.note("write", str(len(data)))
        self._box._check()
        if self._input.is_closing():
            raise BrokenPipeError("its standard input is closed")
        self._input.write(data)

    async def close_stdin(self) -> None:
        self._input.close()

    def stdout(self) -> AsyncIterator[str]:
        return _pieces(self._streams[0])

    def stderr(self) -> AsyncIterator[str]:
        return _pieces(self._streams[1])

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)

    async def kill(self) -> None:
        if self._popen.returncode is None:
            self._popen.kill()


def _all_processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


async def _reader(pipe: object) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def _pieces(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while data := await stream.read(PIECE):
        if text := decoder.decode(data):
            yield text
    if text := decoder.decode(b"", final=True):
        yield text
