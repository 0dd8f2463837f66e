"""What a box can send that is not what it was asked for: listings, archives, files."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deerflow_boxlite.thread_data import names
from deerflow_boxlite.thread_data.archive import BadArchive, Reader
from deerflow_boxlite.thread_data.courier import Courier
from deerflow_boxlite.thread_data.listing import BadListing, Listing, parse
from deerflow_boxlite.thread_data.manifest import Manifest
from deerflow_boxlite.thread_data.pull import Caps, Pull
from deerflow_boxlite.thread_data.report import Reason, Report
from deerflow_boxlite.thread_data.tree import HostTree
from support.thread_guest import ThreadGuest

CAPS = Caps(file_bytes=1_000_000, total_bytes=5_000_000, files=100, seconds=60)
NOW = 1_700_000_000


def row(mode: int = 0o100644, size: int = 1, mtime: int = NOW, links: int = 1, inode: int = 7) -> bytes:
    return b"%x %d %d %d 1:%d %d" % (mode, size, mtime, NOW, inode, links)


def listing(*files: tuple[bytes, bytes]) -> bytes:
    """A listing as list.sh makes it, of stat lines and names."""
    rows = b"".join(line + b"\n" for line, _ in files)
    ended = b"".join(name + b"\0" for _, name in files)
    roots = b"".join(b"1\n" + row(0o40755) + b"\n" + root + b"\0= 0 " + root + b"\n" for root in names.BOTH_WAYS)
    return b"%d\n%d\n" % (NOW + 100, len(files)) + rows + ended + roots + b".\n"


def archive(*members: tuple[bytes, bytes] | tarfile.TarInfo) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0].decode("utf-8", "surrogateescape"))
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return target.getvalue()


class LyingGuest(ThreadGuest):
    """A box whose listing and archive are whatever the test says."""

    listing = b""
    archive = b""

    async def copy_out(self, source: str, target: Path) -> None:
        await asyncio.to_thread(target.write_bytes, self.listing if source.endswith(".list") else self.archive)


class Lies:
    def __init__(self, folder: Path) -> None:
        self.guest = LyingGuest(folder / "box")
        self.host = folder / "threads" / "t"
        self.manifest = Manifest(folder / "state.json")
        (folder / "passes").mkdir()
        self.courier = Courier(self.guest, folder / "passes", f"{self.guest.stage}/pull")

    def pull(self, listed: bytes, sent: bytes = b"", caps: Caps = CAPS) -> Report:
        self.guest.listing, self.guest.archive = listed, sent
        report = Report("to_host")
        asyncio.run(Pull(HostTree(self.host), self.manifest, caps, report).run(self.courier))
        return report

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.host)) for path in self.host.rglob("*") if not path.is_dir())


@pytest.fixture
def lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lies:
    made = Lies(tmp_path)
    monkeypatch.setattr(names, "GUEST_BASE", str(made.guest.mnt))
    return made


def everything(root: Path) -> set[str]:
    return {str(path) for path in root.rglob("*")}


@pytest.mark.parametrize(
    "name",
    [
        b"../../../../evil",
        b"user-data/outputs/../../../../evil",
        b"user-data/outputs/../uploads/evil",
        b"/tmp/evil",
        b"//evil",
        b"user-data/outputs//evil",
        b"user-data/outputs/./evil",
        b"user-data/outputs/",
        b"user-data/outputs/..",
        b"user-data/evil",
        b"user-data/outputs-evil/x",
        b"",
        b"user-data/outputs/" + b"d/" * 100 + b"x",
        b"user-data/outputs/" + b"x" * 256,
    ],
)
def test_names_that_lead_elsewhere_are_refused_and_reported(lies: Lies, tmp_path: Path, name: bytes) -> None:
    (tmp_path / "passes" / "fetched").mkdir()
    before = everything(tmp_path)
    report = lies.pull(listing((row(), name)), archive((name, b"x")))
    assert report.skipped == {Reason.BAD_NAME: 1}
    assert report.copied == 0
    ours = {str(tmp_path / "passes" / "fetched" / "list"), str(lies.guest.stage / "pull.list")}
    assert everything(tmp_path) - before <= ours


def test_uploads_are_never_written_from_the_box(lies: Lies) -> None:
    name = names.UPLOADS + b"/evil"
    assert lies.pull(listing((row(), name)), archive((name, b"x"))).copied == 0
    assert lies.files() == []


def test_members_that_nobody_asked_for_are_not_written(lies: Lies) -> None:
    asked, other = names.OUTPUTS + b"/a", names.OUTPUTS + b"/b"
    lies.pull(listing((row(), asked)), archive((other, b"x"), (b"../../evil", b"x"), (asked, b"y"), (asked, b"twice")))
    assert lies.files() == ["user-data/outputs/a"]
    assert (lies.host / "user-data/outputs/a").read_bytes() == b"y"


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
def test_a_member_that_is_no_file_is_not_made(lies: Lies, kind: bytes) -> None:
    name = names.OUTPUTS + b"/a"
    member = tarfile.TarInfo(name.decode())
    member.type, member.linkname = kind, "/etc/shadow"
    report = lies.pull(listing((row(), name)), archive(member))
    assert report.skipped == {Reason.CHANGED: 1}
    assert lies.files() == []


def test_a_member_larger_than_the_cap_is_not_taken(lies: Lies) -> None:
    name = names.OUTPUTS + b"/a"
    caps = Caps(file_bytes=1000, total_bytes=5000, files=10, seconds=60)
    report = lies.pull(listing((row(size=10), name)), archive((name, bytes(2000))), caps)
    assert report.skipped == {Reason.CHANGED: 1}
    assert lies.files() == []


def test_an_archive_that_ends_early_writes_no_half_file(lies: Lies) -> None:
    name = names.OUTPUTS + b"/a"
    report = lies.pull(listing((row(size=5000), name)), archive((name, bytes(5000)))[:2000])
    assert report.skipped == {Reason.CHANGED: 1}
    assert lies.files() == []


@pytest.mark.parametrize("mtime", [-(10**18), -1, NOW * 10, 10**19])
def test_times_far_out_of_range(lies: Lies, mtime: int) -> None:
    name = names.OUTPUTS + b"/a"
    assert lies.pull(listing((row(mtime=mtime), name)), archive((name, b"x"))).copied == 1
    assert NOW < (lies.host / "user-data/outputs/a").stat().st_mtime < NOW * 9


def test_a_name_that_is_a_file_and_a_directory_at_once(lies: Lies) -> None:
    a, b = names.OUTPUTS + b"/a", names.OUTPUTS + b"/a/b"
    report = lies.pull(listing((row(), a), (row(inode=8), b)), archive((a, b"x"), (b, b"y")))
    assert report.skipped == {Reason.BLOCKED: 1}
    assert lies.files() == ["user-data/outputs/a"]


def test_a_listing_without_an_end_removes_nothing(lies: Lies) -> None:
    name = names.OUTPUTS + b"/a"
    lies.pull(listing((row(), name)), archive((name, b"x")))
    assert lies.pull(listing()[:-2]).truncated
    assert lies.pull(b"").truncated
    assert lies.pull(b"\xff" * 1000 + b"\n").truncated
    assert lies.files() == ["user-data/outputs/a"]
    assert lies.pull(listing()).removed == 1


@pytest.mark.parametrize("sent", ["symlink", "directory", "more"])
def test_a_staged_file_that_is_something_else(lies: Lies, tmp_path: Path, sent: str) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(listing())

    def send(target: Path) -> None:
        if sent == "symlink":
            target.symlink_to(secret)
        elif sent == "directory":
            target.mkdir()
        else:
            target.write_bytes(bytes(1_000_000))

    async def copy_out(source: str, target: Path) -> None:
        send(target)

    lies.guest.copy_out = copy_out  # type: ignore[method-assign]
    assert "something else than a file" in str(lies.pull(b"").truncated)


def test_a_copy_that_does_not_end_is_ended(lies: Lies) -> None:
    stopped = []

    async def copy_out(source: str, target: Path) -> None:
        with target.open("wb") as file:
            try:
                while True:
                    file.write(bytes(1 << 20))
                    file.flush()
                    await asyncio.sleep(0.005)
            finally:
                stopped.append(file.tell())

    lies.guest.copy_out = copy_out  # type: ignore[method-assign]
    assert "something else than a file" in str(lies.pull(b"").truncated)
    assert len(stopped) == 1


# Parsers on anything


def listed(content: bytes) -> Listing:
    return parse(content, 100, Report("to_host"))


@given(st.binary(max_size=300) | st.text("0123456789 \n\0=.:-af/", max_size=300).map(str.encode))
def test_any_bytes_are_a_listing_or_are_refused(content: bytes) -> None:
    try:
        found = listed(content)
    except BadListing:
        return
    assert all(names.is_safe(path) for path in found.files)


def test_a_listing_with_absurd_numbers_is_refused() -> None:
    for content in (b"1\n99999999999999999999999\n", b"1\n1\n%s 1 1 1 1:1 1\n\0" % (b"g" * 10), b"x\n", b"1\n-5 5\n"):
        with pytest.raises(BadListing):
            listed(content)


def members(content: bytes) -> list[tuple[bytes, bytes]]:
    reader = Reader(io.BytesIO(content))
    found = []
    for member in reader:
        whole = b"".join(iter(lambda: reader.read(100), b""))
        assert len(whole) <= len(content)
        found.append((member.path, whole))
    return found


@given(st.binary(max_size=2000))
def test_any_bytes_are_an_archive_or_are_refused(content: bytes) -> None:
    try:
        members(content)
    except BadArchive:
        return


@given(st.integers(0, 511), st.integers(0, 255), st.booleans())
def test_a_damaged_header_is_refused_or_read_within_bounds(at: int, value: int, mend: bool) -> None:
    content = bytearray(archive((b"a", b"x" * 600), (b"b", b"y")))
    content[at] = value
    if mend:
        content[148:156] = b"%06o\0 " % (sum(content[:148]) + 256 + sum(content[156:512]))
    try:
        members(bytes(content))
    except BadArchive:
        return


@pytest.mark.parametrize("size", [b"\xff" * 12, b"\x80" + b"\xff" * 11, b"77777777777\0"])
def test_sizes_that_cannot_be(size: bytes) -> None:
    content = bytearray(archive((b"a", b"x"), (b"b", b"y")))
    content[124:136] = size
    content[148:156] = b"%06o\0 " % (sum(content[:148]) + 256 + sum(content[156:512]))
    if size[0] == 0xFF:
        with pytest.raises(BadArchive, match="negative"):
            members(bytes(content))
    else:
        assert [path for path, _ in members(bytes(content))] == [b"a"]


_NAME = st.binary(min_size=1, max_size=120).filter(lambda name: not {0, 0x2F} & set(name))


@given(
    st.lists(st.tuples(_NAME, st.binary(max_size=1500)), max_size=5),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT]),
)
def test_archives_of_every_format_are_read_alike(files: list[tuple[bytes, bytes]], form: int) -> None:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=form, encoding="utf-8", errors="surrogateescape") as tar:
        for name, content in files:
            info = tarfile.TarInfo(os.fsdecode(b"d/" + name))
            info.size = len(content)
            try:
                tar.addfile(info, io.BytesIO(content))
            except ValueError:
                return  # ustar has no room for this name.
    expected = [(b"d/" + name, content) for name, content in files]
    if form == tarfile.PAX_FORMAT and any(b"\xff" in name or _undecodable(name) for name, _ in files):
        return  # tarfile marks these in a way of its own.
    assert members(target.getvalue() * 2) == expected * 2


def _undecodable(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return True
    return False
