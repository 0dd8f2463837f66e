"""A box as the sandbox of an agent made with deepagents (LangChain). Needs the extra `[deepagents]`.

    sandbox_id = provider.acquire(thread_id, user_id=user_id)
    agent = create_deep_agent(model=..., backend=BoxliteSandbox(provider.get(sandbox_id)))

Results, error texts and the meaning of patterns are those of deepagents 0.7's `BaseSandbox` and `BackendProtocol`,
whose own file operations need Python in the image; these need a shell and the usual tools.
"""

# mypy: disallow-subclassing-any=False
# (Where deepagents is not installed, its classes have no types.)

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

try:
    from deepagents.backends.protocol import (
        BackendProtocol,
        DeleteResult,
        EditResult,
        ExecuteResponse,
        FileData,
        FileDownloadResponse,
        FileUploadResponse,
        GlobResult,
        GrepResult,
        LsResult,
        ReadResult,
        SandboxBackendProtocol,
        WriteResult,
    )
    from deepagents.backends.sandbox import MAX_BINARY_BYTES, MAX_OUTPUT_BYTES, BaseSandbox
    from deepagents.backends.utils import (
        EMPTY_CONTENT_WARNING,
        EMPTY_OLD_STRING_ERROR,
        _get_backend_read_file_type,
        compile_grep_include_glob,
        normalize_read_bounds,
    )
except ImportError as exc:
    raise ImportError(
        f'deepagents is not installed. Run: pip install "deerflow-boxlite[deepagents]" ({exc})', name="deepagents"
    ) from exc

from ..box import BoxliteBox
from ..errors import BoxError
from ._scripts import Answer, Refused, Scripts
from .deepagents_results import edit_error, file_error, is_cut, name_pattern, page_result, parse_grep, replaced

SEARCH_TIMEOUT = 25.0
"""Seconds that `glob` and `grep` look before they give what they have: deepagents waits 30 and 35 for them."""

MAX_GLOB_MATCHES = 10_000
"""As many as `BaseSandbox.glob` gives."""

SEARCH_BYTES = 2 * 1024 * 1024
"""So much of names or lines found leaves the box, as UTF-8."""

_COUNTABLE_BYTES = 1024 * 1024
_LINE_LIMIT = 2**31 - 2
_LOST = "\N{REPLACEMENT CHARACTER}"


_FAILURES = (OSError, ValueError, BoxError, Refused)


class BoxliteSandbox(BaseSandbox):
    """A deepagents sandbox on a box. As the box's handle, it never goes stale, and may be used from any thread.

    Every method blocks until it is done; its `a...` twin does it in a thread. File operations report failures in their
    results, a box that died or cannot boot among them. `execute` has no place for these and raises `BoxError`.
    """

    # What deepagents wraps commands in is plain POSIX shell, with tools that every box has.
    enable_capture_offload = True

    def __init__(self, box: BoxliteBox) -> None:
        self._box = box
        self._scripts = Scripts(box)

    @property
    def id(self) -> str:
        """The sandbox id of the box."""
        return self._box.id

    # -- commands ---------------------------------------------------------------------------------------------------

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Run a shell command. `timeout` is in seconds; None means the configured `command_timeout`, 0 none.

        Raises `ValueError` for a NUL in the command or a negative timeout, and `BoxError`.
        """
        result = self._box.run(command, timeout=timeout)
        between = "\n" if result.stdout and result.stderr and not result.stdout.endswith("\n") else ""
        output = f"{result.stdout}{between}{result.stderr}"
        return ExecuteResponse(output=output, exit_code=result.exit_code, truncated=result.truncated)

    # -- files ------------------------------------------------------------------------------------------------------

    def ls(self, path: str) -> LsResult:
        """The entries of a directory, hidden ones too, sorted. A link is no directory."""
        try:
            entries = self._scripts.ask("ls.sh", absolute(path)).text.split("\0")[:-1]
        except _FAILURES as exc:
            return LsResult(error=f"Path '{path}': {said(exc)}")
        root = path.rstrip("/")
        paths = sorted((f"{root}/{entry[1:]}", entry[0] == "d") for entry in entries)
        return LsResult(entries=[{"path": name, "is_dir": is_dir} for name, is_dir in paths])

    def read(self, file_path: str, offset: int = 0, limit: int = 2000) -> ReadResult:
        """A page of a text file, cut inside the box, with LF line ends; or a small binary file whole, as base64."""
        offset, limit = (min(bound, _LINE_LIMIT) for bound in normalize_read_bounds(offset, limit))
        is_text = _get_backend_read_file_type(file_path) == "text"
        try:
            return self._read(absolute(file_path), offset, limit if is_text else 0, is_text)
        except _FAILURES as exc:
            return ReadResult(error=f"File '{file_path}': {said(exc)}")

    def _read(self, path: str, offset: int, limit: int, is_text: bool) -> ReadResult:
        wanted = (offset + 1, limit + 1 if limit else 0, MAX_OUTPUT_BYTES, _COUNTABLE_BYTES)
        header, _, page = self._scripts.ask("page.sh", path, *map(str, wanted)).text.partition("\n")
        size, lines = map(int, header.split(" "))
        if size == 0:
            return ReadResult(file_data=FileData(content=EMPTY_CONTENT_WARNING, encoding="utf-8"))
        whole_characters = page.rstrip(_LOST) if is_cut(page) else page
        if not is_text or (_LOST in whole_characters and not self._is_text(path, size, offset, limit)):
            return self._binary(path, size)
        if limit == 0:
            return ReadResult(file_data=FileData(content="", encoding="utf-8"), no_lines_requested=True)
        return page_result(path, offset, limit, lines, page)

    def _is_text(self, path: str, size: int, offset: int, limit: int) -> bool:
        """Whether a U+FFFD in a page stands in the file, and not for bytes that are no UTF-8."""
        try:
            if size <= MAX_BINARY_BYTES:
                self._bytes(path).decode()
            else:
                self._box.read_file(path, offset + 1, offset + limit)
        except UnicodeDecodeError:
            return False
        return True

    def _binary(self, path: str, size: int) -> ReadResult:
        if size > MAX_BINARY_BYTES:
            raise Refused(f"Binary file exceeds maximum preview size of {MAX_BINARY_BYTES} bytes")
        content = base64.b64encode(self._bytes(path)).decode("ascii")
        return ReadResult(file_data=FileData(content=content, encoding="base64"))

    def _bytes(self, path: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="deerflow-boxlite-") as folder:
            target = Path(folder) / "file"
            self._box.download_to(path, target)
            return target.read_bytes()

    def write(self, file_path: str, content: str) -> WriteResult:
        """Write a file whole and atomically, making missing parents, replacing one that exists."""
        try:
            self._box.write_file(absolute(file_path), content)
        except _FAILURES as exc:
            return WriteResult(error=f"Failed to write file '{file_path}': {said(exc)}")
        return WriteResult(path=file_path)

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> EditResult:
        """Replace an exact text in a text file, which keeps its line ends, mode and owner."""
        if not old_string:
            return EditResult(error=EMPTY_OLD_STRING_ERROR)
        try:
            text = self._box.read_file(absolute(file_path))
            outcome = replaced(text, old_string, new_string, every=replace_all)
            if isinstance(outcome, str):
                return EditResult(error=outcome)
            self._box.write_file(file_path, outcome[0])
        except Refused as exc:
            return EditResult(error=f"Error editing file '{file_path}': {exc}")
        except _FAILURES as exc:
            return edit_error(exc, file_path)
        return EditResult(path=file_path, occurrences=outcome[1])

    def delete(self, file_path: str) -> DeleteResult:
        """Remove a file, a link itself, or a directory with all that is in it."""
        try:
            self._scripts.ask("delete.sh", absolute(file_path))
        except _FAILURES as exc:
            if said(exc) == "path_not_found":
                return DeleteResult(error=f"Error: '{file_path}' not found")
            return DeleteResult(error=f"Error deleting file '{file_path}': {said(exc)}")
        return DeleteResult(path=file_path)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        """Write files, each as `write` does; one that fails does not keep the others back."""
        return [self._upload(path, content) for path, content in files]

    def _upload(self, path: str, content: bytes) -> FileUploadResponse:
        try:
            self._box.update_file(absolute(path), content)
        except _FAILURES as exc:
            return FileUploadResponse(path=path, error=said(exc))
        return FileUploadResponse(path=path)

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        """Read files of any size, from anywhere in the box; one that fails does not keep the others back."""
        return [self._download(path) for path in paths]

    def _download(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path=path, content=self._bytes(absolute(path)))
        except _FAILURES as exc:
            return FileDownloadResponse(path=path, error=said(exc))

    # -- search -----------------------------------------------------------------------------------------------------

    def glob(self, pattern: str, path: str | None = None) -> GlobResult:
        """Regular files below `path` (default `/`) that match, as `compile_grep_include_glob` has it."""
        root = "/" + (path or "").strip("/")
        try:
            matches = matcher(pattern)
            answer = self._search("glob.sh", root, name_pattern(pattern))
        except _FAILURES as exc:
            return GlobResult(error=f"Path '{root}': {said(exc)}")
        names = (name[2:] for name in answer.text.split("\0")[:-1])
        found = sorted(below(root, name) for name in names if matches(name))
        cut = not answer.complete or len(found) > MAX_GLOB_MATCHES
        return GlobResult(
            matches=[{"path": name, "is_dir": False} for name in found[:MAX_GLOB_MATCHES]],
            truncated=cut or bool(answer.complaints),
            truncation_reason="budget" if cut else "unreadable" if answer.complaints else None,
        )

    def grep(
        self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None
    ) -> GrepResult:
        """Lines that hold `pattern`, literally, in the text files at or below `path`, sorted.

        `path` defaults to where commands run. Directories named in `grep_exclude_dirs` are left out, unless `path` is
        one. `truncated` is set too when something could not be read.
        """
        try:
            root = absolute(path or self._working_directory)
            matches = matcher(glob) if glob else None
            excluded = [name for name in self.grep_exclude_dirs if name != Path(root).name]
            answer = self._search("grep.sh", root, pattern, name_pattern(glob or ""), *excluded)
        except _FAILURES as exc:
            return GrepResult(error=f"Path '{path or '.'}': {said(exc)}")
        found = [
            (root if name.startswith("/") else below(root, name[2:]), line, text)
            for name, line, text in parse_grep(answer.text)
            if matches is None or matches(name[2:] if name.startswith("./") else Path(name).name)
        ]
        return GrepResult(
            matches=[{"path": name, "line": line, "text": text} for name, line, text in sorted(found)[:max_count]],
            truncated=not answer.complete
            or bool(answer.complaints)
            or (max_count is not None and len(found) > max_count),
        )

    # -- the same, without blocking an event loop ---------------------------------------------------------------------
    # BaseSandbox has its own shell commands in these.

    aexecute = SandboxBackendProtocol.aexecute
    als = BackendProtocol.als
    aread = BackendProtocol.aread
    awrite = BackendProtocol.awrite
    aedit = BackendProtocol.aedit
    adelete = BackendProtocol.adelete
    aglob = BackendProtocol.aglob
    agrep = BackendProtocol.agrep
    aupload_files = BackendProtocol.aupload_files
    adownload_files = BackendProtocol.adownload_files

    # -- the way to the box -----------------------------------------------------------------------------------------

    @cached_property
    def _working_directory(self) -> str:
        return self._box.run("pwd").stdout.removesuffix("\n")

    def _search(self, name: str, *words: str) -> Answer:
        answer = self._scripts.ask(name, str(SEARCH_BYTES), *words, timeout=SEARCH_TIMEOUT)
        return replace(answer, complete=answer.complete and len(answer.text.encode()) < SEARCH_BYTES)


def absolute(path: str) -> str:
    """The path if it is an absolute one without a NUL, else raises `Refused`."""
    if not path.startswith("/") or "\0" in path:
        raise Refused("invalid_path")
    return path


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a path, relative to the root of a search, matches a pattern. Raises `Refused` for an invalid one."""
    try:
        compiled: Callable[[str], bool] = compile_grep_include_glob(pattern)
    except ValueError as exc:
        raise Refused(str(exc)) from exc
    return compiled


def below(root: str, name: str) -> str:
    """The path of what lies at `name` from an absolute directory on."""
    return f"{root.rstrip('/')}/{name}"


def said(exc: Exception) -> str:
    """An error in the protocol's words."""
    return str(exc) if isinstance(exc, Refused) else file_error(exc)
