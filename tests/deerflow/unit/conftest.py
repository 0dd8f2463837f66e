"""DeerFlow on local processes in the place of boxes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deerflow.sandbox import get_sandbox_provider

from deerflow.community.boxlite import BoxliteProvider
from deerflow_boxlite.config import BoxliteConfig
from deerflow_boxlite.guest import GuestSettings
from deerflow_boxlite.thread_data import names
from support.local_runtime import LocalRuntime

from ..harness import DeerFlow, running


class Local(DeerFlow):
    """A DeerFlow whose boxes are processes of this machine: `mnt` is what `/mnt` would be in a box."""

    def __init__(self, project: Path, monkeypatch: pytest.MonkeyPatch, shell: str, **settings: Any) -> None:
        sections = settings.pop("sections", {})
        lazy = settings.pop("lazy", True)
        self.mnt = project.parent / "mnt"
        self.mnt.mkdir(exist_ok=True)
        monkeypatch.setattr(names, "GUEST_BASE", str(self.mnt))
        monkeypatch.setattr(GuestSettings, "of", self._guest_settings)
        self.runtime: LocalRuntime | None = None
        self._shell = shell
        given = {
            "use": "deerflow.community.boxlite:BoxliteProvider",
            "home_dir": str(project.parent / "home"),
            "idle_timeout": 0,
        }
        super().__init__(
            project, given | settings, lazy=lazy, skills={"container_path": f"{self.mnt}/skills"}, **sections
        )

    def _guest_settings(self, config: BoxliteConfig) -> GuestSettings:
        return GuestSettings(
            image="local",
            environment=config.environment,
            shell=config.shell,
            command_timeout=config.command_timeout,
            max_output_bytes=config.max_output_bytes,
            state_dir=str(self.mnt.parent / "state"),
            directories=tuple(f"{self.mnt}/user-data/{name}" for name in ("workspace", "uploads", "outputs")),
        )

    def provider(self) -> BoxliteProvider:
        """As DeerFlow makes it: its own function, which passes keywords on."""
        return get_sandbox_provider(runtime_factory=self._open)

    def _open(self, home: Path) -> LocalRuntime:
        if self.runtime is None:
            self.runtime = LocalRuntime(self.mnt.parent / "runtime", self._shell)
        return self.runtime

    def box(self, name: str) -> Path:
        return self.mnt / "user-data" / name


@pytest.fixture
def deerflow(project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Local]:
    made = Local(project, monkeypatch, "bash", environment={"TOKEN": "$THE_TOKEN"}, bash_command_timeout=7)
    monkeypatch.setenv("THE_TOKEN", "t0ken")
    made.provider()
    yield from running(made)
