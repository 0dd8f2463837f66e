"""Fixtures for tests on real boxes. They need a host that can boot one: run them with `make live`.

Every test that takes `layout`, `provider` or `box` runs on both images, one after the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from deerflow_boxlite import BoxliteBox, BoxliteConfig, BoxliteProvider, CommandResult, images

IMAGES = os.environ.get("LIVE_IMAGES", "busybox debian").split()


def config_for(layout: Path, home: Path, **settings: Any) -> BoxliteConfig:
    """Settings for tests: small boxes, whose disk a test can fill; no reaper in the way unless it asks for one."""
    given: dict[str, Any] = {"image": str(layout), "home_dir": str(home), "idle_timeout": 0, "memory_mib": 1024}
    given["disk_size_gb"] = 1
    return BoxliteConfig(**(given | settings))


@pytest.fixture(scope="session", params=IMAGES)
def image_name(request: pytest.FixtureRequest) -> str:
    """`busybox` or `debian`."""
    return str(request.param)


@pytest.fixture(scope="session")
def layout(image_name: str) -> Path:
    """The OCI layout of the image under test."""
    return images.cached(image_name)


@pytest.fixture(scope="session")
def home(image_name: str) -> Iterator[Path]:
    """A BoxLite home shared by the tests on one image: an image's disk is built once per home."""
    with tempfile.TemporaryDirectory(prefix=f"home-{image_name}-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def provider(layout: Path, home: Path) -> Iterator[BoxliteProvider]:
    """A provider shared by the tests on one image."""
    shared = BoxliteProvider(config=config_for(layout, home, replicas=4))
    yield shared
    shared.shutdown()


SILENCE = "sleep 125; echo at last"


@pytest.fixture(scope="session")
def silence(request: pytest.FixtureRequest, provider: BoxliteProvider) -> Iterator[list[Future[CommandResult]]]:
    """The command of case 4, begun before all else and in a box of its own, so that nobody waits for it in vain."""
    if not any("case_04" in item.name for item in request.session.items):
        yield []
        return
    sandbox_id = provider.acquire(f"silent-{uuid.uuid4().hex}")
    quiet = provider.get(sandbox_id)
    assert isinstance(quiet, BoxliteBox)
    with ThreadPoolExecutor(1) as pool:
        yield [pool.submit(quiet.run, SILENCE, timeout=300)]
    provider.release(sandbox_id)


@pytest.fixture(scope="session")
def box(provider: BoxliteProvider, silence: list[Future[CommandResult]]) -> Iterator[BoxliteBox]:
    """A box shared by the tests on one image. Tests leave it as they found it, but for files of their own."""
    sandbox_id = provider.acquire(f"shared-{uuid.uuid4().hex}")
    found = provider.get(sandbox_id)
    assert found is not None
    yield found
    provider.release(sandbox_id)


@pytest.fixture
def folder(box: BoxliteBox) -> Iterator[str]:
    """A fresh folder on the box's root disk, under `/mnt/user-data/workspace`."""
    path = f"/mnt/user-data/workspace/{uuid.uuid4().hex}"
    assert box.run(f"mkdir -p {path}").exit_code == 0
    yield path
    box.run(f"rm -rf {path}")


def shims() -> list[int]:
    """Process ids of all running VMs of this machine."""
    return _pids("bin/boxlite-shim")


def vms_of(home: Path) -> set[int]:
    """Process ids of the running VMs of a home."""
    return set(_pids(f"^{home}/boxes/.*/bin/boxlite-shim"))


def _pids(pattern: str) -> list[int]:
    found = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def kill_all(pids: Iterable[int]) -> None:
    """Kill VMs as a crash would."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
