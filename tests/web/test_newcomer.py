"""A newcomer's visit: why an answer was wrong, what was missing restored, sent, pinned, undone; a memory used again.

What is said on the page goes through the gateway to a provider that writes down what it was sent.
"""

from __future__ import annotations

import json

from playwright.sync_api import Page, expect
from tests.web.browsing import Visit
from tests.web.test_judging_page import toast
from tests.web.test_views import asked, settled
from tests.web.test_window_page import blocks
from tests.web.worlds import MAIN, PROPOSALS, World

NEW = "agent:default:new"


def say(page: Page, world: World, text: str) -> str:
    """Says something in the chat; returns all that the provider was sent for it."""
    count = len(world.upstream.asked)
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    sent = [one.body for one in world.upstream.asked[count:]]
    return json.dumps(sent[-1], ensure_ascii=False)


def open_entry(page: Page, seq: int):
    page.get_by_text("The transcript as a table").click()
    table = page.get_by_role("table", name="Where entries are")
    table.get_by_role("button", name=f"Open entry {seq}", exact=True).click()
    return page.get_by_role("dialog", name=f"Entry {seq}")


def test_a_newcomer_finds_why_an_answer_was_wrong_restores_the_message_pins_and_undoes(changing: Visit, fresh: World):
    seq = next(one["first"] for one in asked(fresh, "/session/window")["spans"] if one["place"] == "evicted")
    words = asked(fresh, "/session/entry", seq=seq)["text"]
    assert "I will not touch migrations" in words

    page = settled(changing.enter(fresh.key, "chat", MAIN))
    assert words not in say(page, fresh, "Hello?"), "the model did not see it"

    page = settled(changing.view("Window"))
    dialog = open_entry(page, seq)
    expect(dialog).to_contain_text("evicted by prune")
    expect(dialog).to_contain_text("relief begins at")
    dialog.get_by_role("button", name=f"Restore only this: entry {seq}").click()
    expect(dialog.get_by_role("button", name=f"Undo: Entry {seq} restored and pinned")).to_be_visible()
    page.keyboard.press("Escape")
    expect(blocks(page).locator(f"[data-block='{seq}']")).to_contain_text("pinned")

    page = settled(changing.view("Chat"))
    assert words in say(page, fresh, "And now?"), "the next prompt has it"

    page = settled(changing.view("Window"))
    question = asked(fresh, "/session")["entries"]
    answer = next(one["seq"] for one in asked(fresh, "/session/window")["blocks"] if one["reason"] == "answered")
    assert answer < question
    blocks(page).get_by_role("button", name=f"Open entry {answer}", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=f"Pin entry {answer}", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("button", name=f"Unpin entry {answer}")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(toast(page, f"Undone: Entry {answer} pinned")).to_be_visible()
    assert [pin["seq"] for pin in asked(fresh, "/session/pins")["pins"]] == [seq]


def test_a_newcomer_approves_a_memory_and_sees_it_used_in_a_new_session(changing: Visit, fresh: World):
    changing.expected = ("404",)  # the new session, before anything is said in it
    page = settled(changing.enter(fresh.key, "memory", MAIN))
    page.get_by_role("button", name=f"Approve: {PROPOSALS[0].rstrip('.')}").or_(
        page.get_by_role("button", name=f"Approve: {PROPOSALS[0]}")
    ).click()
    expect(toast(page, "Approved")).to_be_visible()

    page.goto(f"{changing.url}/#/chat?session={NEW}")
    settled(page)
    assert PROPOSALS[0] in say(page, fresh, "Do I prefer invoices on the 5th or on another day?")
    page = settled(changing.view("Window"))
    expect(blocks(page)).to_contain_text(PROPOSALS[0])
