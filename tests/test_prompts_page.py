"""The page with prompts before and after is made by the code that it shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_shows_three_conversations_whole_and_as_prompts_that_fit():
    text = runpy.run_path(str(ROOT / "tools" / "make_prompts.py"))["page"]()
    before = re.findall(r"^Before: \d+ messages, ([\d,]+) tokens\.$", text, re.MULTILINE)
    after = re.findall(r"^After: \d+ messages, ([\d,]+) tokens\.$", text, re.MULTILINE)
    assert len(before) == len(after) == 3
    for whole, prompt in zip(before, after, strict=True):
        assert int(whole.replace(",", "")) > 6_000 >= int(prompt.replace(",", ""))
    assert text.count("[Working record of what is not shown") == 3
    assert "Never change anything under src/vendor/ without my approval." in text.split("After:")[1]
    assert "allergic to nuts" in text.split("After:")[3]


def test_the_page_in_the_documentation_is_made_by_the_tool():
    shown = (ROOT / "docs" / "prompts.md").read_text(encoding="utf-8")
    headings = [line for line in shown.splitlines() if line.startswith("## ")]
    assert headings == [
        "## An agent with tool calls",
        "## An agent that writes commands as text",
        "## A conversation",
    ]
    assert "tools/make_prompts.py" in shown
