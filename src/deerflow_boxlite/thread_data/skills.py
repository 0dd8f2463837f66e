"""DeerFlow's enabled skills in a box: put there as a whole, and put there anew when anything in them has changed."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from . import archive
from .paths import SkillSource

_LIMIT = 10_000
"""Files of all skills together; more is taken for a mistake in the configuration."""


@dataclass(frozen=True)
class SkillFile:
    """A file of a skill."""

    path: str
    """Below the target."""
    host: Path
    status: os.stat_result


def skill_files(source: SkillSource) -> list[SkillFile]:
    """Every file of every skill, sorted. A symlink is followed as long as it leads to inside its skill. Blocks.

    Raises `ValueError` when there are more than is sensible.
    """
    found: dict[str, SkillFile] = {}
    for below, directory in source.directories:
        inside = directory.resolve()
        for folder, _, file_names in os.walk(directory):
            for name in file_names:
                host = Path(folder, name)
                if host.is_symlink() and not host.resolve().is_relative_to(inside):
                    continue
                if not host.is_file():
                    continue
                path = f"{below}/{host.relative_to(directory).as_posix()}"
                found[path] = SkillFile(path, host, host.stat())
                if len(found) > _LIMIT:
                    raise ValueError(f"more than {_LIMIT} files in DeerFlow's skills ({directory} among them)")
    return [found[path] for path in sorted(found)]


def digest(target: str, files: list[SkillFile]) -> str:
    """What tells whether the skills are still the same: names, sizes, times and modes."""
    state = hashlib.sha256(target.encode())
    for file in files:
        status = file.status
        state.update(os.fsencode(file.path))
        state.update(b"\0%d %d %o\0" % (status.st_size, status.st_mtime_ns, status.st_mode & 0o111))
    return state.hexdigest()


def pack(files: list[SkillFile], target: Path) -> None:
    """Write them to an archive. Blocks. Raises `OSError` when one changes meanwhile."""
    with target.open("wb") as file:
        writer = archive.Writer(file)
        for skill in files:
            with skill.host.open("rb") as content:
                status = os.fstat(content.fileno())
                writer.add(
                    os.fsencode(skill.path), content, status.st_size, int(status.st_mtime), bool(status.st_mode & 0o111)
                )
        writer.close()
