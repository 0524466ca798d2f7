"""Session actions on the page: rename, fork, export and erase, by pointer and by keyboard."""

from __future__ import annotations

import json
from pathlib import Path

from playwright.sync_api import Page, expect
from tests.web.browsing import Visit
from tests.web.test_views import wait_until_loaded
from tests.web.worlds import MAIN, OTHER, World

from recto.engine.erasure import read_erasures

TITLE = "Hello from the other session."


def choose(page: Page, action: str) -> None:
    page.get_by_role("banner").get_by_role("button", name="Session").click()
    page.get_by_role("group", name="Session actions").get_by_role("button", name=action).click()
    expect(page.get_by_role("dialog")).to_be_visible()


def sidebar(page: Page, title: str):
    return page.get_by_role("region", name="Sessions").get_by_role("link", name=title)


def test_sessions_are_listed_by_title_and_found_by_it(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "window", OTHER))
    expect(page.get_by_role("banner")).to_contain_text(TITLE)
    expect(page.get_by_role("banner")).to_contain_text(OTHER)
    expect(sidebar(page, TITLE)).to_contain_text(OTHER)
    expect(sidebar(page, TITLE)).to_contain_text("codex in shop")
    expect(sidebar(page, "staging server")).not_to_contain_text("codex")
    for words in ("codex", "/srv/shop"):
        page.get_by_label("Find a session").fill(words)
        expect(sidebar(page, "staging server")).to_have_count(0)
        expect(sidebar(page, TITLE)).to_be_visible()
    page.get_by_label("Find a session").fill("from the OTHER")
    expect(sidebar(page, "staging server")).to_have_count(0)
    expect(sidebar(page, TITLE)).to_be_visible()
    page.get_by_label("Find a session").fill("")


def test_a_session_is_renamed_forked_exported_and_erased_by_pointer(
    editing_visit: Visit, fresh_world: World, tmp_path: Path
):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "window", OTHER))
    choose(page, "Rename")
    page.get_by_label("Title").fill("Greetings")
    editing_visit.shot("session-rename")
    page.get_by_role("dialog").get_by_role("button", name="Rename").click()
    expect(page.get_by_role("banner")).to_contain_text("Greetings")
    expect(sidebar(page, "Greetings")).to_be_visible()

    choose(page, "Fork")
    expect(page.get_by_label("Title of the copy")).to_have_value("Greetings (fork)")
    page.get_by_role("dialog").get_by_role("button", name="Fork").click()
    expect(page.get_by_role("banner")).to_contain_text("Greetings (fork)")
    expect(page.get_by_role("banner")).to_contain_text(f"{OTHER}-fork")

    choose(page, "Export")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "agent-default-other-fork.jsonl"
    download.value.save_as(tmp_path / "a.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["seq"] for line in lines[1:]] == list(
        range(1, fresh_world.gateway.store.head(f"{OTHER}-fork").seq + 1)
    )

    choose(page, "Erase")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Greetings (fork)")
    expect(dialog).to_contain_text("It cannot be undone.")
    erase = dialog.get_by_role("button", name="Erase for good")
    page.get_by_label("Reason").fill("a test")
    page.get_by_label("to confirm").fill(OTHER)
    expect(erase).to_have_attribute("aria-disabled", "true")
    page.get_by_label("to confirm").fill(f"{OTHER}-fork")
    editing_visit.shot("session-erase")
    erase.click()
    expect(page.get_by_role("banner")).to_contain_text(MAIN)
    expect(sidebar(page, "Greetings (fork)")).to_have_count(0)
    expect(sidebar(page, "Greetings")).to_be_visible()
    assert fresh_world.gateway.store.head(f"{OTHER}-fork").seq == 0
    [erasure] = read_erasures(fresh_world.gateway.store)[f"{OTHER}-fork"]
    assert erasure.reason == "a test"


def test_a_session_is_forked_and_exported_by_the_keyboard_alone(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "window", OTHER))
    page.get_by_role("banner").get_by_role("button", name="Session").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Fork")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Title of the copy")).to_be_visible()
    page.get_by_label("Title of the copy").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("banner")).to_contain_text(f"{OTHER}-fork")
    wait_until_loaded(page).get_by_role("banner").get_by_role("button", name="Session").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    for _ in range(2):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Export")).to_be_focused()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Download").focus()
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "agent-default-other-fork.jsonl"


def test_a_session_is_renamed_and_erased_by_the_keyboard_alone(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "window", OTHER))
    menu = page.get_by_role("banner").get_by_role("button", name="Session")
    menu.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    page.keyboard.press("Escape")
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.get_by_label("Title").focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("By hand")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("banner")).to_contain_text("By hand")
    expect(menu).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Rename")).to_be_focused()
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Erase")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_label("to confirm")).to_be_visible()  # the dialog moves the focus when it opens
    page.get_by_label("to confirm").focus()
    page.keyboard.type(OTHER)
    page.keyboard.press("Tab")
    page.keyboard.type("a test")
    page.keyboard.press("Enter")
    expect(page.get_by_role("banner")).to_contain_text(MAIN)
    assert fresh_world.gateway.store.head(OTHER).seq == 0


def test_a_message_is_pinned_from_the_conversation(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "chat", OTHER))
    page.get_by_role("button", name="Pin entry 1", exact=True).click()
    expect(page.get_by_role("button", name="Unpin entry 1", exact=True)).to_be_visible()
    assert fresh_world.count_events("pinned", OTHER) == 1


def test_the_menu_fits_a_phone(editing_visit: Visit, fresh_world: World):
    page = wait_until_loaded(editing_visit.enter(fresh_world.key, "window", OTHER))
    page.set_viewport_size({"width": 390, "height": 740})
    page.get_by_role("banner").get_by_role("button", name="Session").click()
    items = page.get_by_role("group", name="Session actions").bounding_box()
    assert items is not None
    assert items["x"] >= 0
    assert items["x"] + items["width"] <= 390
    editing_visit.shot("session-menu-phone")


def test_keys_are_shown_with_their_limits_and_without_secrets(read_only_visit: Visit, seeded_world: World):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "keys", OTHER))
    table = page.get_by_role("table", name="Keys")
    expect(table).to_contain_text("ask, read, change, erase")
    expect(table).to_contain_text("New windows")
    expect(table).to_contain_text("as set")
    assert seeded_world.key not in page.content()
    read_only_visit.shot("keys")


def test_settings_are_shown_with_the_source_of_each_value_and_without_secrets(
    read_only_visit: Visit, seeded_world: World
):
    page = wait_until_loaded(read_only_visit.enter(seeded_world.key, "settings", OTHER))
    page.get_by_role("button", name="All").click()
    table = page.get_by_role("table", name="Settings")
    expect(table).to_contain_text("window.mode")
    expect(table).to_contain_text("default")
    page.get_by_label("Find a setting").fill("store_key")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(table).to_contain_text("(unset)")
    read_only_visit.shot("settings")
