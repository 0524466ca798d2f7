"""The replay report in a real browser: nothing runs or loads, and it is readable on a phone and in the dark."""

from __future__ import annotations

import pytest
from tests.hostile_texts import MARKUP
from tests.web.browsing import PHONE, WIDE

from recto.lab.backtest import Backtest
from recto.lab.commands._html_report import page
from recto.lab.results import Curve, VariantOutcome, Way

RESULT = Backtest(turns=90, tokens=900_000, unchanged=700_000, cache_read=700_000, picodollars=10**12, fetched_again=3)


@pytest.fixture
def report_url(tmp_path):
    curve = Curve(turns=90, input_budget=28_000, tokens=tuple(range(1_000, 46_000, 500)))
    ways = [Way(name="none", is_baseline=True), *(Way(name=name, mode="zones") for name in MARKUP)]
    outcomes = [
        VariantOutcome(place=place, file=MARKUP[place], way=way, result=RESULT, curve=None if place else curve)
        for place in range(2)
        for way in ways
    ]
    file = tmp_path / "replay.html"
    file.write_text(page(outcomes, files=2, subtitle={"model": "m" * 300}), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize(("viewport", "scheme"), [(PHONE, "light"), (WIDE, "dark")])
def test_hostile_names_stay_text_and_nothing_overflows_the_screen(open_visit, report_url, viewport, scheme):
    with open_visit(report_url, viewport=viewport, color_scheme=scheme) as visit:
        visit.page.goto(report_url)
        visit.page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
        assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert visit.page.get_by_role("img").count() > 4
        drawn = "getComputedStyle(document.querySelector('rect.cached')).fill"
        assert visit.page.evaluate(drawn) == {"light": "rgb(42, 100, 200)", "dark": "rgb(122, 167, 247)"}[scheme]
        visit.shot(f"replay-{scheme}")
