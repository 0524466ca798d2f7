"""Appearance of the terminal screens at every size and in both themes, and navigation by keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.tui.driving import MAIN, drawn, driven, press, save_screenshot, snapshot_diff, strips, wait_until_idle
from textual.pilot import Pilot
from textual.widgets import DataTable

from recto.tui.display_text import COMPONENTS
from recto.tui.widgets.entry_list import EntryList
from recto.tui.widgets.header import PLACES, MenuItem, WindowGauge


def test_every_screen_matches_its_snapshot(seeded_gateway):
    async def tour() -> list[str]:
        found: list[str] = []
        async with driven(seeded_gateway) as pilot:
            for place in PLACES:
                await press(pilot, "escape", place.key)
                found += snapshot_diff(pilot, place.name)
            await press(pilot, "5", "slash", *"webhook", "enter")
            found += snapshot_diff(pilot, "transcript-search")
            await press(pilot, "enter")
            found += snapshot_diff(pilot, "entry")
            await press(pilot, "escape", "escape", "6", "slash", *"which currency", "enter")
            found += snapshot_diff(pilot, "recall-found")
            await press(pilot, "question_mark")
            found += snapshot_diff(pilot, "help")
            await press(pilot, "escape", "4", "left", "left", "left")
            found += snapshot_diff(pilot, "window-past")
            await press(pilot, "end", "t")
            found += snapshot_diff(pilot, "window-budget")
            await press(pilot, "8", "t")
            found += snapshot_diff(pilot, "health-turns")
            await press(pilot, "9", "a")
            found += snapshot_diff(pilot, "memory-sure")
        return found

    found = asyncio.run(tour())
    assert not found, "\n".join(found)


def test_every_screen_is_unchanged_after_resizes_and_a_theme_change(seeded_gateway):
    sampled = tuple(place for place in PLACES if place.name in ("timeline", "window", "health"))

    async def tour() -> None:
        async with driven(seeded_gateway) as pilot:
            before = await visited(pilot, sampled, 80, 24)
            await visited(pilot, PLACES, 40, 12)
            await visited(pilot, [place for place in PLACES if place.key in "15"] + list(sampled), 200, 60)
            assert pilot.app.current_theme.dark
            await press(pilot, "d")
            assert not pilot.app.current_theme.dark
            assert await visited(pilot, sampled, 80, 24) == before
            save_screenshot(pilot, "light")

    async def visited(pilot: Pilot[None], places: Sequence[MenuItem], width: int, height: int) -> dict[str, str]:
        """The text of each screen at this size; asserts that every line has exactly the width."""
        await pilot.resize_terminal(width, height)
        found = {}
        for place in places:
            await press(pilot, "escape", place.key)
            lines = strips(pilot)
            assert len(lines) == height
            assert {line.cell_length for line in lines} == {width}, place.name
            found[place.name] = drawn(pilot)
        return found

    asyncio.run(tour())


def test_keys_and_the_palette_switch_screens_and_keep_the_draft(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway) as pilot:
            await press(pilot, *"12 apples")
            assert "12 apples" in drawn(pilot)
            await press(pilot, "f3")
            assert pilot.app.screen.PLACE == "timeline"
            await press(pilot, "ctrl+p", *"older")
            await wait_until_idle(pilot, lambda: "Key: [" in drawn(pilot))
            await press(pilot, "enter")
            await wait_until_idle(pilot, lambda: "beginning of the session" in drawn(pilot))
            await press(pilot, "ctrl+p", *"chat")
            await wait_until_idle(pilot, lambda: "Talk with the model" in drawn(pilot))
            await press(pilot, "enter")
            await wait_until_idle(pilot, lambda: getattr(pilot.app.screen, "PLACE", "") == "chat")
            assert "12 apples" in drawn(pilot)

    asyncio.run(tour())


def test_screens_show_gateway_data_as_text_and_not_by_colour_alone(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway) as pilot:
            client = pilot.app.state.client
            now = await client.get("/session", session=MAIN)
            assert f"{now['reading']['utilization'] * 100:.0f} % {now['reading']['zone']}" in drawn(pilot)
            report = await client.get("/session/context", session=MAIN)
            await press(pilot, "escape", "4")
            await press(pilot, "t")
            assert "over its limit" in drawn(pilot)
            assert f"{report['tokens']:,} of {report['room']:,} tokens" in drawn(pilot)
            for usage in report["components"]:
                assert f"{COMPONENTS[usage['component']]:<15}{usage['used']:>9,}" in drawn(pilot)
            turn = (await client.get("/session/timeline", session=MAIN))["points"][-1]
            await press(pilot, "3")
            assert all(f" {zone}" in drawn(pilot) for zone in ("green", "yellow", "orange", "red"))
            assert f"turn {turn['turn']}  entries {turn['first']:,}–{turn['last']:,}" in drawn(pilot)
            await press(pilot, "comma")
            assert "context window pruned by prune" in drawn(pilot)
            first = drawn(pilot)
            await press(pilot, "comma")
            assert drawn(pilot) != first
            await press(pilot, "full_stop")
            assert drawn(pilot) == first

    asyncio.run(tour())


def test_the_transcript_supports_search_and_jump_and_shows_whole_entries(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway) as pilot:
            await press(pilot, "escape", "5", "g", "4", "enter")
            entries = pilot.app.screen.query_one(EntryList)
            assert entries.chosen is not None
            assert entries.chosen.seq == 4
            await press(pilot, "enter")
            assert "Entry 4: tool, ○ evicted" in drawn(pilot)
            await press(pilot, "c")
            assert '{"role":"tool"' in drawn(pilot)
            await press(pilot, "left")
            assert "Entry 3: assistant" in drawn(pilot)
            await press(pilot, "escape", "slash", *"no such words", "enter")
            assert "0 entries say “no such words”" in drawn(pilot)
            await press(pilot, "slash", "ctrl+u", *"WEBHOOK", "enter")
            assert entries.count == 3
            await press(pilot, "escape")
            assert entries.count > 100

    asyncio.run(tour())


def test_an_empty_session_is_reported_on_every_screen_and_another_can_be_opened(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway, session="agent:default:empty") as pilot:
            for place in PLACES:
                if place.name in ("sessions", "window", "recall", "health", "memory"):
                    continue
                await press(pilot, "escape", place.key)
                assert "othing" in drawn(pilot), place.name
                if place.name in ("decisions", "notes"):
                    assert pilot.app.screen.query_one(DataTable).row_count == 0
            await press(pilot, "2", "down", "enter")
            assert pilot.app.state.session == "agent:default:memory"
            assert pilot.app.screen.PLACE == "window"
            assert "agent:default:memory" in drawn(pilot)

    asyncio.run(tour())


def test_an_unreachable_gateway_is_reported_without_a_traceback(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway) as pilot:
            pilot.app.state.client._http.base_url = "http://127.0.0.1:9/"
            await press(pilot, "escape", "7")
            assert "does not answer" in drawn(pilot)
            assert "Traceback" not in drawn(pilot)
            pilot.app.state.client._http.base_url = seeded_gateway.url
            await press(pilot, "r")
            assert "does not answer" not in drawn(pilot)

    asyncio.run(tour())


def test_a_wrong_key_is_explained_without_a_traceback(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway, key="rk-wrong") as pilot:
            assert "This key is not valid here." in drawn(pilot)
            assert "'recto keys add'" in drawn(pilot)
            assert "Traceback" not in drawn(pilot)

    asyncio.run(tour())


def test_the_gauge_fits_every_width(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway, size=(20, 12)) as pilot:
            for width in (24, 33, 40, 60, 80, 140):
                await pilot.resize_terminal(width, 12)
                gauge = pilot.app.screen.query_one(WindowGauge)
                assert "% orange" in gauge.render().plain
                assert gauge.render().cell_length <= gauge.size.width

    asyncio.run(tour())
