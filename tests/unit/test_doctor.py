"""What the doctor finds on hosts of every kind, made of files."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from deerflow_boxlite import bxl, doctor, doctor_home, doctor_host, doctor_image
from deerflow_boxlite.config import BoxliteConfig
from deerflow_boxlite.doctor_report import Finding, Host, Report
from deerflow_boxlite.errors import HomeInUseError, HostError
from deerflow_boxlite.home import HomeClaim

INTEL = "processor\t: 0\nflags\t\t: fpu vme vmx sse\n\nprocessor\t: 1\nflags\t\t: fpu\n"
CLOUD = "processor\t: 0\nflags\t\t: fpu vme hypervisor\n"
OLD = "processor\t: 0\nflags\t\t: fpu vme\n"


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def linux(root: Path, files: dict[str, str], machine: str = "x86_64") -> Host:
    put(root, files)
    return Host(system="Linux", machine=machine, libc=("glibc", "2.36"), python="3.12.1", root=root)


def raises(error: OSError):
    def api_version(device: Path) -> int:
        raise error

    return api_version


def kvm(host: Host, answer=lambda device: 12) -> Finding:
    (finding,) = doctor_host.kvm_findings(host, answer)
    return finding


# -- KVM: case 35, no /dev/kvm and a /dev/kvm that cannot boot --------------------------------------------------------


def test_case_35_no_device_on_a_machine_that_could(tmp_path):
    finding = kvm(linux(tmp_path, {"/proc/cpuinfo": INTEL}))
    assert (finding.level, finding.seen) == ("problem", "there is no /dev/kvm")
    assert "modprobe kvm_intel" in finding.cure
    assert "--device /dev/kvm" in finding.cure


@pytest.mark.parametrize(("cpuinfo", "cure"), [(CLOUD, "nested virtualization"), (OLD, "firmware")])
def test_case_35_no_device_on_a_machine_that_cannot(tmp_path, cpuinfo, cure):
    finding = kvm(linux(tmp_path, {"/proc/cpuinfo": cpuinfo}))
    assert finding.level == "problem"
    assert cure in finding.cure


def test_case_35_a_device_that_may_not_be_opened(tmp_path):
    host = linux(tmp_path, {"/proc/cpuinfo": INTEL, "/dev/kvm": ""})
    host.path("/dev/kvm").chmod(0o660)
    finding = kvm(host, raises(PermissionError(13, "Permission denied")))
    assert finding.level == "problem"
    assert "may not open it" in finding.seen
    assert "usermod -aG" in finding.cure
    host.path("/dev/kvm").chmod(0o600)
    assert "chmod 660" in kvm(host, raises(PermissionError(13, "Permission denied"))).cure


def test_case_35_a_device_without_a_driver(tmp_path):
    host = linux(tmp_path, {"/proc/cpuinfo": INTEL, "/dev/kvm": ""})
    finding = kvm(host, raises(OSError(19, "No such device")))
    assert (finding.level, finding.seen) == ("problem", "/dev/kvm is here, but does not work: No such device")


def test_case_35_a_file_in_the_devices_place(tmp_path):
    """The real ioctl, on what is no KVM device."""
    (finding,) = doctor_host.kvm_findings(linux(tmp_path, {"/proc/cpuinfo": INTEL, "/dev/kvm": ""}))
    assert finding.level == "problem"
    assert "does not work" in finding.seen


def test_case_35_another_version_of_the_api(tmp_path):
    assert kvm(linux(tmp_path, {"/proc/cpuinfo": INTEL, "/dev/kvm": ""}), lambda device: 11).level == "problem"


@pytest.mark.parametrize(
    "modules",
    [{"/proc/modules": "kvm_pvm 1 0 - Live 0x0\n"}, {"/sys/module/kvm_pvm/x": ""}],
    ids=["loaded", "built in"],
)
def test_case_35_a_device_that_cannot_run_a_guest(tmp_path, modules):
    finding = kvm(linux(tmp_path, {"/proc/cpuinfo": CLOUD, "/dev/kvm": "", **modules}))
    assert finding.level == "problem"
    assert "/dev/kvm is here and answers, but the CPU offers no vmx or svm" in finding.seen
    assert "kvm_pvm" in finding.seen
    assert "nested virtualization" in finding.cure


def test_without_kvm_pvm_it_is_not_blamed(tmp_path):
    finding = kvm(linux(tmp_path, {"/proc/cpuinfo": CLOUD, "/dev/kvm": "", "/proc/modules": "kvm 1 0 - Live 0x0\n"}))
    assert finding.level == "problem"
    assert "kvm_pvm" not in finding.seen


def test_a_device_that_works(tmp_path):
    finding = kvm(linux(tmp_path, {"/proc/cpuinfo": INTEL, "/dev/kvm": ""}))
    assert (finding.level, finding.seen) == ("ok", "/dev/kvm is here and answers; the CPU offers vmx")


def test_an_arm_cpu_needs_no_flags(tmp_path):
    host = linux(tmp_path, {"/proc/cpuinfo": "Features\t: fp asimd\n", "/dev/kvm": ""}, "aarch64")
    assert kvm(host).level == "ok"


# -- platform ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "machine", "libc", "level"),
    [
        ("Linux", "x86_64", ("glibc", "2.28"), "ok"),
        ("Linux", "aarch64", ("glibc", "2.41"), "ok"),
        ("Linux", "x86_64", ("glibc", "2.27"), "problem"),
        ("Linux", "x86_64", ("", ""), "problem"),
        ("Linux", "riscv64", ("glibc", "2.41"), "problem"),
        ("Darwin", "arm64", ("", ""), "warning"),
        ("Darwin", "x86_64", ("", ""), "problem"),
        ("Windows", "amd64", ("", ""), "problem"),
    ],
)
def test_platforms(system, machine, libc, level):
    (finding,) = doctor_host.platform_findings(Host(system=system, machine=machine, libc=libc))
    assert finding.level == level
    assert f"{system} on {machine}" in finding.seen
    assert level == "ok" or finding.cure


def test_a_missing_sdk(monkeypatch):
    monkeypatch.setitem(sys.modules, "boxlite", None)
    (finding,) = doctor_host.sdk_findings()
    assert finding.level == "problem"
    assert finding.cure == 'pip install "deerflow-boxlite[boxlite]"'


@pytest.mark.parametrize(
    ("files", "level", "seen"),
    [
        ({}, "ok", "allowed"),
        ({"/proc/sys/user/max_user_namespaces": "96365\n"}, "ok", "allowed"),
        ({"/proc/sys/user/max_user_namespaces": "0\n"}, "problem", "user.max_user_namespaces is 0"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "1\n"}, "ok", "allowed"),
        ({"/proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "warning", "unprivileged_userns_clone is 0"),
        ({"/proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"}, "warning", "apparmor"),
    ],
)
def test_user_namespaces(tmp_path, files, level, seen):
    (finding,) = doctor_host.namespace_findings(linux(tmp_path, files))
    assert finding.level == level
    assert seen in finding.seen


# -- home, disk, memory ------------------------------------------------------------------------------------------------


def home(path: Path) -> Finding:
    return next(iter(doctor_home.home_findings(BoxliteConfig(home_dir=path))))


def test_a_home_to_be_made_is_not_made(tmp_path):
    finding = home(tmp_path / "a" / "b")
    assert (finding.level, finding.seen) == ("ok", f"{tmp_path / 'a' / 'b'} will be made")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_the_home_should_be(tmp_path):
    (tmp_path / "file").touch()
    assert home(tmp_path / "file").level == "problem"
    assert f"{tmp_path / 'file'} is no directory" in home(tmp_path / "file" / "home").seen


def test_a_home_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    finding = home(tmp_path / "home")
    assert finding.level == "problem"
    assert f"no permission to write in {tmp_path}" in finding.seen


def test_case_33_a_home_in_use(tmp_path):
    claim = HomeClaim(tmp_path)
    try:
        finding = home(tmp_path)
    finally:
        claim.release()
    assert finding.level == "problem"
    assert str(tmp_path) in finding.seen
    assert str(os.getpid()) in finding.seen
    assert "home_dir" in finding.cure
    assert home(tmp_path).level == "ok"


@pytest.mark.parametrize(("free", "level"), [(10**8, "problem"), (3 * 10**9, "warning"), (10**11, "ok")])
def test_case_35_disk_space(tmp_path, monkeypatch, free, level):
    usage = type(doctor_home.shutil.disk_usage(tmp_path))
    monkeypatch.setattr(doctor_home.shutil, "disk_usage", lambda path: usage(10**12, 0, free))
    _, finding = doctor_home.home_findings(BoxliteConfig(home_dir=tmp_path))
    assert (finding.subject, finding.level) == ("disk", level)


@pytest.mark.skipif(sys.platform != "linux", reason="the rule of Linux")
def test_the_place_of_boxlites_programs(tmp_path, monkeypatch):
    assert list(doctor_home.programs_findings({"HOME": str(tmp_path)})) == []
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    (finding,) = doctor_home.programs_findings({"HOME": str(tmp_path)})
    assert finding.level == "problem"
    assert str(tmp_path / ".local/share/boxlite") in finding.seen
    assert list(doctor_home.programs_findings({"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path.parent)})) == []


MEMINFO = "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable: 2097152 kB\n"


@pytest.mark.parametrize(
    ("files", "settings", "level", "seen"),
    [
        ({"/proc/meminfo": MEMINFO}, {}, "ok", "3 boxes of 512 MiB"),
        ({"/proc/meminfo": MEMINFO}, {"memory_mib": 1024}, "warning", "1 box of 1024 MiB, fewer than replicas (3)"),
        ({"/proc/meminfo": MEMINFO}, {"memory_mib": 1024, "replicas": 1}, "ok", "1 box of 1024 MiB"),
        (
            {
                "/proc/meminfo": MEMINFO,
                "/sys/fs/cgroup/memory.max": "1073741824\n",
                "/sys/fs/cgroup/memory.current": "104857600\n",
            },
            {},
            "warning",
            "1 box of 512 MiB",
        ),
        (
            {"/proc/meminfo": MEMINFO, "/sys/fs/cgroup/memory.max": "max\n", "/sys/fs/cgroup/memory.current": "1\n"},
            {},
            "ok",
            "3 boxes",
        ),
    ],
)
def test_memory(tmp_path, files, settings, level, seen):
    (finding,) = doctor_home.memory_findings(BoxliteConfig(**settings), linux(tmp_path, files))
    assert finding.level == level
    assert seen in finding.seen


def test_more_cpus_than_there_are():
    (finding,) = doctor_home.cpu_findings(BoxliteConfig(cpus=255))
    assert finding.level == "warning"
    assert list(doctor_home.cpu_findings(BoxliteConfig(cpus=1))) == []


def test_a_mount_that_is_missing(tmp_path):
    config = BoxliteConfig(mounts=[{"host_path": tmp_path / "gone", "container_path": "/m"}])
    (finding,) = doctor_home.mount_findings(config)
    assert finding.level == "problem"
    assert str(tmp_path / "gone") in finding.seen


# -- image -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reference", "registry"),
    [
        ("python:3.12-slim", "registry-1.docker.io"),
        ("library/python", "registry-1.docker.io"),
        ("docker.io/library/python", "registry-1.docker.io"),
        ("ghcr.io/me/tools:1", "ghcr.io"),
        ("localhost/x", "localhost"),
        ("localhost:5000/x@sha256:" + "0" * 64, "localhost:5000"),
    ],
)
def test_registry_of(reference, registry):
    assert doctor_image.registry_of(reference) == registry


def test_case_35_an_image_that_is_no_layout(tmp_path):
    (finding,) = doctor_image.image_findings(BoxliteConfig(image=str(tmp_path)))
    assert finding.level == "problem"
    assert str(tmp_path) in finding.seen
    assert "image build" in finding.cure


def test_case_35_a_registry_that_cannot_be_reached():
    # Port 1 of this machine: nobody listens there, and no packet leaves.
    (finding,) = doctor_image.image_findings(BoxliteConfig(image="localhost:1/x:1"))
    assert finding.level == "problem"
    assert "its registry localhost:1 cannot be reached" in finding.seen
    assert "localhost:1/x:1" in finding.seen


@pytest.fixture
def registry_port():
    import http.server
    import threading

    class Answers401(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(401 if self.path == "/v2/" else 500)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Answers401) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_registry_that_answers(registry_port):
    assert doctor_image.unreachable(f"127.0.0.1:{registry_port}", "http") is None


def test_a_registry_without_tls(registry_port):
    assert doctor_image.unreachable(f"127.0.0.1:{registry_port}") is not None


# -- all of it ---------------------------------------------------------------------------------------------------------


def test_report():
    good = Finding("ok", "a", "seen")
    bad = Finding("problem", "b", "seen", "cure")
    assert Report((good, Finding("warning", "c", "seen", "cure"))).ok
    assert not Report((good, bad)).ok
    assert json.loads(json.dumps(Report((bad,)).as_dict())) == {
        "ok": False,
        "findings": [{"level": "problem", "subject": "b", "seen": "seen", "cure": "cure"}],
    }
    assert str(bad) == "seen. cure"


@pytest.fixture
def with_sdk(monkeypatch):
    monkeypatch.setattr(bxl, "import_sdk", lambda: None)


def test_check_has_a_cure_for_every_problem(tmp_path, with_sdk):
    host = linux(tmp_path / "root", {"/proc/cpuinfo": CLOUD, "/proc/sys/user/max_user_namespaces": "0"})
    (tmp_path / "home").touch()
    config = BoxliteConfig(
        image="/nowhere", home_dir=tmp_path / "home", mounts=[{"host_path": "/nowhere", "container_path": "/m"}]
    )
    report = doctor.check(config, host=host)
    assert {finding.subject for finding in report.problems()} == {"KVM", "jail", "home", "mounts", "image"}
    assert [finding for finding in report.findings if finding.level != "ok" and not finding.cure] == []


def test_nothing_is_booted_where_no_box_can_run(tmp_path, with_sdk, monkeypatch):
    monkeypatch.setattr(doctor, "_boot_findings", lambda config: pytest.fail("booted"))
    config = BoxliteConfig(home_dir=tmp_path / "home")
    report = doctor.check(config, boot=True, host=linux(tmp_path / "root", {"/proc/cpuinfo": CLOUD}))
    assert report.findings[-1].subject == "boot"
    assert not report.ok


def test_case_35_check_host_raises_with_the_same_text(tmp_path, with_sdk):
    host = linux(tmp_path, {"/proc/cpuinfo": CLOUD})
    (finding,) = doctor_host.kvm_findings(host)
    with pytest.raises(HostError) as caught:
        doctor.check_host(BoxliteConfig(), host=host)
    assert str(caught.value) == str(finding)


def test_check_host_without_the_sdk_raises_import_error(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "boxlite", None)
    with pytest.raises(ImportError, match=r"deerflow-boxlite\[boxlite\]"):
        doctor.check_host(BoxliteConfig(), host=linux(tmp_path, {"/proc/cpuinfo": CLOUD}))


def test_check_host_looks_once_when_all_is_well_and_every_time_when_not(monkeypatch, with_sdk):
    found = [Finding("problem", "KVM", "no", "cure"), Finding("ok", "KVM", "yes")]
    looks = []

    def kvm_findings(host):
        looks.append(host)
        yield found[min(len(looks), 2) - 1]

    monkeypatch.setattr(doctor_host, "kvm_findings", kvm_findings)
    monkeypatch.setattr(doctor_host, "namespace_findings", lambda host: ())
    monkeypatch.setattr(doctor_home, "programs_findings", lambda: ())
    monkeypatch.setattr(doctor, "_found_good", doctor.threading.Event())
    with pytest.raises(HostError):
        doctor.check_host(BoxliteConfig())
    for _ in range(3):
        doctor.check_host(BoxliteConfig())
    assert len(looks) == 2


class FakeProvider:
    answer: str | Exception = "OK\n"
    calls: list[str]

    def __init__(self, config):
        self.calls.append("made")

    def acquire(self, thread):
        self.calls.append("acquire")
        if isinstance(self.answer, Exception):
            raise self.answer
        return "0" * 32

    def get(self, sandbox_id):
        return self

    def execute_command(self, command):
        return self.answer

    def shutdown(self):
        self.calls.append("shutdown")


@pytest.mark.parametrize(
    ("answer", "level", "seen"),
    [
        ("OK\n", "ok", "a box booted in"),
        ("", "problem", "gave ''"),
        (HomeInUseError("held by x"), "problem", "held by x"),
        (OSError(28, "No space left on device"), "problem", "No space left"),
    ],
)
def test_boot(monkeypatch, tmp_path, answer, level, seen):
    from deerflow_boxlite import boxes, provider

    calls: list[str] = []
    monkeypatch.setattr(FakeProvider, "answer", answer)
    monkeypatch.setattr(FakeProvider, "calls", calls, raising=False)
    monkeypatch.setattr(provider, "BoxliteProvider", FakeProvider)
    monkeypatch.setattr(boxes, "remove_boxes", lambda home, ids: calls.append(f"remove {ids[0]}"))
    (finding,) = doctor._boot_findings(BoxliteConfig(home_dir=tmp_path))
    assert finding.level == level
    assert seen in finding.seen
    removed = [] if isinstance(answer, Exception) else [f"remove {'0' * 32}"]
    assert calls == ["made", "acquire", "shutdown", *removed]
