"""The login shells that commands run in: how one is opened in a box."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from ..runtime import BoxHandle
from .channel import Channel, ChannelBroken, Shell
from .request import assignments, passes
from .scripts import bare, scripts
from .wire import quote

OPEN_TIMEOUT = 20.0
"""Seconds for a shell to open, its profile included."""


@dataclass(frozen=True)
class Login:
    """The login shell of a box and what it is opened with."""

    path: str
    """Of bash, or `sh`."""
    environment: Mapping[str, str]
    """Set before the profile is read, and again after it: what a user configured is over what an image says."""
    state_dir: str

    @property
    def argv(self) -> tuple[str, ...]:
        return (self.path, "-l")

    @property
    def env(self) -> dict[str, str]:
        """What a program can be given of `environment`."""
        return {name: value for name, value in self.environment.items() if passes(name, value)}

    def library(self, *names: str) -> str:
        """The text of scripts for it, after the variables of `environment`."""
        variables = assignments(self.environment).decode("utf-8", "surrogateescape")
        collector = f"dfb_collector={quote(bare('collect.sh')).decode()}"
        return "\n".join((variables, collector, scripts("become.sh", *names)))


@dataclass(frozen=True, eq=False)
class CommandShell:
    """A channel for commands. `name` and `pid` name its directory in the box."""

    channel: Channel
    name: str
    pid: int
    notice: str | None
    """What whoever runs a command in it should know, or None."""

    @property
    def alive(self) -> bool:
        """Whether it may be used once more."""
        return self.channel.alive

    async def close(self) -> None:
        """End the shell."""
        await self.channel.close()


async def open_shell(box: BoxHandle, login: Login) -> CommandShell:
    """Open a login shell for commands. One whose profile ends it or hangs is opened without, and says so.

    Otherwise an agent that wrote `exit` into its own profile could never repair it. Raises `BoxGone`, `ChannelBroken`.
    """
    notice = None
    try:
        channel = await _open(box, login, login.argv)
    except ChannelBroken as exc:
        channel = await _open(box, login, (login.path,))
        notice = f"deerflow-boxlite: the profile of the login shell was left out, since the shell did not start: {exc}"
    name = secrets.token_hex(4)
    try:
        reply = await channel.request(("dfb_setup", login.state_dir, name), timeout=OPEN_TIMEOUT)
    except BaseException:
        await channel.close()
        raise
    return CommandShell(channel, name, int(reply.words[0]), notice)


async def _open(box: BoxHandle, login: Login, argv: tuple[str, ...]) -> Channel:
    shell = Shell(argv, login.library("command.sh"), login.env)
    return await Channel.open(box, shell, timeout=OPEN_TIMEOUT)
