"""What the views of the page show, that numbers agree with the API, and that everybody can use them."""

from __future__ import annotations

import json
import re
from urllib.request import Request, urlopen

from playwright.sync_api import Page, expect
from tests.web.browsing import PHONE, WIDE, Visit
from tests.web.checks import faint, too_wide, unnamed
from tests.web.conftest import Visiting
from tests.web.worlds import MAIN, OTHER, World

PLACES = {
    "in": "In the prompt",
    "trimmed": re.compile("^A shorter form"),
    "out": re.compile("^Not in the prompt"),
    "recalled": re.compile("^Evicted, and quoted"),
    "event": re.compile("^An event"),
}
TITLES = ("Window", "Chat", "Transcript", "Recall", "Decisions", "Compare", "Budget", "Memory", "Health")


def asked(world: World, path: str, **query: object):
    """What the inspection API says."""
    given = "&".join(f"{name}={value}" for name, value in {"session": MAIN, **query}.items())
    request = Request(f"{world.url}/api/v1{path}?{given}", headers={"authorization": f"Bearer {world.key}"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)


def settled(page: Page) -> Page:
    expect(page.locator(".waiting")).to_have_count(0)
    return page


def filled_in(visit: Visit, title: str) -> Page:
    """A view with something in it: where one has to be asked, it is asked."""
    page = settled(visit.view(title))
    if title == "Recall":
        page.get_by_label("Question").fill("which port does the staging server listen on")
        page.get_by_label("Question").press("Enter")
        expect(page.get_by_role("list", name="Hits")).to_be_visible()
    return settled(page)


def test_the_gauge_says_what_the_api_says(looking: Visit, told: World):
    page = settled(looking.enter(told.key, "budget", MAIN))
    now = asked(told, "/session")
    meter = page.get_by_role("meter", name="Tokens in the prompt")
    expect(meter).to_have_attribute("aria-valuenow", str(now["reading"]["tokens"]))
    expect(meter).to_have_attribute("aria-valuemax", str(now["reading"]["room"]))
    banner = page.get_by_role("banner")
    expect(banner).to_contain_text(f"{now['reading']['tokens']:,} of {now['reading']['room']:,} tokens")
    expect(banner).to_contain_text(now["reading"]["zone"])
    expect(banner).to_contain_text(f"{now['left_messages']:,} evicted")


def test_the_window_shows_each_component_the_timeline_and_where_the_tokens_go(looking: Visit, told: World):
    page = settled(looking.enter(told.key, "budget", MAIN))
    for heading in ("What is in the window", "Tokens over time", "Where the tokens go"):
        expect(page.get_by_role("heading", name=heading)).to_be_visible()
    report = asked(told, "/session/context")
    page.get_by_text("As a table", exact=True).first.click()
    table = page.get_by_role("table", name=re.compile("Components"))
    for usage in report["components"]:
        expect(table.get_by_role("row", name=re.compile(usage["component"], re.IGNORECASE))).to_contain_text(
            f"{usage['used']:,}"
        )
    marks = [mark for point in asked(told, "/session/timeline")["points"] for mark in point["decisions"]]
    page.get_by_text(re.compile("Decisions as a table")).click()
    for mark in marks:
        expect(page.get_by_role("button", name=f"Open decision {mark['seq']}")).to_be_visible()


def test_the_transcript_is_searched_and_its_entries_say_where_they_are(looking: Visit, told: World):
    page = settled(looking.enter(told.key, "transcript", MAIN))
    entries = page.get_by_role("list", name="Entries")
    expect(entries.get_by_title("In the prompt").first).to_be_visible()
    page.get_by_label("Search the transcript").fill("PORT 8471")
    page.get_by_role("button", name="Search", exact=True).click()
    first = entries.get_by_role("listitem", name="Entry 1", exact=True)
    expect(first).to_contain_text("port 8471")
    found = asked(told, "/session/transcript", q="port%208471")["entries"]
    expect(entries.get_by_role("listitem")).to_have_count(len(found))
    for entry in found:
        line = entries.get_by_role("listitem", name=f"Entry {entry['seq']}", exact=True)
        expect(line.get_by_title(PLACES[entry["place"]])).to_be_visible()
    looking.shot("transcript-search")
    page.get_by_role("button", name="Open entry 1", exact=True).click()
    dialog = page.get_by_role("dialog", name="Entry 1")
    expect(dialog).to_contain_text("nobody else knows")
    looking.shot("transcript-entry")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_an_entry_is_pinned_and_unpinned_from_the_transcript(changing: Visit, fresh: World):
    page = settled(changing.enter(fresh.key, "transcript", MAIN, seq=1))
    page.get_by_role("button", name="Pin entry 1", exact=True).click()
    expect(page.get_by_role("button", name="Unpin entry 1", exact=True)).to_be_visible()
    assert (fresh.happened("pinned"), fresh.happened("unpinned")) == (1, 0)
    page.get_by_role("button", name="Unpin entry 1", exact=True).click()
    expect(page.get_by_role("button", name="Pin entry 1", exact=True)).to_be_visible()
    assert (fresh.happened("pinned"), fresh.happened("unpinned")) == (1, 1)


def test_the_recall_inspector_shows_what_a_score_is_made_of(looking: Visit, told: World):
    looking.enter(told.key, "recall", MAIN)
    page = filled_in(looking, "Recall")
    hits = page.get_by_role("list", name="Hits")
    expect(hits).to_contain_text("port 8471")
    page.get_by_text("All scores as a table").click()
    table = page.get_by_role("table", name="Scores of the hits")
    expect(table.get_by_role("columnheader", name=re.compile("words"))).to_be_visible()
    expect(hits.get_by_role("link", name=re.compile("Open entry 1 ")).first).to_be_visible()
    looking.shot("recall")


def test_a_hit_of_another_session_names_the_agent_and_the_project(looking: Visit, told: World):
    page = settled(looking.enter(told.key, "recall", MAIN, q="Hello from the other session", scope="agent"))
    hit = page.get_by_role("list", name="Hits").get_by_role("listitem").filter(has_text="Hello from the other").first
    expect(hit).to_contain_text("agent:default:other · codex in /srv/shop")


def test_two_prompts_stand_side_by_side_with_the_numbers_of_the_api(looking: Visit, told: World):
    decision = asked(told, "/session/decisions")["decisions"][0]["seq"]
    page = settled(looking.enter(told.key, "compare", MAIN, first=decision - 1, second=decision))
    said = asked(told, "/session/compare", first=decision - 1, second=decision)
    table = page.get_by_role("table", name="Two prompts side by side")
    expect(table).to_contain_text(f"{said['first_tokens']:,}")
    expect(table).to_contain_text(f"{said['second_tokens']:,}")
    assert said["first_tokens"] > said["second_tokens"]
    expect(table.get_by_text(re.compile("only left", re.IGNORECASE)).first).to_be_visible()
    looking.shot("compare")


def test_sessions_are_found_by_name_and_chosen(looking: Visit, told: World):
    page = settled(looking.enter(told.key, "transcript", MAIN))
    sessions = page.get_by_role("region", name="Sessions")
    expect(sessions.get_by_role("link")).to_have_count(3)
    sessions.get_by_label("Find a session").fill("OTHER")
    expect(sessions.get_by_role("link")).to_have_count(1)
    sessions.get_by_role("link", name=re.compile(OTHER)).click()
    expect(page.get_by_role("banner")).to_contain_text(OTHER)
    expect(page.get_by_role("list", name="Entries")).to_contain_text("Hello from the other session.")
    sessions.get_by_label("Find a session").fill("")
    expect(sessions.get_by_role("link")).to_have_count(3)


def test_health_shows_turns_trends_and_alerts(looking: Visit, told: World):
    page = settled(looking.enter(told.key, "health", MAIN))
    expect(page.get_by_role("heading", name="Alerts")).to_be_visible()
    expect(page.get_by_role("table", name="Trend of each measure")).to_be_visible()
    for alert in asked(told, "/session/health")["alerts"]:
        expect(page.get_by_role("list", name="Alerts")).to_contain_text(alert["says"])


def test_a_session_that_is_not_there_is_told_and_breaks_nothing(looking: Visit, told: World):
    looking.expected = ("404",)
    page = looking.enter(told.key, "budget", "agent:default:nothing")
    for title in TITLES:
        looking.view(title)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_every_view_can_be_read_in_both_looks_has_names_for_its_controls_and_fits_a_phone(looking: Visit, told: World):
    page = looking.enter(told.key, "chat", MAIN)
    for title in TITLES:
        filled_in(looking, title)
        assert unnamed(page) == [], title
        for look in ("light", "dark"):
            page.emulate_media(color_scheme=look)
            expect(
                page.get_by_role("button", name="Dark colours" if look == "light" else "Light colours")
            ).to_be_visible()
            assert faint(page) == [], (title, look)
            looking.shot(f"{title.lower()}-{look}")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(PHONE)
        assert too_wide(page) == [], title
        looking.shot(f"{title.lower()}-phone")
        page.set_viewport_size(WIDE)


def test_the_way_in_can_be_read_and_used(visiting: Visiting, told: World):
    with visiting(told.url, viewport=PHONE) as visit:
        visit.page.goto(told.url)
        expect(visit.page.get_by_role("button", name="Log in")).to_be_visible()
        for look in ("light", "dark"):
            visit.page.emulate_media(color_scheme=look)
            assert (faint(visit.page), unnamed(visit.page), too_wide(visit.page)) == ([], [], [])


def test_the_checks_see_faint_text_unnamed_controls_and_what_is_too_wide(arriving: Visit):
    page = arriving.page
    page.set_content(
        "<main><p style='color:#aaa'>faint</p>"
        + "<p>text</p>" * 12
        + "<button></button><div style='width:3000px'>wide</div>"
    )
    assert any("faint" in one for one in faint(page))
    assert any("button" in one for one in unnamed(page))
    assert too_wide(page)


def test_on_a_phone_the_menu_opens_and_closes(visiting: Visiting, told: World):
    with visiting(told.url, viewport=PHONE, has_touch=True, is_mobile=True) as visit:
        page = settled(visit.enter(told.key, "health", MAIN))
        views = page.get_by_role("navigation", name="Views")
        expect(views).to_have_count(0)
        page.get_by_role("button", name="Menu").click()
        expect(views).to_be_visible()
        visit.shot("menu-phone")
        settled(visit.view("Chat"))
        expect(views).to_have_count(0)
        expect(page.get_by_label("Message")).to_be_in_viewport()
        assert too_wide(page) == []


def test_colours_are_turned_by_hand_and_kept(arriving: Visit, told: World):
    page = settled(arriving.enter(told.key, "chat", MAIN))
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Dark colours").click()
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    dark = page.evaluate(ground)
    assert dark != light
    page.reload()
    expect(page.get_by_role("button", name="Light colours")).to_be_visible()
    assert page.evaluate(ground) == dark


def tab_to(page: Page, name: str, most: int = 60) -> None:
    """Goes on with the tab key until something with that name has the focus, and can be seen to have it."""
    for _ in range(most):
        page.keyboard.press("Tab")
        told = page.evaluate(
            """() => { const at = document.activeElement, style = getComputedStyle(at);
            const name = at.getAttribute('aria-label') || at.labels?.[0]?.textContent || at.textContent;
            return [name.trim(), style.outlineStyle + style.outlineWidth + style.boxShadow]; }"""
        )
        if told[0] == name:
            assert told[1] != "none0pxnone", f"the focus on '{name}' cannot be seen"
            return
    raise AssertionError(f"'{name}' is not reached with the tab key")


def test_an_address_that_is_opened_while_the_page_is_being_drawn_is_gone_to(changing: Visit, fresh: World):
    page = changing.page
    page.goto(changing.url)
    page.get_by_label("Key").fill(fresh.key)
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


def test_everything_is_done_by_the_keyboard_alone(changing: Visit, fresh: World):
    page = changing.page
    page.goto(changing.url)
    expect(page.get_by_label("Key")).to_be_visible()
    tab_to(page, "Key")
    page.keyboard.type(fresh.key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    page.goto(f"{changing.url}/#/chat?session={OTHER}")
    settled(page)
    tab_to(page, "Skip to content")
    page.keyboard.press("Enter")
    tab_to(page, "Message")
    page.keyboard.type("First line")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("second line")
    page.keyboard.press("Enter")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    said = [entry.content.decode() for entry in fresh.gateway.store.read(OTHER) if entry.role == "user"]
    assert "First line\\nsecond line" in said[-1]
    page.evaluate("document.activeElement.blur(); window.scrollTo(0, 0)")
    tab_to(page, "Decisions")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Decisions")).to_be_visible()
    tab_to(page, "Compact …")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
