"""Tests inside DeerFlow's real harness (`deerflow-kernel`, Python 3.12). Without it they are skipped, and say so.

`unit` needs no VM: boxes are local processes. `live` needs a host that can boot one. Run them with `make deerflow`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

_HERE = Path(__file__).parent


def _harness() -> bool:
    try:
        return importlib.util.find_spec("deerflow.sandbox") is not None
    except ModuleNotFoundError:
        return False


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without the harness, only what skips itself is collected."""
    if not _harness() and any(
        (_HERE / part) in (collection_path, *collection_path.parents) for part in ("unit", "live")
    ):
        return True
    return None


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A DeerFlow project's directory, which is where the process is. No settings of this machine shine through."""
    for name in ("DEER_FLOW_CONFIG_PATH", "DEER_FLOW_HOME", "DEER_FLOW_PROJECT_ROOT", "DEER_FLOW_SKILLS_PATH"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder
