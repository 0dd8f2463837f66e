"""The boxes of a home, looked at and removed with no provider."""

from __future__ import annotations

import os

import pytest

from deerflow_boxlite import bxl
from deerflow_boxlite.boxes import KeptBox, list_boxes, remove_boxes
from deerflow_boxlite.errors import HomeInUseError
from deerflow_boxlite.identity import box_name
from deerflow_boxlite.marks import Marks
from deerflow_boxlite.runtime import BoxRecord, HomeLocked, RuntimeFailure

A, B, C = ("a" * 32, "b" * 32, "c" * 32)


class FakeRuntime:
    def __init__(self):
        self.records = [
            BoxRecord(box_name(A), "stopped", created_at=10.0, started_at=20.0),
            BoxRecord(box_name(B), "stopped", created_at=10.0),
            BoxRecord("someone-elses", "running"),
        ]
        self.removed: list[str] = []
        self.closed = False

    async def list(self):
        return self.records

    async def disk_usage(self, name):
        return len(name)

    async def remove(self, name):
        if name == box_name(B):
            raise RuntimeFailure("stuck")
        self.removed.append(name)

    async def close(self, timeout):
        self.closed = True


@pytest.fixture
def runtime(monkeypatch):
    runtime = FakeRuntime()
    monkeypatch.setattr(bxl, "open_runtime", lambda home: runtime)
    return runtime


def test_only_ours_are_listed_the_last_used_first(runtime, tmp_path):
    Marks(tmp_path).used(box_name(B))
    os.utime(next(tmp_path.rglob(box_name(B))), (30.0, 30.0))
    size = len(box_name(A))
    assert list_boxes(tmp_path) == [KeptBox(B, "stopped", size, 30.0), KeptBox(A, "stopped", size, 20.0)]
    assert runtime.closed


def test_removing_tells_what_was_there_and_forgets_it(runtime, tmp_path):
    marks = Marks(tmp_path)
    marks.used(box_name(A))
    assert remove_boxes(tmp_path, [A, C]) == [A]
    assert runtime.removed == [box_name(A)]
    assert marks.last_use(box_name(A)) is None
    assert runtime.closed


def test_the_home_is_let_go_of_when_removing_fails(runtime, tmp_path):
    with pytest.raises(RuntimeFailure, match="stuck"):
        remove_boxes(tmp_path, [B])
    assert runtime.closed


def test_case_33_a_home_in_use(monkeypatch, tmp_path):
    def open_runtime(home):
        raise HomeLocked("BoxLite's words")

    monkeypatch.setattr(bxl, "open_runtime", open_runtime)
    with pytest.raises(HomeInUseError, match="home_dir"):
        list_boxes(tmp_path)


def test_a_home_that_is_not_there_is_not_made(tmp_path):
    assert list_boxes(tmp_path / "home") == []
    assert remove_boxes(tmp_path / "home", [A]) == []
    assert list(tmp_path.iterdir()) == []
