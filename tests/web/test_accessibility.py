"""Axe finds no violation on any view, in light and dark, on a wide screen and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.web.browsing import ROOT, Visit
from tests.web.conftest import Visiting
from tests.web.test_judging_page import recalled_at
from tests.web.test_views import asked, settled
from tests.web.worlds import MAIN, World

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENS = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
RUN = """() => axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(one => ({
  rule: one.id, says: one.help, where: one.nodes.slice(0, 5).map(node => node.html.slice(0, 200))})))"""


def violations(page: Page) -> list[dict[str, Any]]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    return page.evaluate(RUN)


@pytest.fixture(params=[(look, screen) for look in ("light", "dark") for screen in SCREENS], ids="-".join)
def seen(request: pytest.FixtureRequest, visiting: Visiting, told: World) -> Iterator[Visit]:
    """A visit in one of the two looks, on one of two screens."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make web")
    look, screen = request.param
    # The policy of the page lets no script in from outside, and axe is one.
    with visiting(told.url, color_scheme=look, viewport=SCREENS[screen], bypass_csp=True) as visit:
        visit.name = f"{look}-{screen}"
        yield visit


def views(page: Page) -> list[str]:
    """The views of the menu, as their addresses name them."""
    links = page.locator("nav[aria-label=Views] a")
    hrefs = [link.get_attribute("href") or "" for link in links.all()]
    return [href.split("?")[0].removeprefix("#/") for href in hrefs]


def test_axe_finds_no_violation_on_any_view(seen: Visit, told: World):
    page = settled(seen.enter(told.key, "window", MAIN))
    names = views(page)
    assert len(names) >= 9
    found = {}
    for name in names:
        given = {"recall": {"q": "Which port does the staging server listen on?"}}.get(name, {})
        settled(seen.enter(told.key, name, MAIN, **given))
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        seen.shot(f"axe-{seen.name}-{name}")
        found[name] = violations(page)
    recalled = recalled_at(told)[0]
    settled(seen.enter(told.key, "window", MAIN, at=recalled))
    page.locator(".quote").first.scroll_into_view_if_needed()
    seen.shot(f"axe-{seen.name}-recalled")
    found["recalled"] = violations(page)
    assert not {name: some for name, some in found.items() if some}


def test_axe_finds_no_violation_in_dialogs_and_before_the_login(seen: Visit, told: World):
    found = {}
    seen.page.goto(told.url)
    expect(seen.page.get_by_role("heading", level=1)).to_be_visible()
    found["login"] = violations(seen.page)
    evicted = next(one["first"] for one in asked(told, "/session/window")["spans"] if one["place"] == "evicted")
    page = settled(seen.enter(told.key, "window", MAIN))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Commands")).to_be_visible()
    found["palette"] = violations(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    found["shortcuts"] = violations(page)
    page.keyboard.press("Escape")
    page.get_by_text("The transcript as a table").click()
    page.get_by_role("table", name="Where entries are").get_by_role(
        "button", name=f"Open entry {evicted}", exact=True
    ).click()
    expect(page.get_by_role("dialog", name=f"Entry {evicted}")).to_contain_text("evicted")
    found["entry"] = violations(page)
    page.keyboard.press("Escape")
    seen.enter(told.key, "nowhere", MAIN)
    expect(page.get_by_role("heading", level=1, name="Not found")).to_be_visible()
    found["unknown view"] = violations(page)
    assert not {name: some for name, some in found.items() if some}


def test_axe_is_pinned_with_its_digest():
    locked = (Path(ROOT) / "web" / "package-lock.json").read_text()
    assert '"node_modules/axe-core"' in locked
    assert "sha512-" in locked.partition('"node_modules/axe-core"')[2].partition("}")[0]


def test_axe_would_find_an_image_without_a_name(visiting: Visiting, told: World):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make web")
    with visiting(told.url, bypass_csp=True) as visit:
        page = settled(visit.enter(told.key, "window", MAIN))
        page.evaluate("document.querySelector('.wordmark img').removeAttribute('alt')")
        assert [one["rule"] for one in violations(page)] == ["image-alt"]
