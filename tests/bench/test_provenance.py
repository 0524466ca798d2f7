"""Figures of the documentation say what they were measured of, and whether that has changed since."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import pages, provenance

ROOT = Path(__file__).parents[2]


@pytest.fixture
def section(tmp_path, monkeypatch) -> Path:
    """The source of a section of its own."""
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    monkeypatch.setattr(provenance, "SOURCES", {"own": ("src/own",)})
    for file, text in (("src/own/a.py", "a = 1\n"), ("src/own/b.sql", "SELECT 1\n"), ("bench/own.py", "rows = []\n")):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path / "src" / "own" / "a.py"


def test_a_section_that_was_just_measured_is_not_older_than_its_code(section):
    page = f"## Own\n\n{provenance.block('own')}\n\n| what |\n"
    assert re.search(r"^Measured at .+, \d{4}-\d\d-\d\d\.$", page, re.MULTILINE)
    assert provenance.with_staleness(page) == page
    assert provenance.stale_sections(page) == set()


@pytest.mark.parametrize("file", ["src/own/a.py", "src/own/b.sql", "src/own/new.py", "bench/own.py"])
def test_a_change_of_the_code_has_to_be_named_in_the_page(section, file):
    page = provenance.block("own")
    (provenance.ROOT / file).write_text("changed\n")
    path = "bench/own.py" if file.startswith("bench") else "src/own"
    marked = provenance.with_staleness(page)
    assert marked != page
    assert f"Older than the code it measures: `{path}` changed since.\n" in marked
    assert provenance.with_staleness(marked) == marked
    assert provenance.stale_sections(page) == {"own"}


def test_comments_and_empty_lines_are_no_change_and_a_change_that_is_undone_is_none(section):
    page = provenance.block("own")
    section.write_text("# why\n\na = 1\n\n")
    assert provenance.with_staleness(page) == page
    section.write_text("a = 2\n")
    marked = provenance.with_staleness(page)
    section.write_text("a = 1\n")
    assert provenance.with_staleness(marked) == page


def test_a_section_without_a_commit_says_so_until_it_is_measured(section):
    page = provenance.unknown_block("own")
    assert "Older than the code it measures" in page
    assert provenance.with_staleness(page) == page
    assert provenance.stale_sections(page) == {"own"}


def test_every_section_declares_what_it_measures_and_the_paths_exist():
    assert set(bench.SECTIONS) | {"peers"} == set(provenance.SOURCES)
    for name in provenance.SOURCES:
        for path in provenance.digests_of(name):
            assert (ROOT / path).exists(), f"{name} measures {path}, which is not there"


def test_every_section_of_the_page_says_what_it_was_measured_of():
    page = (ROOT / pages.PAGE).read_text(encoding="utf-8")
    for heading, text in pages._sections(page).items():
        assert len(provenance.blocks_in(text)) == 1, heading


def test_figures_of_the_readme_are_those_of_the_page():
    page = (ROOT / pages.PAGE).read_text(encoding="utf-8")
    readme = (ROOT / pages.README).read_text(encoding="utf-8")
    lines = [line for line in readme.splitlines() if "`python -m bench " in line and line.startswith("|")]
    assert len(lines) == len(pages.README_FIGURES)
    for line, figure in zip(lines, pages.README_FIGURES, strict=True):
        ours, other = line.split("|")[2].strip(), line.split("|")[3].split()[0]
        for what, value in ((figure.ours, ours), (figure.other, other)):
            row = next(row for row in page.splitlines() if row.startswith(f"| {what} |"))
            assert value in [cell.strip() for cell in row.split("|")]


def test_the_check_fails_while_a_page_hides_the_age_of_its_figures(tmp_path):
    for name in ("docs", "bench", "tools", "src", "tests", "web"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text(encoding="utf-8"))
    (tmp_path / "docs").unlink()
    (tmp_path / "docs").mkdir()
    for page in (pages.PAGE, pages.PEERS_PAGE, pages.CHOOSING, pages.TRIAL):
        (tmp_path / page).write_text((ROOT / page).read_text(encoding="utf-8"))
    pages_of = [sys.executable, "-m", "bench", "--stale"]
    check = [sys.executable, str(ROOT / "tools" / "check_bench.py")]
    subprocess.run(pages_of, cwd=tmp_path, check=True)
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0
    hidden = re.sub(r"^Older than .*\n", "", (tmp_path / pages.PAGE).read_text(encoding="utf-8"), count=1, flags=re.M)
    (tmp_path / pages.PAGE).write_text(hidden)
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 1
