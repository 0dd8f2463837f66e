"""Fixtures for tests on real boxes. They need a host that can boot one: run them with `make live`.

Every test that takes `layout`, `provider` or `box` runs on both images, one after the other.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deerflow_boxlite import BoxliteBox, BoxliteConfig, BoxliteProvider, images

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


@pytest.fixture(scope="session")
def box(provider: BoxliteProvider) -> Iterator[BoxliteBox]:
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
    found = subprocess.run(["pgrep", "-f", "bin/boxlite-shim"], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


def kill_vms_of(home: Path) -> None:
    """Kill every VM of a home with SIGKILL, as a crash would."""
    subprocess.run(["pkill", "-9", "-f", f"^{home}/boxes/.*/bin/boxlite-shim"], check=False)


@pytest.fixture
def kill_vms(home: Path) -> Callable[[], None]:
    """Kill the VMs of the shared provider's home."""
    return lambda: kill_vms_of(home)
