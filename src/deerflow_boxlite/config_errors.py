"""How wrong settings are told: a line for each, with its key, its value unless secret, and what is allowed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

# Keys of DeerFlow's own `SandboxConfig` and of its other providers, of any version: never ours misspelt.
FOREIGN_KEYS = frozenset(
    {
        "use",
        "allow_host_bash",
        "auto_start",
        "base_url",
        "bash_command_timeout",
        "bash_output_max_chars",
        "container_prefix",
        "ls_output_max_chars",
        "port",
        "provisioner_url",
        "read_file_output_max_chars",
    }
)

_SECRET_KEYS = ("environment", "secrets")
_VALUE_LIMIT = 80


def problems(error: ValidationError, model: type[BaseModel], sections: Mapping[str, type[BaseModel]]) -> str:
    """Return what `error`, from validating `model`, says: one line per problem.

    `sections` are the models of those keys of `model` that hold keys themselves.
    """
    return "\n".join(_problem(item, model, sections) for item in error.errors(include_url=False))


def _problem(item: Mapping[str, Any], model: type[BaseModel], sections: Mapping[str, type[BaseModel]]) -> str:
    location = [str(part) for part in item["loc"]]
    key = ".".join(location)
    top = location[0] if location else ""
    in_section = top in sections and location[-1] not in (top, *"0123456789")
    fields = sections[top].model_fields if in_section else model.model_fields
    if item["type"] == "extra_forbidden":
        nearest = closest(location[-1], fields)
        return f"{key}: there is no such setting" + (f"; did you mean {nearest}?" if nearest else "")
    if item["type"] == "missing":
        # The "value" would be everything around the missing key.
        return f"{key}: is missing"
    reason = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    value = "this value" if top in _SECRET_KEYS else _shown(item["input"])
    field = fields.get(location[-1] if in_section else top)
    meaning = f" ({field.description})" if field and field.description else ""
    return f"{key}: {value} is not allowed: {reason}{meaning}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _VALUE_LIMIT else text[:_VALUE_LIMIT] + "..."


def misspelt(keys: Iterable[str], known: Collection[str], foreign: Collection[str] = FOREIGN_KEYS) -> dict[str, str]:
    """Return those of `keys` that are one of `known` misspelt, each with the right one."""
    found = {key: closest(key, known) for key in keys if key not in known and key not in foreign}
    return {key: right for key, right in found.items() if right}


def closest(key: str, known: Collection[str]) -> str | None:
    """Return the one of `known` that `key` is most likely meant to be, or None if it is near none.

    Near is at most two edits, for keys of up to five letters one. Case, `-` and `_` do not count.
    """
    plain = _plain(key)
    distance, nearest = min((_distance(plain, _plain(name)), name) for name in known)
    return nearest if distance <= (1 if len(plain) <= 5 else 2) else None


def _plain(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "")


def _distance(left: str, right: str) -> int:
    """Count the insertions, deletions, replacements and swaps of neighbours between two words."""
    rows = [list(range(len(right) + 1))]
    for i, a in enumerate(left, start=1):
        row = [i]
        for j, b in enumerate(right, start=1):
            best = min(rows[-1][j] + 1, row[-1] + 1, rows[-1][j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, rows[-2][j - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]
