"""The pure parts of search: names, lines, and matching that cannot hang."""

from __future__ import annotations

import asyncio
import re
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from deerflow_boxlite.contract import path_matches, should_ignore_name
from deerflow_boxlite.guest import search_verify
from deerflow_boxlite.guest.search_lines import Candidate, LineParser, Outcome
from deerflow_boxlite.guest.search_names import END, Found, ignored, matcher, name_filter, parse_listing

_NAMES = st.one_of(
    st.sampled_from([".git", "a.log", "x~", ".env", "env", "environment", "a.egg-info", "build", "Build", "x.swp\n"]),
    st.text(min_size=1, max_size=6),
)


@given(_NAMES)
def test_ignored_is_deerflows_should_ignore_name(name: str) -> None:
    assert ignored(name) == should_ignore_name(name)


def _find_matches(pattern: str, name: str) -> bool:
    """fnmatch(3) of a pattern as `name_filter` makes them: stars and escapes."""
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    regex = "".join(".*" if part == "*" else re.escape(part[-1]) for part in parts)
    return re.fullmatch(regex, name, re.DOTALL) is not None


@given(
    pattern=st.text(st.sampled_from("ab*?[]!\\/.-"), min_size=1, max_size=7),
    path=st.lists(st.text(st.sampled_from("ab*[]\\.-"), min_size=1, max_size=3), min_size=1, max_size=3).map("/".join),
)
def test_the_name_filter_keeps_every_path_that_matches(pattern: str, path: str) -> None:
    assume(pattern.strip("./") and "." not in path.split("/"))
    if path_matches(pattern, path):
        assert _find_matches(name_filter(pattern), path.rpartition("/")[2])


@given(
    pattern=st.text(st.sampled_from("ab*?[]!\\/.-\n"), min_size=1, max_size=8),
    path=st.lists(st.text(st.sampled_from("ab*[]\\.-\n"), min_size=1, max_size=3), min_size=1, max_size=4).map(
        "/".join
    ),
)
@example(pattern="**/", path="a")
@example(pattern="**//a", path="b/a")
@example(pattern="/a", path="a")
@example(pattern="**/a/*", path="a/b")
def test_a_matcher_is_deerflows_path_matches(pattern: str, path: str) -> None:
    assume(not {".", ".."} & set(path.split("/")))
    try:
        expected = path_matches(pattern, path)
    except ValueError:
        with pytest.raises(ValueError):
            matcher(pattern)
    else:
        assert matcher(pattern)(path) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        *(("**/*.py", "*.py"), ("src/*.js", "*.js"), ("**", "*"), ("a?c", "a*c")),
        *(("[ab]c", "*"), ("a\\b", "a\\\\b"), ("x/", "x")),
    ],
)
def test_name_filters(pattern: str, expected: str) -> None:
    assert name_filter(pattern) == expected


def test_a_listing_of_any_names() -> None:
    raw = b".\0.\0./a\n/\xff\0./dir\0./dir\0./dir/f\0d./link\0l./li\nnk\0" + END
    assert parse_listing(raw) == [
        Found("a\n/\udcff", "file"),
        Found("dir", "directory"),
        Found("dir/f", "file"),
        Found("link", "link to directory"),
        Found("li\nnk", "link"),
    ]


def test_lines_cut_into_windows_anywhere() -> None:
    raw = b"./a:1:x:y\r\n./b/c:20:\xff\n/odd:1:\n/name\n=\n3:one\n4:/two\n/only\n=\n./a:2:=0 \n"
    raw += b"=1 grep: x: Permission denied\n"
    expected = [
        Candidate("a", 1, "x:y"),
        Candidate("b/c", 20, "\N{REPLACEMENT CHARACTER}"),
        Candidate("odd:1:\nname", 3, "one"),
        Candidate("odd:1:\nname", 4, "/two"),
        Candidate("a", 2, "=0 "),
    ]
    for size in range(1, len(raw) + 1):
        parser = LineParser()
        found: list[Candidate] = []
        room = size
        while parser.outcome is None:
            before = parser.taken
            found += parser.feed(raw[before : before + room])
            # A line longer than the window needs a larger one.
            room = room + 1 if parser.taken == before else size
        assert found == expected
        assert parser.outcome == Outcome(1, "grep: x: Permission denied")
        assert parser.taken == len(raw)


@pytest.mark.parametrize("told", [b"?\n", b"Binary file ./a matches\n"])
def test_a_file_that_grep_took_for_binary(told: bytes) -> None:
    parser = LineParser()
    assert parser.feed(b"./b:1:x\n" + told + b"=0 \n") == [Candidate("b", 1, "x")]
    assert parser.unsure


@pytest.mark.parametrize("raw", [b"what\n", b"1:x\n"])
def test_lines_that_no_search_prints(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"line|prints"):
        LineParser().feed(raw)


def test_matching_in_place_and_in_a_process_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = re.compile(r"(é|x+)+y\b", re.IGNORECASE)
    lines = ["Éy", "xxxY", "xxy1", "", "\N{REPLACEMENT CHARACTER}", "a" * 3000 + "xy"]
    apart = asyncio.run(search_verify.matching(pattern, lines))
    assert apart == [0, 1, 5]
    monkeypatch.setattr(search_verify, "backtracking", lambda nodes: 0)
    assert asyncio.run(search_verify.matching(pattern, lines)) == apart


def test_a_pattern_that_backtracks_for_ever_is_given_up() -> None:
    async def check() -> None:
        with pytest.raises(TimeoutError, match="backtracks"):
            await search_verify.matching(re.compile(r"(a+)+$"), ["a" * 40 + "b"], timeout=0.3)

    asyncio.run(check())


def test_matching_in_place_runs_out_of_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left then is matched in a process, and nothing is lost."""
    clock = iter(range(10_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    lines = [f"line {number}" for number in range(300)]
    assert asyncio.run(search_verify.matching(re.compile(r"\d+"), lines)) == list(range(300))
