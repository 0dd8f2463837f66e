"""`deerflow_boxlite.images`, and the modules below it, with Debian's packages and mmdebstrap played by fakes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from platformdirs import user_cache_path

from deerflow_boxlite import bases, debs, images, oci
from deerflow_boxlite.errors import ImageError

INDEX = "application/vnd.oci.image.index.v1+json"
FAKE_BUSYBOX = "#!/bin/sh\nprintf '%s\\n' bin/busybox bin/sh usr/bin/env sbin/mdev linuxrc\n"
FAKE_MMDEBSTRAP = """\
echo "$@" >"$FAKE/arguments"
echo "$SOURCE_DATE_EPOCH $(command -v mmtarfilter)" >"$FAKE/environment"
echo "I: extracting archives..." >&2
echo "not for the log" >&2
if [ -e "$FAKE/hang" ]; then exec sleep 60; fi
if [ -e "$FAKE/fail" ]; then echo "E: no space left" >&2; exit 3; fi
cat "$FAKE/root.tar"
"""


class Fetcher:
    """Stands for `debs`: what is fetched appears as the fakes above when it is unpacked."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.error: BaseException | None = None

    def fetch(self, packages: Sequence[str], into: Path, *, log: Callable[[str], None]) -> list[Path]:
        self.fetched += packages
        if self.error is not None:
            raise self.error
        return []

    def unpack(self, found: Sequence[Path], root: Path) -> None:
        for name, text in {
            "bin/busybox": FAKE_BUSYBOX,
            "usr/bin/mmdebstrap": FAKE_MMDEBSTRAP,
            "usr/bin/mmtarfilter": "#!/bin/sh\n",
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755)


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default cache, empty and apart from the user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / ".cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return user_cache_path("deerflow-boxlite") / "images"


@pytest.fixture(autouse=True)
def fetcher(monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    fake = Fetcher()
    monkeypatch.setattr(debs, "fetch", fake.fetch)
    monkeypatch.setattr(debs, "unpack", fake.unpack)
    return fake


@pytest.fixture
def mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the fake mmdebstrap finds its root.tar and leaves how it was called. Its perl is sh."""
    fake = tmp_path / "fake"
    fake.mkdir()
    with tarfile.open(fake / "root.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("./etc"))
    for name, script in {
        "perl": 'exec sh "$@"',
        "setpriv": 'echo "$@" >"$FAKE/setpriv"; shift 2; exec "$@"',
        "unshare": 'shift; exec "$@"',
    }.items():
        (fake / name).write_text(f"#!/bin/sh\n{script}\n")
        (fake / name).chmod(0o755)
    monkeypatch.setenv("FAKE", str(fake))
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    return fake


@pytest.fixture
def layout(tmp_path: Path) -> Path:
    return images.build("empty", tmp_path / "layout")


def blob(layout: Path, descriptor: dict[str, Any]) -> Path:
    return layout / "blobs" / "sha256" / str(descriptor["digest"]).removeprefix("sha256:")


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_bytes())
    return document


def write_blob(layout: Path, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def manifest_of(layout: Path) -> dict[str, Any]:
    return read(blob(layout, read(layout / "index.json")["manifests"][0]))


def change_index(layout: Path, change: Callable[[dict[str, Any]], None]) -> None:
    index = read(layout / "index.json")
    change(index)
    (layout / "index.json").write_text(json.dumps(index))


def assert_whole(layout: Path) -> None:
    """Every blob is named once, and has the digest and the size its descriptor says."""
    assert read(layout / "oci-layout") == {"imageLayoutVersion": "1.0.0"}
    manifest = read(layout / "index.json")["manifests"][0]
    document = read(blob(layout, manifest))
    named = [manifest, document["config"], *document["layers"]]
    for descriptor in named:
        content = blob(layout, descriptor).read_bytes()
        assert descriptor["digest"] == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert descriptor["size"] == len(content)
    assert len(list((layout / "blobs" / "sha256").iterdir())) == len(named)
    config = read(blob(layout, document["config"]))
    assert config["rootfs"]["diff_ids"] == [layer["digest"] for layer in document["layers"]]
    assert manifest["platform"] == {"os": "linux", "architecture": config["architecture"]}


def entries(layout: Path) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(blob(layout, manifest_of(layout)["layers"][0])) as tar:
        names = tar.getnames()
        assert len(names) == len(set(names))
        return {member.name: member for member in tar}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# What the setting means


@pytest.mark.parametrize(
    "image",
    [
        "python",
        "python:3.12-slim",
        "library/python",
        "a__b/c-d/e.f---g",
        "localhost/x",
        "localhost:5000/x:y",
        "ghcr.io/me/tools:V1_2.3",
        "GHCR.io:443/me/tools",
        "[::1]:5000/x",
        "x@sha256:" + "0" * 64,
        "quay.io/x:y@sha256:" + "a" * 64,
    ],
)
def test_a_reference_is_taken_as_it_is(image: str) -> None:
    source = images.resolve(image)
    assert source == images.ImageSource(reference=image)
    assert str(source) == image


@pytest.mark.parametrize(
    "image",
    [
        "",
        " ",
        " python",
        "python:3.12 slim",
        "Python:3.12",
        "ghcr.io/Me/tools",
        "Me/tools",
        "python:",
        "python:-x",
        "python:" + "x" * 129,
        "x@sha256:12",
        "x/",
        "x//y",
        "ghcr.io/",
        "./layout",
        "docker://python",
        "https://ghcr.io/me/tools",
        "a..b",
        "-a",
        "x\n",
        "a" * 256,
    ],
)
def test_a_malformed_reference_is_an_error_that_says_what_is_allowed(image: str) -> None:
    with pytest.raises(ImageError, match=r"An OCI reference is .*A local OCI layout is"):
        images.resolve(image)


@given(st.text(st.sampled_from("aA0.:-_/@[ \né"), max_size=12).filter(lambda text: not text.startswith("/")))
def test_any_text_is_a_reference_or_an_image_error(image: str) -> None:
    with contextlib.suppress(ImageError):
        assert images.resolve(image).reference == image


@pytest.mark.parametrize("image", ["{tmp}/layout", "~/layout", "oci:{tmp}/layout", "oci:layout", "oci:~/layout"])
def test_a_path_is_a_layout(image: str, layout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(layout.parent)
    monkeypatch.setenv("HOME", str(layout.parent))
    source = images.resolve(image.format(tmp=layout.parent))
    assert source == images.ImageSource(layout=layout)
    assert str(source) == str(layout)


def test_a_source_is_one_of_the_two() -> None:
    with pytest.raises(ValueError, match="either"):
        images.ImageSource()
    with pytest.raises(ValueError, match="either"):
        images.ImageSource("python", Path("/layout"))


def test_a_path_without_a_home_or_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ImageError, match="names no directory"):
        images.resolve("oci:")
    with pytest.raises(ImageError, match="Give an absolute path"):
        images.resolve("~nobody-has-this-name/layout")


# What is wrong with a layout


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def become_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def is_index_of(layout: Path, document: bytes) -> dict[str, Any]:
    return {"mediaType": INDEX, **write_blob(layout, document)}


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (shutil.rmtree, "does not exist"),
    "a file": (become_a_file, "is no directory"),
    "no oci-layout": (lambda path: (path / "oci-layout").unlink(), "lacks oci-layout"),
    "no index": (lambda path: (path / "index.json").unlink(), "lacks index.json"),
    "no blobs": (lambda path: shutil.rmtree(path / "blobs"), "lacks blobs"),
    "empty": (empty, "lacks oci-layout, index.json, blobs"),
    "no JSON": (lambda path: (path / "index.json").write_text("{"), "index.json cannot be read"),
    "not UTF-8": (lambda path: (path / "index.json").write_bytes(b"\xff"), "index.json cannot be read"),
    "no object": (lambda path: (path / "index.json").write_text("[]"), "holds no JSON object"),
    "no manifests": (lambda path: (path / "index.json").write_text("{}"), "names none"),
    "odd manifests": (lambda path: (path / "index.json").write_text('{"manifests": [1]}'), "names none"),
    "layer cut short": (lambda path: cut_short(blob(path, manifest_of(path)["layers"][0])), "bytes, not"),
    "layer gone": (lambda path: blob(path, manifest_of(path)["layers"][0]).unlink(), "lacks blobs/sha256/"),
    "config gone": (lambda path: blob(path, manifest_of(path)["config"]).unlink(), "lacks blobs/sha256/"),
    "path as digest": (
        lambda path: change_index(path, lambda index: index["manifests"][0].update(digest="sha256:../../index.json")),
        "is no sha256 digest",
    ),
    "no media type": (
        lambda path: change_index(path, lambda index: index["manifests"][0].pop("mediaType")),
        r"found None \(linux/",
    ),
    "empty inner index": (
        lambda path: change_index(path, lambda index: index.update(manifests=[is_index_of(path, b"{}")])),
        "found nothing",
    ),
}


@pytest.mark.parametrize(("damage", "says"), DAMAGES.values(), ids=DAMAGES)
def test_what_is_wrong_with_a_layout_is_said(damage: Callable[[Path], object], says: str, layout: Path) -> None:
    damage(layout)
    with pytest.raises(ImageError, match=says) as caught:
        images.resolve(str(layout))
    assert str(layout) in str(caught.value)
    assert "ake " in str(caught.value), "it does not say what to do"


def add_foreign_image(index: dict[str, Any]) -> None:
    """One whose blobs are not there, as in a copy for one platform."""
    foreign = {"architecture": "s390x", "os": "linux"}
    index["manifests"].insert(0, {**index["manifests"][0], "digest": f"sha256:{'0' * 64}", "platform": foreign})


def test_only_the_first_entry_of_an_index_counts(layout: Path) -> None:
    change_index(layout, add_foreign_image)
    with pytest.raises(ImageError, match="linux/s390x"):
        images.image_config(layout)


def test_an_index_in_the_index_is_chosen_from_by_platform(layout: Path) -> None:
    change_index(layout, add_foreign_image)
    inner = is_index_of(layout, (layout / "index.json").read_bytes())
    (layout / "index.json").write_text(json.dumps({"manifests": [inner]}))
    assert images.image_config(layout).workdir == "/"


def test_the_config_decides_where_the_index_names_no_platform(layout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change_index(layout, lambda index: index["manifests"][0].pop("platform"))
    assert images.image_config(layout).workdir == "/"
    other = "aarch64" if oci.architecture() == "amd64" else "x86_64"
    monkeypatch.setattr("platform.machine", lambda: other)
    with pytest.raises(ImageError, match="has no image for linux/"):
        images.image_config(layout)


def test_a_malformed_config_is_an_image_error(layout: Path) -> None:
    manifest = manifest_of(layout)
    config = {"os": "linux", "architecture": oci.architecture(), "config": {"Env": 7}}
    manifest["config"].update(write_blob(layout, json.dumps(config).encode()))
    change = write_blob(layout, json.dumps(manifest).encode())
    change_index(layout, lambda index: index["manifests"][0].update(change))
    with pytest.raises(ImageError, match="config is malformed"):
        images.image_config(layout)


def test_other_machines_are_refused(monkeypatch: pytest.MonkeyPatch, layout: Path) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(ImageError, match="amd64 and arm64 only"):
        images.resolve(str(layout))


# What is built


def test_a_layout_keeps_to_the_specification(layout: Path) -> None:
    assert_whole(layout)
    assert list(entries(layout)) == ["README"]


def test_the_config_is_what_was_asked_for(tmp_path: Path) -> None:
    built = images.build("busybox", tmp_path / "x", user="agent:1000", entrypoint=["/bin/e", "a b"], cmd=["c", "é"])
    config = images.image_config(built)
    assert (config.user, config.entrypoint, config.cmd) == ("agent:1000", ("/bin/e", "a b"), ("c", "é"))
    assert config.env["PATH"].endswith("/sbin:/bin")
    assert config.workdir == "/"
    assert images.image_config(images.build("busybox", tmp_path / "y")).cmd == ("/bin/sh",)
    assert images.image_config(images.build("busybox", tmp_path / "z", cmd=[])).cmd == ()


@pytest.mark.parametrize("base", ["busybox", "empty"])
def test_the_same_arguments_give_the_same_bytes(base: bases.Base, tmp_path: Path) -> None:
    one = images.build(base, tmp_path / "one", cache=tmp_path / "cache1")
    two = images.build(base, tmp_path / "two", cache=tmp_path / "cache2")
    assert contents(one) == contents(two)


def test_busybox_has_its_applets_accounts_and_directories(tmp_path: Path) -> None:
    built = images.build("busybox", tmp_path / "busybox")
    assert_whole(built)
    found = entries(built)
    assert list(found) == sorted(found)
    assert {member.mtime for member in found.values()} == {0}
    assert {name for name, member in found.items() if member.uid or member.gid} == {"home/agent"}
    assert (found["home/agent"].uid, found["home/agent"].gid) == (1000, 1000)
    assert (found["tmp"].mode, found["root"].mode, found["bin/busybox"].mode) == (0o1777, 0o700, 0o755)
    assert {name for name, member in found.items() if member.issym()} == {"bin/sh", "usr/bin/env", "sbin/mdev"}
    assert found["usr/bin/env"].linkname == "/bin/busybox"
    assert found["usr/bin"].isdir()
    with tarfile.open(blob(built, manifest_of(built)["layers"][0])) as tar:
        passwd = tar.extractfile("etc/passwd")
        assert passwd is not None
        assert b"agent:x:1000:1000:" in passwd.read()


def test_source_date_epoch_dates_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert entries(images.build("empty", tmp_path / "x"))["README"].mtime == 86400
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ImageError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        images.build("empty", tmp_path / "y")


@pytest.mark.parametrize(
    ("base", "user"),
    [("busybox", "alice"), ("busybox", "1000:"), ("busybox", "agent:root:x"), ("busybox", " "), ("empty", "agent")],
)
def test_a_user_who_is_not_in_the_image_is_refused(base: bases.Base, user: str, tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="user"):
        images.build(base, tmp_path / "x", user=user)


def test_an_unknown_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match="busybox, debian, empty"):
        images.build("alpine", tmp_path / "x")  # type: ignore[arg-type]


# What is left as it is, and what is kept


def test_a_layout_of_the_same_recipe_is_left_as_it_is(tmp_path: Path, fetcher: Fetcher, caches: Path) -> None:
    built = images.build("busybox", tmp_path / "x")
    shutil.rmtree(caches)
    inode = built.stat().st_ino
    lines: list[str] = []
    assert images.build("busybox", tmp_path / "x", log=lines.append) == built
    assert (built.stat().st_ino, fetcher.fetched) == (inode, ["busybox-static"])
    assert lines == [f"{built} is there already"]


def test_a_damaged_layout_of_the_same_recipe_is_an_error(layout: Path) -> None:
    cut_short(blob(layout, manifest_of(layout)["layers"][0]))
    with pytest.raises(ImageError, match=f"delete {layout} first"):
        images.build("empty", layout)


def test_another_directory_is_left_alone(tmp_path: Path, layout: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    (tmp_path / "file").write_text("precious")
    for into, what in {"mine": "something else", "file": "something else", "layout": "other arguments"}.items():
        before = contents(tmp_path)
        with pytest.raises(ImageError, match=what):
            images.build("empty", tmp_path / into, user="7")
        assert contents(tmp_path) == before


def test_an_empty_directory_and_missing_parents_are_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_whole(images.build("empty", tmp_path / "empty"))
    assert_whole(images.build("empty", tmp_path / "a" / "b"))


def test_variants_share_one_root(tmp_path: Path, fetcher: Fetcher) -> None:
    one = images.build("busybox", tmp_path / "one")
    two = images.build("busybox", tmp_path / "two", user="agent")
    assert fetcher.fetched == ["busybox-static"]
    assert manifest_of(one)["layers"] == manifest_of(two)["layers"]
    assert manifest_of(one)["config"] != manifest_of(two)["config"]


def test_a_cached_layout_is_made_once_for_the_same_arguments(caches: Path, fetcher: Fetcher) -> None:
    one = images.cached("busybox", cmd=["x"])
    assert one == images.cached("busybox", cmd=["x"])
    assert one.parent == caches
    assert one != images.cached("busybox", cmd=["y"])
    assert_whole(one)
    assert fetcher.fetched == ["busybox-static"]


def test_two_builders_at_once_make_it_once(tmp_path: Path, fetcher: Fetcher) -> None:
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(images.build, "busybox", tmp_path / name) for name in ("same", "same", "other", "same")]
    assert {job.result() for job in jobs} == {tmp_path / "same", tmp_path / "other"}
    assert fetcher.fetched == ["busybox-static"]
    assert_whole(tmp_path / "same")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "other", "same"]


# When something goes wrong half-way


@pytest.mark.parametrize("error", [debs.DebsError("no mirror"), KeyboardInterrupt()], ids=["failed", "interrupted"])
def test_a_failed_root_leaves_nothing(error: BaseException, tmp_path: Path, fetcher: Fetcher, caches: Path) -> None:
    fetcher.error = error
    with pytest.raises(type(error)):
        images.build("busybox", tmp_path / "x")
    assert [path.suffix for path in caches.iterdir()] == [".lock"]
    assert not (tmp_path / "x").exists()
    fetcher.error = None
    assert_whole(images.build("busybox", tmp_path / "x"))


def test_a_failed_layout_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    into = tmp_path / "out" / "x"
    with monkeypatch.context() as broken:
        broken.setattr(shutil, "copyfile", lambda _from, _to: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            images.build("empty", into)
    assert list(into.parent.iterdir()) == []
    assert_whole(images.build("empty", into))


def test_what_a_killed_builder_left_is_never_used(caches: Path, tmp_path: Path) -> None:
    images.build("empty", tmp_path / "x")
    kept = next(path for path in caches.iterdir() if path.suffix == "")
    kept.rename(kept.with_suffix(".partial"))
    (kept.with_suffix(".partial") / "layer.tar").write_bytes(b"half")
    assert_whole(images.build("empty", tmp_path / "y"))
    assert not kept.with_suffix(".partial").exists()


def test_a_damaged_kept_root_is_noticed(caches: Path, tmp_path: Path) -> None:
    images.build("empty", tmp_path / "x")
    with next(caches.glob("*/layer.tar")).open("r+b") as file:
        file.write(b"x")
    with pytest.raises(ImageError, match=r"layer.tar is damaged.*Delete it"):
        images.build("empty", tmp_path / "y")
    assert not (tmp_path / "y").exists()


# Debian, as far as it goes without mmdebstrap


def test_debian_is_the_tar_that_mmdebstrap_writes(mmdebstrap: Path, tmp_path: Path, fetcher: Fetcher) -> None:
    lines: list[str] = []
    built = images.build("debian", tmp_path / "debian", log=lines.append)
    assert_whole(built)
    assert list(entries(built)) == ["./etc", "./dev"]
    assert "extracting archives..." in lines
    assert not any("not for the log" in line for line in lines)
    assert fetcher.fetched[0] == "mmdebstrap"
    arguments = (mmdebstrap / "arguments").read_text()
    assert f"--format=tar {bases.suite()} -" in arguments
    assert "--include=python3,ca-certificates" in arguments
    assert (mmdebstrap / "setpriv").read_text().startswith("--pdeathsig TERM ")
    epoch, _, companion = (mmdebstrap / "environment").read_text().strip().partition(" ")
    assert epoch == "0"
    assert companion.endswith("/usr/bin/mmtarfilter")


@pytest.mark.parametrize(("uid", "hint"), [(0, False), (1000, True)])
def test_mmdebstrap_s_last_words_are_in_the_error(
    uid: int, hint: bool, mmdebstrap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caches: Path
) -> None:
    (mmdebstrap / "fail").touch()
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(ImageError, match=r"(?s)exit code 3.*not for the log.*no space left") as caught:
        images.build("debian", tmp_path / "debian")
    assert ("uidmap" in str(caught.value)) == hint
    assert [path.suffix for path in caches.iterdir()] == [".lock"]


def test_an_interrupted_build_ends_mmdebstrap(mmdebstrap: Path, tmp_path: Path) -> None:
    (mmdebstrap / "hang").touch()

    def interrupt(line: str) -> None:
        if "extracting" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # At once, not in a minute.
        images.build("debian", tmp_path / "debian", log=interrupt)
    assert not (tmp_path / "debian").exists()


def test_debian_needs_perl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageError, match="lacks perl"):
        images.build("debian", tmp_path / "debian")


@pytest.mark.parametrize(("uid", "allowed", "apart"), [(0, True, True), (0, False, False), (1000, True, False)])
def test_root_s_mounts_are_kept_apart_where_that_is_allowed(
    uid: int, allowed: bool, apart: bool, mmdebstrap: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    if not allowed:
        (mmdebstrap / "unshare").write_text("#!/bin/sh\nexit 1\n")
    images.build("debian", tmp_path / "debian")
    assert ("unshare --mount perl" in (mmdebstrap / "setpriv").read_text()) == apart


@pytest.mark.parametrize(
    ("release", "suite"),
    [
        ({"ID": "debian", "VERSION_CODENAME": "trixie"}, "trixie"),
        ({"ID": "debian"}, "bookworm"),
        ({"ID": "ubuntu", "VERSION_CODENAME": "noble"}, "bookworm"),
    ],
)
def test_the_suite_is_the_machine_s_own_on_debian(
    release: dict[str, str], suite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.freedesktop_os_release", lambda: release)
    assert bases.suite() == suite


def test_the_debian_keys_are_fetched_where_they_are_missing(
    mmdebstrap: Path, tmp_path: Path, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "_KEYRING", Path("/nonexistent/debian.gpg"))
    images.build("debian", tmp_path / "debian")
    assert fetcher.fetched == ["mmdebstrap", "debian-archive-keyring"]
    assert "/nonexistent/debian.gpg" in (mmdebstrap / "arguments").read_text().partition("--keyring=")[2]
