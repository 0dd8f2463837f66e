"""The fallback contract against DeerFlow's own, and how one or the other is chosen."""

from __future__ import annotations

import errno
import importlib
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deerflow_boxlite import contract
from deerflow_boxlite import contract_fallback as ours
from deerflow_boxlite.errors import BoxDiedError, BoxError

SRC = Path(__file__).parents[2] / "src"
needs_deerflow = pytest.mark.skipif(not contract.DEERFLOW_INSTALLED, reason="DeerFlow is not installed here")

_segment = st.one_of(
    st.sampled_from(["a", "src", "x.py", ".git", "build", "b.log", "a~", "[a]", "*", "**"]),
    st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=6).filter(lambda name: name != "."),
)
_rel_path = st.lists(_segment, min_size=1, max_size=4).map("/".join)
_pattern = st.one_of(_rel_path, st.sampled_from(["**/*.py", "*.py", "src/*", "**/*", "**/src/*.py", "[a-c]*"]))


def _theirs():
    return importlib.import_module("deerflow.sandbox.search")


@needs_deerflow
def test_constants_are_deerflows():
    theirs = _theirs()
    assert theirs.IGNORE_PATTERNS == ours.IGNORE_PATTERNS
    assert theirs.DEFAULT_MAX_FILE_SIZE_BYTES == ours.DEFAULT_MAX_FILE_SIZE_BYTES
    assert theirs.DEFAULT_LINE_SUMMARY_LENGTH == ours.DEFAULT_LINE_SUMMARY_LENGTH
    paths = importlib.import_module("deerflow.config.paths")
    assert paths.VIRTUAL_PATH_PREFIX == contract.VIRTUAL_PATH_PREFIX


@needs_deerflow
@given(name=st.one_of(_segment, st.sampled_from(ours.IGNORE_PATTERNS).map(lambda p: p.replace("*", "x"))))
def test_should_ignore_name_is_deerflows(name):
    assert ours.should_ignore_name(name) == _theirs().should_ignore_name(name)


@needs_deerflow
@given(pattern=_pattern, path=_rel_path)
def test_path_matches_is_deerflows(pattern, path):
    assert ours.path_matches(pattern, path) == _theirs().path_matches(pattern, path)


@needs_deerflow
@given(line=st.text(max_size=300), width=st.integers(0, 300))
def test_truncate_line_is_deerflows(line, width):
    assert ours.truncate_line(line, width) == _theirs().truncate_line(line, width)


@needs_deerflow
@given(message=st.text(), details=st.none() | st.dictionaries(st.text(), st.integers()))
def test_sandbox_error_is_deerflows(message, details):
    theirs = importlib.import_module("deerflow.sandbox.exceptions").SandboxError(message, details)
    error = ours.SandboxError(message, details)
    assert (str(error), error.message, error.details, error.args) == (
        str(theirs),
        theirs.message,
        theirs.details,
        theirs.args,
    )


@needs_deerflow
def test_names_are_bound_to_deerflows_own():
    assert contract.Sandbox is importlib.import_module("deerflow.sandbox.sandbox").Sandbox
    assert contract.SandboxProvider is importlib.import_module("deerflow.sandbox.sandbox_provider").SandboxProvider
    assert contract.GrepMatch is _theirs().GrepMatch


@needs_deerflow
@pytest.mark.parametrize("name", ["Sandbox", "SandboxProvider"])
def test_every_method_of_deerflows_is_in_the_fallback_and_takes_its_arguments(name):
    theirs, mine = getattr(contract, name), getattr(ours, name)
    assert theirs.__abstractmethods__ <= mine.__abstractmethods__
    for method in theirs.__abstractmethods__:
        wanted = inspect.signature(getattr(theirs, method)).parameters
        has = inspect.signature(getattr(mine, method)).parameters
        for parameter in wanted.values():
            assert (has[parameter.name].kind, has[parameter.name].default) == (parameter.kind, parameter.default)


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("**/*.py", "a.py", True),
        ("**/*.py", "src/a.py", True),
        ("src/*.js", "vendor/x.js", False),
        ("src/*.js", "src/x.js", True),
        ("*.js", "a/b/x.js", True),
    ],
)
def test_path_matches(pattern, path, matches):
    assert ours.path_matches(pattern, path) is matches


def test_ignored_names():
    ignored = ["node_modules", ".git", "x.log", "a~", "pkg.egg-info"]
    assert [name for name in [*ignored, "src", "logs.py", "gitignore"] if ours.should_ignore_name(name)] == ignored


def test_truncate_line_keeps_its_length():
    assert ours.truncate_line("x" * 200 + "\r\n") == "x" * 200
    assert ours.truncate_line("x" * 201) == "x" * 197 + "..."


def test_a_died_box_is_an_os_error_and_a_sandbox_error():
    error = BoxDiedError("box b died")
    assert isinstance(error, OSError)
    assert isinstance(error, BoxError)
    assert isinstance(error, contract.SandboxError)
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert (str(one), one.errno, one.strerror, one.details) == ("box b died", errno.EIO, "box b died", {})


def _import_contract(directory: Path) -> subprocess.CompletedProcess[str]:
    """Import the contract in a new interpreter that has `directory` and our source on its path, and little else."""
    code = f"""
import sys
sys.path[:0] = [{str(directory)!r}, {str(SRC)!r}]
from deerflow_boxlite import contract
print(contract.DEERFLOW_INSTALLED, contract.Sandbox.__module__)
"""
    return subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=False)


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_without_deerflow_our_namespace_package_does_not_pass_for_it(tmp_path):
    done = _import_contract(tmp_path)
    assert done.stdout.split() == ["False", "deerflow_boxlite.contract_fallback"], done.stderr


@pytest.mark.parametrize(
    "files",
    [
        {"deerflow/__init__.py": "import nosuchmodule"},
        {"deerflow/__init__.py": "", "deerflow/sandbox/__init__.py": "import nosuchmodule"},
        {"deerflow/__init__.py": "", "deerflow/sandbox/__init__.py": ""},
        {"deerflow/__init__.py": "", "deerflow/sandbox/__init__.py": "", "deerflow/sandbox/exceptions.py": "1/0"},
    ],
)
def test_a_broken_deerflow_is_not_taken_for_an_absent_one(tmp_path, files):
    _write(tmp_path, files)
    done = _import_contract(tmp_path)
    assert done.returncode != 0
    wanted = ("No module named 'nosuchmodule'", "No module named 'deerflow.sandbox.exceptions'", "ZeroDivisionError")
    assert any(text in done.stderr for text in wanted), done.stderr


def test_a_deerflow_is_bound(tmp_path):
    search = (SRC / "deerflow_boxlite" / "contract_fallback.py").read_text()
    one_class = "from .search import {0}\nclass {0}({0}): pass\n"
    _write(
        tmp_path,
        {
            "deerflow/__init__.py": "",
            "deerflow/sandbox/__init__.py": "",
            "deerflow/sandbox/search.py": search,
            "deerflow/sandbox/exceptions.py": one_class.format("SandboxError"),
            "deerflow/sandbox/sandbox.py": one_class.format("Sandbox"),
            "deerflow/sandbox/sandbox_provider.py": one_class.format("SandboxProvider"),
        },
    )
    done = _import_contract(tmp_path)
    assert done.stdout.split() == ["True", "deerflow.sandbox.sandbox"], done.stderr
