"""What an examination of the host finds, and the host as it is looked at."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

Level = Literal["ok", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing looked at. `problem` means that no box can run, `warning` that some use of boxes will fail."""

    level: Level
    subject: str
    seen: str
    cure: str = ""

    def __str__(self) -> str:
        return f"{self.seen}. {self.cure}" if self.cure else self.seen


@dataclass(frozen=True)
class Report:
    """All findings, in the order in which they were made."""

    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether a box can run, as far as was looked."""
        return not any(True for _ in self.problems())

    def problems(self) -> Iterator[Finding]:
        """Those findings that keep a box from running."""
        return (finding for finding in self.findings if finding.level == "problem")

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON can hold it."""
        return {"ok": self.ok, "findings": [asdict(finding) for finding in self.findings]}


def ok(subject: str, seen: str) -> Finding:
    return Finding("ok", subject, seen)


def warning(subject: str, seen: str, cure: str) -> Finding:
    return Finding("warning", subject, seen, cure)


def problem(subject: str, seen: str, cure: str) -> Finding:
    return Finding("problem", subject, seen, cure)


@dataclass(frozen=True)
class Host:
    """The machine examined. `root` is where its /proc, /sys and /dev are, which a test has elsewhere."""

    system: str = field(default_factory=platform.system)
    machine: str = field(default_factory=lambda: platform.machine().lower())
    libc: tuple[str, str] = field(default_factory=platform.libc_ver)
    python: str = field(default_factory=platform.python_version)
    root: Path = Path("/")

    @property
    def is_x86(self) -> bool:
        """Whether it has an x86 CPU, whose flags tell whether it can virtualize."""
        return self.machine in ("x86_64", "amd64")

    def path(self, absolute: str) -> Path:
        """Where the file is that the machine has at `absolute`."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str | None:
        """The text of one of its files, without surrounding space; None when there is no such file to read."""
        try:
            return self.path(absolute).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def number(self, absolute: str) -> int | None:
        """The number in one of its files; None when there is no such file, or no number in it."""
        text = self.read(absolute)
        return int(text) if text is not None and text.isdecimal() else None

    def cpu_flags(self) -> frozenset[str]:
        """The flags of its first CPU, as /proc/cpuinfo has them on x86."""
        for line in (self.read("/proc/cpuinfo") or "").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "flags":
                return frozenset(value.split())
        return frozenset()

    def kernel_modules(self) -> frozenset[str]:
        """The kernel's modules, loaded or built in: a kernel without loadable ones has no /proc/modules."""
        loaded = (line.split()[0] for line in (self.read("/proc/modules") or "").splitlines() if line.strip())
        try:
            built_in = [entry.name for entry in self.path("/sys/module").iterdir()]
        except OSError:
            built_in = []
        return frozenset((*loaded, *built_in))
