"""The wire format of a channel: pure, no shell."""

from __future__ import annotations

from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deerflow_boxlite.guest.scripts import bare
from deerflow_boxlite.guest.wire import BadReply, Reply, ReplyParser, exact, new_nonce, quote, request_line

LIMIT = 1_000_000


def framed(nonce: str, words: list[str], parts: list[str]) -> str:
    return f"{nonce}H {' '.join(words)}\n" + "".join(f"{part}{nonce}P\n" for part in parts) + f"{nonce}E\n"


def fed(parser: ReplyParser, text: str, size: int) -> Reply | None:
    for start in range(0, len(text), size):
        if (reply := parser.feed(text[start : start + size])) is not None:
            return reply
    return None


@given(
    words=st.lists(st.from_regex(r"[a-z0-9/]+", fullmatch=True), min_size=1, max_size=4),
    parts=st.lists(st.text(max_size=80), max_size=3),
    stale=st.text(max_size=80),
    size=st.integers(1, 200),
)
def test_a_reply_is_found_however_it_is_cut_into_pieces(
    words: list[str], parts: list[str], stale: str, size: int
) -> None:
    nonce = new_nonce()
    reply = fed(ReplyParser(nonce, LIMIT), stale + framed(nonce, words, parts), size)
    assert reply == Reply(tuple(words), tuple(parts))


@given(st.integers(0, 31), st.integers(1, 64))
def test_text_that_begins_like_the_nonce_is_text(length: int, size: int) -> None:
    # One of which no two beginnings make the whole, as they may of a random one.
    nonce = "0" + "1" * 31
    part = nonce[:length] * 2 + "\n" + nonce[:length]
    assert fed(ReplyParser(nonce, LIMIT), framed(nonce, ["ok"], [part]), size) == Reply(("ok",), (part,))


def test_the_frame_of_another_request_is_text() -> None:
    nonce, other = new_nonce(), new_nonce()
    part = framed(other, ["exit", "0"], ["x"])
    assert ReplyParser(nonce, LIMIT).feed(framed(nonce, ["ok"], [part])) == Reply(("ok",), (part,))


@pytest.mark.parametrize(
    "text",
    [
        "{n}P\n",
        "{n}E\n",
        "{n}H ok\n{n}H ok\n",
        "{n}H ok\ntext{n}E\n",
        "{n}H ok\n{n}X\n",
        "{n}H ok\n{n}" + "x" * 70_000,
    ],
)
def test_marks_out_of_order_are_no_reply(text: str) -> None:
    nonce = new_nonce()
    with pytest.raises(BadReply):
        ReplyParser(nonce, LIMIT).feed(text.replace("{n}", nonce))


def test_endless_text_is_no_reply() -> None:
    parser = ReplyParser(new_nonce(), 10_000)
    with pytest.raises(BadReply, match="no end"):
        for _ in range(100):
            parser.feed("x" * 1000)


def test_a_request_is_one_line() -> None:
    assert request_line("ab", ["f", "a\nb", b"\xff'"]) == b"dfb_call ab f 'a'\"$dfb_nl\"'b' '\xff'\\'''\n"


def test_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        quote("a\0b")


def test_lone_surrogates_are_the_bytes_they_stand_for() -> None:
    assert quote("\udcff\udc41"[:1] + "a b") == b"'\xffa b'"


def test_what_was_lost_is_known() -> None:
    assert exact("é")
    assert not exact("\N{REPLACEMENT CHARACTER}")


def test_scripts_can_lose_their_comments() -> None:
    """What scripts.py asks of every script: no here-document, whose lines it would change."""
    names = [path.name for path in files("deerflow_boxlite.guest").iterdir() if path.name.endswith(".sh")]
    assert "loop.sh" in names
    for name in names:
        assert "<<" not in bare(name), name
        assert "\n#" not in bare(name), name
