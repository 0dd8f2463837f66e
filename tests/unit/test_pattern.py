"""The superset that a box's grep looks for, against Python's `re`, with real greps."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deerflow_boxlite.guest.pattern import Superset, translate
from deerflow_boxlite.guest.search_verify import backtracking
from support.local_runtime import busybox

GREPS = {"GNU": (shutil.which("grep") or "grep",), "busybox": (str(busybox()), "grep")}

PATTERNS = [
    *(r"(?<=a)b", r"\d+", r"\bfoo\b", r"foo.bar", r"^x*$", "a|b|", "[^a]", r"[]^-]", r"[\[\]\\^-]+", "x{3}", "^"),
    *(r"(ab){2,5}c", "(?i)straße", "(?i)kiss", r"\w+\s*=\s*\w+", "é{2}", "[à-ü]", r"(a)\1", "(?:^|x)y$", "a.c", "."),
    *(r"\$\{x\}", "(?x) a b # c", r"(?P<q>['\"]).*?(?P=q)", r"\Aab\Z", "(?!x)y", r"[^\W\d]+", r"(?a)\w\D", "(?i)[^ſ]"),
    *("a\nb", r"\x00", "-x", "(?s)a.b", "(?i:x)Y(?-i:z)", "a{0,3}b", "(^)*a", "(?>ab|c)d", "a++b", "\ufffd", r"\r$"),
    *(r"(a)?(?(1)b|c)", "(?=.*a)(?=.*b)", "(?:)", "[\x00a]", "(|a)b", "(?:a|b){9}", r"[^\x00-\x7f]", "x$|^y", r"\S\Z"),
]

LINES = [
    *("", "a", "ab", "b", "foo", "a foo b", "foo-bar", "fooxbar", "xxx", "ababc", "STRASSE", "Straße", "K\u0130ſS"),
    *("x = 1", "éé", "aa", "xy", "y", "${x}", "'q'", "1", "ü", "-x", "ſ", "]", "^", "-", "[", "\\", "xYz", "cd"),
    *("aab", "ba", "kiss"),
    *("é", "\r", "a\r", "a\rb", "\u212aIſs", "abababab", "aaaaaaaaaa", "\N{REPLACEMENT CHARACTER}", "\x1c", "c", "٣"),
]
RAW = [line.encode() for line in LINES] + [b"\xff", b"a\xffc", b"foo\xc3bar", b"\xe2\x82", b"a\xf0\x9f\x98b"]


def found(superset: Superset, lines: list[bytes], grep: tuple[str, ...]) -> set[int]:
    """Which lines a grep finds, in the words that search.sh uses."""
    done = subprocess.run(
        [*grep, "-na", superset.option, "-e", superset.text],
        input=b"".join(line + b"\n" for line in lines),
        capture_output=True,
        env={"LC_ALL": "C", "PATH": os.environ["PATH"]},
        check=False,
    )
    assert done.returncode < 2, (superset, done.stderr)
    assert done.stderr == b"", superset
    return {int(line.partition(b":")[0]) - 1 for line in done.stdout.split(b"\n")[:-1]}


def matching(pattern: re.Pattern[str], lines: list[bytes]) -> set[int]:
    texts = [line.removesuffix(b"\r").decode("utf-8", "replace") for line in lines]
    return {at for at, text in enumerate(texts) if pattern.search(text)}


def check(pattern: re.Pattern[str], lines: list[bytes]) -> None:
    superset = translate(pattern)
    wanted = matching(pattern, lines)
    if superset is None:
        assert not wanted
        return
    for name, grep in GREPS.items():
        assert wanted <= found(superset, lines, grep), (name, superset)


@pytest.mark.parametrize("flags", [0, re.IGNORECASE])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_case_17_every_line_that_re_matches_is_found(pattern: str, flags: int) -> None:
    check(re.compile(pattern, flags), RAW)


_CHARS = st.sampled_from([*"abAkKsSiI01 .-]^[\\$*+?(){}|'\t\réÉßſİıK日😀", "\ufffd"])
_LITERALS = st.text(_CHARS, max_size=3).map(re.escape)
_CLASSES = st.sampled_from(
    [".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[\w-]", r"[^\s\]]", "[a-k]", "[^a-k]", "[^é]", "[é-ú]", "[ſk]"]
)
_ANCHORS = st.sampled_from(["^", "$", r"\b", r"\B", r"\A", r"\Z", "(?=a)", "(?!b)", "(?<=s)", "(?<!k)"])
_REPEATS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}", "*?", "+?", "??", "*+"])


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|){pair[1]}"),
        st.tuples(inner, _REPEATS).map(lambda pair: f"(?:{pair[0]}){pair[1]}"),
        inner.map("(?i:{})".format),
        inner.map("(?-i:{})".format),
        inner.map("(?a:{})".format),
        inner.map("(?s:{})".format),
        inner.map("(?>{})".format),
        inner.map("(?={})".format),
    )


_REGEXES = st.recursive(st.one_of(_LITERALS, _CLASSES, _ANCHORS), _larger, max_leaves=6)
_TEXTS = st.one_of(
    st.text(_CHARS, max_size=8).map(str.encode), st.binary(max_size=6).map(lambda raw: raw.translate(None, b"\n\0"))
)


@settings(max_examples=150, deadline=None)
@given(regex=_REGEXES, lines=st.lists(_TEXTS, min_size=1, max_size=20), ignore_case=st.booleans())
@example(regex="(?-i:[^a])", lines=[b"A"], ignore_case=True)
def test_case_17_every_line_that_re_matches_is_found_whatever_the_pattern(
    regex: str, lines: list[bytes], ignore_case: bool
) -> None:
    check(re.compile(regex, re.IGNORECASE if ignore_case else 0), [*lines, *RAW])


@pytest.mark.parametrize(
    ("pattern", "flags", "expected"),
    [
        ("needle", 0, Superset("-F", b"needle")),
        (r"a\.b", 0, Superset("-F", b"a.b")),
        ("12.5%".replace(".", r"\."), re.IGNORECASE, Superset("-F", b"12.5%")),
        ("nod", re.IGNORECASE, Superset("-E", b"[Nn][Oo][Dd]")),
        (r"\bfoo\b", 0, Superset("-E", b"foo")),
        ("^a+$", 0, Superset("-E", b"^aa*\r?$")),
        ("[0-9]{3}", 0, Superset("-E", b"[0-9][0-9][0-9]")),
        ("a\nb", 0, None),
        ("x*", 0, Superset("-E", b"x*")),
    ],
)
def test_the_superset_is_as_small_as_is_easy(pattern: str, flags: int, expected: Superset | None) -> None:
    assert translate(re.compile(pattern, flags)) == expected


def test_a_pattern_too_long_for_an_argument_becomes_every_line() -> None:
    assert translate(re.compile("ab" * 50_000)) == Superset("-E", b"")


@pytest.mark.parametrize(
    ("pattern", "choices"), [("abc", 0), (r"\d+", 1), (r"\w+\s*=", 2), ("a{3}", 0), ("(ab|b)c", 1), (r"(a)\1", 1)]
)
def test_how_much_a_pattern_can_backtrack(pattern: str, choices: int) -> None:
    from re import _parser  # type: ignore[attr-defined]

    assert backtracking(_parser.parse(pattern)) == choices


@pytest.mark.parametrize("pattern", ["(a+)+$", r"(\w+\s?)*=", "(ab|b)*c", "(?:(?:a*)b?)+", r"((a)\2)+"])
def test_a_choice_within_a_repetition_has_no_bound(pattern: str) -> None:
    from re import _parser  # type: ignore[attr-defined]

    assert backtracking(_parser.parse(pattern)) >= 99
