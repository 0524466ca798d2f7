"""The check of words finds what it is for, and the project passes it."""

from __future__ import annotations

import pytest
from tools import check_style


def test_the_project_uses_the_terms_of_the_field():
    assert check_style.findings() == []


@pytest.mark.parametrize("word", check_style.WORDS)
def test_each_word_is_found_with_what_to_write_instead(tmp_path, word):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(f"# Page\n\nThis is {word}.\n")
    for place in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        (tmp_path / place).write_text("")
    (finding,) = check_style.findings(tmp_path)
    assert finding == f"docs/page.md:3: '{word}': write {check_style.WORDS[word]}"


def test_every_exception_is_of_a_file_that_exists():
    assert [place for place in check_style.ALLOWED if not (check_style.ROOT / place).exists()] == []
