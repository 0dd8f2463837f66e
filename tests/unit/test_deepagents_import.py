"""Without deepagents, its integration says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "deepagents" or name.startswith("deepagents.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "deepagents", None)
    monkeypatch.delitem(sys.modules, "deerflow_boxlite.integrations.deepagents", raising=False)
    with pytest.raises(ImportError, match=r'pip install "deerflow-boxlite\[deepagents\]"') as caught:
        importlib.import_module("deerflow_boxlite.integrations.deepagents")
    assert caught.value.name == "deepagents"
