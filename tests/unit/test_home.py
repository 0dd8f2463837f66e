from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from deerflow_boxlite.errors import HomeInUseError
from deerflow_boxlite.home import BOXLITE_LOCK, HomeClaim

HOLD = """
import sys
from pathlib import Path
from deerflow_boxlite.home import HomeClaim
claim = HomeClaim(Path(sys.argv[1]))
print("claimed", flush=True)
sys.stdin.read()
"""

needs_proc = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="needs proc(5)")


@contextmanager
def other_process(home: Path) -> Iterator[int]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "claimed\n"
        yield process.pid
        process.kill()


@needs_proc
def test_case_33_a_second_process_is_told_the_home_the_holder_and_the_cure(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with other_process(home) as pid:
        with pytest.raises(HomeInUseError) as caught:
            HomeClaim(home)
        message = str(caught.value)
        assert str(home) in message
        assert f"process {pid} (" in message
        assert sys.executable in message
        assert "`home_dir`" in message


def test_a_claim_ends_with_its_process_even_if_that_was_killed(tmp_path: Path) -> None:
    with other_process(tmp_path):
        pass
    HomeClaim(tmp_path).release()


@needs_proc
def test_case_33_a_runtime_that_is_not_ours_is_found_too(tmp_path: Path) -> None:
    with (tmp_path / BOXLITE_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(HomeInUseError, match=rf"another BoxLite runtime in this same process \({os.getpid()}\)"):
            HomeClaim(tmp_path)
    claim = HomeClaim(tmp_path)
    claim.release()
    claim.release()


def test_a_claim_can_be_taken_again(tmp_path: Path) -> None:
    claim = HomeClaim(tmp_path)
    with pytest.raises(HomeInUseError):
        HomeClaim(tmp_path)
    claim.release()
    HomeClaim(tmp_path).release()


@needs_proc
def test_a_program_that_was_started_does_not_keep_the_claim(tmp_path: Path) -> None:
    claim = HomeClaim(tmp_path)
    with subprocess.Popen(["sleep", "60"], close_fds=False) as child:
        claim.release()
        HomeClaim(tmp_path).release()
        child.kill()
