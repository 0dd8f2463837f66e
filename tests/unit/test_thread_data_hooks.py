"""What is done before and after turns: `ThreadData` on a box that is a directory of this machine."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from deerflow_boxlite.config import BoxliteConfig
from deerflow_boxlite.guest.channel import ChannelBroken
from deerflow_boxlite.identity import Identity
from deerflow_boxlite.runtime import BoxGone, RuntimeFailure
from deerflow_boxlite.thread_data import ThreadData, hooks, names
from deerflow_boxlite.thread_data.paths import SkillSource, ThreadPaths, thread_paths
from deerflow_boxlite.thread_data.report import EXAMPLES, Reason, Report
from support.thread_guest import ThreadGuest

IDENTITY = Identity("user", "thread")


class Turn:
    """A thread, its box and its skills; `data` is what is under test."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.config = BoxliteConfig(home_dir=folder / "home", **settings)
        self.data = ThreadData(self.config)
        self.guest = ThreadGuest(folder / "box")
        self.paths = ThreadPaths(folder / "threads" / "t", self.make)
        self.skills = folder / "skills"
        self.enabled: list[str] = []
        self.made = False

    def make(self) -> None:
        self.made = True

    def source(self) -> SkillSource:
        directories = tuple((f"public/{name}", self.skills / name) for name in self.enabled)
        return SkillSource(f"{self.guest.mnt}/skills", directories)

    def skill(self, name: str, content: str) -> Path:
        path = self.skills / name / "SKILL.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        if name not in self.enabled:
            self.enabled.append(name)
        return path

    def in_box(self, name: str) -> Path:
        return self.guest.mnt / name

    async def boot(self, *, fresh: bool = True) -> None:
        await self.data.on_boot(self.guest, IDENTITY, fresh)  # type: ignore[arg-type]
        await self.data.on_acquire(self.guest, IDENTITY)  # type: ignore[arg-type]

    async def acquire(self) -> None:
        await self.data.on_acquire(self.guest, IDENTITY)  # type: ignore[arg-type]

    async def release(self) -> None:
        await self.data.on_release(self.guest, IDENTITY)  # type: ignore[arg-type]


@pytest.fixture
def turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Turn:
    made = Turn(tmp_path)
    use(made, monkeypatch)
    return made


def use(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "GUEST_BASE", str(turn.guest.mnt))
    monkeypatch.setattr(hooks, "thread_paths", lambda _: turn.paths)
    monkeypatch.setattr(hooks, "skill_source", turn.source)


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def test_turns_of_a_thread_over_two_disks(turn: Turn) -> None:
    write(turn.paths.uploads / "data.csv", "1,2")

    async def turns() -> None:
        await turn.boot()
        assert turn.in_box("user-data/uploads/data.csv").read_text() == "1,2"
        write(turn.in_box("user-data/outputs/report.md"), "# one")
        await turn.release()
        assert (turn.paths.outputs / "report.md").read_text() == "# one"
        # Between turns, by the embedded client: only to the host, while the box runs.
        write(turn.paths.uploads / "more.csv", "3")
        await turn.acquire()
        assert turn.in_box("user-data/uploads/more.csv").read_text() == "3"

    asyncio.run(turns())
    # The box is removed for its age; a new one has a new disk, and a new process knows nothing but what is on the disk.
    other = ThreadGuest(turn.config.home_dir.parent / "box2")
    again = ThreadData(turn.config)
    names.GUEST_BASE = str(other.mnt)
    asyncio.run(again.on_boot(other, IDENTITY, True))  # type: ignore[arg-type]
    assert (other.mnt / "user-data/uploads/more.csv").read_text() == "3"
    assert (other.mnt / "user-data/outputs/report.md").read_text() == "# one"


def test_acquire_right_after_the_boot_looks_at_nothing(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    async def turns() -> None:
        await turn.data.on_boot(turn.guest, IDENTITY, True)  # type: ignore[arg-type]
        monkeypatch.setattr(hooks, "skill_source", lambda: pytest.fail("looked again"))
        await turn.acquire()

    asyncio.run(turns())


def test_acquire_of_a_warm_box_with_nothing_new_takes_no_round_trip(turn: Turn) -> None:
    write(turn.paths.uploads / "a", "x")
    turn.skill("one", "# one")

    async def turns() -> None:
        await turn.boot()
        await turn.release()
        turn.guest.calls.clear()
        await turn.acquire()
        assert turn.guest.calls == []

    asyncio.run(turns())


def held_back(turn: Turn) -> tuple[asyncio.Event, asyncio.Event]:
    """Hold copies out of the box back: the first event tells that one is wanted, the second lets them go on."""
    listed, go_on = asyncio.Event(), asyncio.Event()
    real = turn.guest.copy_out

    async def slow(source: str, target: Path) -> None:
        listed.set()
        await go_on.wait()
        await real(source, target)

    turn.guest.copy_out = slow  # type: ignore[method-assign]
    return listed, go_on


def test_an_acquire_does_not_wait_for_a_sync_that_runs(turn: Turn) -> None:
    write(turn.paths.uploads / "a", "x")
    write(turn.in_box("user-data/outputs/a"), "from the first turn")

    async def turns() -> None:
        await turn.boot()
        listed, go_on = held_back(turn)
        syncing = asyncio.create_task(turn.release())
        await listed.wait()
        write(turn.paths.uploads / "b", "y")
        await asyncio.wait_for(turn.acquire(), 30)
        assert turn.in_box("user-data/uploads/b").read_text() == "y"
        write(turn.in_box("user-data/outputs/a"), "from the second turn")
        go_on.set()
        await syncing
        await turn.release()
        assert (turn.paths.outputs / "a").read_text() == "from the second turn"
        assert [path.name for path in turn.paths.outputs.iterdir()] == ["a"]

    asyncio.run(turns())


def test_two_releases_at_once_do_not_disturb_each_other(turn: Turn) -> None:
    for number in range(20):
        write(turn.in_box(f"user-data/outputs/{number}"), str(number))

    async def turns() -> None:
        await turn.boot()
        listed, go_on = held_back(turn)
        first = asyncio.create_task(turn.release())
        await listed.wait()
        second = asyncio.create_task(turn.release())
        await asyncio.sleep(0.05)
        assert turn.guest.calls.count("dfb_td_list") == 1
        go_on.set()
        await asyncio.gather(first, second)
        assert turn.guest.calls.count("dfb_td_list") == 2

    asyncio.run(turns())
    assert len(list(turn.paths.outputs.iterdir())) == 20


def test_a_cancelled_sync_keeps_what_it_has_and_leaves_nothing_behind(turn: Turn) -> None:
    write(turn.in_box("user-data/outputs/a"), "x")

    async def turns() -> None:
        await turn.boot()
        started = asyncio.Event()

        async def never(source: str, target: Path) -> None:
            started.set()
            await asyncio.Event().wait()

        real, turn.guest.copy_out = turn.guest.copy_out, never  # type: ignore[method-assign]
        syncing = asyncio.create_task(turn.release())
        await started.wait()
        syncing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await syncing
        turn.guest.copy_out = real  # type: ignore[method-assign]
        await turn.release()

    asyncio.run(turns())
    assert (turn.paths.outputs / "a").read_text() == "x"
    assert [path.name for path in (turn.config.home_dir / "deerflow-boxlite" / "sync").glob("pass-*")] == []


def test_what_was_not_copied_is_in_the_log_and_in_the_report(turn: Turn, caplog: pytest.LogCaptureFixture) -> None:
    turn.in_box("user-data/outputs/shadow").symlink_to("/etc/shadow")

    async def turns() -> None:
        await turn.boot()
        await turn.release()

    with caplog.at_level(logging.WARNING):
        asyncio.run(turns())
    report = turn.data.reports[IDENTITY.sandbox_id]
    assert report.skipped == {Reason.NOT_A_FILE: 1}
    assert report.examples == [("user-data/outputs/shadow", Reason.NOT_A_FILE)]
    record = caplog.records[-1]
    assert "not a regular file" in record.message
    assert record.__dict__["event"] == "sync.to_host"


def test_report_counts_all_and_names_some() -> None:
    report = Report("to_host")
    for number in range(1000):
        report.skip(f"\udcff\n{number}", Reason.TOO_LARGE)
    assert report.skipped == {Reason.TOO_LARGE: 1000}
    assert len(report.examples) == EXAMPLES
    assert "\n" not in str(report)


@pytest.mark.parametrize("error", [ChannelBroken("no reply within 60 s"), RuntimeFailure("h2 error"), OSError("disk")])
def test_a_box_is_usable_when_its_files_could_not_be_brought_in(
    turn: Turn, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    write(turn.paths.uploads / "a", "x")

    def fail(name: str) -> None:
        if name.startswith("dfb_") or not isinstance(error, ChannelBroken):
            raise error

    turn.guest.before = fail
    asyncio.run(turn.boot())
    assert "could not be brought in" in caplog.text
    turn.guest.before = lambda name: None
    asyncio.run(turn.acquire())
    assert turn.in_box("user-data/uploads/a").read_text() == "x"


def test_a_box_that_died_is_not_taken_for_one_that_works(turn: Turn) -> None:
    write(turn.paths.uploads / "a", "x")

    def die(name: str) -> None:
        raise BoxGone("gone")

    turn.guest.before = die
    with pytest.raises(BoxGone):
        asyncio.run(turn.boot())


def test_left_over_folders_of_a_killed_process_are_removed(turn: Turn) -> None:
    left = turn.config.home_dir / "deerflow-boxlite" / "sync" / "pass-old"
    write(left / "fetched" / "pack", "x")
    asyncio.run(turn.boot())
    assert not left.exists()


def test_anonymous_boxes_have_no_directory_on_the_host() -> None:
    assert thread_paths(Identity.anonymous()) is None


# Mounts


def test_mounted_threads_are_volumes_and_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turn = Turn(tmp_path, thread_data="mount")
    use(turn, monkeypatch)
    write(turn.paths.uploads / "a", "x")
    volumes = {volume.guest.removeprefix(str(turn.guest.mnt)): volume for volume in turn.data.volumes(IDENTITY)}
    assert turn.made
    assert {path: (volume.host, volume.read_only) for path, volume in volumes.items()} == {
        "/user-data": (turn.paths.user_data, False),
    }
    turn.skill("one", "# one")
    asyncio.run(turn.boot())
    assert not turn.in_box("user-data/uploads/a").exists()
    assert turn.in_box("skills/public/one/SKILL.md").exists(), "skills are copied in either mode"
    write(turn.in_box("user-data/outputs/a"), "x")
    asyncio.run(turn.release())
    assert not turn.paths.outputs.exists()


def test_copied_threads_have_no_volumes(turn: Turn) -> None:
    assert turn.data.volumes(IDENTITY) == ()


# Skills


def test_skills_follow_what_is_enabled(turn: Turn) -> None:
    turn.skill("one", "# one")
    turn.skill("two", "# two")
    (turn.skills / "one" / "run.sh").write_text("#!/bin/sh")
    (turn.skills / "one" / "run.sh").chmod(0o755)

    async def turns() -> None:
        await turn.boot()
        assert sorted(path.name for path in turn.in_box("skills/public").iterdir()) == ["one", "two"]
        assert turn.in_box("skills/public/one/run.sh").stat().st_mode & 0o777 == 0o555
        assert turn.in_box("skills/public/one/SKILL.md").stat().st_mode & 0o777 == 0o444
        assert turn.in_box("skills/public").stat().st_mode & 0o777 == 0o555
        turn.skill("two", "# two, edited")
        turn.skill("three", "# three")
        turn.enabled.remove("one")
        await turn.release()
        await turn.acquire()
        assert sorted(path.name for path in turn.in_box("skills/public").iterdir()) == ["three", "two"]
        assert turn.in_box("skills/public/two/SKILL.md").read_text() == "# two, edited"
        turn.enabled.clear()
        await turn.acquire()
        assert list(turn.in_box("skills").iterdir()) == []

    asyncio.run(turns())
    assert [path.name for path in turn.guest.mnt.iterdir() if "skills." in path.name] == []


def test_new_disk_gets_the_skills_again(turn: Turn) -> None:
    turn.skill("one", "# one")
    asyncio.run(turn.boot())
    turn.in_box("skills").rename(turn.in_box("gone"))
    asyncio.run(turn.boot(fresh=False))
    assert not turn.in_box("skills").exists(), "an old disk has them"
    asyncio.run(turn.boot(fresh=True))
    assert turn.in_box("skills/public/one/SKILL.md").exists()


def test_skill_that_links_out_of_itself_is_not_followed(turn: Turn, tmp_path: Path) -> None:
    turn.skill("one", "# one")
    write(tmp_path / "secret", "s")
    (turn.skills / "one" / "out").symlink_to(tmp_path / "secret")
    (turn.skills / "one" / "in").symlink_to("SKILL.md")
    asyncio.run(turn.boot())
    assert sorted(path.name for path in turn.in_box("skills/public/one").iterdir()) == ["SKILL.md", "in"]


def test_skills_that_the_settings_mount_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount = {"host_path": str(tmp_path), "container_path": "/skills"}
    turn = Turn(tmp_path, mounts=[mount])
    use(turn, monkeypatch)
    monkeypatch.setattr(hooks, "skill_source", lambda: SkillSource("/skills/all", ()))
    turn.skill("one", "# one")
    asyncio.run(turn.boot())
    assert "dfb_td_skills" not in turn.guest.calls


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have a guest whose user is not")
def test_skills_where_only_the_directory_itself_is_the_users(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    turn.skill("one", "# one")
    turn.skill("two", "# two")
    turn.in_box("skills").mkdir()
    turn.guest.become(1234)

    async def turns() -> None:
        await turn.boot()
        assert turn.in_box("skills/public/one/SKILL.md").read_text() == "# one"
        assert turn.in_box("skills/public").stat().st_mode & 0o777 == 0o555
        turn.skill("one", "# one, edited")
        turn.enabled.remove("two")
        await turn.acquire()
        assert [path.name for path in turn.in_box("skills/public").iterdir()] == ["one"]
        assert turn.in_box("skills/public/one/SKILL.md").read_text() == "# one, edited"
        assert [path.name for path in turn.in_box("skills").iterdir()] == ["public"]

    asyncio.run(turns())
