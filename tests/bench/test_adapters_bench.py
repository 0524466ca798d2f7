"""Every adapter has all that belongs to it, and the table of their runs is written as they are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from bench.adapters import __main__ as table
from tests.adapters.installing import environments, module_of

ROOT = Path(__file__).parent.parent.parent
NAMES = [one.name for one in environments()]


def test_extras_pins_and_the_makefile_name_the_same_frameworks():
    made = re.search(r"^ADAPTERS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert made is not None
    assert sorted(made[1].split()) == NAMES
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(NAMES) <= set(extras)


@pytest.mark.parametrize("environment", environments(), ids=lambda one: one.name)
def test_every_framework_has_its_adapter_its_tests_its_run_and_its_page(environment):
    for folder, name in (
        ("src/recto/adapters", f"{module_of(environment)}.py"),
        ("tests/adapters", f"test_{module_of(environment)}.py"),
        ("bench/adapters", f"run_{module_of(environment)}.py"),
        ("docs/adapters", f"{environment.name}.md"),
    ):
        assert (ROOT / folder / name).is_file(), f"{folder}/{name}"
    assert f"(adapters/{environment.name}.md)" in (ROOT / "docs" / "adapters.md").read_text()
    assert table.version(environment)


def test_rows_are_found_behind_whatever_a_framework_says():
    assert table.rows_in('[warning] something\n[{"what": "own defaults"}]\n') == [{"what": "own defaults"}]
    with pytest.raises(ValueError, match="no rows"):
        table.rows_in("nothing")


def test_the_table_takes_the_place_of_the_one_before_and_of_nothing_else(tmp_path, monkeypatch):
    page = tmp_path / "adapters.md"
    page.write_text("before\n" + "old\n".join(table.MARKS) + "\nafter\n")
    monkeypatch.setattr(table, "PAGE", page)
    rows = [{"what": "with Recto", "overflow errors": 0, "tokens": 1_234_567, "cached share": 0.903, "note": ""}]
    results = [{"framework": "strands", "version": "1.62.0", "rows": rows, "error": ""}]
    table.into_the_page({"machine": {"python": "3.11.7"}, "frameworks": results})
    text = page.read_text()
    assert text.startswith("before\n<!-- adapters: begin -->\nWritten by `make bench-adapters-docs`")
    assert "| strands 1.62.0 | with Recto | 0 | 1,234,567 | 90.3% |  |\n<!-- adapters: end -->\nafter\n" in text
    assert "old" not in text
