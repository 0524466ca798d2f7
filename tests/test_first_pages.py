"""The entry pages of the documentation: their lists are complete, and their links lead to existing headings."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tests.test_docs import examples

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
OWN = [
    *HOW_TO,
    *(DOCS / f"{name}.md" for name in ("quickstart", "concepts", "how-to", "glossary", "security", "comparison")),
]


def anchors(page: Path) -> set[str]:
    """Returns the anchors of the headings of a page, as GitHub builds them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def executed() -> list[str]:
    """The names of all examples that tests/test_docs.py runs."""
    return [found.id for language in ("python", "console") for found in examples(language)]


@pytest.mark.parametrize("page", OWN, ids=lambda page: page.stem)
def test_every_link_to_an_anchor_leads_to_a_heading(page):
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        where = (page.parent / target) if target else page
        assert anchor in anchors(where), f"{target}#{anchor}"


def test_the_list_of_how_tos_names_all_of_them():
    listed = re.findall(r"\(how-to/([\w-]+)\.md\)", (DOCS / "how-to.md").read_text(encoding="utf-8"))
    assert sorted(listed) == [page.stem for page in HOW_TO]


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_every_how_to_has_an_example_that_is_executed(page):
    assert any(name.startswith(f"docs/how-to/{page.name}-") for name in executed())


def test_the_security_page_has_every_promise_once_with_tests_that_exist():
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    table = page.split("## Each promise and its test")[1].split("\n## ")[0]
    numbers = [int(number) for number in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert numbers == list(range(1, len(numbers) + 1))
    named = re.findall(r"`([\w/]+\.py)`", table)
    assert len(named) > 30
    for file in named:
        assert (ROOT / "tests" / file).exists(), file


def test_the_security_page_names_every_fault_test_of_a_promise():
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    for file in sorted((ROOT / "tests" / "faults").glob("test_*.py")):
        if file.read_text(encoding="utf-8").startswith('"""Promise '):
            assert f"`faults/{file.name}`" in page, file.name


def test_the_glossary_defines_no_word_twice():
    rows = re.findall(r"^\| ([^|]+) \|", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    words = [word.strip() for row in rows for word in row.split(",") if row not in ("term", "---")]
    assert len(words) == len(set(words)) > 60
