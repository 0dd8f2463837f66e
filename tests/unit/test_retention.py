from __future__ import annotations

import asyncio
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deerflow_boxlite.identity import Identity, box_name
from deerflow_boxlite.marks import Marks
from deerflow_boxlite.retention import DAY, GB, Kept, prune, surplus
from deerflow_boxlite.runtime import BoxSpec, RuntimeFailure
from support.fake_runtime import FakeBox, FakeHome, FakeRuntime

NOW = 1_800_000_000.0

kept = st.builds(
    Kept,
    name=st.uuids().map(str),
    last_use=st.floats(0, 100).map(lambda days: NOW - days * DAY),
    size=st.integers(0, 20 * GB),
)


@given(st.lists(kept, max_size=8), st.sampled_from([0.0, 1.0, 30.0]), st.sampled_from([0.0, 1.0, 50.0]))
def test_what_stays_is_within_both_limits_and_newer_than_what_goes(
    boxes: list[Kept], days: float, gigabytes: float
) -> None:
    gone = surplus(boxes, NOW, days, gigabytes)
    stays = [box for box in boxes if box not in gone]
    assert days == 0 or all(NOW - box.last_use <= days * DAY for box in stays)
    assert gigabytes == 0 or sum(box.size for box in stays) <= gigabytes * GB
    assert all(old.last_use <= new.last_use for old in gone for new in stays)
    if gone:
        # None goes that could have stayed.
        last = gone[-1]
        too_old = days > 0 and NOW - last.last_use > days * DAY
        too_much = gigabytes > 0 and sum(box.size for box in [*stays, last]) > gigabytes * GB
        assert too_old or too_much


def name_of(thread: str) -> str:
    return box_name(Identity("u", thread).sandbox_id)


def stopped(home: FakeHome, marks: Marks, name: str, *, days_ago: float, size: int = 0) -> None:
    home.boxes[name] = FakeBox(name, BoxSpec(image="fake"), size=size)
    marks.made(name, "image=fake")
    os.utime(marks._directory / name, (NOW - days_ago * DAY,) * 2)


def pruned(home: FakeHome, marks: Marks, *, in_use: str = "", days: float = 30, gigabytes: float = 50) -> list[str]:
    runtime = FakeRuntime(home)

    async def remove(name: str) -> bool:
        if name == in_use:
            return False
        await runtime.remove(name)
        return True

    return asyncio.run(prune(runtime, marks, remove, now=NOW, days=days, gigabytes=gigabytes))


def test_only_old_stopped_boxes_of_ours_are_removed(tmp_path: Path) -> None:
    home, marks = FakeHome(), Marks(tmp_path)
    stopped(home, marks, name_of("old"), days_ago=31)
    stopped(home, marks, name_of("new"), days_ago=29)
    stopped(home, marks, name_of("running"), days_ago=31)
    stopped(home, marks, name_of("taken up"), days_ago=31)
    stopped(home, marks, "somebody's box", days_ago=400)
    home.boxes[name_of("running")].running = True
    assert pruned(home, marks, in_use=name_of("taken up")) == [name_of("old")]
    assert set(home.boxes) == {name_of("new"), name_of("running"), name_of("taken up"), "somebody's box"}
    assert marks.last_use(name_of("old")) is None
    assert marks.last_use(name_of("taken up")) is not None


def test_boxes_beyond_the_disk_limit_go_least_recently_used_first(tmp_path: Path) -> None:
    home, marks = FakeHome(), Marks(tmp_path)
    for number in range(5):
        stopped(home, marks, name_of(str(number)), days_ago=number, size=20 * GB)
    assert pruned(home, marks, gigabytes=50) == [name_of("4"), name_of("3"), name_of("2")]


def test_no_limit_looks_at_nothing(tmp_path: Path) -> None:
    home, marks = FakeHome(), Marks(tmp_path)
    stopped(home, marks, name_of("a"), days_ago=4000, size=1000 * GB)
    assert pruned(home, marks, days=0, gigabytes=0) == []
    assert home.events == []


def test_a_box_of_unknown_age_stays(tmp_path: Path) -> None:
    home, marks = FakeHome(), Marks(tmp_path)
    home.boxes[name_of("a")] = FakeBox(name_of("a"), BoxSpec(image="fake"), started_at=NOW - 2 * DAY)
    assert pruned(home, marks) == []
    assert pruned(home, marks, days=1) == [name_of("a")]


def test_one_that_cannot_be_removed_does_not_keep_the_others(tmp_path: Path) -> None:
    home, marks = FakeHome(), Marks(tmp_path)
    stopped(home, marks, name_of("a"), days_ago=50)
    stopped(home, marks, name_of("b"), days_ago=40)
    home.fail("remove", RuntimeFailure("busy"))
    assert pruned(home, marks) == [name_of("b")]
    assert name_of("a") in home.boxes
