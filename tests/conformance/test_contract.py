"""What deepagents' contract says now where LangChain's suite still tests what it said before (see test_suite.py)."""

from __future__ import annotations

import pytest
from deepagents.backends.protocol import ExecuteResponse

from deerflow_boxlite.integrations.deepagents import BoxliteSandbox


@pytest.fixture
def tree(backend: BoxliteSandbox, folder: str) -> str:
    """A folder with some files in it."""
    names = ("file1.txt", "file2.txt", "fileA.txt", "file10.txt", "x.py", ".hidden", "dir/nested.txt", ".git/config")
    assert not any(done.error for done in backend.upload_files([(f"{folder}/{name}", b"content") for name in names]))
    return folder


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.py", {"x.py"}),
        ("*.txt", {"file1.txt", "file2.txt", "fileA.txt", "file10.txt", "dir/nested.txt"}),
        ("/*.txt", {"file1.txt", "file2.txt", "fileA.txt", "file10.txt"}),
        (".*", {".hidden"}),
        ("file[1-2].txt", {"file1.txt", "file2.txt"}),
        ("file?.txt", {"file1.txt", "file2.txt", "fileA.txt"}),
        ("{x,file1}.*", {"x.py", "file1.txt"}),
        ("**/*.txt", {"file1.txt", "file2.txt", "fileA.txt", "file10.txt", "dir/nested.txt"}),
        ("config", {".git/config"}),
        ("dir", set()),
    ],
)
def test_glob_gives_absolute_paths_of_regular_files(
    backend: BoxliteSandbox, tree: str, pattern: str, expected: set[str]
) -> None:
    found = backend.glob(pattern, path=tree)
    assert found.error is None
    assert found.matches == [{"path": f"{tree}/{name}", "is_dir": False} for name in sorted(expected)]
    assert (found.truncated, found.truncation_reason) == (False, None)


def test_write_overwrites_and_keeps_the_mode(backend: BoxliteSandbox, folder: str) -> None:
    path = f"{folder}/script.sh"
    backend.write(path, "first")
    backend.execute(f"chmod 755 {path}")
    assert backend.write(path, "second").error is None
    assert backend.execute(f"cat {path}; [ -x {path} ]") == ExecuteResponse("second", exit_code=0)


def test_large_output_is_offloaded_to_a_file(backend: BoxliteSandbox, folder: str) -> None:
    """deepagents' wrapper runs on both images, and leaves what is too large in the box."""
    path = f"{folder}/captured"
    offload = backend.execute_with_offload("seq 1 5000; exit 3", path, max_inline_bytes=1000)
    assert (offload.offloaded, offload.response.exit_code) == (True, 3)
    assert "1\n2\n3\n" in offload.response.output
    captured = backend.download_files([path])[0].content
    assert captured == "".join(f"{number}\n" for number in range(1, 5001)).encode()
