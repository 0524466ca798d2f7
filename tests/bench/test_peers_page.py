"""Prompts are judged by what is in them, pictures draw what they are given, and the page says what was measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from bench.peer_judging import Shown, faults, texts_of
from bench.plots import Bar, Row, bars, lengths

from bench import peers, peers_page

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"
USER = ("text", "user", "one two")
CALL, RESULT = ("call", "c1", "look", "at this"), ("result", "c1", "four words are here")


def words(text: str) -> int:
    return len(text.split())


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ([USER, CALL, RESULT], set()),
        ([USER, CALL], {"call_alone"}),
        ([USER, RESULT], {"result_alone"}),
        ([USER, RESULT, CALL], {"result_alone", "call_alone"}),
        ([CALL, RESULT], {"no_user"}),
        ([("text", "assistant", "one two")], {"no_user"}),
        ([], {"empty", "no_user"}),
    ],
)
def test_a_prompt_is_bad_when_a_provider_would_refuse_it(parts, found):
    assert faults(parts, 9, words) == found


def test_a_prompt_may_have_its_budget_and_not_a_token_more():
    assert faults([USER, CALL, RESULT], 9, words) == set()
    assert faults([USER, CALL, RESULT], 8, words) == {"over"}


def test_what_is_quoted_or_broken_into_lines_stands_there_whole_and_what_was_cut_does_not():
    said = "The deadline of the audit is May 5.\nIt will not be moved again."
    quoted = Shown(["Quoted:\n> The deadline of the audit\n> is May 5.\n> It will not be moved again."])
    cut = Shown(["The deadline of the audit is May 5. […]"])
    assert quoted.whole(said)
    assert quoted.lines(said) == 1
    assert not cut.whole(said)
    assert cut.lines(said) == 0.5
    assert Shown([]).lines(said) == 0


def test_what_a_call_says_is_no_evidence():
    assert texts_of([USER, CALL, RESULT]) == ["one two", "four words are here"]


def drawn(*rows: Row, **how: bool) -> ElementTree.Element:
    return ElementTree.fromstring(bars("A & B", "less is better", ["left", "right"], rows, **how))


def test_bars_are_as_long_as_their_values_and_the_picture_has_a_title():
    picture = drawn(
        Row(label="us", bars=[Bar(value=1, text="1", mark="ours"), Bar(value=0, text="none")], ours=True),
        Row(label="them", bars=[Bar(value=4, text="4"), Bar(value=None, text="not measured")]),
    )
    first, none, second = (float(box.get("width")) for box in picture.iter(f"{SVG}rect") if box.get("width"))
    widths = sorted((first, none, second))
    assert widths[2] == 4 * widths[1]
    assert picture.find(f"{SVG}title").text == picture.get("aria-label") == "A & B"
    assert picture.get("role") == "img"
    assert "prefers-color-scheme: dark" in picture.find(f"{SVG}style").text
    assert "not measured" in [text.text for text in picture.iter(f"{SVG}text")]


def test_no_name_can_become_markup():
    hostile = '<script>"&'
    picture = drawn(Row(label=hostile, bars=[Bar(value=1, text=hostile), Bar(value=1, text="")]))
    assert [text.text for text in picture.iter(f"{SVG}text")].count(hostile) == 2


def test_on_a_logarithmic_scale_every_factor_of_ten_is_as_long_and_the_least_is_still_seen():
    assert lengths([1, 10, 100, None], True) == pytest.approx([1 / 3, 2 / 3, 1, 0])
    assert lengths([0, 5, 10], False) == [0, 0.5, 1]
    assert lengths([None, 0], False) == [0, 0]


def row(variant: str, **more) -> dict:
    """A row that is as good as can be."""
    needed = {"messages": 10, "whole": 5, "lines": 5.0, "found": 8, "reached": 8, "read_on": 8}
    told = {"variant": variant, "budget": 32_000, "durable": "no", "by": "its store", "search": "", "calls": 200}
    told |= {
        "p50": 1.0,
        "p99": 2.0,
        "growth": 1.5,
        "growth_when_full": 1.0,
        "tokens": 2_000_000,
        "unchanged": 1_900_000,
    }
    told |= {"picodollars": 10**12, "wrong": {}, "files": needed, "questions": needed, "said": 10, "held": 10}
    return told | more


OURS = row("recto-sliding_window", picodollars=3 * 10**12)


def test_where_recto_is_first_is_said_and_whether_it_is_alone():
    (said,) = peers_page.verdict([OURS | {"picodollars": 1}, row("peer", held=5, picodollars=10**12)])
    assert said.startswith("First of 2 on: validity (0.0 %, with others), ")
    assert "exactness (100.0 %)," in said
    assert "dollars (0.00)," in said


def test_a_row_that_is_better_is_named_with_what_is_wrong_with_it():
    cheap = row("cheap", picodollars=10**12, wrong={"bad": 50, "over": 50})
    *_, lost = peers_page.verdict([OURS, cheap, row("dear", picodollars=4 * 10**12)])
    better = "better are cheap 1.00 (25.0 % of its prompts bad). Each of them made bad prompts."
    assert lost == f"- Not first on **dollars**: 3.00, {better} {peers_page.WHY['dollars']}"
    plain = row("recto-no-recall", picodollars=5 * 10**11)
    *_, lost = peers_page.verdict([OURS, plain, row("sound", picodollars=2 * 10**12)])
    assert "3.00 (0.50 without recall), better are sound 2.00 (no bad prompt)." in lost
    assert "Without a bad prompt among them: sound." in lost


def test_another_mode_of_recto_is_no_peer():
    (said,) = peers_page.verdict([OURS, row("recto-zones", picodollars=1)])
    assert said.startswith("First of 1 on: ")


def test_a_prompt_that_is_bad_in_two_ways_is_counted_once():
    bad = row("peer", calls=3, wrong={"bad": 2, "over": 1, "no_user": 1, "refused": 1})
    assert peers_page.wrongs(bad) == "2 of 3: 1 over, 1 no user, 1 refused"


def test_a_section_takes_the_place_of_the_one_before_and_leaves_the_others():
    page = "# Benchmarks\n\n## One\n\nfirst\n"
    once = peers_page.renewed(page, "old")
    assert once == f"{page}\n## {peers_page.SECTION}\n\nold\n"
    between = peers_page.renewed(f"{once}\n## Two\n\nlast\n", "new")
    assert between == f"{page}\n## {peers_page.SECTION}\n\nnew\n\n## Two\n\nlast\n"


def test_the_page_and_its_pictures_say_what_the_last_run_measured():
    if not (ROOT / peers.REAL).is_file():
        pytest.skip(f"there is no {peers.REAL}: `make bench-peers-docs` writes it")
    report = json.loads((ROOT / peers.REAL).read_text(encoding="utf-8"))
    page = (ROOT / peers.PAGE).read_text(encoding="utf-8")
    if f"Measured {report['at']}." not in page.replace("\n", " "):
        pytest.skip("the page tells of another run")
    for line in peers_page.page(report):
        assert line in page
    for name, picture in peers_page.pictures(report).items():
        assert (ROOT / peers_page.PICTURES / name).read_text(encoding="utf-8") == picture
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {peers_page.SECTION}$", benchmarks, re.MULTILINE)
    for line in peers_page.excerpt(report, "make bench-peers-docs").splitlines():
        assert line in benchmarks
