"""The window view in a browser: the prompt as it is sent, next to the transcript it was built from."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect
from tests.web.browsing import Visit
from tests.web.test_views import get_json, wait_until_loaded
from tests.web.worlds import MAIN, World


def prompt_blocks(page: Page):
    return page.get_by_role("list", name="The prompt, in order")


def scrub(page: Page, at: int) -> None:
    page.get_by_role("slider", name="Entry").fill(str(at))


def test_the_window_shows_every_block_of_the_prompt_with_its_tokens(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "window", MAIN))
    view = get_json(seeded_world, "/session/window")
    expect(prompt_blocks(page).locator(".block")).to_have_count(len(view["blocks"]))
    shown = prompt_blocks(page).locator(".block-tokens").all_text_contents()
    assert [int(re.sub(r"\D", "", text)) for text in shown] == [block["tokens"] for block in view["blocks"]]
    expect(page.get_by_role("main")).to_contain_text(f"{view['tokens']:,} of {view['room']:,} tokens")
    expect(page.get_by_role("banner")).to_contain_text(f"{view['tokens']:,} of {view['room']:,} tokens")
    read_only_visit.shot("window")


def test_the_scrubber_shows_the_window_at_any_entry_and_the_url_keeps_it(read_only_visit: Visit, seeded_world: World):
    decision = get_json(seeded_world, "/session/decisions")["decisions"][-1]["seq"]
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "window", MAIN))
    for at in (decision - 1, decision):
        scrub(page, at)
        view = get_json(seeded_world, "/session/window", at=at)
        expect(page.get_by_text(f"After entry {at:,}")).to_be_visible()
        expect(prompt_blocks(page).locator(".block")).to_have_count(len(view["blocks"]))
        expect(page.get_by_role("main")).to_contain_text(f"{view['evicted']:,} evicted")
    expect(page).to_have_url(re.compile(f"at={decision}$"))
    page.reload()
    expect(page.get_by_text(f"After entry {decision:,}")).to_be_visible()
    page.get_by_role("button", name="Turn before").click()
    expect(page.get_by_text(f"After entry {decision:,}")).to_have_count(0)
    page.get_by_role("button", name="Now", exact=True).click()
    expect(page.get_by_text("What would be sent next")).to_be_visible()


def test_playback_steps_through_turns_to_the_end(read_only_visit: Visit, seeded_world: World):
    turns = get_json(seeded_world, "/session/timeline")["points"]
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "window", MAIN, at=turns[-3]["last"]))
    page.get_by_role("button", name="Play turn after turn").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_text("What would be sent next")).to_be_visible()
    expect(page.get_by_role("button", name="Play turn after turn")).to_be_visible()


def test_a_newcomer_finds_why_a_message_is_missing_restores_it_alone_and_undoes_that(
    editing_visit: Visit, fresh_world: World
):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "window", MAIN))
    spans = get_json(fresh_world, "/session/window")["spans"]
    seq = next(span["first"] for span in spans if span["place"] == "evicted")
    page.get_by_text("The transcript as a table").click()
    page.get_by_role("table", name="Where entries are").get_by_role(
        "button", name=f"Open entry {seq}", exact=True
    ).click()
    dialog = page.get_by_role("dialog", name=f"Entry {seq}")
    expect(dialog).to_contain_text("evicted by prune")
    expect(dialog).to_contain_text("The prompt was")
    editing_visit.shot("window-entry")
    dialog.get_by_role("button", name=f"Restore only this: entry {seq}").click()
    expect(dialog.get_by_role("button", name=f"Unpin entry {seq}")).to_be_visible()
    page.keyboard.press("Escape")
    expect(prompt_blocks(page).locator(f"[data-block='{seq}']")).to_contain_text("pinned")
    assert fresh_world.count_events("pinned") == 1
    sent = {block["seq"] for block in get_json(fresh_world, "/session/window")["blocks"]}
    assert seq in sent
    prompt_blocks(page).get_by_role("button", name=f"Open entry {seq}", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name=f"Unpin entry {seq}").click()
    expect(page.get_by_role("dialog").get_by_role("button", name=f"Pin entry {seq}", exact=True)).to_be_visible()
    assert fresh_world.count_events("unpinned") == 1


def test_a_recalled_block_links_to_its_source_by_a_curve_and_by_a_button(read_only_visit: Visit, seeded_world: World):
    audit = get_json(seeded_world, "/session/audit", kind="recall_injected")
    at = audit["lines"][0]["seq"]
    source = next(
        block for block in get_json(seeded_world, "/session/window", at=at)["blocks"] if block["what"] == "recalled"
    )["sources"][0]
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "window", MAIN, at=at))
    expect(page.locator("path.curve").first).to_be_attached()
    page.get_by_role("button", name=f"from entry {source}", exact=True).click()
    expect(page.get_by_role("dialog", name=f"Entry {source}")).to_be_visible()
    page.keyboard.press("Escape")


def test_an_unknown_view_in_the_url_is_reported(read_only_visit: Visit, seeded_world: World):
    page = read_only_visit.enter(seeded_world.key, "windows", MAIN)
    expect(page.get_by_text("There is no view “windows”.")).to_be_visible()
    page.get_by_role("link", name="To the window").click()
    expect(page.get_by_role("heading", level=1, name="Window")).to_be_visible()


def test_a_decision_opens_with_its_messages_and_links_to_the_window_after_it(
    read_only_visit: Visit, seeded_world: World
):
    decision = get_json(seeded_world, "/session/decisions")["decisions"][0]["seq"]
    view = get_json(seeded_world, "/session/decision", seq=decision)
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "decisions", MAIN))
    page.get_by_role("button", name=f"Messages of decision {decision}").click()
    messages = page.get_by_role("list", name=f"Messages of decision {decision}")
    expect(messages.get_by_role("listitem")).to_have_count(len(view["messages"]))
    expect(messages.get_by_role("listitem").first).to_contain_text(view["messages"][0]["text"][:30])
    read_only_visit.shot("decision-messages")
    page.get_by_role("link", name=f"Window after decision {decision}").click()
    expect(page.get_by_text(f"After entry {decision:,}")).to_be_visible()
