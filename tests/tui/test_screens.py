"""What the terminal screens look like, at every size and in both lights, and how the keys lead through them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.tui.driving import MAIN, compared, drawn, driven, photographed, press, settled, strips
from textual.pilot import Pilot
from textual.widgets import DataTable

from recto.tui.display_text import COMPONENTS
from recto.tui.widgets.entry_list import EntryList
from recto.tui.widgets.header import PLACES, MenuItem, WindowGauge


def test_every_screen_looks_as_it_did(shown):
    async def tour() -> list[str]:
        found: list[str] = []
        async with driven(shown) as pilot:
            for place in PLACES:
                await press(pilot, "escape", place.key)
                found += compared(pilot, place.name)
            await press(pilot, "5", "slash", *"webhook", "enter")
            found += compared(pilot, "transcript-search")
            await press(pilot, "enter")
            found += compared(pilot, "entry")
            await press(pilot, "escape", "escape", "6", "slash", *"which currency", "enter")
            found += compared(pilot, "recall-found")
            await press(pilot, "question_mark")
            found += compared(pilot, "help")
            await press(pilot, "escape", "4", "left", "left", "left")
            found += compared(pilot, "window-past")
            await press(pilot, "end", "t")
            found += compared(pilot, "window-budget")
            await press(pilot, "8", "t")
            found += compared(pilot, "health-turns")
            await press(pilot, "9", "a")
            found += compared(pilot, "memory-sure")
        return found

    found = asyncio.run(tour())
    assert not found, "\n".join(found)


def test_every_screen_survives_a_resize_and_another_light_and_comes_back_as_it_was(shown):
    some = tuple(one for one in PLACES if one.name in ("timeline", "window", "health"))

    async def tour() -> None:
        async with driven(shown) as pilot:
            said = await visited(pilot, some, 80, 24)
            await visited(pilot, PLACES, 40, 12)
            await visited(pilot, [one for one in PLACES if one.key in "15"] + list(some), 200, 60)
            assert pilot.app.current_theme.dark
            await press(pilot, "d")
            assert not pilot.app.current_theme.dark
            assert await visited(pilot, some, 80, 24) == said
            photographed(pilot, "light")

    async def visited(pilot: Pilot[None], places: Sequence[MenuItem], width: int, height: int) -> dict[str, str]:
        """What screens say at a size; none of their lines is too long or too short."""
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


def test_keys_and_the_palette_lead_everywhere_and_what_is_written_stays(shown):
    async def tour() -> None:
        async with driven(shown) as pilot:
            await press(pilot, *"12 apples")
            assert "12 apples" in drawn(pilot)
            await press(pilot, "f3")
            assert pilot.app.screen.PLACE == "timeline"
            await press(pilot, "ctrl+p", *"older")
            await settled(pilot, lambda: "Key: [" in drawn(pilot))
            await press(pilot, "enter")
            await settled(pilot, lambda: "beginning of the session" in drawn(pilot))
            await press(pilot, "ctrl+p", *"chat")
            await settled(pilot, lambda: "Talk with the model" in drawn(pilot))
            await press(pilot, "enter")
            await settled(pilot, lambda: getattr(pilot.app.screen, "PLACE", "") == "chat")
            assert "12 apples" in drawn(pilot)

    asyncio.run(tour())


def test_a_screen_says_what_the_gateway_answers_in_words_and_not_in_colours_alone(shown):
    async def tour() -> None:
        async with driven(shown) as pilot:
            client = pilot.app.state.client
            now = await client.get("/session", session=MAIN)
            assert f"{now['reading']['utilization'] * 100:.0f} % {now['reading']['zone']}" in drawn(pilot)
            report = await client.get("/session/context", session=MAIN)
            await press(pilot, "escape", "4")
            await press(pilot, "t")
            assert "over its limit" in drawn(pilot)
            assert f"{report['tokens']:,} of {report['room']:,} tokens" in drawn(pilot)
            for one in report["components"]:
                assert f"{COMPONENTS[one['component']]:<15}{one['used']:>9,}" in drawn(pilot)
            told = (await client.get("/session/timeline", session=MAIN))["points"][-1]
            await press(pilot, "3")
            assert all(f" {zone}" in drawn(pilot) for zone in ("green", "yellow", "orange", "red"))
            assert f"turn {told['turn']}  entries {told['first']:,}–{told['last']:,}" in drawn(pilot)
            await press(pilot, "comma")
            assert "context window pruned by prune" in drawn(pilot)
            first = drawn(pilot)
            await press(pilot, "comma")
            assert drawn(pilot) != first
            await press(pilot, "full_stop")
            assert drawn(pilot) == first

    asyncio.run(tour())


def test_the_transcript_is_searched_and_jumped_in_and_shows_all_of_an_entry(shown):
    async def tour() -> None:
        async with driven(shown) as pilot:
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


def test_a_session_with_nothing_in_it_says_so_on_every_screen_and_another_can_be_opened(shown):
    async def tour() -> None:
        async with driven(shown, session="agent:default:empty") as pilot:
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


def test_a_gateway_that_does_not_answer_is_told_and_not_traced(shown):
    async def tour() -> None:
        async with driven(shown) as pilot:
            pilot.app.state.client._http.base_url = "http://127.0.0.1:9/"
            await press(pilot, "escape", "7")
            assert "does not answer" in drawn(pilot)
            assert "Traceback" not in drawn(pilot)
            pilot.app.state.client._http.base_url = shown.url
            await press(pilot, "r")
            assert "does not answer" not in drawn(pilot)

    asyncio.run(tour())


def test_a_wrong_key_is_refused_in_words(shown):
    async def tour() -> None:
        async with driven(shown, key="rk-wrong") as pilot:
            assert "This key is not valid here." in drawn(pilot)
            assert "'recto keys add'" in drawn(pilot)
            assert "Traceback" not in drawn(pilot)

    asyncio.run(tour())


def test_the_gauge_fits_every_width(shown):
    async def tour() -> None:
        async with driven(shown, size=(20, 12)) as pilot:
            for width in (24, 33, 40, 60, 80, 140):
                await pilot.resize_terminal(width, 12)
                gauge = pilot.app.screen.query_one(WindowGauge)
                assert "% orange" in gauge.render().plain
                assert gauge.render().cell_length <= gauge.size.width

    asyncio.run(tour())
