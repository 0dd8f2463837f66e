"""What a box answered, as the results that deepagents expects. Pure: no I/O."""

# mypy: warn-return-any=False
# (Where deepagents is not installed, its names have no types.)

from __future__ import annotations

import errno
import re
from collections.abc import Iterator

from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    PERMISSION_DENIED,
    EditResult,
    FileData,
    ReadResult,
)
from deepagents.backends.sandbox import MAX_OUTPUT_BYTES, TRUNCATION_MSG

PAGE_BYTES = MAX_OUTPUT_BYTES - len(TRUNCATION_MSG.encode())
"""How much of a page is shown: with the note that it was cut, deepagents' limit."""

_GREP_LINE = re.compile(r"(?:([./][^\0]*)\0)?([0-9]+):([^\n]*)\n")
_NO_PATTERN = re.compile(r"[\[\]{}\\]")


def file_error(exc: Exception) -> str:
    """The protocol's code for an error of a file operation; the error's own words where it has none."""
    if isinstance(exc, FileNotFoundError):
        return FILE_NOT_FOUND
    if isinstance(exc, PermissionError):
        return PERMISSION_DENIED
    if isinstance(exc, IsADirectoryError):
        return IS_DIRECTORY
    if isinstance(exc, NotADirectoryError | FileExistsError | ValueError):
        return INVALID_PATH
    if isinstance(exc, OSError) and exc.errno in {errno.ELOOP, errno.ENAMETOOLONG}:
        return INVALID_PATH
    return str(exc)


def edit_error(exc: Exception, path: str) -> EditResult:
    """What `BaseSandbox.edit` says to an error of reading or writing."""
    if isinstance(exc, FileNotFoundError):
        message = f"Error: File '{path}' not found"
    elif isinstance(exc, PermissionError):
        message = f"Error: Permission denied editing file '{path}'"
    elif isinstance(exc, IsADirectoryError):
        message = f"Error: '{path}' is not a regular file"
    elif isinstance(exc, UnicodeDecodeError):
        message = f"Error: File '{path}' is not a text file"
    else:
        message = f"Error editing file '{path}': {file_error(exc)}"
    return EditResult(error=message)


def replaced(text: str, old: str, new: str, *, every: bool) -> tuple[str, int] | str:
    """The text with `old` replaced, and how often; or the message why not.

    A model sees a page with LF line ends, so its `old` has those: where it is not found as it stands, it is looked for
    with CRLF and with LF, and `new` gets the same line ends.
    """
    as_lf = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    as_crlf = as_lf[0].replace("\n", "\r\n"), as_lf[1].replace("\n", "\r\n")
    for before, after in ((old, new), as_crlf, as_lf):
        count = text.count(before)
        if count > 1 and not every:
            return f"Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences."
        if count:
            return text.replace(before, after), count
    return f"Error: String not found in file: '{old}'"


def is_cut(page: str) -> bool:
    """Whether a page is as long as page.sh gives at most: its last line, and its last character, may be cut."""
    return len(page.encode("utf-8", "surrogateescape")) >= MAX_OUTPUT_BYTES


def page_result(path: str, offset: int, limit: int, lines: int, page: str) -> ReadResult:
    """A page of text.

    `page` is what page.sh gives for the line after `offset` and `limit + 1` lines, so that it shows whether there are
    more. `lines` is how many the file has, -1 for unknown.
    """
    split = page.replace("\r\n", "\n").removesuffix("\n").split("\n") if page else []
    if not split:
        known = f" ({lines} lines)" if lines >= 0 else ""
        return ReadResult(error=f"File '{path}': Line offset {offset} exceeds file length{known}")
    cut = is_cut(page)
    if cut and len(split) > 1:
        split.pop()
    shown = split[:limit]
    content, count = "\n".join(shown), len(shown)
    more = cut or len(split) > limit
    encoded = content.encode("utf-8", "surrogateescape")
    if len(encoded) > PAGE_BYTES:
        content = encoded[:PAGE_BYTES].decode("utf-8", "ignore")
        # The last line is cut and to be read again, unless it is the only one: of that no more can be shown.
        count, cut = content.count("\n") or 1, True
        more = more or count < len(shown)
    if cut and count < limit:
        content += TRUNCATION_MSG
    end = offset + count
    return ReadResult(
        file_data=FileData(content=content, encoding="utf-8"),
        total_lines=max(lines, end) if lines >= 0 else (None if more else end),
        start_line=offset + 1,
        end_line=end,
        next_offset=end if more else None,
    )


def name_pattern(pattern: str) -> str:
    """A pattern for find and the last part of a path, that lets through all that a glob pattern may match.

    What exactly matches is decided later. `?` is any character there and one byte to find; braces mean nothing to find.
    """
    last = pattern.rpartition("/")[2]
    return "*" if not last or _NO_PATTERN.search(last) else re.sub(r"[?*]+", "*", last)


def parse_grep(text: str) -> Iterator[tuple[str, int, str]]:
    """File, number and text of each line in the output of grep.sh, as far as the output goes."""
    name = ""
    at = 0
    while found := _GREP_LINE.match(text, at):
        at = found.end()
        name = found[1] or name
        yield name, int(found[2]), found[3]
