"""Random trees, names of any bytes and contents of any bytes: what a box says of them, and what Python says.

Python does on this machine's files what `Files` and `Search` do through a box's userland: written through the one,
read, listed and searched through both.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deerflow_boxlite.contract import path_matches, should_ignore_name, truncate_line
from support.files_guest import FilesGuest, files_guest

_SPECIAL = st.sampled_from(
    [b"a.py", b"b.py", b"src", b"build", b"x.log", b" ", b"a:1:b", b"\n", b"-n", b"*", b"\xff", b"\\"]
)
_ANY_NAME = st.binary(min_size=1, max_size=12).map(lambda raw: raw.replace(b"/", b":").replace(b"\0", b"\n"))
NAMES = st.one_of(_SPECIAL, _ANY_NAME).filter(lambda name: name not in (b".", b"..")).map(os.fsdecode)
_TEXTS = st.sampled_from([b"foo", b"Foo bar", b"12", b"x\r", "é".encode(), b""])
_LINES = st.lists(st.one_of(st.binary(max_size=10), _TEXTS), max_size=6).map(b"\n".join)
CONTENTS = st.one_of(_LINES, st.binary(max_size=200), st.binary(max_size=20).map(lambda raw: raw * 1000))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TREES = st.dictionaries(PATHS, CONTENTS, max_size=6)
GLOBS = st.one_of(
    st.sampled_from(["*", "**/*", "*.py", "**/*.py", "src/*", "a?1*", "[ab].*", "*:*", "**/src/*.py", "\\"]),
    NAMES.filter(lambda name: "[" not in name),
)
REGEXES = st.sampled_from(
    [
        *("foo", r"\bfoo\b", "^$", r"\d", "é", "(?<=F)oo", "[^a-z]", r"\s", ".", "o$", r"\x00", r"(.)\1", "bar|12"),
        *(r"^\W+$", "(a*)+b", ""),
    ]
)


class Bench:
    """A guest for each userland, and one event loop."""

    def __init__(self, root: Path) -> None:
        self.runner = asyncio.Runner()
        self._managers = [files_guest(root / shell, shell) for shell in ("dash", "busybox")]
        self.guests: list[FilesGuest] = [self.runner.run(manager.__aenter__()) for manager in self._managers]

    def close(self) -> None:
        for manager in self._managers:
            self.runner.run(manager.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("trees"))
    yield made
    made.close()


def without_conflicts(tree: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out files in the place of which another one needs a directory."""
    kept: dict[str, bytes] = {}
    for path, raw in tree.items():
        above = {path.rsplit("/", depth)[0] for depth in range(1, path.count("/") + 1)}
        if not above & kept.keys() and not any(other.startswith(f"{path}/") for other in kept):
            kept[path] = raw
    return kept


def walked(root: Path) -> Iterator[tuple[str, bool]]:
    """Relative paths of all that is not ignored, and whether it is a directory."""
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not should_ignore_name(name)]
        for name in folders + [name for name in files if not should_ignore_name(name)]:
            yield os.path.relpath(f"{folder}/{name}", root), name in folders


def in_range(text: str, first: int, last: int) -> str:
    """Lines as `Files.read` cuts them: verbatim, but for the end of the last one."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    cut = "".join(lines[first - 1 : last])
    return re.sub(r"\r?\n\Z", "", cut)


def listed(root: Path, depth: int) -> list[str]:
    return sorted(f"{root}/{path}{'/' * folder}" for path, folder in walked(root) if path.count("/") < depth)


def globbed(root: Path, pattern: str, include_dirs: bool) -> list[str]:
    found = (path for path, folder in walked(root) if include_dirs or not folder)
    return sorted(f"{root}/{path}" for path in found if path_matches(pattern, path))


def grepped(root: Path, pattern: re.Pattern[str], glob: str) -> list[tuple[str, int, str]]:
    found = []
    for path in globbed(root, glob, False):
        raw = Path(path).read_bytes()
        if b"\0" in raw[:8192]:
            continue
        lines = raw.split(b"\n")
        for number, line in enumerate(lines[:-1] if lines[-1] == b"" else lines, 1):
            text = line.removesuffix(b"\r").decode("utf-8", "replace")
            if len(text) <= 2000 and pattern.search(text):
                found.append((path, number, truncate_line(text)))
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(tree=TREES.map(without_conflicts), data=st.data())
def test_a_box_agrees_with_python(bench: Bench, tree: dict[str, bytes], data: st.DataObject) -> None:
    glob, regex = data.draw(GLOBS), data.draw(REGEXES)
    include_dirs, ignore_case = data.draw(st.booleans()), data.draw(st.booleans())
    depth, appended = data.draw(st.integers(1, 3)), data.draw(CONTENTS)
    for guest in bench.guests:
        root = Path(tempfile.mkdtemp())
        try:
            bench.runner.run(_agree(guest, root, tree, glob, regex, include_dirs, ignore_case, depth, appended))
        finally:
            shutil.rmtree(root)


async def _agree(
    guest: FilesGuest,
    root: Path,
    tree: dict[str, bytes],
    glob: str,
    regex: str,
    include_dirs: bool,
    ignore_case: bool,
    depth: int,
    appended: bytes,
) -> None:
    for at, (path, raw) in enumerate(tree.items()):
        await guest.files.write(f"{root}/{path}", raw)
        if at % 2:
            await guest.files.write(f"{root}/{path}", appended, append=True)
            raw += appended
        assert (root / path).read_bytes() == raw
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            with pytest.raises(UnicodeDecodeError):
                await guest.files.read(f"{root}/{path}")
        else:
            assert await guest.files.read(f"{root}/{path}") == text
            assert await guest.files.read(f"{root}/{path}", 2, 3) == in_range(text, 2, 3)
    assert await guest.files.list_dir(str(root), depth) == listed(root, depth)
    found = await guest.search.glob(str(root), glob, include_dirs=include_dirs)
    assert found == (globbed(root, glob, include_dirs), False)
    expected_lines = grepped(root, re.compile(regex, re.IGNORECASE if ignore_case else 0), glob)
    matches, truncated = await guest.search.grep(
        str(root), regex, glob=glob, case_sensitive=not ignore_case, max_results=100_000
    )
    assert [(match.path, match.line_number, match.line) for match in matches] == expected_lines
    assert not truncated
