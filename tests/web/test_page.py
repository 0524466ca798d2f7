"""The page in a real Chromium: the way in, a conversation, what leaves and comes back, what is remembered.

After every visit nothing was asked of another machine, nothing broke the page's policy, and no dialog was open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from tests.web.browsing import Visit
from tests.web.worlds import MAIN, OTHER, PROPOSALS, Held, World

from recto.gateway.api_keys import Key

MEMORY = "agent:default:memory"
LONG = "Please read this log before you answer. " + "The ledger was closed and opened again at noon. " * 420
"""More than is left of the room."""


def gauge(page: Page) -> int:
    """The tokens that the gauge tells."""
    return int(page.get_by_role("meter", name="Tokens in the prompt").get_attribute("aria-valuenow") or 0)


def settled(page: Page) -> Page:
    """A page that waits for nothing any more."""
    expect(page.locator(".waiting")).to_have_count(0)
    return page


def say(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")


@pytest.fixture
def held(fresh: World) -> Iterator[Held]:
    made = Held(fresh)
    yield made
    made.go_on.set()


def test_a_wrong_key_is_refused_and_says_why(arriving: Visit):
    arriving.expected = ("401",)
    page = arriving.page
    page.goto(arriving.url)
    page.get_by_label("Key").fill("rk-wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("This key is not valid here.")
    expect(page.get_by_role("alert")).to_contain_text("recto serve --key prints it")
    expect(page.get_by_role("navigation", name="Views")).to_have_count(0)
    arriving.shot("login-refused")


def test_a_key_lets_in_for_this_tab_until_somebody_logs_out(arriving: Visit, told: World):
    page = arriving.page
    page.goto(arriving.url)
    arriving.shot("login")
    page.get_by_label("Key").fill(told.key)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    page.reload()
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    assert page.evaluate("localStorage.length + document.cookie.length") == 0, "nothing outlives the tab"
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Key")).to_have_value("")
    page.reload()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()


def test_a_key_in_the_address_is_taken_out_of_it_at_once(arriving: Visit, told: World):
    page = arriving.enter(told.key, "transcript", MAIN)
    assert told.key not in page.url
    assert "transcript" in page.url
    assert told.key not in page.content()
    arriving.enter(told.key, "health", MAIN)
    expect(page.get_by_role("heading", level=1, name="Health")).to_be_visible()
    assert told.key not in page.url, "nor does the same key do harm a second time"


def test_a_key_that_is_revoked_is_shown_the_way_in(changing: Visit, fresh: World):
    changing.expected = ("401",)
    keys = fresh.gateway.gateway.keys
    key, secret = keys.add(Key(name="soon gone"))
    page = changing.enter(secret, "chat", MAIN)
    keys.revoke(key.id)
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("This key is not valid here")


def test_an_answer_comes_in_pieces_and_moves_the_gauge(changing: Visit, fresh: World, held: Held):
    page = settled(changing.enter(fresh.key, "chat", MAIN))
    before = gauge(page)
    say(page, "When do invoices go out?")
    answer = page.get_by_role("article", name="The answer")
    expect(answer).to_contain_text("The first half")
    expect(answer).not_to_contain_text("second")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    expect(page.get_by_role("timer", name="Waiting for the answer")).to_have_text(re.compile("[1-9] s"))
    changing.shot("chat-streaming")
    held.go_on.set()
    log = page.get_by_role("log", name="Conversation")
    expect(log).to_contain_text("The first half, and the second.")
    expect(page.get_by_role("timer")).to_have_count(0)
    expect(page.locator(".session-key")).to_contain_text("gpt-4o, main")
    expect(page.get_by_role("meter")).not_to_have_attribute("aria-valuenow", str(before))
    said = [entry.content.decode() for entry in fresh.gateway.store.read(MAIN) if entry.role != "event"]
    assert "When do invoices go out?" in said[-2]
    assert "and the second." in said[-1]


def test_escape_stops_an_answer_and_the_page_goes_on(changing: Visit, fresh: World, held: Held):
    page = settled(changing.enter(fresh.key, "chat", MAIN))
    say(page, "Tell me a long story.")
    expect(page.get_by_role("article", name="The answer")).to_contain_text("The first half")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    held.go_on.set()
    fresh.upstream.fail = lambda asked: None
    say(page, "And a short one?")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")


def test_a_new_session_is_begun_by_saying_something_in_it(changing: Visit, fresh: World):
    changing.expected = ("404",)  # nobody has said anything in it yet
    page = settled(changing.enter(fresh.key))
    page.get_by_role("button", name="New session").click()
    page.get_by_role("dialog").get_by_label("Name").fill("release-notes")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("Nothing was said here yet.")).to_be_visible()
    say(page, "Hello there.")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    expect(page.get_by_role("region", name="Sessions")).to_contain_text("agent:default:release-notes")


def test_what_leaves_is_marked_in_chat_on_the_timeline_and_in_the_log_and_can_be_restored(
    changing: Visit, fresh: World
):
    before = fresh.happened("context_window_pruned")
    page = settled(changing.enter(fresh.key, "chat", MAIN))
    say(page, LONG)
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    marker = page.get_by_role("note", name=re.compile("Decision")).last
    expect(marker).to_contain_text("left the prompt")
    seq = int(re.sub(r"\D", "", marker.get_attribute("aria-label") or ""))
    assert fresh.happened("context_window_pruned") > before
    changing.shot("chat-pruned")

    settled(changing.view("Budget"))
    page.get_by_text(re.compile("Decisions as a table")).click()
    expect(page.get_by_role("button", name=f"Open decision {seq}")).to_be_visible()
    changing.shot("window-pruned")

    settled(changing.view("Decisions"))
    line = page.get_by_role("listitem", name=f"Decision {seq}")
    expect(line).to_contain_text("context window pruned")
    page.get_by_role("button", name=f"Restore decision {seq}").click()
    expect(line).to_contain_text("undone")
    expect(page.get_by_role("button", name=f"Redo decision {seq}")).to_be_visible()
    assert fresh.happened("restored") == 1


MARKS = """canvas => {
  const probe = document.body.appendChild(document.createElement('span'));
  probe.style.color = 'var(--orange)';
  const style = getComputedStyle(probe).color;
  probe.remove();
  const one = document.createElement('canvas').getContext('2d');
  one.fillStyle = style; one.fillRect(0, 0, 1, 1);
  const [red, green, blue] = one.getImageData(0, 0, 1, 1).data;
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
"""A point of the canvas that has the colour of a decision's mark."""


def test_a_mark_on_the_timeline_opens_its_decision_where_it_can_be_restored(changing: Visit, fresh: World):
    page = settled(changing.enter(fresh.key, "budget", MAIN))
    chart = page.get_by_role("img", name=re.compile("Tokens of the prompt over"))
    chart.scroll_into_view_if_needed()
    x, y, size = chart.locator("canvas").first.evaluate(MARKS)
    assert size > 10, "there are marks to see"
    page.mouse.move(*_at(chart, x, y))
    page.mouse.move(*_at(chart, x + 1, y))
    page.mouse.click(*_at(chart, x, y))
    dialog = page.get_by_role("dialog", name=re.compile("Decision"))
    expect(dialog).to_contain_text("left the prompt")
    changing.shot("window-decision")
    dialog.get_by_role("button", name=re.compile("Restore")).click()
    expect(
        dialog.get_by_role("button", name=re.compile("Redo|Restored")).or_(dialog.get_by_text("restored"))
    ).to_be_visible()
    assert fresh.happened("restored") == 1


def _at(chart, x: float, y: float) -> tuple[float, float]:
    box = chart.bounding_box()
    return box["x"] + x, box["y"] + y


def test_a_session_is_compacted_with_a_focus_from_the_log(changing: Visit, fresh: World):
    page = settled(changing.enter(fresh.key, "decisions", MAIN))
    page.get_by_role("button", name="Compact").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Focus").fill("the port of the staging server")
    dialog.get_by_role("button", name="Compact").click()
    expect(dialog.get_by_role("button", name="Done")).to_be_visible()
    changing.shot("decisions-compacted")
    dialog.get_by_role("button", name="Done").click()
    expect(page.get_by_role("list", name="Decisions")).to_contain_text("compaction")
    assert "compaction" in fresh.events()


def test_an_approved_proposal_is_remembered_and_a_rejected_one_is_not(changing: Visit, fresh: World):
    wanted, refused, waiting = PROPOSALS
    page = settled(changing.enter(fresh.key, "memory", MAIN))
    page.get_by_role("button", name=f"Approve: {wanted}").click()
    expect(page.get_by_role("listitem", name=f"Proposal: {wanted}")).to_have_count(0)
    page.get_by_role("button", name=f"Reject: {refused}").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Reason").fill("only that week")
    dialog.get_by_role("button", name="Reject").click()
    expect(page.get_by_role("listitem", name=f"Proposal: {refused}")).to_have_count(0)
    expect(page.get_by_role("listitem", name=f"Proposal: {waiting}")).to_be_visible()
    told = [entry.content.decode() for entry in fresh.gateway.store.read(MEMORY)]
    assert any(wanted in text for text in told)
    assert fresh.events(MEMORY)[-2:] == ["memory_approved", "memory_rejected"]
    assert any("only that week" in text for text in told)
    page.get_by_role("tab", name=re.compile("Remembered|Memories|Approved")).click()
    expect(page.get_by_role("table", name="Memories")).to_contain_text(wanted)
    changing.shot("memory-remembered")


def test_what_is_said_elsewhere_is_seen_without_a_reload(changing: Visit, fresh: World):
    page = settled(changing.enter(fresh.key, "chat", OTHER))
    with fresh.gateway.gateway.sessions.use(Key(name="else"), OTHER) as session:
        session.append({"role": "user", "content": "A word from another surface."})
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("A word from another surface.")


def test_a_key_that_may_only_read_changes_nothing_and_is_told_why(changing: Visit, fresh: World):
    key = fresh.gateway.key(rights=frozenset({"read"}))
    page = settled(changing.enter(key, "chat", MAIN))
    before = [len(list(fresh.gateway.store.read(one))) for one in (MAIN, MEMORY)]
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
        settled(changing.view(view))
        button = page.get_by_role("button", name=name).first
        expect(button).to_be_disabled()
        expect(button).to_have_attribute("title", re.compile("right"))
        button.dispatch_event("click")
        expect(page.get_by_role("dialog")).to_have_count(0)
    assert [len(list(fresh.gateway.store.read(one))) for one in (MAIN, MEMORY)] == before
