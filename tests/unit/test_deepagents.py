"""The adapter for deepagents under dash, bash and busybox, against deepagents' own operations, which are Python's."""

from __future__ import annotations

import asyncio
import atexit
import base64
import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepagents")

from deepagents.backends.protocol import (
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
    GlobResult,
    ReadResult,
)
from deepagents.backends.sandbox import MAX_BINARY_BYTES, MAX_OUTPUT_BYTES, TRUNCATION_MSG, BaseSandbox
from deepagents.backends.utils import compile_grep_include_glob

from deerflow_boxlite.errors import BoxDiedError, CapacityError
from deerflow_boxlite.integrations import deepagents as adapter
from deerflow_boxlite.integrations.deepagents import BoxliteSandbox
from deerflow_boxlite.integrations.deepagents_results import name_pattern
from support.local_runtime import make_userland

NOBODY = 65534


@dataclass(frozen=True)
class Result:
    """As `CommandResult`."""

    exit_code: int
    stdout: str
    stderr: str
    timed_out: bool = False
    truncated: bool = False


class LocalBox:
    """As `BoxliteBox`, on this machine's files: as much as the adapter uses of it. `calls` names what was asked."""

    id = "local"

    def __init__(self, shell: Path, folder: Path) -> None:
        self._shell = shell
        self._folder = folder
        self.max_output = 1024 * 1024
        self.user: int | None = None
        self.calls: list[str] = []
        self.fault: Exception | None = None

    def run(self, command: str, *, timeout: float | None = None) -> Result:
        code, stdout, stderr = self._run("run", command, timeout)
        cut = len(stdout) > self.max_output
        if cut:
            stdout = stdout[: self.max_output // 2] + b"\n[cut]\n" + stdout[-self.max_output // 2 :]
        return Result(code, stdout.decode(errors="replace"), stderr.decode(errors="replace"), truncated=cut)

    def stream(self, command: str, *, timeout: float | None = None) -> Iterator[tuple[str, str]]:
        code, stdout, stderr = self._run("stream", command, timeout)
        text = stdout.decode(errors="replace")
        for at in range(0, len(text), 1000):
            yield "stdout", text[at : at + 1000]
        yield "stderr", stderr.decode(errors="replace")
        yield "exit", str(code)

    def _run(self, name: str, command: str, timeout: float | None) -> tuple[int, bytes, bytes]:
        self._call(name)
        done = subprocess.run(
            [self._shell, "-c", command.encode("utf-8", "surrogateescape")],
            env={"PATH": str(self._shell.parent)},
            cwd=self._folder,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fault is not None:
            raise self.fault

    def read_file(self, path: str, start_line: int | None = None, end_line: int | None = None) -> str:
        self._call("read_file")
        lines = Path(path).read_bytes().split(b"\n")
        return b"\n".join(lines if start_line is None else lines[start_line - 1 : end_line]).decode()

    def write_file(self, path: str, content: str) -> None:
        self._call("write_file")
        self.update_file(path, content.encode())
        self.calls.pop()

    def update_file(self, path: str, content: bytes) -> None:
        self._call("update_file")
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(content)

    def download_to(self, path: str, target: Path) -> None:
        self._call("download_to")
        target.write_bytes(Path(path).read_bytes())


class Theirs(BaseSandbox):
    """deepagents' own operations, with this machine's Python and GNU tools."""

    id = "theirs"

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=timeout, check=False)
        return ExecuteResponse(output=done.stdout, exit_code=done.returncode)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        raise AssertionError

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        raise AssertionError


THEIRS = Theirs()


@pytest.fixture(scope="session", params=["dash", "bash", "busybox"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `sh` of a userland that has nothing else than an image with that shell."""
    folder = tmp_path_factory.mktemp("userland") / request.param
    make_userland(folder, request.param, without=["python3", "python", "rg"])
    return folder / "sh"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory that everybody may read."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def box(shell: Path, folder: Path) -> LocalBox:
    return LocalBox(shell, folder)


@pytest.fixture
def sandbox(box: LocalBox) -> BoxliteSandbox:
    return BoxliteSandbox(box)  # type: ignore[arg-type]


def fill(folder: Path, *names: str, content: bytes = b"needle\n") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


TREE = (
    *("top.py", "src/app.py", "src/deep/er.py", ".hidden/x.py", "src/.env", ".env", "a b.py", "-rf", "*", "[x].py"),
    *("node_modules/m/i.py", "é.py", "a:1:b.py", "$(id)", "src/no"),
)
PATTERNS = (
    *("*.py", "**/*.py", "/*.py", "src/*.py", "src/**", "**", ".env", ".*", "?.py", "[!a]*.py", "[^a]*.py"),
    *(
        "{top,er}.py",
        "src//app.py",
        "**/er.py",
        "*",
        "src/",
        "-rf",
        "a b.py",
        "src/{app,deep/er}.py",
        "nothing",
        "\\*",
        "é*",
    ),
)


PAGES = (b"one\r\ntwo\nthree\n", b"one\ntwo\r\nthree", b"\n\n\n", b"")
WINDOWS = ((0, 2), (1, 2000), (-4, 1), (0, 0))


@functools.cache
def their_pages(content: bytes) -> tuple[str, dict[tuple[int, int], ReadResult]]:
    """A file with that content, and what theirs gives of it."""
    with tempfile.NamedTemporaryFile(suffix=".txt", delete=False) as file:
        file.write(content)
    atexit.register(os.unlink, file.name)
    return file.name, {window: THEIRS.read(file.name, *window) for window in WINDOWS}


class TestRead:
    """`read`, compared with theirs wherever theirs is right."""

    @pytest.mark.parametrize("content", PAGES)
    def test_pages(self, sandbox: BoxliteSandbox, content: bytes) -> None:
        path, expected = their_pages(content)
        assert {window: sandbox.read(path, *window) for window in WINDOWS} == expected

    def test_one_round_trip(self, sandbox: BoxliteSandbox, box: LocalBox, folder: Path) -> None:
        fill(folder, "f.txt", content=b"a\n" * 100_000)
        assert sandbox.read(f"{folder}/f.txt", 50_000, 10).total_lines == 100_000
        assert box.calls == ["run"]

    def test_a_page_of_a_large_file(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "f.txt", content=b"".join(b"line %d\n" % n for n in range(200_000)))
        path = str(folder / "f.txt")
        for offset, limit in ((150_000, 3), (199_990, 10)):
            assert sandbox.read(path, offset, limit) == THEIRS.read(path, offset, limit)
        assert sandbox.read(path, 200_000, 5).error == f"File '{path}': Line offset 200000 exceeds file length"

    def test_a_page_that_is_too_large_is_cut_between_characters(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "f.txt", content=b"".join(b"%03d" % n + "é€".encode() * 900 + b"\n" for n in range(300)))
        path = str(folder / "f.txt")
        page = sandbox.read(path, 0, 2000)
        lines = page.file_data["content"].removesuffix(TRUNCATION_MSG).split("\n")
        assert lines == [f"{number:03d}" + "é€" * 900 for number in range(page.end_line)]
        assert (page.start_line, page.end_line, page.next_offset) == (1, 113, 113)

    def test_a_cut_page_of_lines_with_crlf(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        """With CRLF, more of the file has to be seen for as much of a page: theirs shows some lines more."""
        fill(folder, "f.txt", content=b"".join(b"%06d\r\n" % n for n in range(100_000)))
        page = sandbox.read(f"{folder}/f.txt", 0, 99_000)
        shown = page.file_data["content"].removesuffix(TRUNCATION_MSG).split("\n")
        assert shown == [f"{number:06d}" for number in range(page.end_line)]
        assert page.next_offset == page.end_line > 60_000

    def test_a_line_that_is_too_long(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "f.txt", content=b"x" * 3_000_000 + b"\nnext\n")
        path = str(folder / "f.txt")
        page = sandbox.read(path, 0, 10)
        assert page == THEIRS.read(path, 0, 10)
        assert len(page.file_data["content"]) <= MAX_OUTPUT_BYTES
        assert sandbox.read(path, 1, 10).file_data["content"] == "next"

    def test_more_than_the_box_gives_of_a_commands_output(
        self, sandbox: BoxliteSandbox, box: LocalBox, folder: Path
    ) -> None:
        box.max_output = 1000
        fill(folder, "f.txt", content=b"".join(b"line %d\n" % n for n in range(2000)))
        assert sandbox.read(f"{folder}/f.txt").file_data["content"] == "\n".join(f"line {n}" for n in range(2000))

    @pytest.mark.parametrize("content", ["a\N{REPLACEMENT CHARACTER}b\n".encode(), b"\xff\xfe\0a\n", b"caf\xe9\n" * 9])
    def test_what_is_no_utf8_comes_as_base64(self, sandbox: BoxliteSandbox, folder: Path, content: bytes) -> None:
        fill(folder, "f.txt", content=content)
        assert sandbox.read(f"{folder}/f.txt") == THEIRS.read(f"{folder}/f.txt")

    def test_a_large_text_with_the_replacement_character(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        line = "a\N{REPLACEMENT CHARACTER}b"
        fill(folder, "f.txt", content=f"{line}\n".encode() * 200_000)
        assert sandbox.read(f"{folder}/f.txt", 0, 2).file_data["content"] == f"{line}\n{line}"

    def test_a_large_file_that_is_no_text(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "f.txt", content=b"\xff\n" * 500_000)
        assert sandbox.read(f"{folder}/f.txt").error == (
            f"File '{folder}/f.txt': Binary file exceeds maximum preview size of {MAX_BINARY_BYTES} bytes"
        )

    def test_images(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "ok.png", content=b"text")
        fill(folder, "large.png", content=b"x" * (MAX_BINARY_BYTES + 1))
        assert sandbox.read(f"{folder}/ok.png", 5, 0).file_data == {
            "content": base64.b64encode(b"text").decode(),
            "encoding": "base64",
        }
        assert sandbox.read(f"{folder}/large.png") == THEIRS.read(f"{folder}/large.png")

    @pytest.mark.parametrize("name", ["missing", "missing/deeper", "", "f.txt/below", "loop", "pipe"])
    def test_errors(self, sandbox: BoxliteSandbox, folder: Path, name: str) -> None:
        fill(folder, "f.txt")
        (folder / "loop").symlink_to("loop")
        os.mkfifo(folder / "pipe")
        code = "not_a_file" if name in {"", "pipe"} else "file_not_found"
        assert sandbox.read(f"{folder}/{name}") == ReadResult(error=f"File '{folder}/{name}': {code}")

    def test_a_relative_path(self, sandbox: BoxliteSandbox, box: LocalBox) -> None:
        assert sandbox.read("'; rm -rf /; '").error == "File ''; rm -rf /; '': invalid_path"
        assert box.calls == []


class TestEdit:
    """`edit`, compared with theirs on a copy. No shell is in it."""

    @pytest.fixture
    def box(self, folder: Path) -> LocalBox:
        return LocalBox(Path("/bin/sh"), folder)

    @pytest.mark.parametrize("replace_all", [False, True])
    @pytest.mark.parametrize(("old", "new"), [("one", "1"), ("one\ntwo", "1\n2"), ("one\r\ntwo", "1"), ("no", "")])
    @pytest.mark.parametrize("content", [b"one\ntwo\n", b"one\r\ntwo\r\none\r\n", b"one\ntwo\r\none\ntwo"])
    def test_edits(
        self, sandbox: BoxliteSandbox, folder: Path, content: bytes, old: str, new: str, replace_all: bool
    ) -> None:
        fill(folder, "ours", "theirs", content=content)
        assert told(sandbox, folder / "ours", old, new, replace_all) == told(
            THEIRS, folder / "theirs", old, new, replace_all
        )

    @pytest.mark.parametrize("content", [b"\xffone", b"", None])
    def test_errors(self, sandbox: BoxliteSandbox, folder: Path, content: bytes | None) -> None:
        path = folder
        if content is not None:
            fill(folder, "f", content=content)
            path = folder / "f"
        assert sandbox.edit(str(path), "one", "b") == THEIRS.edit(str(path), "one", "b")
        assert sandbox.edit(f"{folder}/missing", "a", "b") == THEIRS.edit(f"{folder}/missing", "a", "b")
        assert sandbox.edit(str(path), "", "b") == THEIRS.edit(str(path), "", "b")

    def test_a_refused_edit_writes_nothing(self, sandbox: BoxliteSandbox, box: LocalBox, folder: Path) -> None:
        fill(folder, "f", content=b"a a")
        assert sandbox.edit(f"{folder}/f", "a", "b").error
        assert box.calls == ["read_file"]


def told(sandbox: BaseSandbox, path: Path, *edit: Any) -> tuple[Any, ...]:
    """What an edit says and leaves, with no mention of where."""
    done = sandbox.edit(str(path), *edit)
    return done.path is None, done.occurrences, (done.error or "").replace(str(path), ""), path.read_bytes()


class TestLs:
    """`ls`."""

    def test_every_name(self, sandbox: BoxliteSandbox, box: LocalBox, folder: Path) -> None:
        fill(folder, *TREE, "a\nb", "...", "..x", " a", "notes.txt ", "(", "!")
        (folder / "link").symlink_to("src")
        (folder / "dangling").symlink_to("nowhere")
        listed = sandbox.ls(f"{folder}/")
        assert listed.error is None
        assert sorted(listed.entries, key=str) == sorted(THEIRS.ls(str(folder)).entries, key=str)
        assert box.calls == ["run"]

    def test_an_empty_directory(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        assert sandbox.ls(str(folder)).entries == []

    @pytest.mark.parametrize("name", ["missing", "f", "f/below"])
    def test_errors(self, sandbox: BoxliteSandbox, folder: Path, name: str) -> None:
        fill(folder, "f")
        code = "not_a_directory" if name == "f" else "path_not_found"
        assert sandbox.ls(f"{folder}/{name}").error == f"Path '{folder}/{name}': {code}"

    def test_a_listing_longer_than_a_commands_output(
        self, sandbox: BoxliteSandbox, box: LocalBox, folder: Path
    ) -> None:
        box.max_output = 1000
        fill(folder, *(f"file{n:04d}" for n in range(500)))
        assert [entry["path"] for entry in sandbox.ls(str(folder)).entries] == [
            f"{folder}/file{n:04d}" for n in range(500)
        ]
        assert box.calls == ["run", "stream"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be nobody")
class TestPermissions:
    """What the box's user may not see. By this machine's shell: all of its programs are everybody's."""

    @pytest.fixture
    def box(self, folder: Path) -> Iterator[LocalBox]:
        fill(folder, "shut/f.txt", "open/f.txt", "unreadable")
        (folder / "shut").chmod(0)
        (folder / "unreadable").chmod(0o200)
        box = LocalBox(Path("/bin/sh"), folder)
        box.user = NOBODY
        yield box
        (folder / "shut").chmod(0o700)

    def test_is_denied(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        assert sandbox.read(f"{folder}/unreadable").error == f"File '{folder}/unreadable': permission_denied"
        assert sandbox.read(f"{folder}/shut/f.txt").error == f"File '{folder}/shut/f.txt': permission_denied"
        assert sandbox.ls(f"{folder}/shut").error == f"Path '{folder}/shut': permission_denied"
        assert sandbox.ls(f"{folder}/shut/below").error == f"Path '{folder}/shut/below': permission_denied"
        assert sandbox.glob("*", f"{folder}/shut").error == f"Path '{folder}/shut': permission_denied"
        assert sandbox.grep("needle", f"{folder}/unreadable").error == f"Path '{folder}/unreadable': permission_denied"
        assert sandbox.delete(f"{folder}/open").error.startswith(f"Error deleting file '{folder}/open': ")

    def test_a_search_that_could_not_see_everything_says_so(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        globbed = sandbox.glob("*.txt", str(folder))
        assert [match["path"] for match in globbed.matches] == [f"{folder}/open/f.txt"]
        assert (globbed.truncated, globbed.truncation_reason) == (True, "unreadable")
        grepped = sandbox.grep("needle", str(folder))
        assert [match["path"] for match in grepped.matches] == [f"{folder}/open/f.txt"]
        assert grepped.truncated


class TestGlob:
    """`glob`, compared with theirs."""

    def test_every_pattern(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, *TREE)
        (folder / "link.py").symlink_to("src/app.py")
        (folder / "dangling.py").symlink_to("nowhere")
        (folder / "dir.py").symlink_to("src")
        matching = {pattern: compile_grep_include_glob(pattern) for pattern in PATTERNS}
        names = [*TREE, "link.py"]
        for pattern, matches in matching.items():
            found = sandbox.glob(pattern, str(folder))
            expected = sorted(f"{folder}/{name}" for name in names if matches(name))
            assert found == GlobResult(matches=[{"path": path, "is_dir": False} for path in expected]), pattern

    @pytest.mark.parametrize("pattern", ["**", "*.py", "src/*.py"])
    def test_is_theirs(self, sandbox: BoxliteSandbox, folder: Path, pattern: str) -> None:
        fill(folder, *TREE)
        assert sandbox.glob(pattern, str(folder)) == THEIRS.glob(pattern, str(folder))

    def test_an_invalid_pattern_is_an_error(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        assert "traversal" in sandbox.glob("../*", str(folder)).error

    def test_a_name_with_a_newline(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "a\nb.py")
        assert [match["path"] for match in sandbox.glob("*.py", str(folder)).matches] == [f"{folder}/a\nb.py"]

    @pytest.mark.parametrize("name", ["missing", "f"])
    def test_errors(self, sandbox: BoxliteSandbox, folder: Path, name: str) -> None:
        fill(folder, "f")
        assert sandbox.glob("*", f"{folder}/{name}") == THEIRS.glob("*", f"{folder}/{name}")

    def test_more_than_it_gives(self, sandbox: BoxliteSandbox, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(folder, *(f"{n}.py" for n in range(10)))
        for limits in ({"MAX_GLOB_MATCHES": 9}, {"SEARCH_BYTES": 69}):
            with monkeypatch.context() as patch:
                for name, value in limits.items():
                    patch.setattr(adapter, name, value)
                found = sandbox.glob("*.py", str(folder))
            assert len(found.matches) == 9
            assert (found.truncated, found.truncation_reason) == (True, "budget")

    @pytest.mark.parametrize("pattern", PATTERNS)
    def test_what_find_looks_for_is_enough(self, pattern: str) -> None:
        """What is not sent at all can not match: only what has no special meaning stays in the pattern for find."""
        assert not set(name_pattern(pattern)) & set("?[]{}\\/")


class TestGrep:
    """`grep`, compared with theirs."""

    def test_texts(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, *TREE, ".git/config", "src/.git/x", content=b"a needle 1\nnothing\nneedle\nNeedle\n[n]eedle\n")
        fill(folder, "unterminated", content="žluťoučký needle".encode())
        fill(folder, "binary", content=b"\0\nneedle\n")
        (folder / "link").symlink_to("src")
        for text in ("needle", "[n]", "nowhere", "-e", "ž"):
            ours, theirs = sandbox.grep(text, str(folder)), THEIRS.grep(text, str(folder))
            expected = sorted(theirs.matches, key=lambda match: (match["path"], match["line"]))
            assert (ours.matches, ours.error, ours.truncated) == (expected, None, False), text

    @pytest.mark.parametrize("pattern", ["*.py", "/src/*.py", "{top,er}.py"])
    def test_globs(self, sandbox: BoxliteSandbox, folder: Path, pattern: str) -> None:
        fill(folder, *TREE)
        expected = [match["path"] for match in sandbox.glob(pattern, str(folder)).matches]
        assert [match["path"] for match in sandbox.grep("needle", str(folder), pattern).matches] == expected

    def test_names_that_could_be_read_as_something_else(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        names = sorted(("a:1:b.txt", "a\nb", "a\n3:needle", " a", "-rf", "x y"))
        fill(folder, *names, content=b"1:needle\n\nneedle 2\n")
        fill(folder, "z\nbinary", content=b"\0needle\n")
        assert sandbox.grep("needle", str(folder)).matches == [
            {"path": f"{folder}/{name}", "line": line, "text": text}
            for name in names
            for line, text in ((1, "1:needle"), (3, "needle 2"))
        ]

    def test_one_file(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "a:1:b.txt", content=b"x\nneedle\n")
        path = f"{folder}/a:1:b.txt"
        assert sandbox.grep("needle", path).matches == [{"path": path, "line": 2, "text": "needle"}]
        assert sandbox.grep("needle", path, "*.py").matches == []

    def test_the_excluded_directory_itself(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, ".git/hooks/x")
        assert len(sandbox.grep("needle", f"{folder}/.git").matches) == 1

    def test_where_commands_run(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "f")
        assert sandbox.grep("needle").matches == [{"path": f"{folder}/f", "line": 1, "text": "needle"}]

    @pytest.mark.parametrize(("most", "truncated"), [(4, True), (5, False), (6, False)])
    def test_max_count_is_exact(self, sandbox: BoxliteSandbox, folder: Path, most: int, truncated: bool) -> None:
        fill(folder, "a", "b", "c", "d", "e")
        found = sandbox.grep("needle", str(folder), max_count=most)
        assert (len(found.matches), found.truncated) == (min(most, 5), truncated)

    @pytest.mark.parametrize("name", ["missing", "missing/x"])
    def test_a_missing_root_is_an_error(self, sandbox: BoxliteSandbox, folder: Path, name: str) -> None:
        assert sandbox.grep("x", f"{folder}/{name}").error == f"Path '{folder}/{name}': path_not_found"

    def test_an_invalid_glob_is_an_error(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        assert "traversal" in sandbox.grep("x", str(folder), "../*.py").error


class TestTransfers:
    """`upload_files`, `download_files`, `delete` and `execute`."""

    def test_one_failure_keeps_no_other_back(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "f")
        sent = [(f"{folder}/new/a", b"\0\xff"), ("relative", b""), (f"{folder}/f/below", b""), (str(folder), b"")]
        errors = [None, "invalid_path", "invalid_path", "is_directory"]
        assert [done.error for done in sandbox.upload_files(sent)] == errors
        asked = [f"{folder}/new/a", "relative", f"{folder}/missing", str(folder)]
        assert sandbox.download_files(asked) == [
            FileDownloadResponse(asked[0], content=b"\0\xff"),
            FileDownloadResponse(asked[1], error="invalid_path"),
            FileDownloadResponse(asked[2], error="file_not_found"),
            FileDownloadResponse(asked[3], error="is_directory"),
        ]

    def test_delete(self, sandbox: BoxliteSandbox, folder: Path) -> None:
        fill(folder, "dir/-f", "dir/$(id)", "kept")
        (folder / "link").symlink_to("kept")
        for name in ("dir", "link"):
            assert sandbox.delete(f"{folder}/{name}").path == f"{folder}/{name}"
        assert [path.name for path in folder.iterdir()] == ["kept"]
        assert sandbox.delete(f"{folder}/dir").error == f"Error: '{folder}/dir' not found"

    def test_execute(self, sandbox: BoxliteSandbox) -> None:
        done = sandbox.execute("echo out; echo err >&2; exit 3")
        assert done == ExecuteResponse(output="out\nerr\n", exit_code=3, truncated=False)
        assert sandbox.execute("printf out; echo err >&2").output == "out\nerr\n"


class TestFaults:
    """A box that cannot serve: told in the result of a file operation, raised by `execute`."""

    @pytest.mark.parametrize("fault", [BoxDiedError("the VM died"), CapacityError("no place")])
    def test_are_told(self, sandbox: BoxliteSandbox, box: LocalBox, fault: Exception) -> None:
        box.fault = fault
        results: list[Any] = [
            *(sandbox.read("/f"), sandbox.write("/f", "x"), sandbox.edit("/f", "a", "b"), sandbox.delete("/f")),
            *(sandbox.ls("/"), sandbox.glob("*", "/x"), sandbox.grep("x", "/x"), sandbox.grep("x")),
            *(*sandbox.upload_files([("/f", b"")]), *sandbox.download_files(["/f"])),
        ]
        assert all(str(fault) in result.error for result in results)
        with pytest.raises(type(fault)):
            sandbox.execute("true")


async def _all_twins(sandbox: BoxliteSandbox, folder: Path) -> None:
    path = f"{folder}/f.txt"
    assert (await sandbox.awrite(path, "one")).path == path
    assert (await sandbox.aread(path)).file_data["content"] == "one"
    assert (await sandbox.aedit(path, "one", "two")).occurrences == 1
    assert [entry["path"] for entry in (await sandbox.als(str(folder))).entries] == [path]
    assert [match["path"] for match in (await sandbox.aglob("*.txt", str(folder))).matches] == [path]
    assert [match["line"] for match in (await sandbox.agrep("two", str(folder), max_count=9)).matches] == [1]
    assert (await sandbox.aexecute("echo hi", timeout=9)).output == "hi\n"
    assert (await sandbox.adownload_files([path]))[0].content == b"two"
    assert (await sandbox.aupload_files([(path, b"three")]))[0].error is None
    assert (await sandbox.adelete(path)).path == path


def test_the_asynchronous_twins(sandbox: BoxliteSandbox, folder: Path) -> None:
    asyncio.run(_all_twins(sandbox, folder))
