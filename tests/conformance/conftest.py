"""Fixtures for LangChain's sandbox suite: those of the live tests, and a deepagents sandbox on their box.

Needs a host that can boot a box, and `deepagents`, `langchain-tests` and `pytest-asyncio`: run with `make conformance`.
"""

from __future__ import annotations

import pytest

from deerflow_boxlite import BoxliteBox
from deerflow_boxlite.integrations.deepagents import BoxliteSandbox
from live.conftest import box, folder, home, image_name, layout, provider, silence  # noqa: F401 - fixtures


def pytest_configure(config: pytest.Config) -> None:
    """The suite's asynchronous tests bear no mark."""
    config.option.asyncio_mode = "auto"


@pytest.fixture(scope="session")
def backend(box: BoxliteBox) -> BoxliteSandbox:  # noqa: F811
    """The box as a deepagents sandbox. Where it has a Python, that goes by the name `python` too."""
    found = box.run('! command -v python3 || command -v python || ln -s "$(command -v python3)" /usr/local/bin/python')
    assert found.exit_code == 0, found.stderr
    return BoxliteSandbox(box)
