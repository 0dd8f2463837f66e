"""Files of a box, in the userlands of Debian (dash, bash) and busybox, on local processes."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import os
import stat
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from deerflow_boxlite.guest import files, files_copy, files_errors
from deerflow_boxlite.runtime import BoxGone
from support.files_guest import FilesGuest, Place, files_guest

ROOT = os.getuid() == 0
only_root = pytest.mark.skipif(not ROOT, reason="needs another user's files, or a mount: run as root")
BYTES = bytes(range(256))
FILESYSTEMS = Path("/proc/filesystems").read_text()
NAMES = (
    *("notes.txt ", " a", "a\nb", "-rf", "$(id)", "a:1:b.txt", "*", "é" * 127, "\n", "'q\"", "back\\slash"),
    os.fsdecode(b"\xff"),
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_small_files_take_one_round_trip_and_no_copy(place: Place) -> None:
    async def check(guest: FilesGuest) -> None:
        path = f"{place.files}/new/folder/a.txt"
        await guest.files.write(path, "één\n")
        await guest.files.write(path, "zwei\n")
        await guest.files.write(path, "three\n", append=True)
        assert await guest.files.read(path) == "zwei\nthree\n"
        assert await guest.files.read(path, 2, 2) == "three"
        assert await guest.files.list_dir(f"{place.files}/new") == [f"{place.files}/new/folder/", path]
        assert guest.called == ["dfb_write", "dfb_write", "dfb_append", "dfb_read", "dfb_range", "dfb_walk"]
        assert guest.copied == []

    place.run(check)


def test_case_12_names_of_all_kinds(place: Place) -> None:
    async def check(guest: FilesGuest) -> None:
        paths = [f"{place.files}/{name}" for name in NAMES]
        for path in paths:
            await guest.files.write(path, f"in {path!r}")
            await guest.files.write(path, "\nmore", append=True)
        assert names(place.files) == sorted(NAMES)
        for path in paths:
            assert await guest.files.read(path) == f"in {path!r}\nmore"
            assert await guest.files.read(path, 2) == "more"
        assert await guest.files.list_dir(str(place.files)) == sorted(paths)

    place.run(check)


def test_case_12_download_of_any_name(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_errors, "VIRTUAL_PATH_PREFIX", str(place.files))

    async def check(guest: FilesGuest) -> None:
        for name in NAMES:
            (place.files / name).write_bytes(BYTES)
            assert await guest.files.download(f"{place.files}/{name}") == BYTES
            target = place.root / "local"
            await guest.files.download_to(f"{place.files}/{name}", target)
            assert target.read_bytes() == BYTES
            assert stat.S_IMODE(target.stat().st_mode) == 0o644

    place.run(check)


Operation = Callable[[FilesGuest, str], Awaitable[object]]
READ: Operation = lambda guest, path: guest.files.read(path)  # noqa: E731
RANGE: Operation = lambda guest, path: guest.files.read(path, 1, 2)  # noqa: E731
WRITE: Operation = lambda guest, path: guest.files.write(path, "x")  # noqa: E731
BULK: Operation = lambda guest, path: guest.files.write(path, "x" * 100_000)  # noqa: E731
APPEND: Operation = lambda guest, path: guest.files.write(path, "x", append=True)  # noqa: E731
LIST: Operation = lambda guest, path: guest.files.list_dir(path)  # noqa: E731
GLOB: Operation = lambda guest, path: guest.search.glob(path, "*")  # noqa: E731
GREP: Operation = lambda guest, path: guest.search.grep(path, "x")  # noqa: E731
NEVER: Operation = lambda guest, path: guest.search.grep(path, "a\nb")  # noqa: E731
ON_FILES = (READ, RANGE, WRITE, BULK, APPEND)
ON_FOLDERS = (LIST, GLOB, GREP, NEVER)


async def refused(operation: Operation, guest: FilesGuest, path: str, code: int) -> None:
    with pytest.raises(OSError) as caught:
        await operation(guest, path)
    assert (caught.value.errno, caught.value.strerror, caught.value.filename) == (code, os.strerror(code), path)
    assert type(caught.value) is type(OSError(code, ""))


def test_cases_13_14_18_errors_are_the_matching_oserror(place: Place) -> None:
    where = place.files
    (where / "file").write_text("Error: as it stands")
    (where / "folder").mkdir()
    (where / "loop").symlink_to("loop")
    os.mkfifo(where / "fifo")

    async def check(guest: FilesGuest) -> None:
        assert await guest.files.read(f"{where}/file") == "Error: as it stands"
        assert await guest.files.list_dir(f"{where}/folder") == []
        for operation in (READ, RANGE, *ON_FOLDERS):
            await refused(operation, guest, f"{where}/missing", errno.ENOENT)
            await refused(operation, guest, f"{where}/missing/too", errno.ENOENT)
        for operation in ON_FILES:
            await refused(operation, guest, f"{where}/folder", errno.EISDIR)
            await refused(operation, guest, f"{where}/fifo", errno.EINVAL)
            await refused(operation, guest, "/dev/zero", errno.EINVAL)
        for operation in ON_FOLDERS:
            await refused(operation, guest, f"{where}/file", errno.ENOTDIR)
            await refused(operation, guest, f"{where}/fifo", errno.ENOTDIR)
        for operation in (*ON_FILES, *ON_FOLDERS):
            await refused(operation, guest, f"{where}/file/below", errno.ENOTDIR)
            await refused(operation, guest, f"{where}/loop", errno.ELOOP)
            await refused(operation, guest, f"{where}/{'n' * 256}", errno.ENAMETOOLONG)
            await refused(operation, guest, "/" + "n/" * 2048, errno.ENAMETOOLONG)
        assert not [name for name in names(where) if name.startswith(".dfb")]

    place.run(check)


@only_root
def test_case_13_what_an_unprivileged_user_may_not(place: Place) -> None:
    closed, read_only, secret = (place.files / name for name in ("closed", "read-only", "secret"))
    closed.mkdir()
    (closed / "below").write_text("")
    closed.chmod(0)
    read_only.mkdir(mode=0o755)
    secret.write_text("x")
    secret.chmod(0o600)

    async def check(guest: FilesGuest) -> None:
        for operation in ON_FOLDERS:
            await refused(operation, guest, str(closed), errno.EACCES)
        for operation in (READ, RANGE, WRITE, BULK, APPEND, LIST):
            await refused(operation, guest, f"{closed}/below", errno.EACCES)
        for operation in ON_FILES:
            await refused(operation, guest, str(secret), errno.EACCES)
        for operation in (WRITE, BULK, APPEND):
            await refused(operation, guest, f"{read_only}/new", errno.EACCES)
            await refused(operation, guest, f"{read_only}/new/er", errno.EACCES)
        # What is closed further down is listed and passed over.
        assert await guest.files.list_dir(str(place.files)) == [f"{closed}/", f"{read_only}/", str(secret)]

    place.run(check, user="1234:1234")
    closed.chmod(0o700)


def test_case_13_a_dead_box_is_not_an_empty_directory(place: Place) -> None:
    async def check(guest: FilesGuest) -> None:
        await guest.files.list_dir(str(place.files))
        guest.box.die()
        for operation in (*ON_FILES, *ON_FOLDERS):
            with pytest.raises(BoxGone):
                await operation(guest, str(place.files))

    place.run(check)


@pytest.mark.parametrize("path", ["/a/../b", "/..", "/a/.."])
def test_paths_that_lead_up_are_refused_before_anything_runs(path: str, tmp_path: Path) -> None:
    async def check(guest: FilesGuest) -> None:
        for operation in (*ON_FILES, *ON_FOLDERS, lambda guest, path: guest.files.download(path)):
            with pytest.raises(PermissionError) as caught:
                await operation(guest, path)
            assert caught.value.errno == errno.EACCES
        for operation in (*ON_FILES, *ON_FOLDERS):
            for wrong in ("relative", "", "/nul\0"):
                with pytest.raises(ValueError):
                    await operation(guest, wrong)
        assert guest.called == []

    Place(tmp_path, "dash").run(check)


def test_case_18_what_is_not_text(place: Place) -> None:
    (place.files / "binary").write_bytes(b"ab\xff\xfe")
    (place.files / "large").write_bytes(b"a" * 100_000 + b"\xff")
    (place.files / "replaced").write_text("\N{REPLACEMENT CHARACTER}", encoding="utf-8")

    async def check(guest: FilesGuest) -> None:
        for name in ("binary", "large"):
            for lines in ((None, None), (1, None)):
                with pytest.raises(UnicodeDecodeError):
                    await guest.files.read(f"{place.files}/{name}", *lines)
        assert await guest.files.read(f"{place.files}/replaced") == "\N{REPLACEMENT CHARACTER}"

    place.run(check)


def test_files_that_have_no_size(place: Place) -> None:
    async def check(guest: FilesGuest) -> None:
        assert (await guest.files.read("/proc/self/status")).startswith("Name:")
        assert await guest.files.read("/proc/filesystems") == FILESYSTEMS
        # More than is answered over the channel: it is staged in the box.
        assert len(await guest.files.read("/proc/kallsyms")) > files_copy.INLINE

    place.run(check)


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((2, 3), "l2\nl3"),
        ((None, 2), "l1\nl2"),
        ((9, None), "l9\nl10"),
        ((10, 10), "l10"),
        ((10, 99), "l10"),
        ((5, 4), ""),
        ((11, 20), ""),
        ((11, None), ""),
        ((0, 1), "l1"),
        ((-5, 0), ""),
        ((None, -1), ""),
    ],
)
def test_case_19_ranges(
    lines: tuple[int | None, int | None], expected: str, end: str, tmp_path: Path, shared_guests: SharedGuests
) -> None:
    path = tmp_path / "lines"
    path.write_text("\n".join(f"l{number}" for number in range(1, 11)) + end)
    for guest in shared_guests.guests:
        assert shared_guests.run(guest.files.read(str(path), *lines)) == expected


def test_case_19_lines_come_verbatim(place: Place) -> None:
    path = place.files / "crlf"
    path.write_bytes(b"a\r\n b\x0c\x85\r\r\nc".replace(b"\x85", "\x85".encode()))

    async def check(guest: FilesGuest) -> None:
        assert await guest.files.read(str(path)) == "a\r\n b\x0c\x85\r\r\nc"
        assert await guest.files.read(str(path), 1, 1) == "a"
        assert await guest.files.read(str(path), 1, 2) == "a\r\n b\x0c\x85\r"
        assert await guest.files.read(str(path), 2) == " b\x0c\x85\r\r\nc"

    place.run(check)


def test_case_19_a_range_of_a_large_file_moves_that_range_alone(place: Place) -> None:
    path = place.files / "large"
    with path.open("wb") as file:
        for start in range(0, 400_000, 1000):
            file.write(b"".join(b"line %d\n" % number for number in range(start + 1, start + 1001)))

    async def check(guest: FilesGuest) -> None:
        assert await guest.files.read(str(path), 10, 11) == "line 10\nline 11"
        assert await guest.files.read(str(path), 399_999, 400_000) == "line 399999\nline 400000"
        assert guest.copied == []
        long = await guest.files.read(str(path), 300_000, 399_999)
        assert long == "\n".join(f"line {number}" for number in range(300_000, 400_000))
        assert guest.copied == ["out"]
        # What was cut out is not kept in the box.
        assert sum(path.stat().st_size for path in guest.state.iterdir()) == 0

    place.run(check)


def test_case_20_appends_at_once(place: Place) -> None:
    path = place.files / "log"
    long = [letter * 20_000 + "\n" for letter in "abcd"]
    short = [f"{number}\n" for number in range(20)]

    async def check(guest: FilesGuest) -> None:
        await asyncio.gather(*(guest.files.write(str(path), line, append=True) for line in (*long, *short)))
        assert sorted(path.read_text().splitlines(keepends=True)) == sorted((*long, *short))
        assert stat.S_IMODE(path.stat().st_mode) == 0o644

    place.run(check)


@only_root
def test_case_20_append_to_what_cannot_be_read(place: Place) -> None:
    path = place.files / "mailbox"
    path.write_text("one\n")
    os.chown(path, 1234, 1234)
    os.chown(place.files, 1234, 1234)
    path.chmod(0o200)

    async def check(guest: FilesGuest) -> None:
        await guest.files.write(str(path), "two\n", append=True)
        await guest.files.write(str(path), "three" * 10_000, append=True)
        assert path.read_text() == "one\ntwo\n" + "three" * 10_000
        await guest.files.write(str(path), "new\n")
        assert path.read_text() == "new\n"
        assert stat.S_IMODE(path.stat().st_mode) == 0o200

    place.run(check, user="1234:1234")


@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 44_999, 45_000, 45_001, 1 << 20])
def test_case_21_sizes_and_all_bytes(
    size: int, tmp_path: Path, shared_guests: SharedGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_errors, "VIRTUAL_PATH_PREFIX", str(tmp_path))
    raw = (BYTES * (size // 256 + 1))[:size]
    for at, guest in enumerate(shared_guests.guests):
        path = tmp_path / f"{at}"
        shared_guests.run(guest.files.write(str(path), raw))
        assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(raw).digest()
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        assert shared_guests.run(guest.files.download(str(path))) == raw
        shared_guests.run(guest.files.write(str(path), raw, append=True))
        assert path.read_bytes() == raw * 2


@pytest.mark.parametrize("text", ["-n", "--", "%s%%", "\\n", "\\", "'", "\r\n", "a\\0b", "%"])
def test_texts_that_mean_something_to_a_shell(text: str, tmp_path: Path, shared_guests: SharedGuests) -> None:
    for at, guest in enumerate(shared_guests.guests):
        shared_guests.run(guest.files.write(f"{tmp_path}/{at}", text))
        assert (tmp_path / f"{at}").read_bytes() == text.encode()


def fill(path: Path) -> None:
    """Let a file take all that its disk has left."""
    with path.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


@only_root
@pytest.mark.parametrize("size", [1000, 200_000])
def test_case_22_a_full_disk_leaves_the_old_file(place: Place, size: int) -> None:
    disk = place.files / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    path = disk / "kept"
    path.write_text("old")
    path.chmod(0o751)
    (disk / "rest").write_bytes(b"x" * 60_000)

    async def check(guest: FilesGuest) -> None:
        # Fill it to the last page.
        fill(disk / "rest")
        for append in (False, True):
            with pytest.raises(OSError) as caught:
                await guest.files.write(str(path), "n" * (size + 8192), append)
            assert caught.value.errno == errno.ENOSPC
            assert path.read_text() == "old"
        with pytest.raises(OSError) as caught:
            await guest.files.write(f"{disk}/new", "n" * (size + 8192), append=True)
        assert caught.value.errno == errno.ENOSPC
        assert names(disk) == ["kept", "rest"]
        assert stat.S_IMODE(path.stat().st_mode) == 0o751
        (disk / "rest").unlink()
        await guest.files.write(str(path), "new")
        assert path.read_text() == "new"

    try:
        place.run(check)
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o4711, 0o2770, 0o1666, 0o444 if ROOT else 0o644])
def test_case_23_the_mode_stays(mode: int, tmp_path: Path, shared_guests: SharedGuests) -> None:
    for at, guest in enumerate(shared_guests.guests):
        path = tmp_path / f"{at}"
        for text in ("small", "large" * 10_000):
            path.write_text("old")
            path.chmod(mode)
            shared_guests.run(guest.files.write(str(path), text))
            assert path.read_text() == text
            assert stat.S_IMODE(path.stat().st_mode) == mode


@only_root
def test_the_owner_stays(place: Place) -> None:
    path = place.files / "theirs"

    async def check(guest: FilesGuest) -> None:
        for text in ("small", "large" * 10_000):
            path.write_text("old")
            os.chown(path, 1000, 1001)
            path.chmod(0o6755)
            await guest.files.write(str(path), text)
            found = path.stat()
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1000, 1001, 0o6755)

    place.run(check)


@only_root
@pytest.mark.parametrize("text", ["small", "large" * 10_000])
def test_a_file_that_cannot_be_replaced_is_rewritten(place: Place, text: str) -> None:
    path = place.files / "shared"
    path.write_text("old")
    path.chmod(0o666)
    inode = path.stat().st_ino

    async def check(guest: FilesGuest) -> None:
        await guest.files.write(str(path), text)
        assert (path.read_text(), path.stat().st_ino, path.stat().st_uid) == (text, inode, 0)
        assert names(place.files) == ["shared"]
        assert names(guest.state) == []

    place.run(check, user="1234:1234")


@pytest.mark.parametrize("append", [False, True])
def test_writes_go_through_links(place: Place, append: bool) -> None:
    where = place.files
    (where / "target").write_text("")
    (where / "folder").mkdir()
    links = {"absolute": f"{where}/target", "relative": "folder/../target", "chain": "relative", "dangling": "new\n"}
    for name, target in links.items():
        (where / name).symlink_to(target)

    async def check(guest: FilesGuest) -> None:
        for name in links:
            await guest.files.write(f"{where}/{name}", name, append)
            assert (where / name).read_text().endswith(name)
        assert all((where / name).is_symlink() for name in links)
        assert (where / "new\n").read_text() == "dangling"
        assert (where / "target").read_text() == ("absoluterelativechain" if append else "chain")

    place.run(check)


def test_what_lies_under_a_mount_is_staged(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_errors, "VIRTUAL_PATH_PREFIX", str(place.files))
    raw = BYTES * 1000
    path = place.files / "data"
    source = place.root / "source"
    source.write_bytes(raw[::-1])
    source.chmod(0o600)

    async def check(guest: FilesGuest) -> None:
        await guest.files.write(str(path), raw)
        assert await guest.files.download(str(path)) == raw
        await guest.files.upload_from(source, str(path))
        await guest.files.download_to(str(path), place.root / "back")
        assert (place.root / "back").read_bytes() == raw[::-1]
        assert [file for file in guest.state.iterdir() if file.stat().st_size] == []

    place.run(check, mounts=(str(place.files),))


@pytest.mark.parametrize("size", [(2 << 20) - 1, 2 << 20, (2 << 20) + 1])
def test_large_files_are_copied_in_parts(place: Place, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_errors, "VIRTUAL_PATH_PREFIX", str(place.files))
    for module in (files, files_copy):
        monkeypatch.setattr(module, "PART", 1 << 20)
    raw = os.urandom(size)
    path = place.files / "large"
    source = place.root / "source"
    source.write_bytes(raw[::-1])

    async def check(guest: FilesGuest) -> None:
        # Slow enough to be looked at while it goes on.
        copy_out = guest.box.copy_out

        async def slowly(path: str, local: Path) -> None:
            await copy_out(path, local)
            await asyncio.sleep(0.12)

        monkeypatch.setattr(guest.box, "copy_out", slowly)
        await guest.files.write(str(path), raw)
        assert await guest.files.download(str(path)) == raw
        parts = -(-size // (1 << 20))
        assert guest.copied == ["in"] * parts + ["out"] * parts
        await guest.files.upload_from(source, str(path))
        await guest.files.download_to(str(path), place.root / "back")
        assert (place.root / "back").read_bytes() == raw[::-1]
        assert names(guest.state) == []
        assert names(place.files) == ["large"]

    place.run(check)


def test_cases_24_25_what_may_be_downloaded(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = place.files / "user-data"
    inside.mkdir()
    monkeypatch.setattr(files_errors, "VIRTUAL_PATH_PREFIX", str(inside))
    (place.files / "user-data-evil").mkdir()
    (place.files / "elsewhere").write_text("the guest's own")
    (inside / "link").symlink_to(place.files / "elsewhere")
    with (inside / "sparse").open("wb") as file:
        file.truncate(10 << 30)

    async def check(guest: FilesGuest) -> None:
        for path in ("/etc/passwd", f"{inside}/../elsewhere", f"{inside}-evil/x", f"{inside.parent}", "relative", ""):
            with pytest.raises(PermissionError):
                await guest.files.download(path)
        assert guest.called == []
        assert await guest.files.download(f"{inside}//link") == b"the guest's own"
        guest.copied.clear()
        with pytest.raises(OSError) as caught:
            await guest.files.download(f"{inside}/sparse")
        assert caught.value.errno == errno.EFBIG
        with pytest.raises(OSError) as caught:
            await guest.files.read(f"{inside}/sparse")
        assert caught.value.errno == errno.EFBIG
        assert guest.copied == []
        await refused(lambda guest, path: guest.files.download(path), guest, str(inside), errno.EISDIR)

    place.run(check)


def test_a_file_that_grows_while_it_is_copied_does_not_fill_the_host(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_errors, "VIRTUAL_PATH_PREFIX", str(place.files))
    monkeypatch.setattr(tempfile, "tempdir", str(place.root / "temporary"))
    (place.root / "temporary").mkdir()
    (place.files / "small").write_text("x")

    async def check(guest: FilesGuest) -> None:
        given_up = asyncio.Event()

        async def endless(path: str, local: Path) -> None:
            try:
                for size in itertools.count(500, 500):
                    await asyncio.to_thread(local.write_bytes, b"x" * size)
            finally:
                given_up.set()

        monkeypatch.setattr(guest, "copy_out", endless)
        with pytest.raises(OSError) as caught:
            await guest.files.download(f"{place.files}/small", limit=2000)
        assert caught.value.errno == errno.EFBIG
        assert given_up.is_set()

    place.run(check)
    assert names(place.root / "temporary") == []


def test_nothing_but_a_regular_file_is_taken_from_a_box(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_errors, "VIRTUAL_PATH_PREFIX", str(place.files))
    (place.files / "small").write_text("x")

    async def check(guest: FilesGuest) -> None:
        async def link(path: str, local: Path) -> None:
            await asyncio.to_thread(local.symlink_to, "/etc/passwd")

        monkeypatch.setattr(guest, "copy_out", link)
        with pytest.raises(OSError) as caught:
            await guest.files.download(f"{place.files}/small")
        assert caught.value.errno == errno.EINVAL
        target = place.root / "target"
        with pytest.raises(OSError):
            await guest.files.download_to(f"{place.files}/small", target)
        assert not target.is_symlink()

    place.run(check)


@pytest.mark.parametrize("append", [False, True])
def test_a_write_that_returned_is_on_the_disk(changeable: Place, append: bool) -> None:
    """Where a VM dies, only what was flushed is kept: the file under its own name, after it got that name."""
    path = changeable.files / "file"
    log = changeable.files / "flushed"

    def flushed() -> str:
        return log.read_text()

    async def check(guest: FilesGuest) -> None:
        flush = guest.box.runtime.path / "sync"
        flush.write_text(f'#!/bin/sh\ncat "$1" >>{log}\nprintf "%s;" "$1" >>{log}\n')
        await guest.files.write(str(path), "text", append)
        assert flushed() == f"text{path};"
        flush.write_text("#!/bin/sh\necho 'sync: error syncing: Input/output error' >&2\nexit 1\n")
        await refused(APPEND if append else WRITE, guest, str(path), errno.EIO)

    changeable.run(check, own_userland=True)


def test_list_dir_is_deerflows(place: Place) -> None:
    where = place.files
    for path in ("a/b/c/d", "build", "node_modules/x", "src/build"):
        (where / path).mkdir(parents=True)
    for path in ("a/one.py", "a/b/two.log", "a/b/c/three", "src/build/four", ".env", ".hidden"):
        (where / path).write_text("")
    (where / "to-folder").symlink_to("a")
    (where / "to-file").symlink_to("a/one.py")
    (where / "out").symlink_to("a")
    (where / "broken").symlink_to("nowhere")

    async def check(guest: FilesGuest) -> None:
        def listed(names: str) -> list[str]:
            return sorted(f"{where}/{name}" for name in names.split())

        one = ".hidden a/ broken src/ to-file to-folder/"
        assert await guest.files.list_dir(str(where), 0) == []
        assert await guest.files.list_dir(f"{where}/", 1) == listed(one)
        assert await guest.files.list_dir(str(where)) == listed(f"{one} a/b/ a/one.py")
        assert await guest.files.list_dir(str(where), 9) == listed(f"{one} a/b/ a/one.py a/b/c/ a/b/c/three a/b/c/d/")
        # A root of an ignored name, and one that is a link, are listed all the same.
        assert await guest.files.list_dir(f"{where}/src/build") == [f"{where}/src/build/four"]
        assert await guest.files.list_dir(f"{where}/to-folder", 1) == [
            f"{where}/to-folder/b/",
            f"{where}/to-folder/one.py",
        ]

    place.run(check)


class SharedGuests:
    """One guest for each userland, for tests that only look at many small cases."""

    def __init__(self, root: Path) -> None:
        self.runner = asyncio.Runner()
        self._managers = [files_guest(root / shell, shell) for shell in ("dash", "bash", "busybox")]
        self.guests = [self.run(manager.__aenter__()) for manager in self._managers]

    def run(self, awaitable: Awaitable[object]) -> object:
        async def wait() -> object:
            return await awaitable

        return self.runner.run(wait())

    def close(self) -> None:
        for manager in self._managers:
            self.run(manager.__aexit__(None, None, None))
        self.runner.close()


@pytest.fixture(scope="module")
def shared_guests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedGuests]:
    shared = SharedGuests(tmp_path_factory.mktemp("shared"))
    yield shared
    shared.close()
