"""Searching a box, in the userlands of Debian and busybox, on local processes."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from deerflow_boxlite.contract import GrepMatch
from deerflow_boxlite.guest import search_hunt
from support.files_guest import FilesGuest, Place

NAMES = (
    *("notes.txt ", " a", "a\nb", "-rf", "$(id)", "a:1:b.txt", "*", "é" * 127, "\n", "\n=\n3:x", "..."),
    os.fsdecode(b"\xff"),
    os.fsdecode(b"\xff:\n"),
)


def make(where: Path, *paths: str, text: str = "") -> None:
    for path in paths:
        (where / path).parent.mkdir(parents=True, exist_ok=True)
        (where / path).write_text(text)


def test_case_12_names_of_all_kinds(place: Place) -> None:
    where = place.files
    make(where, *NAMES, *(f"in {at}\n:/{name}" for at, name in enumerate(NAMES)), text="x\nthe needle:\n")
    expected = sorted(f"{root}/{name}" for root, _, names in os.walk(where) for name in names)

    async def check(guest: FilesGuest) -> None:
        assert await guest.search.glob(str(where), "**/*") == (expected, False)
        assert await guest.search.glob(str(where), "a:1:b.txt") == (
            sorted([f"{where}/a:1:b.txt", f"{where}/in {NAMES.index('a:1:b.txt')}\n:/a:1:b.txt"]),
            False,
        )
        matches = [GrepMatch(path, 2, "the needle:") for path in expected]
        assert await guest.search.grep(str(where), "Needle") == (matches, False)

    place.run(check)


def test_case_15_ignored_directories_are_pruned_below_the_root_only(place: Place) -> None:
    root = place.files / "build"
    make(root, *(f"node_modules/p{at % 20}/{at}.py" for at in range(1200)), "src/app.py", "src/dist/x.py", "a.log")
    make(root, "src/lib/.venv/y.py", "build/z.py", "src/notes.txt", text="app\n")

    async def check(guest: FilesGuest) -> None:
        assert await guest.search.glob(str(root), "**/*.py") == ([f"{root}/src/app.py"], False)
        assert await guest.search.glob(str(root), "*.log") == ([], False)
        assert await guest.search.glob(str(root), "*", max_results=1) == ([f"{root}/src/app.py"], True)
        assert await guest.search.grep(str(root), "app") == ([GrepMatch(f"{root}/src/notes.txt", 1, "app")], False)
        assert guest.called == ["dfb_walk"] * 3 + ["dfb_search"]
        assert guest.copied == []

    place.run(check)


def test_truncated_is_exact(place: Place) -> None:
    make(place.files, *(f"{at:03}.txt" for at in range(100)), text="one\nx\n")
    make(place.files, *(f"{at:03}.py" for at in range(100)), text="two\n")
    paths = [f"{place.files}/{at:03}.txt" for at in range(100)]

    async def check(guest: FilesGuest) -> None:
        for most in (0, 1, 99, 100, 101):
            expected = (paths[:most], most < 100)
            assert await guest.search.glob(str(place.files), "*.txt", max_results=most) == expected
            matches, truncated = await guest.search.grep(str(place.files), "^one$", max_results=most)
            assert ([match.path for match in matches], truncated) == expected

    place.run(check)


def test_glob_means_what_it_means_to_deerflow(place: Place) -> None:
    where = place.files
    make(where, "a.py", "src/b.py", "src/deep/c.py", "src/deep/d.txt", ".hidden.py")
    make(where, "src/x[1].py", "src/back\\slash.py")
    (where / "link.py").symlink_to("src/b.py")
    (where / "broken.py").symlink_to("nowhere")
    (where / "folder.py").symlink_to("src")
    os.mkfifo(where / "fifo.py")

    async def check(guest: FilesGuest) -> None:
        async def glob(pattern: str, include_dirs: bool = False) -> list[str]:
            found, truncated = await guest.search.glob(str(where), pattern, include_dirs=include_dirs)
            assert not truncated
            return [path.removeprefix(f"{where}/") for path in found]

        top = [".hidden.py", "a.py", "broken.py", "fifo.py", "link.py"]
        below = ["src/b.py", "src/back\\slash.py", "src/deep/c.py", "src/x[1].py"]
        assert await glob("*.py") == await glob("**/*.py") == sorted(top + below)
        assert await glob("*.py", include_dirs=True) == sorted([*top, *below, "folder.py"])
        assert await glob("src/*.py") == ["src/b.py", "src/back\\slash.py", "src/x[1].py"]
        assert await glob("src", include_dirs=True) == ["src"]
        assert await glob("deep", include_dirs=True) == ["src/deep"]
        assert await glob("deep") == []
        assert await glob("x[[]1].py") == ["src/x[1].py"]
        assert await glob("[!x]?*.txt") == []
        assert await glob("back\\slash.py") == ["src/back\\slash.py"]
        assert await glob("/a.py") == []
        with pytest.raises(ValueError):
            await glob("")
        (where / "to-src").symlink_to("src")
        assert await guest.search.glob(f"{where}/to-src", "b.*") == ([f"{where}/to-src/b.py"], False)

    place.run(check)


def test_case_16_grep_has_the_scope_of_glob(place: Place) -> None:
    where = place.files
    make(where, "src/a.js", "vendor/x.js", "lib/src/b.js", "src/c.ts", "src/deep/d.js", text="needle\n")

    async def check(guest: FilesGuest) -> None:
        for pattern in ("src/*.js", "**/*.js", "*.ts", "vendor/*", "s*/*.js", "**/src/*"):
            paths, _ = await guest.search.glob(str(where), pattern)
            assert paths
            matches, truncated = await guest.search.grep(str(where), "needle", glob=pattern)
            assert ([match.path for match in matches], truncated) == (paths, False)

    place.run(check)


TEXT = "ab\nb\nfoo bar\nfoobar\n12 x\nfoo.bar\nfooxbar\nÉcole\nword boundary\n  \n\nend"


@pytest.mark.parametrize(
    ("pattern", "numbers"),
    [
        ("(?<=a)b", [1]),
        (r"\d+", [5]),
        (r"\bfoo\b", [3, 6]),
        ("foo.bar", [3, 6, 7]),
        ("école", [8]),
        (r"^\s*$", [10, 11]),
        ("^$", [11]),
        (r"(?m)d$", [12]),
        (r"(o)\1", [3, 4, 6, 7]),
        ("a\nb", []),
        ("(?!)", []),
        (r"\n", []),
        ("(?=.*foo)(?=.*x)", [7]),
        ("", list(range(1, 13))),
        (r"(?:\w+\s?)+!", []),
    ],
)
def test_case_17_grep_means_what_re_means(place: Place, pattern: str, numbers: list[int]) -> None:
    make(place.files, "text", text=TEXT)

    async def check(guest: FilesGuest) -> None:
        matches, truncated = await guest.search.grep(str(place.files), pattern)
        lines = TEXT.split("\n")
        assert matches == [GrepMatch(f"{place.files}/text", number, lines[number - 1]) for number in numbers]
        assert not truncated

    place.run(check)


def test_case_17_literal_and_case(place: Place) -> None:
    make(place.files, "text", text="foo.bar\nFOO.BAR\nfooxbar\n\u212aelvin ſ\n")

    async def check(guest: FilesGuest) -> None:
        async def numbers(pattern: str, **options: bool) -> list[int]:
            return [match.line_number for match in (await guest.search.grep(str(place.files), pattern, **options))[0]]

        assert await numbers("foo.bar", literal=True) == [1, 2]
        assert await numbers("foo.bar", literal=True, case_sensitive=True) == [1]
        assert await numbers("foo.bar", case_sensitive=True) == [1, 3]
        assert await numbers("kelvin s") == [4]
        assert await numbers("kelvin s", literal=True) == [4]
        assert await numbers("(?-i:FOO)") == [2]
        guest.called.clear()
        with pytest.raises(re.error):
            await numbers("(unclosed")
        assert guest.called == []

    place.run(check)


def test_grep_leaves_out_what_deerflow_does(place: Place) -> None:
    where = place.files
    files = {
        "binary": b"needle\n\0",
        "text with a late NUL": b"needle\n" + b"x\n" * 5000 + b"\0",
        "early": b"x" * 8190 + b"\n\0 needle\n",
        "too large": b"needle\n" + b"x" * 999_994,
        "large": b"needle\n" + b"x" * 999_993,
        "long line": b"needle" + b"x" * 1995 + b"\n",
        "longest line": b"needle" + b"x" * 1994 + b"\n",
        "many bytes": b"needle" + "é".encode() * 1994 + b"\n",
        "crlf": b"needle\r\n",
        "not UTF-8": b"\xff needle\n",
        "a.log": b"needle\n",
    }
    for name, raw in files.items():
        (where / name).write_bytes(raw)
    (where / "link").symlink_to("crlf")
    os.mkfifo(where / "fifo")
    expected = ["crlf", "large", "longest line", "many bytes", "not UTF-8", "text with a late NUL"]

    async def check(guest: FilesGuest) -> None:
        matches, truncated = await guest.search.grep(str(where), "needle")
        assert [match.path.removeprefix(f"{where}/") for match in matches] == expected
        assert not truncated
        lines = {match.path.removeprefix(f"{where}/"): match.line for match in matches}
        assert lines["crlf"] == "needle"
        assert lines["longest line"] == "needle" + "x" * 191 + "..."
        assert lines["not UTF-8"] == "\N{REPLACEMENT CHARACTER} needle"
        assert len((await guest.search.grep(str(where), "needle$"))[0]) == 4

    place.run(check)


@pytest.mark.parametrize("pattern", ["e", "^"])
def test_a_search_that_finds_much_is_brought_in_windows(
    place: Place, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_hunt, "FIRST_WINDOW", 20_000)
    monkeypatch.setattr(search_hunt, "WINDOW", 25_000)
    text = "".join(f"line {number}\n" for number in range(1, 101))
    make(place.files, *(f"{at:03}" for at in range(100)), "odd:name\nof two lines", text=text)

    async def check(guest: FilesGuest) -> None:
        matches, truncated = await guest.search.grep(str(place.files), pattern, max_results=100_000)
        assert (len(matches), truncated) == (10_100, False)
        assert len({(match.path, match.line_number) for match in matches}) == 10_100
        assert matches == sorted(matches, key=lambda match: (match.path, match.line_number))
        windows = guest.called.count("dfb_search")
        assert windows > 5
        guest.called.clear()
        matches, truncated = await guest.search.grep(str(place.files), pattern, max_results=100)
        assert (len(matches), truncated) == (100, True)
        assert guest.called.count("dfb_search") == 1
        monkeypatch.setattr(search_hunt, "TOTAL_LIMIT", 100_000)
        with pytest.raises(OSError, match="narrow"):
            await guest.search.grep(str(place.files), rf"(?!){pattern}|(?=line 1000){pattern}")

    place.run(check)


def test_a_full_disk_is_an_error_and_not_an_end(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    make(place.files, "a", text="needle\n")

    async def check(guest: FilesGuest) -> None:
        monkeypatch.setattr(guest, "staging", lambda: "/dev/full")
        for operation in (guest.search.grep(str(place.files), "needle"), guest.files.read(f"{place.files}/a", 1, 1)):
            with pytest.raises(OSError) as caught:
                await operation
            assert caught.value.errno == errno.ENOSPC

    place.run(check)


def test_what_cannot_be_read_further_down_is_passed_over(place: Place) -> None:
    if os.getuid() != 0:
        pytest.skip("needs another user's files: run as root")
    make(place.files, "open", "closed/x", "secret", text="needle\n")
    (place.files / "closed").chmod(0)
    (place.files / "secret").chmod(0)

    async def check(guest: FilesGuest) -> None:
        paths, _ = await guest.search.glob(str(place.files), "**/*")
        assert paths == [f"{place.files}/open", f"{place.files}/secret"]
        matches, _ = await guest.search.grep(str(place.files), "needle")
        assert [match.path for match in matches] == [f"{place.files}/open"]

    place.run(check, user="1234:1234")


def test_a_walk_that_dies_is_an_error_and_not_an_end(changeable: Place) -> None:
    """The out-of-memory killer takes `find` or `grep`: what came before is not all there is."""
    make(changeable.files, "a", text="needle\n")
    killed = changeable.root / "killed"
    killed.mkdir()
    for name in ("find", "grep"):
        (killed / name).write_text("#!/bin/sh\nkill -9 $$\n")
        (killed / name).chmod(0o755)

    async def check(guest: FilesGuest) -> None:
        for name, operations in {
            "find": (guest.files.list_dir(str(changeable.files)), guest.search.glob(str(changeable.files), "*")),
            "grep": (guest.search.grep(str(changeable.files), "needle"),),
        }.items():
            (guest.box.runtime.path / name).unlink()
            (guest.box.runtime.path / name).symlink_to(killed / name)
            for operation in operations:
                with pytest.raises(OSError):
                    await operation

    changeable.run(check, own_userland=True)
