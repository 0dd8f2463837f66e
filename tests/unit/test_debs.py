"""Fetching Debian packages, with apt-get and dpkg-deb replaced by small scripts: nothing here needs a network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from deerflow_boxlite import debs

APT_GET = """\
#!/bin/sh
echo "$PWD $*" >>"$CALLS"
test "$1" = -c || exit 90
archives=$(sed -n 's/^Dir::Cache "\\(.*\\)";$/\\1/p' "$2")/archives
case " $* " in
*" indextargets "*) printf 'Elsewhere Else http://else.where/\\n%s\\n' "$KNOWS" ;;
*" update "*) printf '%s' "$UPDATE_SAYS" >&2 ;;
*no-such*) echo 'E: Unable to locate package no-such' >&2; exit 100 ;;
*" nothing "*) ;;
*" --download-only "*) touch "$archives/libc6_2_amd64.deb" "$archives/some_1%3a2_all.deb" ;;
*" download "*) test -z "$KEEP" || cp -R "$archives/../.." "$KEEP"
test "$PWD" = "$archives" && touch "some_1%3a2_all.deb" ;;
esac
"""

DPKG_DEB = """\
#!/bin/sh
test "$(cat "$2")" = damaged && { echo 'unexpected end of file' >&2; exit 2; }
cp "$2" "$3/"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the scripts in the path and return the file that the fake apt-get notes its calls in."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("apt-get", APT_GET), ("dpkg-deb", DPKG_DEB)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("UPDATE_SAYS", "")
    monkeypatch.setenv("KNOWS", "Debian Debian http://mirror.example/debian/")
    return tmp_path / "calls"


def test_fetch_brings_the_packages_alone(calls: Path, tmp_path: Path) -> None:
    said: list[str] = []
    found = debs.fetch(["some"], tmp_path / "into", log=said.append)
    assert found == [tmp_path / "into" / "some_1%3a2_all.deb"]
    assert "--download-only" not in calls.read_text()
    assert said


def test_fetch_with_dependencies(calls: Path, tmp_path: Path) -> None:
    found = debs.fetch(["some"], tmp_path / "into", recurse=True)
    assert [path.name for path in found] == ["libc6_2_amd64.deb", "some_1%3a2_all.deb"]
    assert all(path.is_file() for path in found)


def test_fetch_from_a_release_at_the_machines_mirror(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    monkeypatch.setenv("KEEP", str(kept))
    assert debs.fetch(["some"], tmp_path / "into", release="trixie")
    (line,) = (kept / "sources.list").read_text().splitlines()
    assert line.startswith("deb ")
    assert line.endswith("http://mirror.example/debian/ trixie main")
    assert re.search(r'^Dir::Etc::sourcelist "/.*/sources.list";$', (kept / "apt.conf").read_text(), re.MULTILINE)
    assert 'Dir::Etc::sourceparts "-";' in (kept / "apt.conf").read_text()
    assert calls.read_text().count(" update") == 2


def test_a_release_where_there_is_no_mirror_of_debian(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KNOWS", "Ubuntu Ubuntu http://mirror.example/ubuntu/")
    with pytest.raises(debs.DebsError, match="mirror of Debian, to have trixie from"):
        debs.fetch(["some"], tmp_path / "into", release="trixie")
    assert calls.exists()


def test_fetch_leaves_nothing_but_packages(calls: Path, tmp_path: Path) -> None:
    found = debs.fetch(["some"], tmp_path / "into", recurse=True)
    assert sorted((tmp_path / "into").iterdir()) == found


@pytest.mark.parametrize("recurse", [False, True])
def test_fetch_says_what_apt_said(calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recurse: bool) -> None:
    monkeypatch.setenv("UPDATE_SAYS", "W: Failed to fetch http://mirror/")
    with pytest.raises(debs.DebsError, match=r"(?s)exit code 100.*Unable to locate.*Failed to fetch http://mirror/"):
        debs.fetch(["no-such"], tmp_path / "into", recurse=recurse)
    assert list((tmp_path / "into").iterdir()) == []


def test_fetch_that_brings_nothing_is_an_error(calls: Path, tmp_path: Path) -> None:
    with pytest.raises(debs.DebsError, match="downloaded nothing for nothing"):
        debs.fetch(["nothing"], tmp_path / "into")


def test_a_machine_without_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(debs.DebsError, match="apt-get is needed"):
        debs.fetch(["some"], tmp_path / "into")


def test_apt_is_kept_to_the_state_directory(tmp_path: Path) -> None:
    state = tmp_path / "state"
    option, file = debs.apt_options(state)
    assert option == "-c"
    text = Path(file).read_text()
    assert f'Dir::State "{state}";' in text
    assert (state / "status").read_text() == ""
    assert (state / "lists" / "partial").is_dir()
    assert (state / "cache" / "archives" / "partial").is_dir()


def test_unpack(calls: Path, tmp_path: Path) -> None:
    for name in ("one.deb", "two.deb"):
        (tmp_path / name).write_text(name)
    debs.unpack([tmp_path / "one.deb", tmp_path / "two.deb"], tmp_path / "some" / "root")
    assert sorted(path.name for path in (tmp_path / "some" / "root").iterdir()) == ["one.deb", "two.deb"]


def test_unpack_says_what_is_wrong(calls: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.deb").write_text("damaged")
    with pytest.raises(debs.DebsError, match="unexpected end of file"):
        debs.unpack([tmp_path / "bad.deb"], tmp_path / "root")


def test_it_needs_the_standard_library_only() -> None:
    source = Path(debs.__file__).parent.parent
    code = f"import sys; sys.path.insert(0, {str(source)!r}); from deerflow_boxlite import debs"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
