"""Judging recalled hits, undoing actions, and keyboard navigation, in a browser."""

from __future__ import annotations

import re
from contextlib import suppress

from playwright.sync_api import Locator, Page, expect
from tests.web.browsing import Visit
from tests.web.test_views import get_json, wait_until_loaded
from tests.web.test_window_page import prompt_blocks
from tests.web.worlds import MAIN, World


def toast(page: Page, text: str | re.Pattern[str]):
    """The latest toast with this text."""
    return page.get_by_role("region", name="What was done").locator(".toast").filter(has_text=text).last


def press_until(page: Page, key: str, shown: Locator) -> None:
    """Presses a key until something is shown: a view that is still loading takes no shortcuts."""
    for _ in range(20):
        page.keyboard.press(key)
        with suppress(AssertionError):
            expect(shown).to_be_visible(timeout=2_000)
            return
    expect(shown).to_be_visible()


def find_recalled_block(world: World) -> tuple[int, dict]:
    """An entry after which the window has a recalled block, and that block."""
    for point in reversed(get_json(world, "/session/timeline")["points"]):
        for block in get_json(world, "/session/window", at=point["last"])["blocks"]:
            if block["what"] == "recalled":
                return point["last"], block
    raise AssertionError("nothing was recalled")


def test_a_recalled_quotation_shows_its_text_and_reasons_and_can_be_judged(editing_visit: Visit, fresh_world: World):
    at, block = find_recalled_block(fresh_world)
    quote = next(quote for quote in block["quotes"] if quote["reasons"])
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "window", MAIN, at=at))
    shown = prompt_blocks(page).locator(".quote").filter(has_text=quote["text"].splitlines()[0])
    expect(shown).to_contain_text("Recalled because it")
    expect(shown).to_contain_text(quote["reasons"][0].removeprefix("close").strip())
    editing_visit.shot("window-recalled")
    name = f"entry {quote['seq']}"
    shown.get_by_role("button", name=f"Not helpful: {name}").click()
    expect(shown.get_by_role("button", name=f"Not helpful: {name}")).to_have_attribute("aria-pressed", "true")
    assert fresh_world.count_events("recall_judged") == 1
    toast(page, "judged not helpful").get_by_role("button", name="Undo").click()
    expect(toast(page, "Undone")).to_be_visible()
    expect(shown.get_by_role("button", name=f"Not helpful: {name}")).to_have_attribute("aria-pressed", "false")
    assert fresh_world.count_events("recall_judged") == 2


def test_judging_a_search_hit_ranks_it_again(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(
        editing_visit.enter(fresh_world.key, "recall", MAIN, q="Which port does the staging server listen on?")
    )
    hits = page.get_by_role("list", name="Hits")
    seq = hits.locator(".entry-seq").first.inner_text()
    before = hits.locator(".hit-score strong").first.inner_text()
    expect(hits.locator(".reasons").first).to_contain_text("with the question")
    hits.get_by_role("button", name=f"Helpful: entry {seq}", exact=True).click()
    expect(hits.get_by_role("button", name=f"Helpful: entry {seq}", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(hits.locator(".hit-score strong").first).not_to_have_text(before)
    expect(hits.locator(".hit-parts").first).to_contain_text(re.compile(r"judged \+1\.000", re.I))


def test_restore_and_pin_can_be_undone_from_their_toasts_even_inside_a_dialog(editing_visit: Visit, fresh_world: World):
    seq = next(
        span["first"] for span in get_json(fresh_world, "/session/window")["spans"] if span["place"] == "evicted"
    )
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "window", MAIN))
    page.get_by_text("The transcript as a table").click()
    table = page.get_by_role("table", name="Where entries are")
    table.get_by_role("button", name=f"Open entry {seq}", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Entry {seq}")
    dialog.get_by_role("button", name=f"Restore only this: entry {seq}").click()
    dialog.get_by_role("button", name=f"Undo: Entry {seq} restored and pinned").click()
    expect(toast(page, "Undone")).to_be_visible()
    expect(dialog.get_by_role("button", name=f"Pin entry {seq}", exact=True)).to_be_visible()
    assert get_json(fresh_world, "/session/pins")["pins"] == []
    page.keyboard.press("Escape")
    page = wait_until_loaded(editing_visit.view("Decisions"))
    page.get_by_role("button", name=re.compile("Restore decision")).first.click()
    done = re.compile(r"^Decision \d+ restored")
    expect(toast(page, done)).to_be_visible()
    assert fresh_world.count_events("restored") == 1
    toast(page, done).get_by_role("button", name="Undo").press("Enter")
    expect(toast(page, re.compile(r"Undone: Decision \d+ restored"))).to_be_visible()


def test_an_approval_can_be_undone(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "memory", MAIN))
    page.get_by_role("button", name=re.compile("^Approve: ")).first.click()
    expect(toast(page, "Approved")).to_be_visible()
    assert "memory_approved" in fresh_world.events("agent:default:memory")
    toast(page, "Approved").get_by_role("button", name="Undo").click()
    expect(toast(page, "Undone")).to_be_visible()
    assert "memory_approval_undone" in fresh_world.events("agent:default:memory")


def test_the_palette_opens_views_sessions_and_actions_by_keyboard(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "window", MAIN))
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Commands")
    expect(palette.get_by_role("combobox", name="Command")).to_be_focused()
    page.keyboard.type("go mem")
    expect(palette.get_by_role("option")).to_have_count(1)
    read_only_visit.shot("palette")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Memory")).to_be_visible()
    page.keyboard.press("Meta+k")
    expect(palette.get_by_role("combobox", name="Command")).to_be_focused()
    page.keyboard.type("session other")
    expect(palette.get_by_role("option", selected=True)).to_contain_text("agent:default:other")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("session=agent%3Adefault%3Aother"))
    page.keyboard.press("Control+k")
    expect(palette.get_by_role("combobox", name="Command")).to_be_focused()
    page.keyboard.type("go")
    expect(palette.get_by_role("option", selected=True)).to_contain_text("Go to Window")
    page.keyboard.press("ArrowDown")
    chosen = palette.get_by_role("option", selected=True)
    expect(chosen).to_contain_text("Go to Chat")
    expect(palette.get_by_role("combobox")).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "")
    page.keyboard.press("Escape")
    expect(palette).to_have_count(0)


def test_single_key_shortcuts_work_outside_text_fields_and_can_be_disabled(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "window", MAIN))
    expect(page.get_by_role("button", name="Turn before")).not_to_have_attribute("aria-disabled", "true")
    expect(page).not_to_have_url(re.compile("key="))
    press_until(page, "[", page.get_by_text("After entry"))
    page.keyboard.press("?")
    help_page = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_page).to_contain_text("Turn before")
    read_only_visit.shot("shortcuts")
    page.keyboard.press("4")
    expect(help_page).to_be_visible()
    page.keyboard.press("Escape")
    expect(help_page).to_have_count(0)
    page.keyboard.press("4")
    expect(page.get_by_role("heading", level=1, name="Recall")).to_be_visible()
    field = page.get_by_role("textbox", name="Question")
    field.fill("")
    field.press_sequentially("1? [u]")
    expect(field).to_have_value("1? [u]")
    expect(page.get_by_role("heading", level=1, name="Recall")).to_be_visible()
    page.get_by_role("button", name="Commands Ctrl K").click()
    palette = page.get_by_role("dialog", name="Commands")
    expect(palette.get_by_role("combobox", name="Command")).to_be_focused()
    page.keyboard.type("keyboard")
    expect(palette.get_by_role("option", selected=True)).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Enter")
    help_page.get_by_role("button", name="Single-key shortcuts", pressed=True).click()
    expect(help_page.get_by_role("button", name="Single-key shortcuts", pressed=False)).to_be_visible()
    page.keyboard.press("Escape")
    expect(help_page).to_have_count(0)
    page.keyboard.press("1")
    page.keyboard.press("Control+k")
    expect(palette.get_by_role("combobox", name="Command")).to_be_focused()
    page.keyboard.type("keyboard")
    expect(palette.get_by_role("option", selected=True)).to_contain_text("Keyboard shortcuts")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Recall")).to_be_visible()
    help_page.get_by_role("button", name="Single-key shortcuts").click()
    page.keyboard.press("Escape")
