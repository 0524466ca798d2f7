"""The page that says which policy suits which agent names every policy, and shows figures that a command measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import __main__ as bench
from bench import choosing, pages, provenance
from recto.lab.comparison import MEASURES, Share, WayMeasures
from recto.lab.variants import MODES, POLICIES

ROOT = Path(__file__).parents[2]


@pytest.mark.requirement("compare.guide")
def test_the_page_names_every_mode_and_policy_and_shows_the_measured_section():
    page = (ROOT / pages.CHOOSING).read_text(encoding="utf-8")
    for name in (*MODES, *(policy for policy in POLICIES if policy != "fifo")):
        assert f"`{name}`" in page
        assert f"{name} |" in page
    assert provenance.blocks_in(page) == {"choosing"}
    section = (ROOT / pages.PAGE).read_text(encoding="utf-8").partition("## Choosing\n\n")[2].partition("\n\n## ")[0]
    assert section.strip("\n") in page


def test_the_section_is_measured_by_a_command_and_knows_its_code():
    assert bench.SECTIONS["choosing"] is choosing.run
    assert all((ROOT / path).exists() for path in provenance.SOURCES["choosing"])


def test_what_could_not_be_counted_is_a_dash_and_the_note_has_the_counts():
    result = WayMeasures(way="trim", window=16_000, prompts=2, tokens=9_000, shares={"facts": Share(1, 4)})
    row = choosing._mode_row("chats", result)
    line = pages.table([row])[-1]
    assert line.startswith("| chats, 16 K: trim | 4.50 | 0.25 | – |")
    assert "4 statements, 0 corrections" in line
    assert len(row["figures"]) == 1 + len(MEASURES)
