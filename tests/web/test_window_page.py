"""The window in a browser: the prompt as it is sent, the transcript beside it, and a newcomer who finds their way."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.web.browsing import Visit
from tests.web.test_views import asked, settled
from tests.web.worlds import MAIN, World


def blocks(page: Page):
    return page.get_by_role("list", name="The prompt, in order")


def scrub(page: Page, at: int) -> None:
    page.get_by_role("slider", name="Entry").fill(str(at))


def test_the_window_shows_every_block_of_the_prompt_with_its_tokens(looking: Visit, told: World):
    page = settled(looking.enter(told.key, "window", MAIN))
    view = asked(told, "/session/window")
    expect(blocks(page).locator(".block")).to_have_count(len(view["blocks"]))
    shown = blocks(page).locator(".block-tokens").all_text_contents()
    assert [int(re.sub(r"\D", "", text)) for text in shown] == [block["tokens"] for block in view["blocks"]]
    expect(page.get_by_role("main")).to_contain_text(f"{view['tokens']:,} of {view['room']:,} tokens")
    expect(page.get_by_role("banner")).to_contain_text(f"{view['tokens']:,} of {view['room']:,} tokens")
    looking.shot("window")


def test_the_scrubber_shows_the_window_of_any_moment_and_the_address_keeps_it(looking: Visit, told: World):
    decision = asked(told, "/session/decisions")["decisions"][-1]["seq"]
    page = settled(looking.enter(told.key, "window", MAIN))
    for at in (decision - 1, decision):
        scrub(page, at)
        view = asked(told, "/session/window", at=at)
        expect(page.get_by_text(f"After entry {at:,}")).to_be_visible()
        expect(blocks(page).locator(".block")).to_have_count(len(view["blocks"]))
        expect(page.get_by_role("main")).to_contain_text(f"{view['evicted']:,} evicted")
    expect(page).to_have_url(re.compile(f"at={decision}$"))
    page.reload()
    expect(page.get_by_text(f"After entry {decision:,}")).to_be_visible()
    page.get_by_role("button", name="Turn before").click()
    expect(page.get_by_text(f"After entry {decision:,}")).to_have_count(0)
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page.get_by_text("What would be sent next")).to_be_visible()


def test_playing_goes_turn_after_turn_to_the_end(looking: Visit, told: World):
    turns = asked(told, "/session/timeline")["points"]
    page = settled(looking.enter(told.key, "window", MAIN, at=turns[-3]["last"]))
    page.get_by_role("button", name="Play turn after turn").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_text("What would be sent next")).to_be_visible()
    expect(page.get_by_role("button", name="Play turn after turn")).to_be_visible()


def test_a_newcomer_finds_why_a_message_is_missing_restores_it_alone_and_undoes_that(changing: Visit, fresh: World):
    page = settled(changing.enter(fresh.key, "window", MAIN))
    spans = asked(fresh, "/session/window")["spans"]
    seq = next(span["first"] for span in spans if span["place"] == "evicted")
    page.get_by_text("The transcript as a table").click()
    page.get_by_role("table", name="Where entries are").get_by_role(
        "button", name=f"Open entry {seq}", exact=True
    ).click()
    dialog = page.get_by_role("dialog", name=f"Entry {seq}")
    expect(dialog).to_contain_text("evicted by prune")
    expect(dialog).to_contain_text("The prompt was")
    changing.shot("window-entry")
    dialog.get_by_role("button", name=f"Restore only this: entry {seq}").click()
    expect(dialog.get_by_role("button", name=f"Unpin entry {seq}")).to_be_visible()
    page.keyboard.press("Escape")
    expect(blocks(page).locator(f"[data-block='{seq}']")).to_contain_text("pinned")
    assert fresh.happened("pinned") == 1
    sent = {block["seq"] for block in asked(fresh, "/session/window")["blocks"]}
    assert seq in sent
    blocks(page).get_by_role("button", name=f"Open entry {seq}", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=f"Unpin entry {seq}").click()
    expect(page.get_by_role("dialog").get_by_role("button", name=f"Pin entry {seq}")).to_be_visible()
    assert fresh.happened("unpinned") == 1


def test_a_recalled_block_leads_to_its_source_by_a_curve_and_by_a_button(looking: Visit, told: World):
    session = asked(told, "/session/audit", kind="recall_injected")
    at = session["lines"][0]["seq"]
    source = next(block for block in asked(told, "/session/window", at=at)["blocks"] if block["what"] == "recalled")[
        "sources"
    ][0]
    page = settled(looking.enter(told.key, "window", MAIN, at=at))
    expect(page.locator("path.curve").first).to_be_attached()
    page.get_by_role("button", name=f"from entry {source}", exact=True).click()
    expect(page.get_by_role("dialog", name=f"Entry {source}")).to_be_visible()
    page.keyboard.press("Escape")


def test_an_address_that_names_no_view_says_so(looking: Visit, told: World):
    page = looking.enter(told.key, "windows", MAIN)
    expect(page.get_by_text("There is no view “windows”.")).to_be_visible()
    page.get_by_role("link", name="To the window").click()
    expect(page.get_by_role("heading", level=1, name="Window")).to_be_visible()


def test_a_decision_opens_with_its_messages_and_leads_to_the_window_after_it(looking: Visit, told: World):
    decision = asked(told, "/session/decisions")["decisions"][0]["seq"]
    view = asked(told, "/session/decision", seq=decision)
    page = settled(looking.enter(told.key, "decisions", MAIN))
    page.get_by_role("button", name=f"Messages of decision {decision}").click()
    messages = page.get_by_role("list", name=f"Messages of decision {decision}")
    expect(messages.get_by_role("listitem")).to_have_count(len(view["messages"]))
    expect(messages.get_by_role("listitem").first).to_contain_text(view["messages"][0]["text"][:30])
    looking.shot("decision-messages")
    page.get_by_role("link", name=f"Window after decision {decision}").click()
    expect(page.get_by_text(f"After entry {decision:,}")).to_be_visible()
