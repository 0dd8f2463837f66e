"""Places to test files and search in, under each of the shells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.files_guest import Place, place_for


@pytest.fixture(params=["dash", "bash", "busybox"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_for(request.param) as found:
        yield found


@pytest.fixture(params=["dash", "bash"])
def changeable(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A place where programs can be replaced. Debian's busybox runs its own applets, whatever is in the PATH."""
    with place_for(request.param) as found:
        yield found
