"""What is measured: the operations of the project's bars, each with its honest equal in the raw SDK."""

from __future__ import annotations

import asyncio
import hashlib
import shlex
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.measure import Case
from benchmarks.rig import Rig

WORKSPACE = "/mnt/user-data/workspace"
MIB = 1024 * 1024
LARGE_LINES = 2_000_000
LINE = 50
"""Bytes of each line of the large file, its newline included."""
RANGE = (1_200_001, 1_200_020)

FIND = "cd {root} && find . -name node_modules -prune -o -name .git -prune -o -type f -name '*.py' -print"
GREP = (
    "cd {root} && find . -name node_modules -prune -o -name .git -prune -o -type f -exec grep -Hn 'needle 1*0' {{}} +"
)
NEEDLE = r"needle 1*0"

BARS: dict[str, dict[str, float]] = {
    "exec_true": {"debian": 0.30, "busybox": 0.50},
    "exec_echo": {"debian": 0.30, "busybox": 0.50},
    "exec_1mb_output": {"debian": 0.5, "busybox": 0.5},
    "write_1kb": {"debian": 0.50, "busybox": 0.60},
    "read_1kb": {"debian": 0.50, "busybox": 0.60},
    "write_10mb": {"debian": 1.3, "busybox": 1.3},
    "read_10mb": {"debian": 1.3, "busybox": 1.3},
    "read_range_100mb": {"debian": 1.0, "busybox": 1.0},
    "glob_20k_files": {"debian": 1.2, "busybox": 1.2},
    "grep_20k_files": {"debian": 1.2, "busybox": 1.2},
}
"""The ratios that the project promises not to exceed."""


async def login(rig: Rig, command: str) -> str:
    """What people write with the SDK: a login shell for each command."""
    result = await rig.raw.exec("sh", "-lc", command)
    assert (result.exit_code, result.stderr) == (0, ""), result
    return str(result.stdout)


def ours(rig: Rig, command: str) -> str:
    """The same by us."""
    result = rig.box.run(command)
    assert (result.exit_code, result.stderr, result.truncated) == (0, "", False), result
    return result.stdout


def equal(expected: Callable[[int], Any]) -> Callable[[int, Any], None]:
    """A check that the result is what is expected of the round."""

    def check(number: int, result: Any) -> None:
        wanted = expected(number)
        assert result == wanted, f"wrong: {str(result)[:200]!r} in place of {str(wanted)[:200]!r}"

    return check


def command_case(rig: Rig, name: str, command: str, output: str, rounds: int = 15) -> Case:
    """The same command by both."""
    return Case(
        name, lambda _: ours(rig, command), lambda _: login(rig, command), equal(lambda _: output), rounds=rounds
    )


def commands(rig: Rig) -> list[Case]:
    """Commands alone and eight at once."""
    letters = "x" * MIB

    def eight_of_ours(number: int) -> list[str]:
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(lambda each: ours(rig, f"echo {number} {each}"), range(8)))

    async def eight_raw(number: int) -> list[str]:
        return list(await asyncio.gather(*(login(rig, f"echo {number} {each}") for each in range(8))))

    return [
        command_case(rig, "exec_true", "true", "", rounds=21),
        command_case(rig, "exec_echo", "echo hello", "hello\n", rounds=21),
        command_case(rig, "exec_1mb_output", f"head -c {MIB} /dev/zero | tr '\\0' x", letters, rounds=5),
        Case(
            "exec_8_parallel",
            eight_of_ours,
            eight_raw,
            equal(lambda number: [f"{number} {each}\n" for each in range(8)]),
            rounds=9,
        ),
    ]


def kilobyte(number: int) -> str:
    """1 KiB of text with something in it that a shell could stumble over."""
    return f"{number}: it's $HOME \\n `date`\n".ljust(1023, "e") + "\n"


def small_files(rig: Rig) -> list[Case]:
    """One KiB. The SDK has nothing for that but a command."""
    path = f"{WORKSPACE}/small.txt"
    written = f"{WORKSPACE}/written.txt"
    rig.box.write_file(path, kilobyte(0))

    async def raw_write(number: int) -> None:
        await login(rig, f"printf %s {shlex.quote(kilobyte(number))} > {written}")

    def check_written(number: int, _: Any) -> None:
        assert rig.box.read_file(written) == kilobyte(number)

    return [
        Case("write_1kb", lambda number: rig.box.write_file(written, kilobyte(number)), raw_write, check_written, 21),
        Case(
            "read_1kb",
            lambda _: rig.box.read_file(path),
            lambda _: login(rig, f"cat {path}"),
            equal(lambda _: kilobyte(0)),
            rounds=21,
        ),
    ]


def large_files(rig: Rig) -> list[Case]:
    """10 MB from this host's memory and back. The SDK has its file ready, and we have to make ours."""
    path = f"{WORKSPACE}/large.bin"
    written = f"{WORKSPACE}/written.bin"
    content = bytes(range(256)) * (10 * MIB // 256)
    source, target = rig.folder / "source", rig.folder / "target"

    def numbered(number: int) -> bytes:
        return b"%20d" % number + content

    def prepare(number: int) -> str:
        source.write_bytes(numbered(number))
        return str(source)

    rig.box.update_file(path, content)

    def check_written(number: int, _: Any) -> None:
        found = rig.box.run(f"sha256sum {written}").stdout.split()[0]
        assert found == hashlib.sha256(numbered(number)).hexdigest()

    def read(_: int) -> bytes:
        return rig.box.download_file(path)

    async def raw_read(_: int) -> Path:
        await rig.raw.copy_out(path, str(target))
        return target

    def check_read(_: int, result: bytes | Path) -> None:
        assert (result if isinstance(result, bytes) else result.read_bytes()) == content

    return [
        Case(
            "write_10mb",
            lambda number: rig.box.update_file(written, numbered(number)),
            lambda number: rig.raw.copy_in(prepare(number), written),
            check_written,
            rounds=9,
        ),
        Case("read_10mb", read, raw_read, check_read, rounds=9),
    ]


def line(number: int) -> str:
    """A line of the large file, without its end."""
    return f"line {number} ".ljust(LINE - 1, ".")


def ranges(rig: Rig) -> list[Case]:
    """Twenty lines out of the middle of 100 MB."""
    path = f"{WORKSPACE}/lines.txt"
    source = rig.folder / "lines"
    with source.open("w") as file:
        for start in range(1, LARGE_LINES + 1, 10_000):
            file.write("".join(f"{line(number)}\n" for number in range(start, start + 10_000)))
    rig.box.upload_from(source, path)
    source.unlink()
    first, last = RANGE

    async def raw(_: int) -> str:
        return (await login(rig, f"sed -n '{first},{last}p;{last}q' {path}")).removesuffix("\n")

    expected = "\n".join(line(number) for number in range(first, last + 1))
    return [Case("read_range_100mb", lambda _: rig.box.read_file(path, first, last), raw, equal(lambda _: expected), 7)]


def search(rig: Rig) -> list[Case]:
    """A tree with 18,000 files under node_modules and 2,000 under src."""
    root = f"{WORKSPACE}/tree"
    script = Path(__file__).with_name("tree.sh").read_text()
    made = rig.box.run(f"set -- {root}\n{script}", timeout=300)
    assert made.exit_code == 0, made
    every = sorted(f"{root}/src/module{module}/file{file}.py" for module in range(40) for file in range(50))
    needles = sorted((path, 5) for path in every if path.endswith(("file0.py", "file10.py")))

    def glob(_: int) -> list[str]:
        found, truncated = rig.box.glob(root, "**/*.py", max_results=5000)
        assert not truncated
        return sorted(found)

    async def raw_glob(_: int) -> list[str]:
        printed = await login(rig, FIND.format(root=root))
        return sorted(f"{root}/{path[2:]}" for path in printed.splitlines())

    def grep(_: int) -> list[tuple[str, int]]:
        found, truncated = rig.box.grep(root, NEEDLE, max_results=5000)
        assert not truncated
        return sorted((match.path, match.line_number) for match in found)

    async def raw_grep(_: int) -> list[tuple[str, int]]:
        printed = await login(rig, GREP.format(root=root))
        fields = (text.split(":", 2) for text in printed.splitlines())
        return sorted((f"{root}/{path[2:]}", int(number)) for path, number, _ in fields)

    return [
        Case("glob_20k_files", glob, raw_glob, equal(lambda _: every), rounds=9),
        Case("grep_20k_files", grep, raw_grep, equal(lambda _: needles), rounds=9),
    ]


GROUPS: dict[Callable[[Rig], list[Case]], tuple[str, ...]] = {
    commands: ("exec_true", "exec_echo", "exec_1mb_output", "exec_8_parallel"),
    small_files: ("write_1kb", "read_1kb"),
    large_files: ("write_10mb", "read_10mb"),
    ranges: ("read_range_100mb",),
    search: ("glob_20k_files", "grep_20k_files"),
}
"""The cases by what makes them: each group puts its files into the box first."""

NAMES = tuple(name for names in GROUPS.values() for name in names)
