"""One box that both use: ours by a provider, the raw SDK by a `SimpleBox` on the same runtime and name."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boxlite

from deerflow_boxlite import BoxliteBox, BoxliteConfig, BoxliteProvider, images
from deerflow_boxlite.bases import Base
from deerflow_boxlite.bxl import BoxliteRuntime
from deerflow_boxlite.identity import box_name

MEMORY_MIB = 1024


@dataclass(frozen=True)
class Rig:
    """What the cases need."""

    image: str
    box: BoxliteBox
    raw: Any
    """A `boxlite.SimpleBox`."""
    loop: asyncio.AbstractEventLoop
    """Where `raw` is to be used."""
    folder: Path
    """A scratch directory of this host."""


@contextlib.contextmanager
def rig(image: Base) -> Iterator[Rig]:
    """Boot a box of one of the test images in a home of its own, which is gone afterwards."""
    layout = images.cached(image)
    opened: list[Any] = []

    def open_runtime(home: Path) -> BoxliteRuntime:
        home.mkdir(parents=True, exist_ok=True)
        opened.append(boxlite.Boxlite(boxlite.Options(home_dir=str(home))))
        return BoxliteRuntime(boxlite, opened[0], home)

    with tempfile.TemporaryDirectory(prefix="bench-") as folder, contextlib.closing(asyncio.new_event_loop()) as loop:
        config = BoxliteConfig(image=str(layout), home_dir=Path(folder) / "home", memory_mib=MEMORY_MIB, idle_timeout=0)
        with BoxliteProvider(config=config, runtime_factory=open_runtime) as provider:
            box = provider.get(provider.acquire("bench"))
            assert isinstance(box, BoxliteBox)
            raw = boxlite.SimpleBox(
                rootfs_path=str(layout), runtime=opened.pop(), name=box_name(box.id), reuse_existing=True
            )
            loop.run_until_complete(raw.start())
            assert raw.created is False, "the SDK made a box of its own"
            try:
                yield Rig(image, box, raw, loop, Path(folder))
            finally:
                # The home stays locked, and the process cannot end, for as long as this holds the runtime. It has no
                # way to let go of a box but to stop it.
                vars(raw).clear()
