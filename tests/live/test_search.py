"""Searching real boxes."""

from __future__ import annotations

import re

import pytest

from deerflow_boxlite import BoxliteBox

TREE = """cd {folder} && mkdir -p node_modules/a src vendor build && i=0 &&
while [ $i -lt 1200 ]; do echo 'needle' >node_modules/a/$i.py; i=$((i+1)); done
echo 'needle = 1' >src/app.py; echo needle >src/x.js; echo needle >vendor/x.js; echo needle >build/y.py"""


def test_cases_15_16_ignored_directories_and_the_scope_of_a_glob(box: BoxliteBox, folder: str) -> None:
    assert box.run(TREE.format(folder=folder)).exit_code == 0
    assert box.glob(folder, "**/*.py") == ([f"{folder}/src/app.py"], False)
    assert box.glob(f"{folder}/build", "*.py") == ([f"{folder}/build/y.py"], False)
    matches, truncated = box.grep(folder, "needle")
    assert [match.path.removeprefix(f"{folder}/") for match in matches] == ["src/app.py", "src/x.js", "vendor/x.js"]
    assert not truncated
    matches, truncated = box.grep(folder, "needle", glob="src/*.js")
    assert ([match.path for match in matches], truncated) == ([f"{folder}/src/x.js"], False)
    matches, truncated = box.grep(folder, "needle", max_results=2)
    assert (len(matches), truncated) == (2, True)


LINES = ["ab", "b", "foo bar", "foobar", "12 x", "foo.bar", "École", "  ", "", "\u212aelvin", "x\ty"]


@pytest.mark.parametrize(
    "pattern",
    [
        *("(?<=a)b", r"\d+", r"\bfoo\b", "foo.bar", "école", r"^\s*$", r"(o)\1", "kelvin"),
        *("(?=.*foo)(?=.*r)", r"x\sy", "(?!)"),
    ],
)
def test_case_17_what_re_matches(box: BoxliteBox, folder: str, pattern: str) -> None:
    box.write_file(f"{folder}/text", "\r\n".join(LINES))
    for ignore_case in (False, True):
        wanted = re.compile(pattern, re.IGNORECASE if ignore_case else 0)
        matches, _ = box.grep(folder, pattern, case_sensitive=not ignore_case)
        expected = [number for number, line in enumerate(LINES, 1) if wanted.search(line)]
        assert [match.line_number for match in matches] == expected
    box.run(f"printf 'needle\\n\\0' >{folder}/binary; printf 'needle \\377\\n' >{folder}/text")
    assert [match.line for match in box.grep(folder, "needle")[0]] == ["needle \N{REPLACEMENT CHARACTER}"]


def test_a_search_that_finds_very_much(box: BoxliteBox, folder: str) -> None:
    """More than one window of candidate lines, of which one matches: the last."""
    box.run(f"cd {folder}; for name in 1 2 3 4 5 6 7 8; do yes 'a common line' | head -n 60000 >$name; done")
    box.write_file(f"{folder}/9", "a rare line")
    matches, truncated = box.grep(folder, r"(?=a)(?=.*rare)")
    assert [(match.path, match.line_number) for match in matches] == [(f"{folder}/9", 1)]
    assert not truncated
    matches, truncated = box.grep(folder, "common")
    assert (len(matches), truncated) == (100, True)
