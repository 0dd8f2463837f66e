"""Running commands in a box: one round trip for a short one, and final at its deadline."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..loop import finish
from ..runtime import BoxHandle, CopyUnsupported, NoSuchPath, RuntimeFault
from . import output, request
from .channel import ChannelBroken
from .control import Control
from .leases import Leases
from .output import Output
from .result import CommandResult
from .shells import CommandShell, Login, open_shell
from .wire import Reply, new_nonce

SHELLS = 8
"""Commands at once in one box; further ones wait in order."""

GRACE = 5.0
"""Seconds for a shell to answer once its command was killed."""

_TRIES = 10

KILLED = 128 + 9

_FULL = "deerflow-boxlite: the box's disk is full"
_INCOMPLETE = {
    "ok": (),
    "full": (f"{_FULL}; output may be incomplete",),
    "ended": ("deerflow-boxlite: what collects the output was killed; output may be incomplete",),
}
_LOST = "deerflow-boxlite: the output was lost: the command removed the directory it is collected in"
_SILENT = "deerflow-boxlite: the shell of the command stopped answering and was killed"


@dataclass(frozen=True)
class _Ending:
    """How a command ended: its exit code, its output, and what has to be said about it."""

    exit_code: int
    stdout: Output
    stderr: Output
    lines: tuple[str, ...] = ()


class Commands:
    """The commands of one box."""

    def __init__(self, box: BoxHandle, login: Login, control: Control, timeout: float, max_output_bytes: int) -> None:
        """`timeout`: seconds for a command that is given none, 0 for no limit. `max_output_bytes` is per stream."""
        self._box = box
        self._login = login
        self._control = control
        self._timeout = timeout
        self._limit = max_output_bytes
        self._shells: Leases[CommandShell] = Leases(lambda: open_shell(box, login), SHELLS)

    def prepare(self) -> None:
        """Begin to open the shell of the first command, whose profile can take longer than all else in it."""
        self._shells.prepare()

    async def run(
        self, command: str, *, env: Mapping[str, str] | None = None, timeout: float | None = None
    ) -> CommandResult:
        """Run a shell command in a subshell of a login shell and return what it printed.

        Its standard input is at end of file. `env` is for this command alone, over the settings' `environment`; a
        variable of more than 128 KiB, which Linux passes on to no program, is set in the shell but not exported.
        `timeout` is in seconds: None for the settings' `command_timeout`, 0 for none. At the deadline the command and
        its descendants are killed. So they are when the calling task is cancelled.

        Raises `ValueError` before anything runs for a NUL in the command, an `env` or a `timeout` that cannot be;
        `BoxGone`; `ChannelBroken` when no shell could be opened.
        """
        request.check_command(command)
        request.check_env(env or {})
        seconds = request.deadline(timeout, self._timeout)
        mark, stop = request.new_mark(), new_nonce()
        words = ("dfb_run", stop, str(self._limit), request.variables(env or {}, mark), command)
        async with self._shells.lease() as shell:
            asking = asyncio.create_task(shell.channel.request(words))
            try:
                done, _ = await asyncio.wait({asking}, timeout=seconds)
                killed = not done and await self._kill(shell, mark, asking)
            except BaseException:
                await finish(self._abandon(shell, mark, asking))
                raise
            ending = await self._ending(shell, asking, stop)
        return _result(ending, shell.notice, seconds if killed else None)

    async def _kill(self, shell: CommandShell, mark: str, asking: asyncio.Task[Reply]) -> bool:
        """Kill what the shell's command has started, and wait for the shell to answer. Whether there was any left.

        More than once if need be, since the shell may not have come to the command yet. One that does not answer within
        `GRACE` is closed.
        """
        killed = False
        for _ in range(_TRIES):
            killed = await self._kill_once(shell, mark) or killed
            if (await asyncio.wait({asking}, timeout=GRACE / _TRIES))[0]:
                return killed
        asking.cancel()
        await asyncio.wait({asking})
        await shell.close()
        await self._kill_once(shell, mark)
        return True

    async def _kill_once(self, shell: CommandShell, mark: str) -> bool:
        reply = await self._control.retry("dfb_kill", str(shell.pid), mark)
        return reply.words != ("0",)

    async def _abandon(self, shell: CommandShell, mark: str, asking: asyncio.Task[Reply]) -> None:
        # When the box is gone, so is the command.
        with contextlib.suppress(RuntimeFault):
            if not asking.done():
                await self._kill(shell, mark, asking)
        if not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
        if not asking.cancelled():
            # What it came to interests nobody any more.
            asking.exception()

    async def _ending(self, shell: CommandShell, asking: asyncio.Task[Reply], stop: str) -> _Ending:
        try:
            reply = asking.result()
        except ChannelBroken as exc:
            return await self._remains(shell, exc.exit_code)
        except asyncio.CancelledError:
            return await self._remains(shell, None)
        if reply.words == ("nowhere",):
            return _Ending(1, Output(""), Output(""), (f"{_FULL}, and so is its memory: the command did not run",))
        code, out_how, out_size, err_how, err_size, directory, lost = reply.words
        parts = list(reply.parts)
        stdout, stderr = await asyncio.gather(
            self._stream(f"{directory}/out", out_how, int(out_size), stop, _parts(parts, out_how)),
            self._stream(f"{directory}/err", err_how, int(err_size), stop, _parts(parts, err_how)),
        )
        return _Ending(int(code), stdout, stderr, _INCOMPLETE[lost])

    async def _remains(self, shell: CommandShell, exit_code: int | None) -> _Ending:
        """The ending of a command that ended its shell (`kill -9 $$`), or whose shell answers no more (None)."""
        await shell.close()
        code = KILLED if exit_code is None else 128 - exit_code if exit_code < 0 else exit_code
        lines = (_SILENT,) if exit_code is None else ()
        where = (self._login.state_dir, shell.name, str(shell.pid))
        reply = await self._control.retry("dfb_gather", *where, str(self._limit))
        if reply.words == ("nowhere",):
            return _Ending(code, Output(""), Output(""), (*lines, _LOST))
        out_how, out_size, err_how, err_size, directory = reply.words
        stdout, stderr = await asyncio.gather(
            self._stream(f"{directory}/out", out_how, int(out_size), "", []),
            self._stream(f"{directory}/err", err_how, int(err_size), "", []),
        )
        await self._control.retry("dfb_drop", *where)
        return _Ending(code, stdout, stderr, lines)

    async def _stream(self, path: str, how: str, size: int, stop: str, parts: list[str]) -> Output:
        if how == "inline":
            return Output(parts[0])
        if how == "raw":
            return output.raw(parts[0], parts[1], stop, size, self._limit)
        data = await self._fetch(f"{path}.cut" if how == "cut" else path)
        if data is None:
            return Output(f"{_LOST}\n")
        return output.cut(data, stop, size, self._limit) if how == "cut" else output.whole(data, stop)

    async def _fetch(self, path: str) -> bytes | None:
        with tempfile.TemporaryDirectory(prefix="deerflow-boxlite-") as folder:
            target = Path(folder) / "output"
            try:
                await self._box.copy_out(path, target)
            except NoSuchPath:
                return None
            except CopyUnsupported:
                # It lies in the box's memory, its disk being full.
                return (await self._control.retry("dfb_show", path)).parts[0].encode()
            return await asyncio.to_thread(target.read_bytes)

    async def close(self) -> None:
        """Close the shells that are idle now, and the others after their commands."""
        await self._shells.close()


def _parts(parts: list[str], how: str) -> list[str]:
    """Take a stream's parts off a reply's."""
    count = {"inline": 1, "raw": 2}.get(how, 0)
    taken = parts[:count]
    del parts[:count]
    return taken


def _result(ending: _Ending, notice: str | None, deadline: float | None) -> CommandResult:
    lines = [*ending.lines]
    if deadline is not None:
        lines.append(f"Command timed out after {deadline:g} seconds; it was killed with all it had started")
    if notice is not None:
        lines.append(notice)
    stderr = ending.stderr.text
    for line in lines:
        stderr = output.with_line(stderr, line)
    result = CommandResult(ending.exit_code, ending.stdout.text, stderr)
    truncated = ending.stdout.truncated or ending.stderr.truncated
    return replace(result, timed_out=deadline is not None, truncated=truncated)
