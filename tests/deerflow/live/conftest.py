"""DeerFlow on real boxes. Needs a host that can boot one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deerflow.sandbox import get_sandbox_provider

from deerflow_boxlite import BoxliteProvider, images

from ..harness import DeerFlow, running

IMAGES = os.environ.get("LIVE_IMAGES", "busybox debian").split()


@pytest.fixture(scope="session", params=IMAGES)
def layout(request: pytest.FixtureRequest) -> Path:
    """The OCI layout of the image under test."""
    return images.cached(request.param)


@pytest.fixture(scope="session")
def home(layout: Path) -> Iterator[Path]:
    """A BoxLite home shared by the tests on one image: an image's disk is built once per home."""
    with tempfile.TemporaryDirectory(prefix=f"home-{layout.name}-") as folder:
        yield Path(folder)


class Live(DeerFlow):
    """A DeerFlow with real boxes."""

    def provider(self) -> BoxliteProvider:
        """As DeerFlow makes it."""
        provider = get_sandbox_provider()
        assert isinstance(provider, BoxliteProvider)
        return provider


@pytest.fixture
def settings(layout: Path, home: Path) -> dict[str, Any]:
    """A `sandbox:` section."""
    return {
        "use": "deerflow.community.boxlite:BoxliteProvider",
        "image": str(layout),
        "home_dir": str(home),
        "memory_mib": 1024,
        "idle_timeout": 0,
    }


Start = Callable[..., Live]


@pytest.fixture
def start(project: Path, settings: dict[str, Any]) -> Iterator[Start]:
    """Start a DeerFlow, with more settings. It is shut down after the test."""
    with contextlib.ExitStack() as stack:

        def begin(**more: Any) -> Live:
            made = Live(project, settings | more)
            stack.callback(lambda: next(shutting_down, None))
            shutting_down = running(made)
            next(shutting_down)
            return made

        yield begin
