"""Whether this host can run a box at all: its platform, the BoxLite SDK, KVM, user namespaces."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from .doctor_report import Finding, Host, ok, problem, warning

# The oldest glibc that BoxLite's Linux wheels run with (their tag is manylinux_2_28).
GLIBC = (2, 28)

_PLATFORMS = "BoxLite runs on Linux (x86_64 or aarch64, with glibc) and on macOS with Apple Silicon"
_ELSEWHERE = f"{_PLATFORMS}. Run the gateway on such a host"

# Linux's include/uapi/linux/kvm.h; the version has been 12 since 2007 and "is not expected to change".
_KVM_GET_API_VERSION = 0xAE00
_KVM_API_VERSION = 12


def platform_findings(host: Host) -> Iterator[Finding]:
    """Say whether there is a BoxLite wheel for this platform."""
    here = f"{host.system} on {host.machine}"
    if host.system == "Linux" and host.machine in ("x86_64", "amd64", "aarch64", "arm64"):
        yield _libc_finding(host, here)
    elif host.system == "Darwin" and host.machine == "arm64":
        yield warning("platform", f"{here}: BoxLite has a wheel", "This package is not verified on macOS")
    elif host.system == "Windows":
        yield problem("platform", f"{here}: BoxLite has no wheel for it", f"{_ELSEWHERE}; WSL 2 is a Linux")
    else:
        yield problem("platform", f"{here}: BoxLite has no wheel for it", _ELSEWHERE)


def _libc_finding(host: Host, here: str) -> Finding:
    name, version = host.libc
    needed = ".".join(map(str, GLIBC))
    if name != "glibc":
        return problem(
            "platform",
            f"{here}, with {name or 'a C library other than glibc'}: BoxLite's wheels need glibc {needed}",
            "Use a Python on a glibc system, such as the python:3.12-slim image instead of python:3.12-alpine",
        )
    if tuple(int(part) for part in version.split(".")[:2]) < GLIBC:
        return problem("platform", f"{here}, glibc {version}: BoxLite's wheels need {needed}", "Use a newer system")
    return ok("platform", f"{here}, glibc {version}, Python {host.python}")


def sdk_findings() -> Iterator[Finding]:
    """Say whether the BoxLite SDK can be imported. Blocks while it is, about 0.1 s."""
    from importlib.metadata import PackageNotFoundError, version

    from .bxl import import_sdk

    try:
        import_sdk()
    except ImportError as error:
        # Its own message is the cure; what it came from is what was seen.
        seen = f"the boxlite SDK cannot be imported: {error.__cause__ or error}"
        yield problem("BoxLite", seen, 'pip install "deerflow-boxlite[boxlite]"')
        return
    try:
        found = version("boxlite")
    except PackageNotFoundError:
        found = "of unknown version"
    if found.startswith("0.10."):
        yield ok("BoxLite", f"boxlite {found}")
    else:
        yield warning("BoxLite", f"boxlite {found}: verified is 0.10.8", 'pip install "deerflow-boxlite[boxlite]"')


def kvm_findings(host: Host, api_version: Callable[[Path], int] | None = None) -> Iterator[Finding]:
    """Say whether the host can run a guest. `api_version` opens a device and asks for its version (`OSError` else)."""
    if host.system == "Darwin":
        yield warning("virtualization", "macOS runs guests by its Hypervisor framework", "Not looked at on macOS")
        return
    if host.system != "Linux":
        return
    device = host.path("/dev/kvm")
    if not device.exists():
        yield problem("KVM", "there is no /dev/kvm", _cure_without_device(host))
        return
    try:
        version = (api_version or _api_version)(device)
    except PermissionError:
        yield problem("KVM", f"/dev/kvm is here, but {_whoami()} may not open it", _cure_without_access(device))
        return
    except OSError as error:
        yield problem("KVM", f"/dev/kvm is here, but does not work: {error.strerror}", _cure_without_device(host))
        return
    if version != _KVM_API_VERSION:
        yield problem("KVM", f"/dev/kvm has API version {version}, not {_KVM_API_VERSION}", "Use another host")
        return
    yield _cpu_finding(host)


def _cpu_finding(host: Host) -> Finding:
    """The device alone proves nothing: with kvm_pvm it answers and makes VMs, whose ordinary guests then fail."""
    if not host.is_x86:
        return ok("KVM", "/dev/kvm is here and answers")
    if offered := host.cpu_flags() & {"vmx", "svm"}:
        return ok("KVM", f"/dev/kvm is here and answers; the CPU offers {' and '.join(sorted(offered))}")
    seen = "/dev/kvm is here and answers, but the CPU offers no vmx or svm, so that it cannot run a guest"
    if "kvm_pvm" in host.kernel_modules():
        seen += ". The kernel has kvm_pvm, which runs guests made for it only, not BoxLite's"
    return problem("KVM", seen, _NESTED if "hypervisor" in host.cpu_flags() else _BARE)


_NESTED = (
    "This host is a virtual machine: switch on nested virtualization for it where it is defined (a cloud offers it "
    "for some machine types only), or use a bare-metal host"
)
_BARE = "Switch on virtualization (VT-x, AMD-V, SVM) in the firmware's settings"


def _cure_without_device(host: Host) -> str:
    flags = host.cpu_flags()
    if host.is_x86 and not flags & {"vmx", "svm"}:
        return _NESTED if "hypervisor" in flags else _BARE
    module = "kvm_intel" if "vmx" in flags else "kvm_amd" if "svm" in flags else "kvm"
    return f"Load its kernel module (sudo modprobe {module}); into a container, pass the device (--device /dev/kvm)"


def _cure_without_access(device: Path) -> str:
    import grp

    status = device.stat()
    if not status.st_mode & stat.S_IRGRP or not status.st_mode & stat.S_IWGRP:
        return f"Give a group access and join it: sudo chown root:kvm {device}; sudo chmod 660 {device}"
    try:
        group = grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return f"Run with the supplementary group {status.st_gid}, which has access (in Docker: --group-add)"
    return f"Join the group {group} (sudo usermod -aG {group} {_whoami()}) and log in again"


def _whoami() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _api_version(device: Path) -> int:
    import fcntl

    descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(descriptor, _KVM_GET_API_VERSION)
    finally:
        os.close(descriptor)


def namespace_findings(host: Host) -> Iterator[Finding]:
    """Say whether BoxLite may jail its VMs: it starts each by bubblewrap, in a user namespace (user_namespaces(7))."""
    if host.system != "Linux":
        return
    # Seen with BoxLite 0.10.8: with none to be had every start fails, for root too.
    if host.number("/proc/sys/user/max_user_namespaces") == 0:
        yield problem(
            "jail",
            "user.max_user_namespaces is 0, so that BoxLite cannot jail its VMs",
            "sudo sysctl -w user.max_user_namespaces=15000",
        )
        return
    for name, bad, cure in _NAMESPACE_SETTINGS:
        if host.number(f"/proc/sys/{name.replace('.', '/')}") == bad:
            yield warning("jail", f"{name} is {bad}: BoxLite may be unable to jail its VMs", cure)
            return
    yield ok("jail", "user namespaces are allowed")


_NAMESPACE_SETTINGS = (
    # Debian's and Ubuntu's own.
    ("kernel.unprivileged_userns_clone", 0, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        1,
        "Allow them to bubblewrap (sudo apt install apparmor-profiles bubblewrap), "
        "or to all: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
