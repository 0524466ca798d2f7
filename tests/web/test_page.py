"""The page in a real Chromium: login, a conversation, eviction and restore, and memory.

After every visit, no request went to another machine, the content security policy held, and no dialog was open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.web.browsing import Visit
from tests.web.worlds import MAIN, OTHER, PROPOSALS, PausedAnswer, World

from recto.gateway.api_keys import Key

MEMORY = "agent:default:memory"
LONG = "Please read this log before you answer. " + "The ledger was closed and opened again at noon. " * 420
"""More tokens than are left in the input budget."""


def gauge_tokens(page: Page) -> int:
    """The token count that the gauge shows."""
    return int(page.get_by_role("meter", name="Tokens in the prompt").get_attribute("aria-valuenow") or 0)


def wait_until_loaded(page: Page) -> Page:
    """Waits until the page has no loading indicator."""
    expect(page.locator(".waiting")).to_have_count(0)
    return page


def send_message(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


@pytest.fixture
def paused_answer(fresh_world: World) -> Iterator[PausedAnswer]:
    made = PausedAnswer(fresh_world)
    yield made
    made.go_on.set()


def test_a_wrong_key_is_rejected_with_an_explanation(new_visit: Visit):
    new_visit.expected = ("401",)
    page = new_visit.page
    page.goto(new_visit.url)
    page.get_by_label("Key").fill("rk-wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This key is not valid here.")
    expect(page.get_by_role("alert")).to_contain_text("recto serve --key prints it")
    expect(page.get_by_role("navigation", name="Views")).to_have_count(0)
    new_visit.shot("login-refused")


def test_a_login_lasts_for_this_tab_until_the_user_logs_out(new_visit: Visit, seeded_world: World):
    page = new_visit.page
    page.goto(new_visit.url)
    new_visit.shot("login")
    page.get_by_label("Key").fill(seeded_world.key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    page.reload()
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    assert page.evaluate("localStorage.length + document.cookie.length") == 0, "nothing outlives the tab"
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Key")).to_have_value("")
    page.reload()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_key_in_the_url_is_removed_from_it_at_once(new_visit: Visit, seeded_world: World):
    page = new_visit.enter(seeded_world.key, "transcript", MAIN)
    assert seeded_world.key not in page.url
    assert "transcript" in page.url
    assert seeded_world.key not in page.content()
    new_visit.enter(seeded_world.key, "health", MAIN)
    expect(page.get_by_role("heading", level=1, name="Health")).to_be_visible()
    assert seeded_world.key not in page.url, "opening the same key a second time keeps it out of the URL too"


def test_a_revoked_key_returns_the_user_to_the_login_page(editing_visit: Visit, fresh_world: World):
    editing_visit.expected = ("401",)
    keys = fresh_world.gateway.gateway.keys
    key, secret = keys.add(Key(name="soon gone"))
    page = editing_visit.enter(secret, "chat", MAIN)
    keys.revoke(key.id)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("This key is not valid here")


def test_a_streamed_answer_is_shown_in_pieces_and_updates_the_gauge(
    editing_visit: Visit, fresh_world: World, paused_answer: PausedAnswer
):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "chat", MAIN))
    before = gauge_tokens(page)
    send_message(page, "When do invoices go out?")
    answer = page.get_by_role("article", name="The answer")
    expect(answer).to_contain_text("The first half")
    expect(answer).not_to_contain_text("second")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.get_by_role("timer", name="Waiting for the answer")).to_have_text(re.compile("[1-9] s"))
    editing_visit.shot("chat-streaming")
    paused_answer.go_on.set()
    log = page.get_by_role("log", name="Conversation")
    expect(log).to_contain_text("The first half, and the second.")
    expect(page.get_by_role("timer")).to_have_count(0)
    expect(page.locator(".session-key")).to_contain_text("gpt-4o, main")
    expect(page.get_by_role("meter")).not_to_have_attribute("aria-valuenow", str(before))
    contents = [entry.content.decode() for entry in fresh_world.gateway.store.read(MAIN) if entry.role != "event"]
    assert "When do invoices go out?" in contents[-2]
    assert "and the second." in contents[-1]


def test_escape_stops_an_answer_and_the_page_stays_usable(
    editing_visit: Visit, fresh_world: World, paused_answer: PausedAnswer
):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "chat", MAIN))
    send_message(page, "Tell me a long story.")
    expect(page.get_by_role("article", name="The answer")).to_contain_text("The first half")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    paused_answer.go_on.set()
    fresh_world.upstream.fail = lambda request: None
    send_message(page, "And a short one?")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")


def test_a_new_session_starts_with_its_first_message(editing_visit: Visit, fresh_world: World):
    editing_visit.expected = ("404",)  # the session has no messages yet
    page = wait_until_loaded(editing_visit.enter(fresh_world.key))
    page.get_by_role("button", name="New session").click()
    page.get_by_role("dialog").get_by_label("Name").fill("release-notes")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("Nothing was said here yet.")).to_be_visible()
    send_message(page, "Hello there.")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    expect(page.get_by_role("region", name="Sessions")).to_contain_text("agent:default:release-notes")


def test_an_eviction_is_marked_in_chat_timeline_and_log_and_can_be_restored(editing_visit: Visit, fresh_world: World):
    before = fresh_world.count_events("context_window_pruned")
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "chat", MAIN))
    send_message(page, LONG)
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    marker = page.get_by_role("note", name=re.compile("Decision")).last
    expect(marker).to_contain_text("left the prompt")
    seq = int(re.sub(r"\D", "", marker.get_attribute("aria-label") or ""))
    assert fresh_world.count_events("context_window_pruned") > before
    editing_visit.shot("chat-pruned")

    wait_until_loaded(editing_visit.view("Budget"))
    page.get_by_text(re.compile("Decisions as a table")).click()
    expect(page.get_by_role("button", name=f"Open decision {seq}")).to_be_visible()
    editing_visit.shot("window-pruned")

    wait_until_loaded(editing_visit.view("Decisions"))
    line = page.get_by_role("listitem", name=f"Decision {seq}")
    expect(line).to_contain_text("context window pruned")
    page.get_by_role("button", name=f"Restore decision {seq}").click()
    expect(line).to_contain_text("undone")
    expect(page.get_by_role("button", name=f"Redo decision {seq}")).to_be_visible()
    assert fresh_world.count_events("restored") == 1


FIND_DECISION_MARK = """canvas => {
  const probe = document.body.appendChild(document.createElement('span'));
  probe.style.color = 'var(--orange)';
  const style = getComputedStyle(probe).color;
  probe.remove();
  const pen = document.createElement('canvas').getContext('2d');
  pen.fillStyle = style; pen.fillRect(0, 0, 1, 1);
  const [red, green, blue] = pen.getImageData(0, 0, 1, 1).data;
  const {width, height} = canvas;
  const {data} = canvas.getContext('2d').getImageData(0, 0, width, height);
  const spots = [];
  for (let y = 24 * devicePixelRatio; y < height * .8; y++) for (let x = 0; x < width; x++) {
    const at = 4 * (y * width + x);
    if (data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255) spots.push([x, y]);
  }
  const [x, y] = spots[Math.floor(spots.length / 2)] ?? [0, 0];
  return [x / devicePixelRatio, y / devicePixelRatio, spots.length];
}"""
"""Finds a point of the canvas in the colour of a decision's mark."""


def test_a_timeline_mark_opens_its_decision_which_can_be_restored(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "budget", MAIN))
    chart = page.get_by_role("img", name=re.compile("Tokens of the prompt over"))
    chart.scroll_into_view_if_needed()
    x, y, size = chart.locator("canvas").first.evaluate(FIND_DECISION_MARK)
    assert size > 10, "the chart shows decision marks"
    page.mouse.move(*_canvas_point(chart, x, y))
    page.mouse.move(*_canvas_point(chart, x + 1, y))
    page.mouse.click(*_canvas_point(chart, x, y))
    dialog = page.get_by_role("dialog", name=re.compile("Decision"))
    expect(dialog).to_contain_text("left the prompt")
    editing_visit.shot("window-decision")
    dialog.get_by_role("button", name=re.compile("Restore")).click()
    expect(
        dialog.get_by_role("button", name=re.compile("Redo|Restored")).or_(dialog.get_by_text("restored"))
    ).to_be_visible()
    assert fresh_world.count_events("restored") == 1


def _canvas_point(chart, x: float, y: float) -> tuple[float, float]:
    box = chart.bounding_box()
    return box["x"] + x, box["y"] + y


def test_a_session_can_be_compacted_with_a_focus_from_the_decision_log(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "decisions", MAIN))
    page.get_by_role("button", name="Compact").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Focus").fill("the port of the staging server")
    dialog.get_by_role("button", name="Compact").click()
    expect(dialog.get_by_role("button", name="Done")).to_be_visible()
    editing_visit.shot("decisions-compacted")
    dialog.get_by_role("button", name="Done").click()
    expect(page.get_by_role("list", name="Decisions")).to_contain_text("compaction")
    assert "compaction" in fresh_world.events()


def test_approved_proposals_are_remembered_and_rejected_proposals_are_not(editing_visit: Visit, fresh_world: World):
    wanted, refused, waiting = PROPOSALS
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "memory", MAIN))
    page.get_by_role("button", name=f"Approve: {wanted}").click()
    expect(page.get_by_role("listitem", name=f"Proposal: {wanted}")).to_have_count(0)
    page.get_by_role("button", name=f"Reject: {refused}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("only that week")
    dialog.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("listitem", name=f"Proposal: {refused}")).to_have_count(0)
    expect(page.get_by_role("listitem", name=f"Proposal: {waiting}")).to_be_visible()
    contents = [entry.content.decode() for entry in fresh_world.gateway.store.read(MEMORY)]
    assert any(wanted in text for text in contents)
    assert fresh_world.events(MEMORY)[-2:] == ["memory_approved", "memory_rejected"]
    assert any("only that week" in text for text in contents)
    page.get_by_role("tab", name=re.compile("Remembered|Memories|Approved")).click()
    expect(page.get_by_role("table", name="Memories")).to_contain_text(wanted)
    editing_visit.shot("memory-remembered")


def test_a_message_from_another_client_appears_without_a_reload(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "chat", OTHER))
    with fresh_world.gateway.gateway.sessions.use(Key(name="else"), OTHER) as session:
        session.append({"role": "user", "content": "A word from another surface."})
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("A word from another surface.")


def test_a_read_only_key_changes_nothing_and_sees_why(editing_visit: Visit, fresh_world: World):
    key = fresh_world.gateway.key(rights=frozenset({"read"}))
    page = wait_until_loaded(editing_visit.enter(key, "chat", MAIN))
    before = [len(list(fresh_world.gateway.store.read(session))) for session in (MAIN, MEMORY)]
    expect(page.get_by_label("Message")).not_to_be_editable()
    send = page.get_by_role("button", name="Send")
    expect(send).to_be_disabled()
    expect(send).to_have_attribute("title", re.compile("right"))
    for view, name in (
        ("Decisions", "Restore decision"),
        ("Decisions", "Compact"),
        ("Memory", "Approve:"),
        ("Memory", "Reject:"),
    ):
        wait_until_loaded(editing_visit.view(view))
        button = page.get_by_role("button", name=name).first
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", re.compile("right"))
        button.dispatch_event("click")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert [len(list(fresh_world.gateway.store.read(session))) for session in (MAIN, MEMORY)] == before
