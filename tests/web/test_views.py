"""What the views of the page show: numbers that match the API, readable and accessible to all users."""

from __future__ import annotations

import json
import re
from urllib.request import Request, urlopen

from playwright.sync_api import Page, expect
from tests.web.browsing import PHONE, WIDE, Visit
from tests.web.checks import low_contrast_texts, overflowing_elements, unnamed_controls
from tests.web.conftest import VisitFactory
from tests.web.worlds import MAIN, OTHER, World

PLACES = {
    "in": "In the prompt",
    "trimmed": re.compile("^A shorter form"),
    "out": re.compile("^Not in the prompt"),
    "recalled": re.compile("^Evicted, and quoted"),
    "event": re.compile("^An event"),
}
TITLES = ("Window", "Chat", "Transcript", "Recall", "Decisions", "Compare", "Budget", "Memory", "Health")


def get_json(world: World, path: str, **query: object):
    """Fetches a path of the inspection API for the main session and returns the decoded JSON."""
    parameters = "&".join(f"{name}={value}" for name, value in {"session": MAIN, **query}.items())
    request = Request(f"{world.url}/api/v1{path}?{parameters}", headers={"authorization": f"Bearer {world.key}"})
    with urlopen(request, timeout=30) as response:
        return json.load(response)


def wait_until_loaded(page: Page) -> Page:
    """Waits until the page has no loading indicator."""
    expect(page.locator(".waiting")).to_have_count(0)
    return page


def open_filled_view(visit: Visit, title: str) -> Page:
    """Opens a view with content in it; Recall needs a question first."""
    page = wait_until_loaded(visit.view(title))
    if title == "Recall":
        page.get_by_label("Question").fill("which port does the staging server listen on")
        page.get_by_label("Question").press("Enter")
        expect(page.get_by_role("list", name="Hits")).to_be_visible()
    return wait_until_loaded(page)


def test_the_gauge_matches_the_api(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "budget", MAIN))
    now = get_json(seeded_world, "/session")
    meter = page.get_by_role("meter", name="Tokens in the prompt")
    expect(meter).to_have_attribute("aria-valuenow", str(now["reading"]["tokens"]))
    expect(meter).to_have_attribute("aria-valuemax", str(now["reading"]["room"]))
    banner = page.get_by_role("banner")
    expect(banner).to_contain_text(f"{now['reading']['tokens']:,} of {now['reading']['room']:,} tokens")
    expect(banner).to_contain_text(now["reading"]["zone"])
    expect(banner).to_contain_text(f"{now['left_messages']:,} evicted")


def test_the_window_shows_each_component_the_timeline_and_where_the_tokens_go(
    read_only_visit: Visit, seeded_world: World
):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "budget", MAIN))
    for heading in ("What is in the window", "Tokens over time", "Where the tokens go"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    report = get_json(seeded_world, "/session/context")
    page.get_by_text("As a table", exact=True).first.click()
    table = page.get_by_role("table", name=re.compile("Components"))
    for usage in report["components"]:
        expect(table.get_by_role("row", name=re.compile(usage["component"], re.IGNORECASE))).to_contain_text(
            f"{usage['used']:,}"
        )
    marks = [mark for point in get_json(seeded_world, "/session/timeline")["points"] for mark in point["decisions"]]
    page.get_by_text(re.compile("Decisions as a table")).click()
    for mark in marks:
        expect(page.get_by_role("button", name=f"Open decision {mark['seq']}")).to_be_visible()


def test_transcript_search_shows_the_place_of_each_entry(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "transcript", MAIN))
    entries = page.get_by_role("list", name="Entries")
    expect(entries.get_by_title("In the prompt").first).to_be_visible()
    page.get_by_label("Search the transcript").fill("PORT 8471")
    page.get_by_role("button", name="Search", exact=True).click()
    first = entries.get_by_role("listitem", name="Entry 1", exact=True)
    expect(first).to_contain_text("port 8471")
    found = get_json(seeded_world, "/session/transcript", q="port%208471")["entries"]
    expect(entries.get_by_role("listitem")).to_have_count(len(found))
    for entry in found:
        line = entries.get_by_role("listitem", name=f"Entry {entry['seq']}", exact=True)
        expect(line.get_by_title(PLACES[entry["place"]])).to_be_visible()
    read_only_visit.shot("transcript-search")
    page.get_by_role("button", name="Open entry 1", exact=True).click()
    dialog = page.get_by_role("dialog", name="Entry 1")
    expect(dialog).to_contain_text("nobody else knows")
    read_only_visit.shot("transcript-entry")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_an_entry_is_pinned_and_unpinned_from_the_transcript(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "transcript", MAIN, seq=1))
    page.get_by_role("button", name="Pin entry 1", exact=True).click()
    expect(page.get_by_role("button", name="Unpin entry 1", exact=True)).to_be_visible()
    assert (fresh_world.count_events("pinned"), fresh_world.count_events("unpinned")) == (1, 0)
    page.get_by_role("button", name="Unpin entry 1", exact=True).click()
    expect(page.get_by_role("button", name="Pin entry 1", exact=True)).to_be_visible()
    assert (fresh_world.count_events("pinned"), fresh_world.count_events("unpinned")) == (1, 1)


def test_the_recall_inspector_shows_the_parts_of_a_score(read_only_visit: Visit, seeded_world: World):
    read_only_visit.enter(seeded_world.key, "recall", MAIN)
    page = open_filled_view(read_only_visit, "Recall")
    hits = page.get_by_role("list", name="Hits")
    expect(hits).to_contain_text("port 8471")
    page.get_by_text("All scores as a table").click()
    table = page.get_by_role("table", name="Scores of the hits")
    expect(table.get_by_role("columnheader", name=re.compile("words"))).to_be_visible()
    expect(hits.get_by_role("link", name=re.compile("Open entry 1 ")).first).to_be_visible()
    read_only_visit.shot("recall")


def test_a_hit_of_another_session_names_the_agent_and_the_project(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(
        read_only_visit.enter(seeded_world.key, "recall", MAIN, q="Hello from the other session", scope="agent")
    )
    hit = page.get_by_role("list", name="Hits").get_by_role("listitem").filter(has_text="Hello from the other").first
    expect(hit).to_contain_text("agent:default:other · codex in /srv/shop")


def test_two_prompts_are_compared_with_the_numbers_from_the_api(read_only_visit: Visit, seeded_world: World):
    decision = get_json(seeded_world, "/session/decisions")["decisions"][0]["seq"]
    page = wait_until_loaded(
        read_only_visit.enter(seeded_world.key, "compare", MAIN, first=decision - 1, second=decision)
    )
    comparison = get_json(seeded_world, "/session/compare", first=decision - 1, second=decision)
    table = page.get_by_role("table", name="Two prompts side by side")
    expect(table).to_contain_text(f"{comparison['first_tokens']:,}")
    expect(table).to_contain_text(f"{comparison['second_tokens']:,}")
    assert comparison["first_tokens"] > comparison["second_tokens"]
    expect(table.get_by_text(re.compile("only left", re.IGNORECASE)).first).to_be_visible()
    read_only_visit.shot("compare")


def test_sessions_are_found_by_name_and_chosen(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "transcript", MAIN))
    sessions = page.get_by_role("region", name="Sessions")
    expect(sessions.get_by_role("link")).to_have_count(3)
    sessions.get_by_label("Find a session").fill("OTHER")
    expect(sessions.get_by_role("link")).to_have_count(1)
    sessions.get_by_role("link", name=re.compile(OTHER)).click()
    expect(page.get_by_role("banner")).to_contain_text(OTHER)
    expect(page.get_by_role("list", name="Entries")).to_contain_text("Hello from the other session.")
    sessions.get_by_label("Find a session").fill("")
    expect(sessions.get_by_role("link")).to_have_count(3)


def test_health_shows_turns_trends_and_alerts(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "health", MAIN))
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible()
    expect(page.get_by_role("table", name="Trend of each measure")).to_be_visible()
    for alert in get_json(seeded_world, "/session/health")["alerts"]:
        expect(page.get_by_role("list", name="Alerts")).to_contain_text(alert["says"])


def test_a_missing_session_breaks_no_view(read_only_visit: Visit, seeded_world: World):
    read_only_visit.expected = ("404",)
    page = read_only_visit.enter(seeded_world.key, "budget", "agent:default:nothing")
    for title in TITLES:
        read_only_visit.view(title)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_every_view_is_readable_in_both_colour_schemes_names_its_controls_and_fits_a_phone(
    read_only_visit: Visit, seeded_world: World
):
    page = read_only_visit.enter(seeded_world.key, "chat", MAIN)
    for title in TITLES:
        open_filled_view(read_only_visit, title)
        assert unnamed_controls(page) == [], title
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            expect(
                page.get_by_role("button", name="Dark colours" if scheme == "light" else "Light colours")
            ).to_be_visible()
            assert low_contrast_texts(page) == [], (title, scheme)
            read_only_visit.shot(f"{title.lower()}-{scheme}")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(PHONE)
        assert overflowing_elements(page) == [], title
        read_only_visit.shot(f"{title.lower()}-phone")
        page.set_viewport_size(WIDE)


def test_the_login_page_is_readable_and_accessible(open_visit: VisitFactory, seeded_world: World):
    with open_visit(seeded_world.url, viewport=PHONE) as visit:
        visit.page.goto(seeded_world.url)
        expect(visit.page.get_by_role("button", name="Log in")).to_be_visible()
        for scheme in ("light", "dark"):
            visit.page.emulate_media(color_scheme=scheme)
            assert (low_contrast_texts(visit.page), unnamed_controls(visit.page), overflowing_elements(visit.page)) == (
                [],
                [],
                [],
            )


def test_the_checks_detect_low_contrast_unnamed_controls_and_overflow(new_visit: Visit):
    page = new_visit.page
    page.set_content(
        "<main><p style='color:#aaa'>faint</p>"
        + "<p>text</p>" * 12
        + "<button></button><div style='width:3000px'>wide</div>"
    )
    assert any("faint" in text for text in low_contrast_texts(page))
    assert any("button" in control for control in unnamed_controls(page))
    assert overflowing_elements(page)


def test_on_a_phone_the_menu_opens_and_closes(open_visit: VisitFactory, seeded_world: World):
    with open_visit(seeded_world.url, viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        page = wait_until_loaded(visit.enter(seeded_world.key, "health", MAIN))
        views = page.get_by_role("navigation", name="Views")
        expect(views).to_have_count(0)
        page.get_by_role("button", name="Menu").click()
        expect(views).to_be_visible()
        visit.shot("menu-phone")
        wait_until_loaded(visit.view("Chat"))
        expect(views).to_have_count(0)
        expect(page.get_by_label("Message")).to_be_in_viewport()
        assert overflowing_elements(page) == []


def test_the_colour_scheme_can_be_switched_and_persists(new_visit: Visit, seeded_world: World):
    page = wait_until_loaded(new_visit.enter(seeded_world.key, "chat", MAIN))
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark colours").click()
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    assert page.evaluate(ground) == dark


def tab_to(page: Page, name: str, limit: int = 60) -> None:
    """Presses Tab until the control with this name has a visible focus."""
    for _ in range(limit):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            """() => { const at = document.activeElement, style = getComputedStyle(at);
            const name = at.getAttribute('aria-label') || at.labels?.[0]?.textContent || at.textContent;
            return [name.trim(), style.outlineStyle + style.outlineWidth + style.boxShadow]; }"""
        )
        if focused[0] == name:
            assert focused[1] != "none0pxnone", f"the focus on '{name}' cannot be seen"
            return
    raise AssertionError(f"'{name}' is not reached with the tab key")


def test_a_url_opened_during_rendering_is_navigated_to(editing_visit: Visit, fresh_world: World):
    page = editing_visit.page
    page.goto(editing_visit.url)
    page.get_by_label("Key").fill(fresh_world.key)
    page.evaluate(
        """(address) => new MutationObserver((_, observer) => {
            if (!document.querySelector("nav[aria-label=Views]")) return;
            observer.disconnect();
            location.hash = address;
        }).observe(document.body, { childList: true, subtree: true })""",
        f"#/chat?session={OTHER}",
    )
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Chat")).to_be_visible()
    expect(page.locator(".session-key")).to_contain_text(OTHER)


def test_everything_works_with_the_keyboard_alone(editing_visit: Visit, fresh_world: World):
    page = editing_visit.page
    page.goto(editing_visit.url)
    expect(page.get_by_label("Key")).to_be_visible()
    tab_to(page, "Key")
    page.keyboard.type(fresh_world.key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    page.goto(f"{editing_visit.url}/#/chat?session={OTHER}")
    wait_until_loaded(page)
    tab_to(page, "Skip to content")
    page.keyboard.press("Enter")
    tab_to(page, "Message")
    page.keyboard.type("First line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    comparison = [entry.content.decode() for entry in fresh_world.gateway.store.read(OTHER) if entry.role == "user"]
    assert "First line\\nsecond line" in comparison[-1]
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    tab_to(page, "Decisions")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Decisions")).to_be_visible()
    tab_to(page, "Compact …")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
