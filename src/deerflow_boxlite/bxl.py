"""The runtime protocol on BoxLite: the only module that imports the `boxlite` SDK, and only when a box is needed.

Written against BoxLite 0.10.8. What it has to know about BoxLite's ways:

- one runtime per home over the whole machine, locked until the last handle on it is garbage;
- `stop()` deletes a box unless `auto_remove=False`, and kills the handle it was called on;
- dropping the last handle of a running box stops its VM, so `_Box` holds it for as long as the box must run;
- `wait()` gives -1, and no exception, when the VM was killed;
- errors are told apart by type, never by their text.
"""

from __future__ import annotations

import asyncio
import contextlib
import platform
import sys
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from .runtime import (
    BadImage,
    BoxGone,
    BoxMissing,
    BoxRecord,
    BoxSpec,
    BoxState,
    CopyUnsupported,
    HomeLocked,
    NoSuchPath,
    NoSuchProgram,
    RuntimeFailure,
    RuntimeFault,
)

T = TypeVar("T")

VM_KILLED = -1
"""What BoxLite's `wait()` gives when the VM went away under the process."""


def import_sdk() -> Any:
    """The `boxlite` module. Raises `ImportError` saying how to get it, or that this platform has no wheel of it."""
    try:
        import boxlite
    except ImportError as exc:
        hint = 'BoxLite is not installed. Run: pip install "deerflow-boxlite[boxlite]"'
        if not has_wheel():
            hint += (
                f". BoxLite has no wheel for {platform.system()} on {platform.machine()}:"
                " it runs on Linux (x86_64, aarch64) and on macOS with Apple Silicon"
            )
        raise ImportError(f"{hint} ({exc})", name="boxlite") from exc
    return boxlite


def has_wheel() -> bool:
    """Whether BoxLite is published for this platform."""
    machine = platform.machine().lower()
    if sys.platform == "linux":
        return machine in {"x86_64", "amd64", "aarch64", "arm64"}
    return sys.platform == "darwin" and machine == "arm64"


def open_runtime(home: Path) -> BoxliteRuntime:
    """Open the home, making it when there is none. Blocks for some milliseconds.

    Raises `ImportError` without the SDK, `HomeLocked` when another runtime holds the home, `RuntimeFailure`.
    """
    sdk = import_sdk()
    home.mkdir(parents=True, exist_ok=True)
    try:
        native = sdk.Boxlite(sdk.Options(home_dir=str(home)))
    except sdk.InternalError as exc:
        if (home / ".lock").exists() and _is_locked(home / ".lock"):
            raise HomeLocked(str(exc)) from exc
        raise RuntimeFailure(str(exc)) from exc
    except sdk.BoxliteError as exc:
        raise RuntimeFailure(str(exc)) from exc
    return BoxliteRuntime(sdk, native, home)


def _is_locked(path: Path) -> bool:
    """Whether someone holds BoxLite's `flock` on this file. Leaves the lock as it was."""
    import fcntl

    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False


class BoxliteRuntime:
    """`runtime.Runtime` on an embedded BoxLite runtime."""

    def __init__(self, sdk: Any, native: Any, home: Path) -> None:
        self._sdk = sdk
        self._native = native
        self._home = home
        self._handles: weakref.WeakSet[BoxliteBoxHandle] = weakref.WeakSet()

    async def find(self, name: str) -> BoxliteBoxHandle | None:
        native = await self._call(self._native.get(name))
        return None if native is None else self._handle(native, name)

    async def create(self, name: str, spec: BoxSpec) -> BoxliteBoxHandle:
        if spec.image is not None:
            await self._fetch(spec.image)
        return self._handle(await self._call(self._native.create(_options(self._sdk, spec), name=name)), name)

    async def _fetch(self, reference: str) -> None:
        """Have the image before there is a box of it: BoxLite would report a failed pull as a storage error.

        One that is here already is not asked of its registry again: boxes boot with the registry away.
        """
        names = _full_names(reference)
        if any(f"{image.repository}:{image.tag}" in names for image in await self._call(self._native.images.list())):
            return
        try:
            await self._call(self._native.images.pull(reference))
        except RuntimeFailure as exc:
            raise BadImage(str(exc)) from exc

    def _handle(self, native: Any, name: str) -> BoxliteBoxHandle:
        handle = BoxliteBoxHandle(self._sdk, native, name)
        self._handles.add(handle)
        return handle

    async def remove(self, name: str) -> None:
        with contextlib.suppress(BoxMissing):
            await self._call(self._native.remove(name, force=True))

    async def list(self) -> list[BoxRecord]:
        return [_record(info) for info in await self._call(self._native.list_info()) if info.name]

    async def disk_usage(self, name: str) -> int:
        info = await self._call(self._native.get_info(name))
        return 0 if info is None else await asyncio.to_thread(_blocks_used, self._home / "boxes" / info.id)

    async def close(self, timeout: float) -> None:
        try:
            await self._call(self._native.shutdown(timeout=max(1, round(timeout))))
        finally:
            # The home stays locked for as long as anything holds the native runtime or a box of it.
            for handle in self._handles:
                handle.drop()
            self._native.close()
            self._native = None

    async def _call(self, awaitable: Awaitable[T]) -> T:
        with translated(self._sdk):
            return await awaitable


class BoxliteBoxHandle:
    """`runtime.BoxHandle` on a native box handle, which it keeps alive: BoxLite stops a box that nobody holds."""

    def __init__(self, sdk: Any, native: Any, name: str) -> None:
        self._sdk = sdk
        self._native = native
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    async def start(self) -> None:
        with translated(self._sdk):
            await self._live.start()

    async def stop(self) -> None:
        native, self._native = self._native, None
        if native is not None:
            with contextlib.suppress(BoxGone, BoxMissing), translated(self._sdk):
                await native.stop()

    def drop(self) -> None:
        """Let go of the native handle. `Runtime.find` gives back a spent one for as long as anybody holds it."""
        self._native = None

    @property
    def _live(self) -> Any:
        if self._native is None:
            raise BoxGone(f"box {self._name} was stopped")
        return self._native

    async def exec(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> BoxliteProcess:
        program, *args = argv
        pairs = None if env is None else list(env.items())
        try:
            with translated(self._sdk):
                execution = await self._live.exec(program, args, pairs, user=user)
        except RuntimeFailure as exc:
            # A program that is not there is an "internal" error to BoxLite, like much else: what tells them apart is
            # whether the box itself still answers.
            if await self.state() != "running":
                raise BoxGone(str(exc)) from exc
            raise NoSuchProgram(str(exc)) from exc
        return BoxliteProcess(self._sdk, execution, self)

    async def copy_in(self, source: Path, target: str) -> None:
        with translated(self._sdk):
            await self._live.copy_in(str(source), target)

    async def copy_out(self, source: str, target: Path) -> None:
        try:
            with translated(self._sdk):
                await self._live.copy_out(source, str(target))
        except BoxMissing as exc:
            raise NoSuchPath(str(exc)) from exc

    async def state(self) -> BoxState:
        try:
            with translated(self._sdk):
                return _state((await self._live.info()).state)
        except (BoxGone, BoxMissing):
            return "stopped"

    async def answers(self) -> bool:
        """Whether the VM can start a program. `info()` goes on saying "running" for a moment after a VM's death."""
        try:
            with translated(self._sdk):
                await (await self._live.exec("/bin/sh", ["-c", ":"])).wait()
        except RuntimeFault:
            return False
        return True


class BoxliteProcess:
    """`runtime.Process` on a native execution."""

    def __init__(self, sdk: Any, execution: Any, box: BoxliteBoxHandle) -> None:
        self._sdk = sdk
        self._execution = execution
        self._box = box
        self._stdin: Any = None

    def _input(self) -> Any:
        if self._stdin is None:
            self._stdin = self._execution.stdin()
        return self._stdin

    async def write(self, data: bytes) -> None:
        try:
            with translated(self._sdk):
                await self._input().send_input(data)
        except RuntimeFailure as exc:
            raise BrokenPipeError(str(exc)) from exc

    async def close_stdin(self) -> None:
        with contextlib.suppress(RuntimeFault), translated(self._sdk):
            await self._input().close()

    def stdout(self) -> AsyncIterator[str]:
        return self._pieces(self._execution.stdout)

    def stderr(self) -> AsyncIterator[str]:
        return self._pieces(self._execution.stderr)

    async def _pieces(self, stream: Callable[[], Any]) -> AsyncIterator[str]:
        with translated(self._sdk):
            async for piece in stream():
                yield piece

    async def wait(self) -> int:
        with translated(self._sdk):
            code: int = (await self._execution.wait()).exit_code
        if code == VM_KILLED and not await self._box.answers():
            raise BoxGone(f"the VM of box {self._box.name} went away")
        return code

    async def kill(self) -> None:
        with contextlib.suppress(RuntimeFault), translated(self._sdk):
            await self._execution.kill()


@contextlib.contextmanager
def translated(sdk: Any) -> Iterator[None]:
    """BoxLite's errors as the protocol's, by type."""
    try:
        yield
    except (
        sdk.StoppedError,
        sdk.InvalidStateError,
        sdk.UpstreamUnavailableError,
        sdk.SessionReapedError,
        # "The VM failed to start", which on a busy host happens to one that starts the next time.
        sdk.EngineError,
    ) as exc:
        raise BoxGone(str(exc)) from exc
    except sdk.NotFoundError as exc:
        raise BoxMissing(str(exc)) from exc
    except sdk.UnsupportedError as exc:
        raise CopyUnsupported(str(exc)) from exc
    except sdk.ImageError as exc:
        raise BadImage(str(exc)) from exc
    except sdk.BoxliteError as exc:
        raise RuntimeFailure(f"{type(exc).__name__}: {exc}") from exc


def _options(sdk: Any, spec: BoxSpec) -> Any:
    """A box that dies with this process (`detach=False`) and keeps its disk (`auto_remove=False`)."""
    given: dict[str, Any] = {
        "image": spec.image,
        "rootfs_path": None if spec.layout is None else str(spec.layout),
        "cpus": spec.cpus,
        "memory_mib": spec.memory_mib,
        "disk_size_gb": spec.disk_size_gb,
        "network": None if spec.network is None else _network(sdk, spec),
    }
    return sdk.BoxOptions(
        **{key: value for key, value in given.items() if value is not None},
        detach=False,
        auto_remove=False,
        entrypoint=list(spec.command[:1]),
        cmd=list(spec.command[1:]),
        volumes=[(str(volume.host), volume.guest, volume.read_only) for volume in spec.volumes],
        secrets=[sdk.Secret(name=rule.name, value=rule.value, hosts=list(rule.hosts)) for rule in spec.secrets],
    )


def _full_names(reference: str) -> set[str]:
    """What an image may be listed as: a reference without a tag means `latest`, one without a host Docker Hub."""
    tagged = reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest"
    return {tagged, f"docker.io/{tagged}", f"docker.io/library/{tagged}"}


def _network(sdk: Any, spec: BoxSpec) -> Any:
    assert spec.network is not None
    mode = "enabled" if spec.network.enabled else "disabled"
    return sdk.NetworkSpec(outbound=sdk.OutboundNetworkSpec(mode=mode, allow_net=list(spec.network.allow)))


def _record(info: Any) -> BoxRecord:
    return BoxRecord(info.name, _state(info.state), _timestamp(info.created_at), _timestamp(info.started_at))


def _state(state: Any) -> BoxState:
    if state.status == "running":
        return "running"
    return "stopped" if state.status in {"stopped", "configured", "failed"} else "other"


def _timestamp(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text[:26] + "+00:00").timestamp()


def _blocks_used(folder: Path) -> int:
    """Bytes really allocated below a folder: a box's disk is sparse. What comes and goes meanwhile may count or not."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
    return total
