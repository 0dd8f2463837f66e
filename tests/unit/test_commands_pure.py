"""What is pure in running commands: checks of requests, and output from bytes to text."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deerflow_boxlite.guest import output, request
from deerflow_boxlite.guest.output import Output
from deerflow_boxlite.guest.result import CommandResult

NONCE = "0123456789abcdef" * 2


def collected(data: bytes, limit: int) -> bytes:
    """What the guest makes of a stream for the host to copy: as it is, or head and tail."""
    file = b"\n" + data + NONCE.encode() + b"\n"
    if len(data) <= limit:
        return file
    return file[: limit // 2 + 1] + file[-(limit - limit // 2 + 33) :]


@given(st.binary(max_size=300), st.binary(max_size=20))
def test_the_whole_output_is_what_stands_before_the_nonce(data: bytes, later: bytes) -> None:
    assert output.whole(collected(data, 300) + later, NONCE) == Output(data.decode("utf-8", "replace"))


@given(st.text(min_size=40, max_size=300), st.integers(8, 30))
def test_case_06_a_cut_is_announced_and_falls_between_characters(text: str, limit: int) -> None:
    data = text.encode()
    found = output.cut(collected(data, limit), NONCE, len(data), limit)
    assert found.truncated
    head, _, rest = found.text.partition("\n[... ")
    told, _, tail = rest.partition(" cut here (max_output_bytes) ...]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    dropped, _, size = told.removesuffix(" bytes").partition(" of ")
    assert int(size) == len(data)
    assert int(dropped) == len(data) - len(head.encode()) - len(tail.encode())
    # No more is lost at either side of the cut than a character.
    assert len(head.encode()) > limit // 2 - 4
    assert len(tail.encode()) > limit // 2 - 4


@given(st.binary(min_size=60, max_size=300), st.integers(8, 50))
def test_a_cut_of_any_bytes_keeps_what_it_says(data: bytes, limit: int) -> None:
    found = output.cut(collected(data, limit), NONCE, len(data), limit)
    assert f" of {len(data)} bytes cut here" in found.text


def test_text_that_came_in_two_halves() -> None:
    assert output.raw("\nabc" + NONCE + "\n", "", NONCE, 3, 10) == Output("abc")
    lost = "\N{REPLACEMENT CHARACTER}"
    assert output.raw(f"\nab{lost}", f"{lost}yz{NONCE}\n", NONCE, 20, 8) == Output(
        "ab" + output.cut_line(16, 20) + "yz", truncated=True
    )


@pytest.mark.parametrize("name", ["", "BAD KEY", "A=B", "1A", "A-B", "é", "A\n", "A\0"])
def test_case_09_a_name_that_no_shell_can_set_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="environment variable"):
        request.check_env({name: "x"})


def test_a_nul_is_refused_in_value_and_command() -> None:
    with pytest.raises(ValueError, match="A has a NUL"):
        request.check_env({"A": "x\0"})
    with pytest.raises(ValueError, match="NUL"):
        request.check_command("echo \0")


def test_case_09_a_variable_too_long_to_be_passed_on_is_not_exported() -> None:
    fits = "x" * (128 * 1024 - 3)
    text = request.variables({"A": fits, "B": fits + "x"}, "mark")
    exported, unset, kept, mark = text.split(b"; ")
    assert exported == b"export A=" + fits.encode()
    assert (unset, kept) == (b"unset B", b"B=x" + fits.encode())
    assert mark == b"export DEERFLOW_BOXLITE_COMMAND=mark"


@pytest.mark.parametrize(("timeout", "expected"), [(None, 600.0), (0, None), (0.5, 0.5), (math.inf, None), (3, 3.0)])
def test_deadlines(timeout: float | None, expected: float | None) -> None:
    assert request.deadline(timeout, 600) == expected


@pytest.mark.parametrize("timeout", [-1, -0.1, math.nan, -math.inf])
def test_a_timeout_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        request.deadline(timeout, 600)


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (CommandResult(0, "", ""), "(no output)"),
        (CommandResult(0, "OK\n", ""), "OK\n"),
        (CommandResult(0, "", "bad\n"), "bad\n"),
        (CommandResult(3, "a\n", "b\n"), "a\n\nStd Error:\nb\n\nExit Code: 3"),
        (CommandResult(1, "", ""), "\nExit Code: 1"),
    ],
)
def test_case_07_and_08_told_as_deerflow_tells_it(result: CommandResult, told: str) -> None:
    assert result.told() == told
