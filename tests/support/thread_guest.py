"""A guest for the tests of `thread_data`: its shell functions run in a shell of this machine, on a directory."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from deerflow_boxlite import guest
from deerflow_boxlite.guest.wire import Reply, quote
from deerflow_boxlite.thread_data import names

_SCRIPT = Path(guest.__file__).parent / "thread_data.sh"

_PROTOCOL = r"""
dfb_nl='
'
reply() { printf 'H %s\n' "$*"; }
part() { printf '%s\001' "${1-}"; }
"""


class ThreadGuest:
    """What `courier.Guest` asks for. `calls` counts what would cross into a box; `between` runs before each `call`."""

    def __init__(self, folder: Path, userland: Path | None = None) -> None:
        """`userland` is a directory of programs (`local_runtime.make_userland`); None: this machine's."""
        self.mnt = folder / "mnt"
        self.stage = folder / "stage"
        for root in (names.OUTPUTS, names.WORKSPACE, names.UPLOADS):
            (self.mnt / os.fsdecode(root)).mkdir(parents=True)
        self.stage.mkdir()
        self._stages = 0
        self._user: int | None = None
        self.calls: list[str] = []
        self.before: Callable[[str], None] = lambda name: None
        self.after: Callable[[str], None] = lambda name: None
        self._path = str(userland) if userland is not None else os.environ["PATH"]
        self._shell = str(userland / "sh") if userland is not None else "/bin/sh"

    def become(self, uid: int) -> None:
        """Have a user that is not root and owns what a box's user owns: the thread's directories and the skills.

        It has this machine's programs, since it may not reach others.
        """
        self._user = uid
        self._shell, self._path = "/bin/sh", os.environ["PATH"]
        for path in (self.stage, *self.mnt.rglob("*")):
            os.chown(path, uid, uid)
        for parent in self.mnt.parents:
            if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o711)

    def staging(self) -> str:
        self._stages += 1
        return f"{self.stage}/{self._stages}"

    async def call(self, words: Sequence[str | bytes], timeout: float | None = None) -> Reply:
        name = str(words[0])
        self._note(name)
        text = b"\n".join((_PROTOCOL.encode(), _SCRIPT.read_bytes(), b" ".join(map(quote, words))))
        process = await asyncio.create_subprocess_exec(
            self._shell,
            "-c",
            text,
            stdout=asyncio.subprocess.PIPE,
            env={"PATH": self._path, "LC_ALL": "C"},
            user=self._user,
        )
        output = (await process.communicate())[0].decode("utf-8", "replace")
        self.after(name)
        header, _, rest = output.partition("\n")
        assert header.startswith("H "), output
        return Reply(tuple(header[2:].split(" ")), tuple(rest.split("\001")[:-1]))

    async def copy_in(self, source: Path, target: str) -> None:
        self._note(f"copy_in {Path(target).name}")
        await asyncio.to_thread(shutil.copyfile, source, target)

    async def copy_out(self, source: str, target: Path) -> None:
        self._note(f"copy_out {Path(source).name}")
        await asyncio.to_thread(shutil.copyfile, source, target)

    def _note(self, name: str) -> None:
        self.calls.append(name)
        self.before(name)

    def path(self, name: str) -> Path:
        """A path below user-data."""
        return self.mnt / "user-data" / name
