"""What the documents say of files, tests and settings is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deerflow_boxlite import BoxliteConfig

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def tests() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|benchmarks|examples|lab|docs|src)/[\w./-]*)`", text))
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8"))
    assert sorted(link for link in links if not (document.parent / link).exists()) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document: Path, tests: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", document.read_text(encoding="utf-8")))
    assert sorted(name for name in named if not re.search(rf"def {name}\b", tests)) == []


def test_every_setting_is_in_the_table() -> None:
    table = re.search(r"## Settings\n(.*?)\n## ", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert table is not None
    rows = [line.split("|")[1] for line in table[1].splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(BoxliteConfig.model_fields)
