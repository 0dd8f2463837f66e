"""Measures our operations against the raw SDK's, in one process on one box; see README.md beside this file."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.cases import BARS, GROUPS, NAMES
from benchmarks.measure import Row, measure
from benchmarks.rig import rig
from deerflow_boxlite.bases import Base

IMAGES: tuple[Base, ...] = ("debian", "busybox")

console = Console(highlight=False, soft_wrap=True)


def run(image: Base, names: Collection[str], rounds: int | None, failures: list[str]) -> Iterator[Row]:
    """Measure cases on an image, in a new box. One that goes wrong is told in `failures`; the others go on."""
    with rig(image) as ready:
        for make, members in GROUPS.items():
            if not set(members) & set(names):
                continue
            try:
                cases = make(ready)
            except Exception as exc:  # noqa: BLE001 - whatever it is, there is nothing to measure
                tell(failures, f"{image} {', '.join(members)}: {exc!r}")
                continue
            for case in cases:
                if case.name not in names:
                    continue
                start = time.perf_counter()
                try:
                    row = measure(image, case, ready.loop, rounds)
                except Exception as exc:  # noqa: BLE001 - whatever it is, this case has no time
                    tell(failures, f"{image} {case.name}: {exc!r}")
                    continue
                console.print(f"  {image} {case.name}: {row.ratio:.2f}  ({time.perf_counter() - start:.1f} s)")
                yield row


def tell(failures: list[str], failure: str) -> None:
    """Print it, and remember it for the exit status."""
    console.print(f"  WRONG {failure}", style="red", markup=False)
    failures.append(failure)


def bar(row: Row) -> float | None:
    """The highest ratio that is promised; None for none."""
    return BARS.get(row.name, {}).get(row.image)


def missed(row: Row) -> bool:
    """Whether it is above its bar."""
    highest = bar(row)
    return highest is not None and row.ratio > highest


def table(rows: Collection[Row]) -> Table:
    """The rows as people read them."""
    drawn = Table(title="Medians, ours and the raw SDK's, in one run")
    for heading in ("image", "name"):
        drawn.add_column(heading)
    for heading in ("ours ms", "raw ms", "ratio", "bar", ""):
        drawn.add_column(heading, justify="right")
    for row in rows:
        highest = bar(row)
        verdict = "" if highest is None else "[red]missed[/red]" if missed(row) else "[green]met[/green]"
        drawn.add_row(
            row.image,
            row.name,
            f"{row.ours_ms:.1f}",
            f"{row.raw_ms:.1f}",
            f"{row.ratio:.2f}",
            "" if highest is None else f"{highest:.2f}",
            verdict,
        )
    return drawn


def as_json(rows: Collection[Row]) -> str:
    """The rows as programs read them."""
    return json.dumps(
        [
            {
                "image": row.image,
                "name": row.name,
                "ours_ms": row.ours_ms,
                "raw_ms": row.raw_ms,
                "ratio": round(row.ratio, 3),
            }
            for row in rows
        ],
        indent=2,
    )


def main(
    image: Annotated[list[str] | None, typer.Option(help=f"only this image, of {', '.join(IMAGES)}")] = None,
    only: Annotated[list[str] | None, typer.Option(help="only this case; may be given more than once")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="rounds of every case, in place of its own number")] = None,
    out: Annotated[Path | None, typer.Option(help="file for the rows as JSON, in $LAB_OUT if that is set")] = None,
    check: Annotated[bool, typer.Option("--check", help="exit with 1 if a bar is missed")] = False,
) -> None:
    """Measure our operations against the raw SDK's."""
    for given, allowed in ((image or (), IMAGES), (only or (), NAMES)):
        if unknown := set(given) - set(allowed):
            raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not one of {', '.join(allowed)}")
    failures: list[str] = []
    images = [name for name in IMAGES if name in (image or IMAGES)]
    rows = [row for name in images for row in run(name, only or NAMES, rounds, failures)]
    console.print(table(rows))
    if out is not None:
        (Path(os.environ.get("LAB_OUT", ".")) / out).write_text(as_json(rows) + "\n")
    if failures or (check and any(missed(row) for row in rows)):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
