"""A newcomer's visit: finds why an answer was wrong, restores, sends, pins, undoes, and reuses a memory.

Messages typed on the page go through the gateway to a scripted provider that records its requests.
"""

from __future__ import annotations

import json

from playwright.sync_api import Page, expect
from tests.web.browsing import Visit
from tests.web.test_judging_page import toast
from tests.web.test_views import get_json, wait_until_loaded
from tests.web.test_window_page import prompt_blocks
from tests.web.worlds import MAIN, PROPOSALS, World

NEW = "agent:default:new"


def send_message(page: Page, world: World, text: str) -> str:
    """Sends a message in the chat; returns the last request body that the provider received for it."""
    count = len(world.upstream.asked)
    page.get_by_label("Message").fill(text)
    page.get_by_label("Message").press("Enter")
    expect(page.get_by_role("log", name="Conversation")).to_contain_text("The invoices go out on the 5th")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    sent = [request.body for request in world.upstream.asked[count:]]
    return json.dumps(sent[-1], ensure_ascii=False)


def open_entry(page: Page, seq: int):
    page.get_by_text("The transcript as a table").click()
    table = page.get_by_role("table", name="Where entries are")
    table.get_by_role("button", name=f"Open entry {seq}", exact=True).click()
    return page.get_by_role("dialog", name=f"Entry {seq}")


def test_a_newcomer_finds_why_an_answer_was_wrong_restores_the_message_pins_and_undoes(
    editing_visit: Visit, fresh_world: World
):
    seq = next(
        span["first"] for span in get_json(fresh_world, "/session/window")["spans"] if span["place"] == "evicted"
    )
    words = get_json(fresh_world, "/session/entry", seq=seq)["text"]
    assert "I will not touch migrations" in words

    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "chat", MAIN))
    assert words not in send_message(page, fresh_world, "Hello?"), "the model did not see it"

    page = wait_until_loaded(editing_visit.view("Window"))
    dialog = open_entry(page, seq)
    expect(dialog).to_contain_text("evicted by prune")
    expect(dialog).to_contain_text("relief begins at")
    dialog.get_by_role("button", name=f"Restore only this: entry {seq}").click()
    expect(dialog.get_by_role("button", name=f"Undo: Entry {seq} restored and pinned")).to_be_visible()
    page.keyboard.press("Escape")
    expect(prompt_blocks(page).locator(f"[data-block='{seq}']")).to_contain_text("pinned")

    page = wait_until_loaded(editing_visit.view("Chat"))
    assert words in send_message(page, fresh_world, "And now?"), "the next prompt has it"

    page = wait_until_loaded(editing_visit.view("Window"))
    question = get_json(fresh_world, "/session")["entries"]
    answer = next(
        block["seq"] for block in get_json(fresh_world, "/session/window")["blocks"] if block["reason"] == "answered"
    )
    assert answer < question
    prompt_blocks(page).get_by_role("button", name=f"Open entry {answer}", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=f"Pin entry {answer}", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("button", name=f"Unpin entry {answer}")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("u")
    expect(toast(page, f"Undone: Entry {answer} pinned")).to_be_visible()
    assert [pin["seq"] for pin in get_json(fresh_world, "/session/pins")["pins"]] == [seq]


def test_a_newcomer_approves_a_memory_and_sees_it_used_in_a_new_session(editing_visit: Visit, fresh_world: World):
    editing_visit.expected = ("404",)  # the new session, before its first message
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "memory", MAIN))
    page.get_by_role("button", name=f"Approve: {PROPOSALS[0].rstrip('.')}").or_(
        page.get_by_role("button", name=f"Approve: {PROPOSALS[0]}")
    ).click()
    expect(toast(page, "Approved")).to_be_visible()

    page.goto(f"{editing_visit.url}/#/chat?session={NEW}")
    wait_until_loaded(page)
    assert PROPOSALS[0] in send_message(page, fresh_world, "Do I prefer invoices on the 5th or on another day?")
    page = wait_until_loaded(editing_visit.view("Window"))
    expect(prompt_blocks(page)).to_contain_text(PROPOSALS[0])
