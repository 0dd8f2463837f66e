"""The settings: the whole `sandbox:` section of DeerFlow's configuration as one validated model.

`config_source` finds them; `config_errors` words what is wrong with them.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from .config_errors import problems
from .contract import DEERFLOW_INSTALLED, VIRTUAL_PATH_PREFIX
from .errors import ConfigError

DEFAULT_IMAGE = "python:3.12-slim"

# Where a box has its kernel's file systems, and DeerFlow the thread's own files and its other agents'.
_RESERVED_PATHS = ("/proc", "/sys", "/dev", VIRTUAL_PATH_PREFIX, "/mnt/acp-workspace")

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _no_bool(value: Any) -> Any:
    # YAML's yes, no, on and off; Python would take them for 1 and 0.
    if isinstance(value, bool):
        raise ValueError("should be a number")
    return value


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser().absolute()
    except RuntimeError as error:
        raise ValueError(f"cannot be resolved: {error}") from error


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("should have no NUL character")
    return text


_Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True), AfterValidator(_no_nul)]
_Int = Annotated[int, BeforeValidator(_no_bool)]
_Number = Annotated[float, BeforeValidator(_no_bool), Field(allow_inf_nan=False)]
_HostPath = Annotated[Path, AfterValidator(_expanded)]

_STRICT = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Mount(BaseModel):
    """A directory of the host in every box."""

    model_config = _STRICT

    host_path: _HostPath = Field(description="absolute path on the host, or one from ~")
    container_path: str = Field(description="absolute path in the box")
    read_only: bool = Field(default=False, description="whether the box cannot write there")

    @field_validator("host_path", mode="before")
    @classmethod
    def _host_path_is_absolute(cls, value: Any) -> Any:
        # A relative one would depend on where the gateway happens to be started.
        if isinstance(value, str | Path) and not str(value).startswith(("/", "~")):
            raise ValueError("should be an absolute path, or one from ~")
        return value

    @field_validator("container_path")
    @classmethod
    def _container_path_is_free(cls, value: str) -> str:
        path = PurePosixPath(_no_nul(value))
        if not path.is_absolute() or ".." in path.parts:
            raise ValueError("should be an absolute path without `..`")
        # POSIX leaves the meaning of exactly two leading slashes open; for a box they are one.
        normal = "/" + "/".join(path.parts[1:])
        if normal == "/":
            raise ValueError("should not be the root directory")
        for reserved in _RESERVED_PATHS:
            if _is_within(normal, reserved) or _is_within(reserved, normal):
                raise ValueError(f"should not be, hold or lie in {reserved}, which the box has for itself")
        return normal


def _is_within(path: str, directory: str) -> bool:
    return PurePosixPath(path).is_relative_to(directory)


class Network(BaseModel):
    """What a box can reach."""

    model_config = _STRICT

    mode: Literal["enabled", "disabled"] = Field(default="enabled", description="disabled: nothing but itself")
    allow: tuple[_Text, ...] = Field(
        default=(), description="the only host names, IP addresses or CIDR ranges that it reaches; empty: all"
    )

    @model_validator(mode="after")
    def _allow_needs_a_network(self) -> Self:
        if self.mode == "disabled" and self.allow:
            raise ValueError("`allow` should be empty with `mode: disabled`")
        return self


class Secret(BaseModel):
    """A secret that the host puts into a box's HTTPS requests. It never enters the box."""

    model_config = _STRICT

    name: _Text = Field(description="name, unique among the secrets")
    value: SecretStr = Field(min_length=1, description="the secret itself, best as $NAME of an environment variable")
    hosts: tuple[_Text, ...] = Field(min_length=1, description="the host names whose requests get it")


class BoxliteConfig(BaseModel):
    """Every setting. Immutable; construction raises `ConfigError` for values and names that are not allowed.

    Nothing is looked up: whether an image or a host path exists shows at the start (`check_mounts`, `doctor.check`).
    """

    model_config = ConfigDict(**_STRICT, validate_default=False)

    image: _Text = Field(
        default=DEFAULT_IMAGE,
        description="OCI reference, or local OCI layout: an absolute path, a path from ~, or oci:PATH",
    )
    memory_mib: _Int | None = Field(
        default=None, ge=128, le=65536, description="memory of a box in MiB; unset: BoxLite's default, 512"
    )
    cpus: _Int | None = Field(
        default=None, ge=1, le=255, description="virtual CPUs of a box; unset: BoxLite's default, 1"
    )
    replicas: _Int = Field(default=3, ge=1, description="VMs at once per process, active and warm together")
    idle_timeout: _Number = Field(default=600.0, ge=0, description="seconds until an idle VM is stopped; 0: never")
    health_check_skip_seconds: _Number = Field(
        default=0.0,
        ge=0,
        description="seconds after a release in which a reclaim skips its health check; 0: never skip",
    )
    environment: dict[str, str] = Field(
        default_factory=dict, repr=False, description="environment variables of every command; values are text"
    )
    home_dir: _HostPath = Field(
        default_factory=lambda: default_home(), description="BoxLite's home, a directory for images and disks"
    )
    disk_size_gb: _Int = Field(default=10, ge=1, le=16384, description="size of a box's sparse root disk in GB")
    shell: Literal["auto", "bash", "sh"] = Field(
        default="auto", description="shell of commands; auto: bash where the image has it, else sh"
    )
    command_timeout: _Number = Field(
        default=600.0, ge=0, description="seconds a command may take unless its caller says otherwise; 0: no limit"
    )
    acquire_timeout: _Number = Field(default=120.0, ge=0, description="seconds to wait for a place under `replicas`")
    boot_timeout: _Number = Field(default=120.0, gt=0, description="seconds that the boot of a box may take")
    max_output_bytes: _Int = Field(
        default=1024 * 1024, ge=1, description="bytes kept of each of a command's two output streams"
    )
    persist: bool = Field(default=True, description="whether a stopped box keeps its disk")
    retain_days: _Number = Field(default=30.0, ge=0, description="days a stopped box is kept; 0: no limit")
    retain_gb: _Number = Field(
        default=50.0, ge=0, description="GB that all stopped boxes may really take on the disk; 0: no limit"
    )
    mounts: tuple[Mount, ...] = Field(default=(), description="directories of the host in every box")
    thread_data: Literal["copy", "mount"] = Field(
        default="copy", description="how a thread's files come to and from the host: copied, or mounted as volumes"
    )
    network: Network | None = Field(default=None, description="what a box can reach; unset: BoxLite's default, all")
    secrets: tuple[Secret, ...] = Field(default=(), description="secrets put into HTTPS requests on the host")
    sync_max_file_mb: _Number = Field(default=100.0, gt=0, description="MB of the largest file copied to the host")
    sync_max_total_mb: _Number = Field(default=1000.0, gt=0, description="MB copied to the host at the end of a turn")
    sync_max_files: _Int = Field(default=5000, ge=1, description="files looked at at the end of a turn")
    sync_timeout: _Number = Field(default=60.0, gt=0, description="seconds the copying may take at the end of a turn")

    if not TYPE_CHECKING:  # The type checker is to see the fields.

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                # Not as its cause: pydantic's error holds the values, a secret's among them.
                raise ConfigError(problems(error, BoxliteConfig, _SECTIONS)) from None

    @field_validator("environment")
    @classmethod
    def _names_are_shell_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _ENVIRONMENT_NAME.fullmatch(name):
                raise ValueError(f"the name {name!r} should be letters, digits and _, no digit first")
            if "\0" in text:
                raise ValueError(f"the value of {name} should have no NUL character")
        return value

    @field_validator("mounts")
    @classmethod
    def _one_mount_per_path(cls, value: tuple[Mount, ...]) -> tuple[Mount, ...]:
        if twice := _first_repeated(mount.container_path for mount in value):
            raise ValueError(f"only one can have the container_path {twice}")
        return value

    @field_validator("secrets")
    @classmethod
    def _one_secret_per_name(cls, value: tuple[Secret, ...]) -> tuple[Secret, ...]:
        if twice := _first_repeated(secret.name for secret in value):
            raise ValueError(f"only one can have the name {twice!r}")
        return value


_SECTIONS = {"mounts": Mount, "network": Network, "secrets": Secret}


def _first_repeated(items: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for item in items:
        if item in seen:
            return item
        seen.add(item)
    return None


def default_home() -> Path:
    """Return BoxLite's home when none is set: in DeerFlow's data directory, without DeerFlow in the user's."""
    if DEERFLOW_INSTALLED:
        from deerflow.config.paths import get_paths

        return Path(get_paths().base_dir) / "boxlite"
    from platformdirs import user_data_path

    return user_data_path("deerflow-boxlite")


MAX_VOLUMES = 2
"""More of them in one box and BoxLite 0.10.8 fails to start it, on x86-64: there are no interrupts left for them."""


def check_mounts(config: BoxliteConfig) -> None:
    """Check that every mount's host path is a directory here, and that there are not too many. Blocks for look-ups.

    Raises `ConfigError`, with one line for each problem.
    """
    wrong = [
        f"mounts.{number}.host_path: {mount.host_path} is no directory on this host; make it, or take the mount out"
        for number, mount in enumerate(config.mounts)
        if not mount.host_path.is_dir()
    ]
    threads = int(config.thread_data == "mount")
    if len(config.mounts) + threads > MAX_VOLUMES and platform.machine() in ("x86_64", "AMD64"):
        wrong.append(
            f"mounts: {len(config.mounts)} of them{' and `thread_data: mount`' * threads}; BoxLite starts a box with "
            f"at most {MAX_VOLUMES} volumes. Mount a common parent directory, or copy what is needed into the image"
        )
    if wrong:
        raise ConfigError("\n".join(wrong))
