"""Copying between a thread's directory on the host and its box, with a box that is a directory of this machine."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from deerflow_boxlite.thread_data import names
from deerflow_boxlite.thread_data.courier import Courier
from deerflow_boxlite.thread_data.manifest import Manifest
from deerflow_boxlite.thread_data.pull import Caps, Pull
from deerflow_boxlite.thread_data.push import Push
from deerflow_boxlite.thread_data.report import Reason, Report
from deerflow_boxlite.thread_data.tree import HostTree
from support.local_runtime import make_userland
from support.thread_guest import ThreadGuest

CAPS = Caps(file_bytes=1_000_000, total_bytes=5_000_000, files=2000, seconds=60)
OLD = 1_700_000_000


class Thread:
    """A thread: its directory on the host, its box, and the passes between them."""

    def __init__(self, folder: Path, guest: ThreadGuest) -> None:
        self.guest = guest
        self.host = folder / "threads" / "t"
        self.state = folder / "state.json"
        self.folder = folder / "passes"
        self.folder.mkdir()

    def push(self, *, fresh: bool = False) -> Report:
        report = Report("to_box")
        manifest = Manifest.load(self.state)
        if fresh:
            manifest.clear()
        asyncio.run(Push(HostTree(self.host), manifest, report).run(self._courier("push"), fresh=fresh))
        manifest.save()
        return report

    def pull(self, caps: Caps = CAPS) -> Report:
        report = Report("to_host")
        manifest = Manifest.load(self.state)
        asyncio.run(Pull(HostTree(self.host), manifest, caps, report).run(self._courier("pull")))
        manifest.save()
        return report

    def _courier(self, what: str) -> Courier:
        return Courier(self.guest, self.folder, f"{self.guest.stage}/{what}")

    def on_host(self, name: str) -> Path:
        return self.host / "user-data" / name

    def host_write(self, name: str, content: str | bytes, *, mtime: int | None = None) -> Path:
        return write(self.on_host(name), content, mtime)

    def box_write(self, name: str, content: str | bytes, *, mtime: int | None = None) -> Path:
        return write(self.guest.path(name), content, mtime)

    def host_files(self) -> dict[str, bytes]:
        return tree(self.host / "user-data")


def write(path: Path, content: str | bytes, mtime: int | None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    if mtime is not None:
        os.utime(path, (mtime, mtime))
    return path


def tree(root: Path) -> dict[str, bytes]:
    """Every regular file below a directory and its content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture(scope="session", params=["dash", "busybox"])
def userland(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("userland") / request.param
    make_userland(folder, request.param)
    return folder


@pytest.fixture
def thread(tmp_path: Path, userland: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Thread]:
    guest = ThreadGuest(tmp_path / "box", userland)
    monkeypatch.setattr(names, "GUEST_BASE", str(guest.mnt))
    outside = write(tmp_path / "outside", "untouched", OLD)
    yield Thread(tmp_path, guest)
    assert outside.read_text() == "untouched"
    assert outside.stat().st_mtime == OLD


# Into the box


def test_fresh_box_gets_all_of_the_threads_files(thread: Thread) -> None:
    thread.host_write("uploads/data.csv", "1,2")
    thread.host_write("workspace/a b/run.sh", "#!/bin/sh").chmod(0o755)
    thread.host_write("outputs/report.md", "# hi")
    report = thread.push(fresh=True)
    assert report.clean
    assert report.copied == 3
    assert tree(thread.guest.mnt / "user-data") == thread.host_files()
    assert thread.guest.path("workspace/a b/run.sh").stat().st_mode & 0o777 == 0o755
    assert thread.guest.calls == ["copy_in push.put", "dfb_td_put"]


def test_nothing_new_on_the_host_takes_no_round_trip(thread: Thread) -> None:
    thread.host_write("uploads/a", "x")
    thread.push(fresh=True)
    thread.guest.calls.clear()
    assert thread.push().copied == 0
    assert thread.guest.calls == []


def test_a_thread_without_directories_is_no_error(thread: Thread) -> None:
    assert thread.push(fresh=True).clean
    assert thread.guest.calls == []


def test_replaced_upload_wins_over_the_box(thread: Thread) -> None:
    thread.host_write("uploads/a", "one", mtime=OLD)
    thread.push(fresh=True)
    thread.box_write("uploads/a", "the agent's edit")
    thread.push()
    assert thread.guest.path("uploads/a").read_text() == "the agent's edit", "nothing changed on the host"
    thread.host_write("uploads/a", "two")
    thread.host_write("uploads/b", "new")
    assert thread.push().copied == 2
    assert thread.guest.path("uploads/a").read_text() == "two"
    assert thread.guest.path("uploads/b").read_text() == "new"


def test_removed_upload_goes_from_the_box_unless_the_agent_changed_it(thread: Thread) -> None:
    for name in ("a", "b"):
        thread.host_write(f"uploads/{name}", name, mtime=OLD)
    thread.push(fresh=True)
    thread.box_write("uploads/b", "edited by the agent")
    thread.on_host("uploads/a").unlink()
    thread.on_host("uploads/b").unlink()
    assert thread.push().removed == 1
    assert tree(thread.guest.path("uploads")) == {"b": b"edited by the agent"}


def test_uploads_directory_that_is_away_removes_nothing(thread: Thread) -> None:
    thread.host_write("uploads/a", "x", mtime=OLD)
    thread.push(fresh=True)
    thread.on_host("uploads").rename(thread.host / "elsewhere")
    thread.push()
    assert thread.guest.path("uploads/a").exists()


def test_symlinks_of_the_host_are_not_followed_into_the_box(thread: Thread, tmp_path: Path) -> None:
    thread.host_write("uploads/a", "x")
    thread.on_host("uploads/link").symlink_to(tmp_path / "outside")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("s")
    thread.on_host("uploads/dir").symlink_to(tmp_path / "secret")
    assert thread.push(fresh=True).clean
    assert tree(thread.guest.path("uploads")) == {"a": b"x"}


def test_acp_workspace_goes_in_and_never_out(thread: Thread) -> None:
    write(thread.host / "acp-workspace" / "result", "from codex", None)
    thread.push(fresh=True)
    inside = thread.guest.mnt / "acp-workspace" / "result"
    assert inside.read_text() == "from codex"
    inside.write_text("changed in the box")
    thread.pull()
    assert (thread.host / "acp-workspace" / "result").read_text() == "from codex"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have a guest whose user is not")
def test_acp_workspace_that_the_user_cannot_make_does_not_keep_uploads_out(thread: Thread) -> None:
    write(thread.host / "acp-workspace" / "result", "from codex", None)
    thread.host_write("uploads/a", "x")
    thread.guest.become(1234)
    assert "acp-workspace" in (thread.push(fresh=True).truncated or "")
    assert thread.guest.path("uploads/a").read_text() == "x"
    assert not (thread.guest.mnt / "acp-workspace").exists()


def test_host_change_of_an_output_goes_in_when_the_box_did_not_change_it(thread: Thread) -> None:
    thread.box_write("outputs/a", "one", mtime=OLD)
    thread.pull()
    thread.host_write("outputs/a", "edited on the host")
    assert thread.push().copied == 1
    assert thread.guest.path("outputs/a").read_text() == "edited on the host"
    assert thread.pull().conflicts == 0
    assert thread.on_host("outputs/a").read_text() == "edited on the host"


def test_disk_that_lost_its_manifest_gets_what_it_lacks_and_keeps_what_it_has(thread: Thread) -> None:
    thread.host_write("outputs/here", "host")
    thread.host_write("outputs/there", "host's")
    thread.box_write("outputs/there", "box's")
    thread.push()
    assert tree(thread.guest.path("outputs")) == {"here": b"host", "there": b"box's"}


def test_box_that_cannot_take_it_is_reported_and_asked_again(thread: Thread) -> None:
    thread.host_write("uploads/a/b", "x")
    thread.box_write("uploads/a", "a file where the directory belongs")
    thread.guest.path("uploads/a").chmod(0o400)
    assert "could not take all" in (thread.push().truncated or "")
    thread.guest.path("uploads/a").unlink()
    assert thread.push().copied == 1


# To the host


def test_outputs_and_workspace_are_on_the_host_after_a_turn(thread: Thread) -> None:
    thread.box_write("outputs/plot.png", bytes(range(256)))
    thread.box_write("workspace/src/app.py", "print(1)").chmod(0o755)
    thread.box_write("uploads/not-mine", "stays in the box")
    report = thread.pull()
    assert report.clean
    assert thread.host_files() == {"outputs/plot.png": bytes(range(256)), "workspace/src/app.py": b"print(1)"}
    assert thread.on_host("workspace/src/app.py").stat().st_mode & 0o777 == 0o755
    assert thread.on_host("outputs/plot.png").stat().st_mode & 0o777 == 0o644


def test_only_what_changed_is_fetched(thread: Thread) -> None:
    for number in range(20):
        thread.box_write(f"outputs/{number}", "x", mtime=OLD)
    thread.pull()
    _settle(thread)
    thread.guest.calls.clear()
    assert thread.pull().copied == 0
    assert thread.guest.calls == ["dfb_td_list", "copy_out pull.list"]
    thread.box_write("outputs/7", "changed")
    report = thread.pull()
    assert (report.copied, report.same) == (1, 0)
    assert thread.on_host("outputs/7").read_text() == "changed"


def _settle(thread: Thread) -> None:
    """Let what was noted be as if the clock had gone on since: a box's clock has whole seconds."""
    manifest = Manifest.load(thread.state)
    for entry in manifest.files.values():
        entry.certain = True
    manifest.save()


def test_change_within_the_same_second_and_of_the_same_size_is_not_missed(thread: Thread) -> None:
    thread.box_write("outputs/a", "one")
    thread.pull()
    status = thread.guest.path("outputs/a").stat()
    with thread.guest.path("outputs/a").open("r+") as file:
        file.write("two")
    os.utime(thread.guest.path("outputs/a"), ns=(status.st_atime_ns, status.st_mtime_ns))
    thread.pull()
    assert thread.on_host("outputs/a").read_text() == "two"


def test_file_replaced_by_one_of_the_same_size_and_time_is_not_missed(thread: Thread) -> None:
    thread.box_write("outputs/a", "one", mtime=OLD)
    thread.pull()
    _settle(thread)
    thread.box_write("outputs/b", "two", mtime=OLD).replace(thread.guest.path("outputs/a"))
    thread.pull()
    assert thread.on_host("outputs/a").read_text() == "two"


def test_touched_file_is_not_written_again(thread: Thread) -> None:
    thread.box_write("outputs/a", "same", mtime=OLD)
    thread.pull()
    before = thread.on_host("outputs/a").stat()
    os.utime(thread.guest.path("outputs/a"), (OLD + 5, OLD + 5))
    report = thread.pull()
    assert (report.copied, report.same) == (0, 1)
    assert thread.on_host("outputs/a").stat().st_ino == before.st_ino


def test_removed_in_the_box_is_removed_on_the_host(thread: Thread) -> None:
    thread.box_write("outputs/d/a", "x")
    thread.box_write("outputs/b", "x")
    thread.pull()
    thread.host_write("outputs/of-the-host", "stays: the box never had it")
    shutil.rmtree(thread.guest.path("outputs/d"))
    assert thread.pull().removed == 1
    assert thread.host_files() == {"outputs/b": b"x", "outputs/of-the-host": b"stays: the box never had it"}
    assert not thread.on_host("outputs/d").exists()


def test_removed_in_the_box_but_changed_on_the_host_stays(thread: Thread) -> None:
    thread.box_write("outputs/a", "x")
    thread.pull()
    thread.guest.path("outputs/a").unlink()
    thread.host_write("outputs/a", "changed on the host")
    assert thread.pull().removed == 0
    assert thread.on_host("outputs/a").read_text() == "changed on the host"
    thread.push()
    assert thread.guest.path("outputs/a").read_text() == "changed on the host"


@pytest.mark.parametrize("age", [OLD, None], ids=["old", "written just now"])
def test_removed_on_the_host_but_unchanged_in_the_box_stays_so(thread: Thread, age: int | None) -> None:
    thread.box_write("outputs/a", "x", mtime=age)
    thread.pull()
    thread.on_host("outputs/a").unlink()
    thread.push()
    thread.pull()
    assert thread.guest.path("outputs/a").read_text() == "x"
    assert not thread.on_host("outputs/a").exists()
    thread.box_write("outputs/a", "the agent goes on with it")
    thread.pull()
    assert thread.on_host("outputs/a").read_text() == "the agent goes on with it"


def test_directory_of_outputs_that_is_gone_or_a_symlink_removes_nothing(thread: Thread, tmp_path: Path) -> None:
    thread.box_write("outputs/a", "x")
    thread.pull()
    shutil.rmtree(thread.guest.path("outputs"))
    assert thread.pull().removed == 0
    thread.guest.path("outputs").symlink_to(tmp_path)
    assert thread.pull().removed == 0
    assert thread.host_files() == {"outputs/a": b"x"}


def test_changed_on_both_sides_keeps_both(thread: Thread) -> None:
    thread.box_write("outputs/a.txt", "one")
    thread.pull()
    thread.host_write("outputs/a.txt", "the host's")
    thread.box_write("outputs/a.txt", "the box's")
    assert thread.pull().conflicts == 1
    assert thread.host_files() == {"outputs/a.txt": b"the box's", "outputs/a.txt.host-1": b"the host's"}


def test_file_becomes_directory_and_back(thread: Thread) -> None:
    thread.box_write("outputs/x", "file")
    thread.pull()
    thread.guest.path("outputs/x").unlink()
    thread.box_write("outputs/x/y", "below")
    thread.pull()
    assert thread.host_files() == {"outputs/x/y": b"below"}
    shutil.rmtree(thread.guest.path("outputs/x"))
    thread.box_write("outputs/x", "file again")
    thread.pull()
    assert thread.host_files() == {"outputs/x": b"file again"}


def test_what_tools_make_again_stays_in_the_box(thread: Thread) -> None:
    thread.box_write("workspace/node_modules/m/index.js", "x")
    thread.box_write("workspace/a/.venv/bin/python", "x")
    thread.box_write("workspace/a/venv", "a file of that name")
    thread.box_write("outputs/node_modules/kept.js", "outputs are outputs")
    assert thread.pull().clean
    assert thread.host_files() == {
        "outputs/node_modules/kept.js": b"outputs are outputs",
        "workspace/a/venv": b"a file of that name",
    }


def test_file_removed_while_the_box_lists(thread: Thread) -> None:
    thread.box_write("outputs/a", "x")
    thread.box_write("outputs/b", "x")

    def vanish(name: str) -> None:
        if name == "dfb_td_list":
            thread.guest.path("outputs/a").unlink()

    thread.guest.after = vanish
    report = thread.pull()
    assert report.skipped == {Reason.CHANGED: 1}
    assert thread.host_files() == {"outputs/b": b"x"}


# Names


@pytest.mark.parametrize(
    "name",
    [b"notes.txt ", b" a", b"a\nb", b"-rf", b"$(id)", b"a:1:b.txt", b"*", "é".encode() * 127, b"\xff", b"1\n81a4 1"],
)
def test_case_12_names_of_any_bytes(thread: Thread, name: bytes) -> None:
    inside = thread.guest.path("outputs") / os.fsdecode(name)
    inside.write_bytes(name)
    report = thread.pull()
    assert report.clean, str(report)
    assert (thread.on_host("outputs") / os.fsdecode(name)).read_bytes() == name
    inside.unlink()
    thread.push(fresh=True)
    assert inside.read_bytes() == name


# Hostile boxes


def test_symlinks_and_special_files_are_skipped_and_reported(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = thread.guest.path("outputs")
    (outputs / "shadow").symlink_to("/etc/shadow")
    (outputs / "etc").symlink_to("/etc")
    os.mkfifo(outputs / "fifo")
    server = socket.socket(socket.AF_UNIX)
    monkeypatch.chdir(outputs)  # The name of a socket cannot be long.
    server.bind("socket")
    thread.box_write("outputs/fine", "x")
    report = thread.pull()
    server.close()
    assert report.skipped == {Reason.NOT_A_FILE: 4}
    assert thread.host_files() == {"outputs/fine": b"x"}
    assert [path.name for path in thread.on_host("outputs").iterdir()] == ["fine"]


def test_sparse_file_of_10_gb_is_skipped_and_reported(thread: Thread) -> None:
    with thread.box_write("outputs/huge", b"").open("r+b") as file:
        file.truncate(10 * 1024**3)
    thread.box_write("outputs/fine", "x")
    report = thread.pull()
    assert report.skipped == {Reason.TOO_LARGE: 1}
    assert thread.host_files() == {"outputs/fine": b"x"}


def test_file_that_grows_after_the_listing_is_not_taken_beyond_the_cap(thread: Thread) -> None:
    path = thread.box_write("outputs/grows", "x")

    def grow(name: str) -> None:
        if name == "dfb_td_list":
            with path.open("r+b") as file:
                file.truncate(20_000_000)

    thread.guest.after = grow
    report = thread.pull()
    assert report.skipped == {Reason.CHANGED: 1}
    assert thread.host_files() == {}


def test_too_many_files_cut_the_pass_and_remove_nothing(thread: Thread) -> None:
    thread.box_write("outputs/first", "x")
    thread.pull()
    thread.guest.path("outputs/first").unlink()
    for number in range(300):
        thread.box_write(f"outputs/{number:05}", "")
    report = thread.pull(Caps(1000, 100_000, 100, 60))
    assert "more than 100 files" in str(report.truncated)
    assert "NOT COMPLETE" in str(report)
    assert thread.on_host("outputs/first").exists()
    assert 100 <= report.copied <= 101


def test_too_many_bytes_cut_the_pass_and_remove_nothing(thread: Thread) -> None:
    thread.box_write("outputs/first", "x")
    thread.pull()
    thread.guest.path("outputs/first").unlink()
    for number in range(10):
        thread.box_write(f"workspace/{number}", bytes(100_000))
    thread.box_write("outputs/matters", "x")
    report = thread.pull(Caps(1_000_000, 500_000, 1000, 60))
    assert "sync_max_total_mb" in str(report.truncated)
    assert thread.on_host("outputs/matters").exists(), "outputs come first"
    assert thread.on_host("outputs/first").exists()
    assert report.bytes <= 500_000


def test_a_pass_that_takes_too_long_keeps_what_it_has_and_removes_nothing(thread: Thread) -> None:
    thread.box_write("outputs/first", "x")
    thread.pull()
    thread.guest.path("outputs/first").unlink()
    report = thread.pull(Caps(1000, 1000, 1000, 0.0))
    assert "sync_timeout" in str(report.truncated)
    assert thread.on_host("outputs/first").exists()


@pytest.mark.parametrize("when", ["dfb_td_list", "dfb_td_pack"])
def test_file_replaced_by_a_symlink_between_listing_and_copy(thread: Thread, tmp_path: Path, when: str) -> None:
    path = thread.box_write("outputs/a", "x")

    def swap(name: str) -> None:
        if name == when and not path.is_symlink():
            path.unlink()
            path.symlink_to(tmp_path / "outside")

    thread.guest.after = swap
    thread.pull()
    host = thread.on_host("outputs/a")
    assert not host.is_symlink()
    assert not host.exists() or host.read_text() == "x"


def test_times_out_of_range_are_taken_for_now(thread: Thread) -> None:
    # As far as file systems go here; what a box can claim beyond that is in test_thread_data_hostile.
    for number, mtime in enumerate((-(2**31), 2**33)):
        os.utime(thread.box_write(f"outputs/{number}", "x"), (mtime, mtime))
    assert thread.pull().copied == 2
    for number in range(2):
        assert OLD < thread.on_host(f"outputs/{number}").stat().st_mtime < 2**33 - 1
    assert thread.push().clean


def test_hard_links_are_files_of_their_own_on_the_host(thread: Thread) -> None:
    first = thread.box_write("outputs/a", "x")
    os.link(first, thread.guest.path("outputs/b"))
    os.link(first, thread.guest.path("workspace/c"))
    assert thread.pull().clean
    assert thread.host_files() == {"outputs/a": b"x", "outputs/b": b"x", "workspace/c": b"x"}
    assert thread.on_host("outputs/a").stat().st_nlink == 1


def test_setuid_does_not_come_to_the_host(thread: Thread) -> None:
    thread.box_write("outputs/a", "x").chmod(0o6777)
    thread.pull()
    assert thread.on_host("outputs/a").stat().st_mode & 0o7777 == 0o755


def test_directory_that_cannot_be_listed_keeps_its_files_on_the_host(thread: Thread) -> None:
    # Root can list everything, so the listing is made to fail by itself.
    thread.box_write("outputs/a", "x")
    thread.pull()
    thread.guest.path("outputs/a").unlink()
    listing = thread.guest.stage / "pull.list"

    def fail(name: str) -> None:
        if name == "dfb_td_list":
            listing.write_bytes(listing.read_bytes().replace(b"= 0 user-data/outputs", b"= 1 user-data/outputs"))

    thread.guest.after = fail
    report = thread.pull()
    assert "could not list all of user-data/outputs" in str(report.truncated)
    assert thread.on_host("outputs/a").exists()


# Hosts that are not what they were


def test_symlinked_directory_on_the_host_is_not_entered(thread: Thread, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    thread.on_host("outputs").mkdir(parents=True)
    thread.on_host("outputs/d").symlink_to(elsewhere)
    thread.box_write("outputs/d/a", "x")
    assert thread.pull().skipped == {Reason.BLOCKED: 1}
    assert list(elsewhere.iterdir()) == []


def test_symlink_in_the_place_of_a_file_on_the_host_is_not_written_through(thread: Thread, tmp_path: Path) -> None:
    thread.on_host("outputs").mkdir(parents=True)
    thread.on_host("outputs/a").symlink_to(tmp_path / "outside")
    thread.box_write("outputs/a", "x")
    assert thread.pull().skipped == {Reason.BLOCKED: 1}
    assert thread.on_host("outputs/a").is_symlink()


def test_symlink_that_appears_after_the_sync_does_not_lead_its_removal_astray(thread: Thread, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    thread.box_write("outputs/d/a", "x")
    thread.pull()
    thread.on_host("outputs/d").rename(elsewhere)
    thread.on_host("outputs/d").symlink_to(elsewhere)
    shutil.rmtree(thread.guest.path("outputs/d"))
    thread.pull()
    assert (elsewhere / "a").exists()


def test_full_host_ends_the_pass_and_says_so(thread: Thread, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(HostTree, "install", full)
    thread.box_write("outputs/a", "x")
    assert "No space left" in str(thread.pull().truncated)


def test_temporary_files_of_a_killed_process_are_removed_and_not_copied(thread: Thread) -> None:
    thread.host_write("outputs/.boxlite-00.partial", "half")
    thread.push(fresh=True)
    assert not thread.guest.path("outputs/.boxlite-00.partial").exists()
    assert not thread.on_host("outputs/.boxlite-00.partial").exists()


def test_nothing_is_left_in_the_box_but_its_last_list(thread: Thread) -> None:
    thread.host_write("uploads/a", "x")
    thread.push(fresh=True)
    thread.box_write("outputs/a", "x")
    thread.pull()
    assert list(thread.guest.stage.iterdir()) == []


def test_a_manifest_that_cannot_be_read_loses_nothing(thread: Thread) -> None:
    thread.box_write("outputs/a", "x")
    thread.pull()
    thread.state.write_text("{")
    thread.box_write("outputs/b", "y")
    report = thread.pull()
    assert (report.conflicts, report.removed) == (0, 0)
    assert thread.host_files() == {"outputs/a": b"x", "outputs/b": b"y"}
