"""The window screen: the prompt as it was sent at any turn, block by block, and the state of each entry."""

from __future__ import annotations

import asyncio

import pytest
from tests.tui.driving import MAIN, drawn, driven, press, wait_until_idle
from tests.tui.test_changing import events_of

from recto.tui.widgets.prompt_blocks import block_row
from recto.tui.widgets.table import Rows
from recto.tui.widgets.transcript_strip import cells

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["small", "wide"])


def listed(pilot) -> list[list[str]]:
    rows = pilot.app.screen.query_one("#blocks", Rows)
    return [[cell.plain for cell in rows.get_row_at(place)] for place in range(rows.row_count)]


@SIZES
def test_the_blocks_of_the_prompt_are_listed_in_order_with_tokens_reason_and_text(seeded_gateway, size):
    async def tour() -> None:
        async with driven(seeded_gateway, size=size) as pilot:
            await press(pilot, "escape", "4")
            view = await pilot.app.state.client.get("/session/window", session=MAIN)
            rows = listed(pilot)
            assert [int(row[2].replace(",", "")) for row in rows] == [block["tokens"] for block in view["blocks"]]
            assert [row[0] for row in rows if row[0]] == [str(block["seq"]) for block in view["blocks"] if block["seq"]]
            assert {"system text", "pinned", "recent", "fits", "by Recto"} <= {row[3] for row in rows}
            assert f"{view['tokens']:,} of {view['room']:,} tokens" in drawn(pilot)
            assert f"{view['messages']} messages in the prompt, {view['evicted']} evicted" in drawn(pilot)
            names = [row[1] for row in rows]
            await press(pilot, *["down"] * names.index("Recalled"))
            await press(pilot, "enter")
            assert "↺ quotes entries" in drawn(pilot)
            source = next(block for block in view["blocks"] if block["what"] == "recalled")["sources"][0]
            await press(pilot, "s")
            assert f"Entry {source}:" in drawn(pilot)
            assert "↺ recalled" in drawn(pilot)

    asyncio.run(tour())


@SIZES
def test_the_scrubber_shows_the_prompt_at_the_end_of_each_turn_and_is_live_at_the_end(seeded_gateway, size):
    async def tour() -> None:
        async with driven(seeded_gateway, size=size) as pilot:
            client = pilot.app.state.client
            turns = (await client.get("/session/timeline", session=MAIN, from_=1))["points"]
            await press(pilot, "escape", "4")
            assert "Turn 12 now" in drawn(pilot)
            live = listed(pilot)
            await press(pilot, "left", "left", "left")
            ended = turns[-4]["last"]
            view = await client.get("/session/window", session=MAIN, at=ended)
            assert f"Turn {view['turn']} of 12, after entry {ended}" in drawn(pilot)
            assert [row[4] for row in listed(pilot)] != [row[4] for row in live]
            assert [int(row[2].replace(",", "")) for row in listed(pilot)] == [
                block["tokens"] for block in view["blocks"]
            ]
            await press(pilot, "right")
            assert f"after entry {turns[-3]['last']}" in drawn(pilot)
            await press(pilot, "home")
            assert f"after entry {turns[0]['last']}" in drawn(pilot)
            await press(pilot, "left")
            assert "This is the first turn." in drawn(pilot)
            await press(pilot, "end")
            assert listed(pilot) == live
            await press(pilot, "comma")
            made = turns[-1]["decisions"][-1]["seq"]
            assert f"after entry {made}" in drawn(pilot)
            assert "▼ in this turn: context window pruned" in drawn(pilot)

    asyncio.run(tour())


def test_a_live_window_follows_the_session_and_a_past_window_does_not(fresh_gateway):
    async def tour() -> None:
        async with driven(fresh_gateway) as pilot:
            await press(pilot, "escape", "4", "left", "end")
            last = fresh_gateway.store.head(MAIN).seq
            await press(pilot, "1", "i", *"hello", "enter")
            await wait_until_idle(pilot, lambda: fresh_gateway.store.head(MAIN).seq > last)
            await press(pilot, "escape", "4")
            await wait_until_idle(pilot, lambda: any(row[4] == "hello" for row in listed(pilot)))
            await press(pilot, "left")
            past = listed(pilot)
            assert not any(row[4] == "hello" for row in past)
            pilot.app._reload()
            await wait_until_idle(pilot)
            assert listed(pilot) == past

    asyncio.run(tour())


@SIZES
def test_an_entry_shows_the_decision_that_evicted_it_and_can_be_restored_from_there(fresh_gateway, size):
    async def tour() -> None:
        async with driven(fresh_gateway, size=size) as pilot:
            await press(pilot, "escape", "5", "g", "4", "enter", "enter")
            assert "○ evicted by prune, decision" in drawn(pilot)
            assert "u restores" in drawn(pilot)
            await press(pilot, "u")
            await wait_until_idle(pilot, lambda: "● in" in drawn(pilot))
            assert "↺ undone: evicted by prune" in drawn(pilot)
            assert len(events_of(fresh_gateway, "restored")) == 1
            await press(pilot, "escape", "g", "1", "enter", "enter")
            assert "Entry 1: system, ● in" in drawn(pilot)
            assert not pilot.app.screen.query_one("#became").display

    asyncio.run(tour())


def test_a_screen_says_that_it_is_loading_until_its_data_has_arrived(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway) as pilot:
            arrived = asyncio.Event()

            async def hold(_request: object) -> None:
                await arrived.wait()

            http = pilot.app.state.client._http
            http.event_hooks = {"request": [hold]}
            for key in ("4", "5", "7", "8"):
                await pilot.press("escape", key)
                await pilot.pause()
                assert "Loading …" in drawn(pilot), key
            arrived.set()
            for key in ("4", "5", "7", "8"):
                await press(pilot, key)
                assert "Loading" not in drawn(pilot), key
            await press(pilot, "4")
            arrived.clear()
            await pilot.press("left")
            await pilot.pause()
            assert "Loading the window at entry" in drawn(pilot)
            arrived.set()
            await wait_until_idle(pilot)
            assert "Loading" not in drawn(pilot)

    asyncio.run(tour())


def test_the_strip_shows_every_place_of_the_transcript_once_in_order(seeded_gateway):
    async def tour() -> None:
        async with driven(seeded_gateway) as pilot:
            await press(pilot, "escape", "4")
            view = pilot.app.screen._view
            whole = cells(view, view.last)
            assert whole == [span.place for span in view.spans for _ in range(span.first, span.last + 1)]
            narrow = cells(view, 20)
            assert len(narrow) == 20
            assert "recalled" in narrow
            assert narrow[0] in ("pinned", "recalled")
            keys = [block_row(block, place).key for place, block in enumerate(view.blocks)]
            assert len(keys) == len(set(keys))

    asyncio.run(tour())
