"""Files on real boxes."""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deerflow_boxlite import BoxDiedError, BoxliteBox, BoxliteProvider

from .conftest import kill_all, vms_of

BYTES = bytes(range(256))
NAMES = (
    *("notes.txt ", " a", "a\nb", "-rf", "$(id)", "a:1:b.txt", "*", "é" * 127),
    os.fsdecode(b"\xff"),
)


def test_case_12_names_of_all_kinds(box: BoxliteBox, folder: str) -> None:
    paths = [f"{folder}/{name}" for name in NAMES]
    for path in paths:
        box.write_file(path, "needle\n")
        box.write_file(path, "more", append=True)
        assert box.read_file(path) == "needle\nmore"
        assert box.read_file(path, 2, 2) == "more"
        assert box.download_file(path) == b"needle\nmore"
    assert box.list_dir(folder) == sorted(paths)
    assert box.glob(folder, "*") == (sorted(paths), False)
    matches, truncated = box.grep(folder, "NEEDLE")
    assert [(match.path, match.line_number, match.line) for match in matches] == [
        (path, 1, "needle") for path in sorted(paths)
    ]
    assert not truncated


def test_cases_13_14_18_errors(box: BoxliteBox, folder: str) -> None:
    box.write_file(f"{folder}/file", "Error: as it stands")
    assert box.read_file(f"{folder}/file") == "Error: as it stands"
    box.run(f"mkdir {folder}/empty; mkfifo {folder}/fifo; ln -s loop {folder}/loop")
    assert box.list_dir(f"{folder}/empty") == []
    for operation in (box.list_dir, box.read_file, lambda path: box.glob(path, "*"), lambda path: box.grep(path, "x")):
        with pytest.raises(FileNotFoundError):
            operation(f"{folder}/missing")
        with pytest.raises(NotADirectoryError):
            operation(f"{folder}/file/below")
    with pytest.raises(NotADirectoryError):
        box.list_dir(f"{folder}/file")
    for path, code in ((folder, errno.EISDIR), (f"{folder}/fifo", errno.EINVAL), ("/dev/zero", errno.EINVAL)):
        for operation in (box.read_file, lambda path: box.write_file(path, "x")):
            with pytest.raises(OSError) as caught:
                operation(path)
            assert (caught.value.errno, caught.value.filename) == (code, path)
    box.update_file(f"{folder}/binary", b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        box.read_file(f"{folder}/binary")
    assert "MemTotal" in box.read_file("/proc/meminfo")


def test_case_19_a_range_of_200_mb(box: BoxliteBox, folder: str) -> None:
    line = "a line of text that is some fifty characters long"
    assert box.run(f"yes '{line}' | head -n 4000000 >{folder}/large; echo end >>{folder}/large").exit_code == 0
    assert box.read_file(f"{folder}/large", 10, 20) == "\n".join([line] * 11)
    assert box.read_file(f"{folder}/large", 4_000_000) == f"{line}\nend"


def test_case_20_appends_at_once(box: BoxliteBox, folder: str) -> None:
    lines = [f"{number} " + "x" * (number * 2000) for number in range(12)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda line: box.write_file(f"{folder}/log", f"{line}\n", append=True), lines))
    assert sorted(box.read_file(f"{folder}/log").splitlines()) == sorted(lines)


@pytest.mark.parametrize("size", [0, 1, 44_999, 45_000, 45_001, 1 << 20, 100 * 1000 * 1000])
def test_case_21_sizes(box: BoxliteBox, folder: str, size: int) -> None:
    raw = random.Random(size).randbytes(size) if size < 1000 else (BYTES * (size // 256 + 1))[:size]
    box.update_file(f"{folder}/data", raw)
    assert hashlib.sha256(box.download_file(f"{folder}/data")).digest() == hashlib.sha256(raw).digest()


def test_files_of_any_size_from_and_to_the_host(box: BoxliteBox, folder: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(BYTES * 80_000)
    source.chmod(0o600)
    box.upload_from(source, f"{folder}/copy")
    box.download_to(f"{folder}/copy", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()
    # /tmp is a mount, which copies do not reach.
    box.upload_from(source, "/tmp/copy")
    box.download_to("/tmp/copy", tmp_path / "back again")
    assert (tmp_path / "back again").read_bytes() == source.read_bytes()
    box.run("rm /tmp/copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "back again", "source"]


def test_case_23_the_mode_stays(box: BoxliteBox, folder: str) -> None:
    script = f"{folder}/script"
    for text in ("echo one\n", "echo two\n#" + "x" * 50_000 + "\n"):
        box.run(f"[ -e {script} ] || {{ : >{script}; chmod 755 {script}; }}")
        box.write_file(script, f"#!/bin/sh\n{text}")
        assert box.run(script).exit_code == 0
        assert box.run(f"ls -l {script}").stdout.startswith("-rwxr-xr-x")


def test_cases_24_25_what_may_be_downloaded(box: BoxliteBox, folder: str) -> None:
    box.run(f"echo root:guest >/etc/shadow.test; ln -s /etc/shadow.test {folder}/link; mkdir /mnt/user-data-evil")
    for path in ("/etc/passwd", f"{folder}/../etc/passwd", "/mnt/user-data-evil/x"):
        with pytest.raises(PermissionError):
            box.download_file(path)
    assert box.download_file(f"{folder}/link") == b"root:guest\n"
    box.run(f"dd if=/dev/zero of={folder}/sparse bs=1 count=0 seek=8G")
    for operation in (box.download_file, box.read_file):
        with pytest.raises(OSError) as caught:
            operation(f"{folder}/sparse")
        assert caught.value.errno == errno.EFBIG


@pytest.fixture
def filled(box: BoxliteBox) -> Iterator[None]:
    """A disk with nothing left."""
    box.run("dd if=/dev/zero of=/mnt/fill bs=1M; dd if=/dev/zero of=/mnt/fill2 bs=4k", timeout=300)
    yield
    box.run("rm -f /mnt/fill /mnt/fill2")


def test_case_22_a_full_disk(box: BoxliteBox, folder: str, request: pytest.FixtureRequest) -> None:
    for name in ("kept", "log"):
        box.write_file(f"{folder}/{name}", "old")
    request.getfixturevalue("filled")
    for size in (10_000, 3_000_000):
        for name, append in (("kept", False), ("log", True)):
            with pytest.raises(OSError) as caught:
                box.write_file(f"{folder}/{name}", "n" * size, append)
            assert caught.value.errno == errno.ENOSPC
    box.run("rm -f /mnt/fill /mnt/fill2")
    assert [box.read_file(f"{folder}/{name}") for name in ("kept", "log")] == ["old", "old"]
    assert box.list_dir(folder) == [f"{folder}/kept", f"{folder}/log"]
    box.write_file(f"{folder}/kept", "new")
    assert box.read_file(f"{folder}/kept") == "new"


def test_case_22_the_vm_dies_during_a_write(provider: BoxliteProvider, home: Path) -> None:
    others = vms_of(home)
    sandbox_id = provider.acquire("dies-while-writing")
    box = provider.get(sandbox_id)
    assert isinstance(box, BoxliteBox)
    path = "/mnt/user-data/workspace/file"
    old, new = "old\n" * 100_000, "new\n" * 2_000_000
    box.write_file(path, old)
    box.write_file(f"{path}.small", "flushed")
    timer = threading.Timer(0.7, kill_all, [vms_of(home) - others])
    timer.start()

    def write_for_ever() -> None:
        for text in itertools.cycle((new, old)):
            box.write_file(path, text)

    with pytest.raises(BoxDiedError):
        write_for_ever()
    timer.join()
    assert box.read_file(path) in (old, new)
    assert box.read_file(f"{path}.small") == "flushed"
    provider.release(sandbox_id)
