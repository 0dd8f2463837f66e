"""Examines whether a box can run on this host with these settings, and says what to do where it cannot."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator

from . import doctor_home, doctor_host
from .config import BoxliteConfig
from .config_source import load_config
from .contract import SandboxError
from .doctor_image import image_findings
from .doctor_report import Finding, Host, Report, ok, problem
from .errors import ConfigError, HostError
from .runtime import RuntimeFault

__all__ = ["Finding", "Host", "Report", "check", "check_host"]

_found_good = threading.Event()


def check(config: BoxliteConfig | None = None, *, boot: bool = False, host: Host | None = None) -> Report:
    """Look at everything a box needs, and with `boot` boot one, if nothing stands against it.

    `config` is what `load_config` gives unless it is given. Blocks for up to some seconds, with `boot` for as long as
    a first boot takes, its image's download included. Changes nothing; with `boot` it leaves the image in the home.

    Raises:
        ConfigError: from `load_config`.
    """
    config = config or load_config()
    host = host or Host()
    findings = [*_host_findings(host), *_setting_findings(config, host)]
    if not boot:
        findings += image_findings(config)
    elif Report(tuple(findings)).ok:
        findings += _boot_findings(config)
    else:
        findings.append(problem("boot", "no box was booted, because of the above", "Cure that first"))
    return Report(tuple(findings))


def check_host(_config: BoxliteConfig | None = None, *, host: Host | None = None) -> None:
    """Look at what `acquire` needs to know before it boots a box: platform, SDK, KVM, and what BoxLite needs to start.

    Blocks for some milliseconds the first time. Once all was well, nothing is looked at again in this process; until
    then everything is every time, so that a cure helps at once.

    Raises:
        ImportError: the BoxLite SDK is not installed; the message says how to get it.
        HostError: this host cannot run a box; the message is the finding's, with its cure.
    """
    if host is None and _found_good.is_set():
        return
    from .bxl import import_sdk

    # On a platform without a wheel there is no SDK, and this error says both.
    import_sdk()
    host_given, host = host is not None, host or Host()
    report = Report(
        (
            *doctor_host.platform_findings(host),
            *doctor_host.kvm_findings(host),
            *doctor_host.namespace_findings(host),
            *doctor_home.programs_findings(),
        )
    )
    if not report.ok:
        raise HostError(". ".join(str(finding) for finding in report.problems()))
    if not host_given:
        _found_good.set()


def _host_findings(host: Host) -> Iterator[Finding]:
    yield from doctor_host.platform_findings(host)
    yield from doctor_host.sdk_findings()
    yield from doctor_host.kvm_findings(host)
    yield from doctor_host.namespace_findings(host)


def _setting_findings(config: BoxliteConfig, host: Host) -> Iterator[Finding]:
    if host.system != "Windows":
        yield from doctor_home.home_findings(config)
    yield from doctor_home.programs_findings()
    yield from doctor_home.memory_findings(config, host)
    yield from doctor_home.cpu_findings(config)
    yield from doctor_home.mount_findings(config)


def _boot_findings(config: BoxliteConfig) -> Iterator[Finding]:
    """Boot a new box as `acquire` does, in the home of the settings, run a command in it, and delete it."""
    from .boxes import remove_boxes
    from .provider import BoxliteProvider

    started = time.monotonic()
    try:
        provider = BoxliteProvider(config=config)
        try:
            sandbox_id = provider.acquire(f"doctor-{uuid.uuid4()}")
            booted = time.monotonic()
            box = provider.get(sandbox_id)
            answer = box.execute_command("echo OK") if box else "no box"
            answered = time.monotonic()
        finally:
            provider.shutdown()
        # With `persist` it would stay. It was of this home, so that the provider had to let go of it first.
        remove_boxes(config.home_dir, [sandbox_id])
    except (SandboxError, RuntimeFault, ConfigError, OSError, ImportError) as error:
        yield problem("boot", f"no box could be booted: {error}", "")
        return
    if answer != "OK\n":
        yield problem("boot", f"a box booted, but `echo OK` in it gave {answer!r}", "Try another image")
        return
    yield ok("boot", f"a box booted in {booted - started:.1f} s and ran a command in {answered - booted:.3f} s")
