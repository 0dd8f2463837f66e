"""From the bytes that a command's output was collected in to its text. Pure, no I/O."""

from __future__ import annotations

from dataclasses import dataclass

# The collected file has one byte before the output, and a random mark, `stop`, after it (command.sh).
_BEFORE = 1


@dataclass(frozen=True)
class Output:
    """A stream of a command."""

    text: str
    truncated: bool = False


def whole(data: bytes, stop: str) -> Output:
    """The output in a copy of the collected file. What a background child printed after the end is left out."""
    return Output(_until(data[_BEFORE:], stop).decode("utf-8", "replace"))


def cut(data: bytes, stop: str, size: int, limit: int) -> Output:
    """The output of `size` bytes of which the first and the last half of `limit` were kept."""
    half = limit // 2
    head = _without_partial_end(data[_BEFORE : half + _BEFORE])
    tail = _until(data[half + _BEFORE :], stop)
    for _ in range(3):
        tail = tail[1:] if _is_continuation(tail[:1]) else tail
    dropped = max(size - len(head) - len(tail), 0)
    text = head.decode("utf-8", "replace") + cut_line(dropped, size) + tail.decode("utf-8", "replace")
    return Output(text, truncated=True)


def raw(head: str, tail: str, stop: str, size: int, limit: int) -> Output:
    """The output that came as text of its two halves, the second empty if nothing was cut."""
    if size <= limit:
        return Output(head[_BEFORE:].partition(stop)[0])
    lost = "\N{REPLACEMENT CHARACTER}"
    head, tail = head[_BEFORE:].rstrip(lost), tail.partition(stop)[0].lstrip(lost)
    dropped = max(size - len(head.encode()) - len(tail.encode()), 0)
    return Output(head + cut_line(dropped, size) + tail, truncated=True)


def cut_line(dropped: int, size: int) -> str:
    """What stands in the place of what was cut."""
    return f"\n[... {dropped} of {size} bytes cut here (max_output_bytes) ...]\n"


def with_line(text: str, line: str) -> str:
    """A text with one line more at its end."""
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"


def _until(data: bytes, stop: str) -> bytes:
    return data.partition(stop.encode("ascii"))[0] if stop else data


def _is_continuation(byte: bytes) -> bool:
    return byte != b"" and 0x80 <= byte[0] < 0xC0


def _without_partial_end(data: bytes) -> bytes:
    """Without the beginning of a character (UTF-8, RFC 3629) whose rest is not there."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < length else data
        if byte < 0x80:
            break
    return data
