"""`Guest`: the inside of one running box, as the rest of the package uses it."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import BoxBootError, ImageError
from ..runtime import BoxHandle, NoSuchProgram
from . import request, userland
from .channel import Channel, ChannelBroken, Shell
from .commands import Commands
from .control import PATH, Control
from .files import Files
from .files_copy import Scratch
from .leases import Leases
from .result import CommandResult
from .scripts import scripts
from .search import Search
from .shells import Login
from .streaming import Piece, stream
from .userland import Userland
from .wire import Reply

if TYPE_CHECKING:
    from ..config import BoxliteConfig

STATE_DIR = "/var/lib/deerflow-boxlite"
"""Where the guest side keeps its files: on the root disk, which is all that copies reach."""

DIRECTORIES = ("/mnt/user-data/workspace", "/mnt/user-data/uploads", "/mnt/user-data/outputs", "/mnt/skills")
"""What a box has beside its image: DeerFlow's paths."""

TOOLS = 8
"""Tool channels at once in one box."""

_TOOL_SCRIPTS = ("files.sh", "files_write.sh", "search.sh", "look.sh", "thread_data.sh")
_OPEN_TIMEOUT = 30.0


@dataclass(frozen=True)
class GuestSettings:
    """What a guest is opened with."""

    image: str
    """For messages."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Set for every command, over what the image and its profile set."""
    shell: Literal["auto", "bash", "sh"] = "auto"
    """`auto`: bash where the image has it."""
    command_timeout: float = 600.0
    """Seconds; 0 for no limit."""
    max_output_bytes: int = 1024 * 1024
    """Per stream of a command."""
    state_dir: str = STATE_DIR
    """Emptied when the guest is opened."""
    directories: tuple[str, ...] = DIRECTORIES
    tool_path: str = PATH
    """Where our own tools look for programs."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a name in `environment` that no shell can set."""
        request.check_env(self.environment)

    @classmethod
    def of(cls, config: BoxliteConfig) -> GuestSettings:
        """What a provider's settings say of it."""
        return cls(
            image=str(config.image),
            environment=config.environment,
            shell=config.shell,
            command_timeout=config.command_timeout,
            max_output_bytes=config.max_output_bytes,
        )


class Guest:
    """The inside of one running box. Belongs to one event loop; dead when the box stops.

    Everything here may raise `BoxGone` when the box goes away under it, and `ChannelBroken` when a shell in it ends or
    falls silent under a request (not under a command: that is the command's end).
    """

    def __init__(self, box: BoxHandle, settings: GuestSettings, control: Control, tools: Leases[Channel]) -> None:
        """Used by `open`."""
        self._box = box
        self._settings = settings
        self._control = control
        self._tools = tools
        self._names = itertools.count(1)
        self._prefix = secrets.token_hex(4)
        scratch = Scratch(self)
        self.files = Files(self, scratch)
        self.search = Search(self, scratch)

    @classmethod
    async def open(cls, box: BoxHandle, settings: GuestSettings) -> Guest:
        """Make a box that was just booted ready: its directories, owned by the image's user, and its channels.

        Two channels opened at once, and a round trip on each. Raises `ImageError` when the image lacks what is needed,
        `BoxBootError` when the directories cannot be made, `BoxGone`. Nothing stays open after a failure.
        """
        env = {"LC_ALL": "C", "PATH": settings.tool_path}
        tools = Leases(lambda: _open_tool(box, env), TOOLS)
        guest = cls(box, settings, Control(box, env), tools)
        try:
            await guest._start()
        except NoSuchProgram as exc:
            await guest.close()
            raise ImageError(
                f"the image {settings.image} has no /bin/sh that can be run ({exc}): a box needs a POSIX shell. Choose "
                "another `image`, or add one to yours"
            ) from exc
        except BaseException:
            await asyncio.shield(guest.close())
            raise
        return guest

    async def _start(self) -> None:
        # Both are needed later, so neither is opened for this alone.
        looking = asyncio.create_task(self._look())
        waking = asyncio.create_task(self._control.open(_OPEN_TIMEOUT))
        try:
            await asyncio.wait({looking, waking})
        finally:
            looking.cancel()
            waking.cancel()
            await asyncio.wait({looking, waking})
        self._userland = looking.result()
        waking.result()
        self._commands = Commands(
            self._box,
            self._login(),
            self._control,
            self._settings.command_timeout,
            self._settings.max_output_bytes,
        )
        reply = await self._control.call(
            "dfb_start",
            str(self._userland.uid),
            str(self._userland.gid),
            self._settings.state_dir,
            *self._settings.directories,
        )
        if reply.words != ("ok",):
            raise BoxBootError(f"the box {self._box.name}: its directories could not be made: {reply.parts[0]}")
        self._commands.prepare()

    async def _look(self) -> Userland:
        reply = await self.call(("dfb_look", *userland.NEEDED), timeout=_OPEN_TIMEOUT)
        return userland.read(reply.words, self._settings.image)

    def _login(self) -> Login:
        bash = self._userland.bash
        if self._settings.shell == "bash" and bash is None:
            raise ImageError(
                f"the image {self._settings.image} has no bash, which `shell: bash` asks for. Set `shell` to auto or "
                "sh, or choose another `image`"
            )
        path = bash if bash is not None and self._settings.shell != "sh" else "sh"
        return Login(path, self._settings.environment, self._settings.state_dir)

    def when_gone(self, call: Callable[[], None]) -> None:
        """Call this once the box is seen to have gone away by itself, also when nothing is being done in it."""
        self._control.on_gone = call

    @property
    def name(self) -> str:
        """Of the box."""
        return self._box.name

    async def run(
        self, command: str, *, env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> CommandResult:
        """Run a shell command; see `Commands.run`."""
        return await self._commands.run(command, env=env, timeout=timeout)

    def stream(
        self, command: str, *, env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Piece, None]:
        """Run a shell command and yield `("stdout" | "stderr", text)` as it prints, then `("exit", code)`.

        Raises `ValueError` as `run` does, here and not at the first piece. Closing the generator kills the command.
        """
        request.check_command(command)
        request.check_env(env or {})
        seconds = request.deadline(timeout, self._settings.command_timeout)
        return stream(self._box, self._login(), self._control, command, env or {}, seconds)

    async def call(self, words: Sequence[str | bytes], timeout: float | None = None) -> Reply:
        """Call a function of the tool scripts: one round trip. `timeout` in seconds from when a channel is free."""
        async with self._tools.lease() as channel:
            return await channel.request(words, timeout=timeout)

    async def ping(self, timeout: float) -> None:
        """Return when the box has answered, within `timeout` seconds, however busy it is. Raises otherwise."""
        reply = await self._control.call("dfb_ping", timeout=timeout)
        if reply.words != ("pong",):
            raise ChannelBroken(f"unexpected answer {reply.words!r}")

    async def copy_in(self, source: Path, target: str) -> None:
        """Copy a host file to the box. Raises `CopyUnsupported` for what is not on the root disk."""
        await self._box.copy_in(source, target)

    async def copy_out(self, source: str, target: Path) -> None:
        """Copy a file of the box to the host. Raises `NoSuchPath`, `CopyUnsupported`."""
        await self._box.copy_out(source, target)

    def staging(self) -> str:
        """A path on the root disk that nobody else uses, in a directory that is the box's user's. Makes nothing."""
        return f"{self._settings.state_dir}/{self._prefix}-{next(self._names)}"

    async def close(self) -> None:
        """Let go of the channels. What runs in the box goes on, but for commands in flight."""
        await self._tools.close()
        await self._control.close()
        if hasattr(self, "_commands"):
            await self._commands.close()


async def _open_tool(box: BoxHandle, env: Mapping[str, str]) -> Channel:
    return await Channel.open(box, Shell(("sh",), scripts(*_TOOL_SCRIPTS), env), timeout=_OPEN_TIMEOUT)
