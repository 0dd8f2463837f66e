"""Where DeerFlow keeps a thread's files on the host, and its skills. Without DeerFlow there are neither."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..contract import DEERFLOW_INSTALLED
from ..identity import Identity

logger = logging.getLogger(__name__)

DEFAULT_SKILLS_PATH = "/mnt/skills"

_ANONYMOUS = re.compile(r"anonymous-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True)
class ThreadPaths:
    """A thread's directories on the host (`deerflow.config.paths.Paths`)."""

    thread: Path
    """Holds `user-data` and `acp-workspace`, as `/mnt` does in a box."""
    make: Any
    """Makes the directories as DeerFlow makes them. Blocks."""

    @property
    def user_data(self) -> Path:
        return self.thread / "user-data"

    @property
    def workspace(self) -> Path:
        return self.user_data / "workspace"

    @property
    def uploads(self) -> Path:
        return self.user_data / "uploads"

    @property
    def outputs(self) -> Path:
        return self.user_data / "outputs"


def thread_paths(identity: Identity) -> ThreadPaths | None:
    """An identity's directories; None without DeerFlow, for a box of no thread, and for ids that DeerFlow refuses."""
    if not DEERFLOW_INSTALLED or _ANONYMOUS.fullmatch(identity.thread_id):
        return None
    from deerflow.config.paths import get_paths

    paths = get_paths()
    thread, user = identity.thread_id, identity.user_id
    try:
        try:
            directory = paths.thread_dir(thread, user_id=user)
            return ThreadPaths(Path(directory), lambda: paths.ensure_thread_dirs(thread, user_id=user))
        except TypeError:
            # A DeerFlow without users in its paths.
            return ThreadPaths(Path(paths.thread_dir(thread)), lambda: paths.ensure_thread_dirs(thread))
    except ValueError as error:
        logger.warning("a thread has no directory on the host, so its files stay in its box: %s", error)
        return None


@dataclass(frozen=True)
class SkillSource:
    """DeerFlow's enabled skills."""

    target: str
    """Where they belong in a box: DeerFlow's `skills.container_path`."""
    directories: tuple[tuple[str, Path], ...]
    """Each skill's path below the target, and its directory on the host; sorted."""


def skill_source() -> SkillSource | None:
    """The skills that DeerFlow has enabled now; None without DeerFlow or its configuration. Blocks for reading them."""
    if not DEERFLOW_INSTALLED:
        return None
    from deerflow.config import get_app_config

    try:
        config = get_app_config()
    except FileNotFoundError:
        # No config.yaml: the provider was given its settings.
        return None
    target = str(config.skills.container_path).rstrip("/")
    root = Path(config.skills.get_skills_path())
    try:
        skills = _enabled(config)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("deerflow.skills"):
            raise
        # An older DeerFlow, with another way to its skills: all that there are.
        skills = [(path.name, path) for path in sorted(root.iterdir())] if root.is_dir() else []
    return SkillSource(target, tuple(sorted(skills)))


def _enabled(config: Any) -> list[tuple[str, Path]]:
    from deerflow.skills.storage import get_or_new_skill_storage

    skills = get_or_new_skill_storage(app_config=config).load_skills(enabled_only=True)
    return [(skill.get_container_path("").lstrip("/"), Path(skill.skill_dir)) for skill in skills]
