"""A command that says nothing for a long time: case 4. The last file, so that it has run beside all the rest."""

from __future__ import annotations

from concurrent.futures import Future

from deerflow_boxlite import BoxliteBox, CommandResult

from .conftest import SILENCE


def test_case_04_a_long_silence(box: BoxliteBox, silence: list[Future[CommandResult]]) -> None:
    # A second try, after a failure, begins anew.
    result = silence.pop().result() if silence else box.run(SILENCE, timeout=300)
    assert result == CommandResult(0, "at last\n", "")
