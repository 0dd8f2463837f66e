"""Any tree goes to the host and into a new box as it is, whatever is done to it between two passes."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deerflow_boxlite.thread_data import names
from deerflow_boxlite.thread_data.courier import Courier
from deerflow_boxlite.thread_data.manifest import Manifest
from deerflow_boxlite.thread_data.pull import Caps, Pull
from deerflow_boxlite.thread_data.push import Push
from deerflow_boxlite.thread_data.report import Report
from deerflow_boxlite.thread_data.tree import HostTree
from support.thread_guest import ThreadGuest

CAPS = Caps(file_bytes=1_000_000, total_bytes=5_000_000, files=1000, seconds=60)

_NAME = st.binary(min_size=1, max_size=12).filter(lambda name: not {0, 0x2F} & set(name) and name not in (b".", b".."))
_PATH = st.lists(_NAME, min_size=1, max_size=3).map(b"/".join)
_TREE = st.dictionaries(_PATH, st.binary(max_size=50) | st.just(bytes(20_000)), max_size=6)

Tree = dict[bytes, bytes]


def consistent(tree: Tree) -> Tree:
    """Without files that would be directories too, and without what stays in a box."""
    return {
        path: content
        for path, content in tree.items()
        if not any(other.startswith(path + b"/") for other in tree)
        and not set(path.split(b"/")) & set(names.LEFT_IN_BOX)
    }


def plant(root: Path, tree: Tree) -> None:
    """Make a directory hold exactly a tree, leaving alone what is as it should be."""
    for path, _, files in os.walk(root, topdown=False):
        for name in files:
            found = Path(path, name)
            if os.fsencode(found.relative_to(root)) not in tree:
                found.unlink()
        if Path(path) != root and not list(Path(path).iterdir()):
            Path(path).rmdir()
    for relative, content in tree.items():
        target = root / os.fsdecode(relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != content:
            target.write_bytes(content)


def harvest(root: Path) -> Tree:
    return {os.fsencode(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_TREE.map(consistent), min_size=1, max_size=3), st.sampled_from([names.OUTPUTS, names.WORKSPACE]))
def test_case_12_any_tree_through_any_changes(trees: list[Tree], root: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_through(Path(folder), trees, os.fsdecode(root)))


async def _through(folder: Path, trees: list[Tree], root: str) -> None:
    guest, host, passes = ThreadGuest(folder / "box"), folder / "thread", folder / "passes"
    passes.mkdir()
    manifest = Manifest(folder / "state.json")
    for tree in trees:
        plant(guest.mnt / root, tree)
        report = Report("to_host")
        with mock.patch.object(names, "GUEST_BASE", str(guest.mnt)):
            courier = Courier(guest, passes, guest.staging())
            await Pull(HostTree(host), manifest, CAPS, report).run(courier)
        assert report.truncated is None, str(report)
        assert not report.conflicts
        if not report.skipped:  # A directory in the place of a file, whose content the host still has.
            assert harvest(host / root) == tree if (host / root).exists() else not tree
        manifest.save()
        manifest = Manifest.load(folder / "state.json")
    shutil.rmtree(guest.mnt)
    other = ThreadGuest(folder / "other")
    with mock.patch.object(names, "GUEST_BASE", str(other.mnt)):
        manifest.clear()
        await Push(HostTree(host), manifest, Report("to_box")).run(Courier(other, passes, other.staging()), fresh=True)
    assert harvest(other.mnt / root) == (harvest(host / root) if (host / root).exists() else {})
