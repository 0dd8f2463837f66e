"""Where the settings come from: DeerFlow's own configuration where it is installed, else a `config.yaml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .config import BoxliteConfig
from .config_errors import FOREIGN_KEYS, misspelt
from .contract import DEERFLOW_INSTALLED
from .errors import ConfigError

PATH_VARIABLE = "DEER_FLOW_CONFIG_PATH"


def load_config(*, image: str | None = None) -> BoxliteConfig:
    """Return the settings of this process. Blocks for reading a file.

    They are the `sandbox:` section of DeerFlow's configuration (`deerflow.config.get_app_config`) where DeerFlow is
    installed, else of the file that `DEER_FLOW_CONFIG_PATH` names, else of `config.yaml` here or one directory up.
    With no such file all settings have their defaults. `image` takes the place of the setting.

    Raises:
        ConfigError: a setting is wrong, or the file cannot be read.
        Exception: whatever DeerFlow raises for a configuration that it does not accept.
    """
    section = _deerflow_section() if DEERFLOW_INSTALLED else _file_section()
    return from_section(section if image is None else {**section, "image": image})


def from_section(section: Mapping[str, Any]) -> BoxliteConfig:
    """Return the settings that a `sandbox:` section holds; None stands for the default.

    Keys that are not ours belong to DeerFlow or another provider and are left alone, unless they are ours misspelt.
    DeerFlow's `bash_command_timeout` is taken for `command_timeout` where that is not given.

    Raises:
        ConfigError: a setting is wrong, or a key misspelt.
    """
    known = BoxliteConfig.model_fields
    if wrong := misspelt((str(key) for key in section), known, FOREIGN_KEYS | _deerflow_keys()):
        raise ConfigError(
            "\n".join(f"sandbox.{key}: there is no such setting; did you mean {right}?" for key, right in wrong.items())
        )
    values = {key: value for key, value in section.items() if key in known and value is not None}
    if (limit := section.get("bash_command_timeout")) is not None:
        values.setdefault("command_timeout", limit)
    return BoxliteConfig(**values)


def _deerflow_keys() -> frozenset[str]:
    if not DEERFLOW_INSTALLED:
        return frozenset()
    from deerflow.config.sandbox_config import SandboxConfig

    return frozenset(SandboxConfig.model_fields)


def _deerflow_section() -> Mapping[str, Any]:
    from deerflow.config import get_app_config
    from deerflow.config.app_config import AppConfig

    try:
        # DeerFlow has put the environment's values in the place of $NAME.
        section: dict[str, Any] = get_app_config().sandbox.model_dump()
    except FileNotFoundError as error:
        # Only its config.yaml may be missing, and only where nobody said where it is.
        try:
            AppConfig.resolve_config_path()
        except FileNotFoundError:
            if not os.environ.get(PATH_VARIABLE):
                return {}
            raise ConfigError(f"{PATH_VARIABLE}: {error}") from error
        raise
    return section


def _file_section() -> Mapping[str, Any]:
    path = _config_file()
    if path is None:
        return {}
    section = (_mapping(_parsed(path), str(path))).get("sandbox")
    section = _mapping(section, f"the section `sandbox` of {path}")
    return {key: _resolved(value, f"sandbox.{key}") for key, value in section.items()}


def _config_file() -> Path | None:
    if named := os.environ.get(PATH_VARIABLE):
        if not Path(named).is_file():
            raise ConfigError(f"{PATH_VARIABLE}: there is no file {named}; correct the variable, or unset it")
        return Path(named)
    candidates = (Path("config.yaml"), Path("..", "config.yaml"))
    return next((path for path in candidates if path.is_file()), None)


def _parsed(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no YAML: {error}") from error


def _mapping(value: Any, what: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} should be a mapping of keys to values")
    return value


def _resolved(value: Any, key: str) -> Any:
    """Put the environment's values in the place of texts `$NAME`, as DeerFlow does, at any depth."""
    if isinstance(value, str) and value.startswith("$"):
        name = value[1:]
        if name not in os.environ:
            raise ConfigError(f"{key}: the environment variable {name} is not set; set it, or give the value itself")
        return os.environ[name]
    if isinstance(value, Mapping):
        return {name: _resolved(item, f"{key}.{name}") for name, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, f"{key}.{number}") for number, item in enumerate(value)]
    return value
