"""How the command line shows things."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .boxes import KeptBox
from .config import BoxliteConfig
from .doctor_report import Report

_MASK = "***"
_STYLES = {"ok": ("ok", "green"), "warning": ("warn", "yellow"), "problem": ("FAIL", "red")}


def print_report(report: Report) -> None:
    """Print the findings and what follows from them."""
    console = Console(highlight=False, soft_wrap=True)
    for finding in report.findings:
        word, style = _STYLES[finding.level]
        console.print(Text.assemble((f"{word:>4}", style), f"  {finding.subject}: {finding.seen}"))
        if finding.cure:
            console.print(Text(f"      {finding.cure}", "dim"))
    console.print(Text("A box can run here." if report.ok else "No box can run here.", "bold"))


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    typer.echo(json.dumps(value, indent=2))


def print_yaml(value: Any) -> None:
    """Print a value as YAML, in its own order."""
    import yaml

    typer.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def masked(config: BoxliteConfig) -> dict[str, Any]:
    """Return the settings as plain values, with what may be secret masked."""
    shown = config.model_dump(mode="json")
    shown["environment"] = dict.fromkeys(config.environment, _MASK)
    for secret in shown["secrets"]:
        secret["value"] = _MASK
    return shown


def print_boxes(boxes: Sequence[KeptBox], home: Path) -> None:
    """Print the boxes of a home as a table."""
    if not boxes:
        typer.echo(f"no boxes in {home}")
        return
    table = Table("id", "state", "size", "last use", box=None, pad_edge=False)
    for box in boxes:
        table.add_row(box.sandbox_id, box.state, f"{box.size / 1e6:.0f} MB", _when(box.last_use))
    Console(highlight=False, soft_wrap=True).print(table)


def _when(moment: float | None) -> str:
    return "unknown" if moment is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
