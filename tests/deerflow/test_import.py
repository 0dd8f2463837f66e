"""Our wheel beside an installed DeerFlow: one `deerflow` package, one set of classes.

Needs an interpreter with both installed as wheels; with either missing it is skipped.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import subprocess
import sys

import pytest


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def run(code: str, tmp_path, **files: str) -> str:
    """Run code in a new interpreter in isolated mode, so that it sees what is installed and not this source tree."""
    for name, text in files.items():
        (tmp_path / name.replace("_", ".")).write_text(text)
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(autouse=True)
def _both_installed():
    if importlib.util.find_spec("deerflow.sandbox") is None:
        pytest.skip("DeerFlow is not installed for this interpreter")
    if not _installed("deerflow-boxlite"):
        pytest.skip("deerflow-boxlite is not installed for this interpreter")


CONFIG = """
models: []
sandbox:
  use: {use}
  memory_mib: 256
  home_dir: {home}
  environment: {{TOKEN: $THE_TOKEN}}
"""


def test_the_path_that_deerflow_documents(tmp_path):
    code = """
from deerflow.community.boxlite import BoxliteProvider, BoxliteBox
import deerflow_boxlite
from deerflow.sandbox.sandbox import Sandbox
from deerflow.sandbox.sandbox_provider import SandboxProvider
from deerflow.sandbox.exceptions import SandboxError
assert BoxliteProvider is deerflow_boxlite.BoxliteProvider
assert issubclass(BoxliteProvider, SandboxProvider) and issubclass(BoxliteBox, Sandbox)
assert issubclass(deerflow_boxlite.HostError, SandboxError)
assert not BoxliteBox.__abstractmethods__ and not BoxliteProvider.__abstractmethods__
"""
    run(code, tmp_path)


@pytest.mark.parametrize("use", ["deerflow.community.boxlite:BoxliteProvider", "deerflow_boxlite:BoxliteProvider"])
def test_deerflow_resolves_and_configures_our_provider(tmp_path, use):
    code = """
import os
os.environ["THE_TOKEN"] = "t0ken"
from deerflow.sandbox import get_sandbox_provider
from deerflow.sandbox.sandbox_provider import SandboxProvider, shutdown_sandbox_provider
provider = get_sandbox_provider()
assert isinstance(provider, SandboxProvider)
print(type(provider).__module__, provider.config.memory_mib, provider.config.environment["TOKEN"])
shutdown_sandbox_provider()
"""
    printed = run(code, tmp_path, config_yaml=CONFIG.format(use=use, home=tmp_path / "home"))
    assert printed.split() == ["deerflow_boxlite.provider", "256", "t0ken"]


def test_the_default_home_is_in_deerflows_data(tmp_path):
    code = """
import os
os.environ["DEER_FLOW_HOME"] = os.path.join(os.getcwd(), "data")
from deerflow_boxlite import BoxliteConfig
print(BoxliteConfig().home_dir)
"""
    assert run(code, tmp_path).strip() == str(tmp_path.resolve() / "data" / "boxlite")
