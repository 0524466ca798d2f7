"""Axe finds no violation on any view, in light and dark, on a wide screen and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.web.browsing import ROOT, Visit
from tests.web.conftest import VisitFactory
from tests.web.test_judging_page import find_recalled_block
from tests.web.test_views import get_json, wait_until_loaded
from tests.web.worlds import MAIN, World

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENS = {"wide": {"width": 1440, "height": 900}, "phone": {"width": 390, "height": 844}}
RUN_AXE = """() => axe.run(document, {resultTypes: ['violations']}).then(found => found.violations.map(violation => ({
  rule: violation.id, says: violation.help, where: violation.nodes.slice(0, 5).map(node => node.html.slice(0, 200)),
})))"""


def violations(page: Page) -> list[dict[str, Any]]:
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    return page.evaluate(RUN_AXE)


@pytest.fixture(params=[(scheme, screen) for scheme in ("light", "dark") for screen in SCREENS], ids="-".join)
def themed_visit(request: pytest.FixtureRequest, open_visit: VisitFactory, seeded_world: World) -> Iterator[Visit]:
    """A visit in a light or dark colour scheme, on a wide screen or a phone."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make web")
    scheme, screen = request.param
    # The content security policy of the page blocks scripts from outside, and axe is one.
    with open_visit(seeded_world.url, color_scheme=scheme, viewport=SCREENS[screen], bypass_csp=True) as visit:
        visit.name = f"{scheme}-{screen}"
        yield visit


def views(page: Page) -> list[str]:
    """The views in the menu, by their names in the URL."""
    links = page.locator("nav[aria-label=Views] a")
    hrefs = [link.get_attribute("href") or "" for link in links.all()]
    return [href.split("?")[0].removeprefix("#/") for href in hrefs]


def test_axe_finds_no_violation_on_any_view(themed_visit: Visit, seeded_world: World):
    page = wait_until_loaded(themed_visit.enter(seeded_world.key, "window", MAIN))
    names = views(page)
    assert len(names) >= 9
    found = {}
    for name in names:
        parameters = {"recall": {"q": "Which port does the staging server listen on?"}}.get(name, {})
        wait_until_loaded(themed_visit.enter(seeded_world.key, name, MAIN, **parameters))
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        themed_visit.shot(f"axe-{themed_visit.name}-{name}")
        found[name] = violations(page)
    recalled = find_recalled_block(seeded_world)[0]
    wait_until_loaded(themed_visit.enter(seeded_world.key, "window", MAIN, at=recalled))
    page.locator(".quote").first.scroll_into_view_if_needed()
    themed_visit.shot(f"axe-{themed_visit.name}-recalled")
    found["recalled"] = violations(page)
    assert not {name: broken for name, broken in found.items() if broken}


def test_axe_finds_no_violation_in_dialogs_and_before_the_login(themed_visit: Visit, seeded_world: World):
    found = {}
    themed_visit.page.goto(seeded_world.url)
    expect(themed_visit.page.get_by_role("heading", level=1)).to_be_visible()
    found["login"] = violations(themed_visit.page)
    evicted = next(
        span["first"] for span in get_json(seeded_world, "/session/window")["spans"] if span["place"] == "evicted"
    )
    page = wait_until_loaded(themed_visit.enter(seeded_world.key, "window", MAIN))
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Commands")).to_be_visible()
    found["palette"] = violations(page)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
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
    themed_visit.enter(seeded_world.key, "nowhere", MAIN)
    expect(page.get_by_role("heading", level=1, name="Not found")).to_be_visible()
    found["unknown view"] = violations(page)
    assert not {name: broken for name, broken in found.items() if broken}


def test_axe_is_pinned_with_its_digest():
    locked = (Path(ROOT) / "web" / "package-lock.json").read_text()
    assert '"node_modules/axe-core"' in locked
    assert "sha512-" in locked.partition('"node_modules/axe-core"')[2].partition("}")[0]


def test_axe_reports_an_image_without_alt_text(open_visit: VisitFactory, seeded_world: World):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make web")
    with open_visit(seeded_world.url, bypass_csp=True) as visit:
        page = wait_until_loaded(visit.enter(seeded_world.key, "window", MAIN))
        page.evaluate("document.querySelector('.wordmark img').removeAttribute('alt')")
        assert [violation["rule"] for violation in violations(page)] == ["image-alt"]
