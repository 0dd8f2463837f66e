"""Which of the lines that grep found `re` really matches, without ever hanging on a pattern that backtracks.

`re` cannot be interrupted and holds the interpreter while it matches a line, so a bad pattern on an unlucky line
(`(a+)+$`) would stop every thread of the gateway. Where that can take long it happens in a process that can be killed.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

__all__ = ["TIMEOUT", "backtracking", "matching"]

TIMEOUT = 10.0
"""Seconds for the lines of one search that are matched in a process of their own."""

_PATIENCE = 0.25
"""Seconds for the lines that are matched in place."""

_STEPS = 10_000_000
"""A line may be matched in place if it takes no more steps than this at the worst: some tenths of a second."""

_NESTED = 99
_WORKER = Path(__file__).with_name("search_worker.py")


async def matching(pattern: re.Pattern[str], lines: Sequence[str], *, timeout: float = TIMEOUT) -> list[int]:
    """The indices of the lines in which `pattern` is found, in order.

    Raises `TimeoutError` when it takes longer than `timeout` seconds. Does not block the event loop, but as long as a
    line is matched in place nothing else runs.
    """
    return await asyncio.to_thread(_matching, pattern, lines, timeout)


def _matching(pattern: re.Pattern[str], lines: Sequence[str], timeout: float) -> list[int]:
    degree = 1 + backtracking(_parser.parse(pattern.pattern, pattern.flags))
    longest = int(_STEPS ** (1 / degree)) if degree < _NESTED else -1
    until = time.monotonic() + _PATIENCE
    found: list[int] = []
    later: list[int] = []
    for index, line in enumerate(lines):
        if len(line) > longest or (not index % 64 and time.monotonic() > until):
            later.append(index)
        elif pattern.search(line):
            found.append(index)
    if later:
        found += (later[index] for index in _apart(pattern, [lines[index] for index in later], timeout))
        found.sort()
    return found


def _apart(pattern: re.Pattern[str], lines: Sequence[str], timeout: float) -> list[int]:
    request = json.dumps({"pattern": pattern.pattern, "flags": pattern.flags, "lines": lines})
    argv = [sys.executable, "-I", "-S", str(_WORKER)]
    try:
        done = subprocess.run(argv, input=request, capture_output=True, text=True, timeout=timeout, check=True)
    except subprocess.TimeoutExpired:
        raise TimeoutError(
            f"matching {pattern.pattern!r} took more than {timeout:g} s: it backtracks; write it with fewer"
            " repetitions that can match the same text"
        ) from None
    indices: list[int] = json.loads(done.stdout)
    return indices


def backtracking(nodes: Any) -> int:
    """How many open choices of a pattern (the tree that `re` makes of it) can compete for the same text of a line.

    At least `_NESTED` if one is within a repetition: then there is no bound but an exponential one.
    """
    return sum(_choices(op, given) for op, given in nodes)


def _choices(op: Any, given: Any) -> int:
    match op:
        case _constants.MAX_REPEAT | _constants.MIN_REPEAT | _constants.POSSESSIVE_REPEAT:
            least, most, inner = given
            within = backtracking(inner)
            return within * least if least == most else (_NESTED if within else 1)
        case _constants.BRANCH:
            return 1 + max(backtracking(branch) for branch in given[1])
        case _constants.SUBPATTERN:
            return backtracking(given[3])
        case _constants.ATOMIC_GROUP:
            return backtracking(given)
        case _constants.ASSERT | _constants.ASSERT_NOT:
            return backtracking(given[1])
        case _constants.GROUPREF:
            return 1
        case _constants.GROUPREF_EXISTS:
            return 1 + sum(backtracking(branch) for branch in given[1:] if branch)
    return 0
