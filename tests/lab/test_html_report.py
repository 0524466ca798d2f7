"""The page of a replay contains the measurements, is self-contained, and escapes every name."""

from __future__ import annotations

import hashlib
import html
import re
from base64 import b64encode
from html.parser import HTMLParser

import pytest
from tests.hostile_texts import MARKUP, TERMINAL

from recto.lab.backtest import Backtest
from recto.lab.commands._html_report import Bar, Segment, bars, html_text, page
from recto.lab.report import DOLLARS, MISSED, OVER, SHARE, SURVIVAL, TOKENS, short_number
from recto.lab.results import Curve, VariantOutcome, Way, measures_of

TRIM = Way(name="trim", is_baseline=True)
ZONES = Way(name="zones, prune", mode="zones", policy="prune")
BASELINE = Backtest(
    turns=40,
    over=3,
    tokens=2_000_000,
    unchanged=500_000,
    largest=40_000,
    picodollars=4_000_000_000_000,
    cache_read=500_000,
    cache_write=1_500_000,
    breaks=30,
    fetched_again=12,
    referred=8,
    entities_used=100,
    entities_there=80,
)
OURS = Backtest(
    turns=40,
    tokens=1_000_000,
    unchanged=900_000,
    largest=28_000,
    decisions=4,
    picodollars=1_000_000_000_000,
    cache_read=900_000,
    cache_write=100_000,
    breaks=4,
    fetched_again=10,
    fetched_met=6,
    referred=5,
    referred_met=1,
    entities_used=100,
    entities_there=90,
)
WORDS_OF_PAGES = """
html head meta title style body header footer p h1 h2 h3 dl dt dd div span section ul li table thead tbody tr th td
small details summary figure figcaption code wbr svg desc rect text path polygon polyline line
"""
WORDS_OF_ELEMENTS = """
lang charset http-equiv content name class scope role aria-label aria-hidden width height viewbox x y rx d points x1 x2
y1 y2 text-anchor preserveaspectratio stroke-width stroke-linecap
"""
ELEMENTS = frozenset(WORDS_OF_PAGES.split())
ATTRIBUTES = frozenset(WORDS_OF_ELEMENTS.split())
"""Attributes that run no script, load no resource and set no style."""


def outcomes(file="session.jsonl", curve_of=(10_000, 40_000, 20_000)):
    curve = Curve(turns=len(curve_of), input_budget=28_000, tokens=tuple(curve_of))
    return [
        VariantOutcome(place=0, file=file, way=TRIM, result=BASELINE, curve=curve),
        VariantOutcome(place=0, file=file, way=ZONES, result=OURS, curve=curve),
    ]


class Looked(HTMLParser):
    """Parses a page into its elements, attributes and words."""

    def __init__(self, made: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(made)

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("meta", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def test_the_page_is_complete_and_shows_the_measurements():
    made = page(outcomes(), files=1, subtitle={"model": "gpt-4o", "window of": "32,000 tokens"})
    looked = Looked(made)
    assert looked.open == []
    words = " ".join(" ".join(looked.words).split())
    for shown in ("Replay: 1 file in 2 ways", "model gpt-4o", "40 turns", "2.00M", "1.00M", "4.00", "−75.0%", "16"):
        assert shown in words
    assert "8 missed" in words
    assert "90.0%, 4 breaks" in words
    assert words.count("As a table") == 5
    assert made == page(outcomes(), files=1, subtitle={"model": "gpt-4o", "window of": "32,000 tokens"})


def test_the_page_loads_no_resource_and_allows_no_script():
    made = page(outcomes(), files=1, subtitle={})
    looked = Looked(made)
    assert looked.elements <= ELEMENTS
    assert looked.attributes <= ATTRIBUTES
    assert not re.search(r"https?:|//|url\(|@import", made.replace("<!doctype html>", ""))
    style = re.search(r"<style>(.*?)</style>", made, re.DOTALL)[1]
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', made)[1])
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "unsafe" not in policy


@pytest.mark.parametrize("name", [*MARKUP, *TERMINAL, '" onload="x', "'><b>", "a\ud800b", "\u202egnp.exe", "x" * 5_000])
def test_an_untrusted_name_is_rendered_as_text(name):
    way = Way(name=name, mode="zones", policy="prune")
    curve = Curve(turns=2, input_budget=28_000, tokens=(1, 2))
    named_outcomes = [*outcomes(file=name), VariantOutcome(place=1, file=name, way=way, result=OURS, curve=curve)]
    made = page(named_outcomes, files=2, subtitle={"model": name})
    looked = Looked(made)
    assert looked.open == []
    assert looked.elements <= ELEMENTS
    assert looked.attributes <= ATTRIBUTES
    assert all(char.isprintable() or char == "\n" for char in made)
    made.encode()


def test_prompts_over_the_ceiling_are_marked_and_refused_prompts_are_left_out():
    over = page(outcomes(), files=1, subtitle={})
    assert 'polygon class="beyond"' in over
    assert "largest 40.0k of 28.0k" in over
    within = page(outcomes(curve_of=(10_000, None, 20_000)), files=1, subtitle={})
    assert 'polygon class="beyond"' not in within
    assert "largest 20.0k of 28.0k" in within
    assert "Prompt size" not in page([VariantOutcome(place=0, file="a", way=ZONES, result=OURS)], files=1, subtitle={})


def test_a_bar_is_as_wide_as_its_share():
    made = bars(
        "t",
        [
            Bar(name="a", label="", segments=[Segment(value=1, kind="k", label="")]),
            Bar(name="b", label="", segments=[Segment(value=4, kind="k", label="")]),
        ],
    )
    assert re.findall(r'class="k" x="([\d.]+)%" y="\d+" width="([\d.]+)%"', made) == [
        ("0.000", "25.000"),
        ("0.000", "100.000"),
    ]
    assert bars("nothing", [])


def test_unknown_prices_are_labelled_unknown():
    unknown = Backtest(turns=1, tokens=10, picodollars=None)
    made = page([VariantOutcome(place=0, file="a", way=ZONES, result=unknown)], files=1, subtitle={})
    assert "recto models" in made
    assert "–" in made


def test_differences_show_their_favourable_direction():
    mine, theirs = measures_of(OURS), measures_of(BASELINE)
    assert [measure.change(mine, theirs) for measure in (TOKENS, DOLLARS, OVER, SHARE, SURVIVAL, MISSED)] == [
        "−50.0%",
        "−75.0%",
        "−3",
        "+65.0 pt",
        "+10.0 pt",
        "−12",
    ]
    assert [measure.is_better(mine, theirs) for measure in (TOKENS, SHARE, MISSED)] == [True, True, True]
    assert [measure.is_better(theirs, mine) for measure in (TOKENS, SHARE, MISSED)] == [False, False, False]
    assert TOKENS.change(mine, mine) == "="
    assert TOKENS.is_better(mine, mine) is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10.0k"), (123_456, "123k"), (1_234_567, "1.23M"), (2.5e9, "2.50G")],
)
def test_long_numbers_are_short(value, shown):
    assert short_number(value) == shown
    assert html_text(shown) == shown
