"""The way from an integration to its scripts in a box."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ..box import BoxliteBox


class Refused(Exception):
    """A script in the box said why it cannot, in a word of the protocol's or its own."""


@dataclass(frozen=True)
class Answer:
    """What a script printed, all of it or not, and the complaints of the tools it used."""

    text: str
    complete: bool
    complaints: str
    exit_code: int


class Scripts:
    """The scripts of this directory, in a box."""

    def __init__(self, box: BoxliteBox) -> None:
        self._box = box

    def ask(self, name: str, *words: str, timeout: float | None = None) -> Answer:
        """Run a script with arguments, for at most `timeout` seconds, and return what it printed. Blocks.

        One round trip; one more for an answer that is longer than the configured `max_output_bytes`. Raises `Refused`,
        `ValueError` for a NUL in a word, and as `BoxliteBox.run`.
        """
        command = f"set -- {shlex.join(words)}\n{script('common.sh')}\n{script(name)}"
        result = self._box.run(command, timeout=timeout)
        if result.truncated:
            answer = self._ask_at_length(command, timeout)
        else:
            answer = Answer(result.stdout, not result.timed_out, result.stderr, result.exit_code)
        if answer.text.startswith("error "):
            raise Refused(answer.text.removeprefix("error ").rstrip("\n"))
        if answer.exit_code != 0 and answer.complete:
            raise Refused(answer.complaints.strip() or f"exit code {answer.exit_code}")
        return answer

    def _ask_at_length(self, command: str, timeout: float | None) -> Answer:
        printed: dict[str, list[str]] = {"stdout": [], "stderr": [], "exit": []}
        for stream, text in self._box.stream(command, timeout=timeout):
            printed[stream].append(text)
        stdout, stderr, code = ("".join(pieces) for pieces in printed.values())
        return Answer(stdout, int(code) == 0 or timeout is None, stderr, int(code))


@cache
def script(name: str) -> str:
    """The text of a script of this directory."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
