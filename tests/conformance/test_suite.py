"""LangChain's conformance suite for deepagents sandboxes, on a real box: on its root disk and on its tmpfs.

The suite of langchain-tests 1.1 is older than the contract of deepagents 0.7 in seven places. Those are expected to
fail for as long as it is; `test_contract.py` tests what the contract now says there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from deerflow_boxlite.integrations.deepagents import BoxliteSandbox

ABSOLUTE = (
    "expects paths relative to the root, where BackendProtocol.glob says that they are always absolute:"
    " deepagents' deny rules would not see relative ones"
)
FILES_ONLY = "expects directories, where BackendProtocol.glob says that only regular files are returned"
OVERWRITES = "expects a refusal to overwrite, where BackendProtocol.write says that an existing file is overwritten"

NEED_PYTHON = {"test_execute_large_stdout_payload", "test_aexecute_large_stdout_payload"}


def outdated(name: str, reason: str) -> Callable[..., None]:
    """A test of the suite that has to fail."""
    inherited: Callable[..., None] = getattr(SandboxIntegrationTests, name)

    @functools.wraps(inherited)
    def test(*args: Any, **fixtures: Any) -> None:
        inherited(*args, **fixtures)

    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)(test)


class Conformance(SandboxIntegrationTests):
    """The suite on the box of the session's image."""

    @pytest.fixture(scope="class")
    def sandbox(self, backend: BoxliteSandbox) -> BoxliteSandbox:
        """What the suite tests. It leaves its files in the box, which goes with the session."""
        return backend

    @pytest.fixture(autouse=True)
    def _can_run(self, request: pytest.FixtureRequest, image_name: str) -> None:
        if image_name == "busybox" and request.node.originalname in NEED_PYTHON:
            pytest.skip("runs `python -c`, and the busybox image has no Python")

    test_glob = outdated("test_glob", ABSOLUTE)
    test_glob_basic_pattern = outdated("test_glob_basic_pattern", ABSOLUTE)
    test_glob_hidden_files_explicitly = outdated("test_glob_hidden_files_explicitly", ABSOLUTE)
    test_glob_with_character_class = outdated("test_glob_with_character_class", ABSOLUTE)
    test_glob_with_question_mark = outdated("test_glob_with_question_mark", ABSOLUTE)
    test_glob_with_directories = outdated("test_glob_with_directories", FILES_ONLY)
    test_write_existing_file_fails = outdated("test_write_existing_file_fails", OVERWRITES)


class TestOnTmpfs(Conformance):
    """Under `/tmp`, where the suite wants to be. It is a mount, which BoxLite's own copying does not reach."""


class TestOnDisk(Conformance):
    """Where agents keep their files."""

    @property
    def sandbox_root_dir(self) -> str:
        """On the root disk."""
        return "/mnt/user-data/workspace/conformance/"
