"""A very long session opens on every screen: entries outside the view are not fetched."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.tui.driving import MAIN, drawn, driven, press, running_gateway, wait_until_idle

from recto.transcript.entries import Draft
from recto.tui.widgets.entry_list import EntryList
from recto.tui.widgets.header import PLACES

_BATCH = 5_000


def make_long(store, entries: int) -> None:
    """Writes a session of this many messages straight into the store."""
    for first in range(0, entries, _BATCH):
        store.append(MAIN, [_draft(number) for number in range(first, min(first + _BATCH, entries))])


def _draft(number: int) -> Draft:
    role = "assistant" if number % 2 else "user"
    content = json.dumps({"role": role, "content": f"message {number + 1} about shelf {number % 97}"}).encode()
    return Draft(
        id=f"{number:032x}", ts=1_750_000_000_000_000 + number, role=role, kind="message", wire="openai.chat",
        content=content, tokens=14, counter="o200k", surface="import",
    )  # fmt: skip


@pytest.mark.promise
def test_a_session_of_a_hundred_thousand_entries_opens_on_every_screen(tmp_path, scale):
    entries = scale(6_000, ci=100_000, release=100_000)

    async def tour() -> None:
        async with driven(made) as pilot:
            for place in PLACES:
                await press(pilot, "escape", place.key)
                assert place.name == pilot.app.screen.PLACE
                assert "message" in drawn(pilot) or place.name not in ("chat", "transcript", "window")
            await press(pilot, "5")
            listed = pilot.app.screen.query_one(EntryList)
            assert f"message {listed.count}" in drawn(pilot) or "event" in drawn(pilot)
            await press(pilot, "home")
            await wait_until_idle(pilot, lambda: "message 1 about" in drawn(pilot))
            await press(pilot, "g", *str(entries // 2), "enter")
            await wait_until_idle(pilot, lambda: f"message {entries // 2} about" in drawn(pilot))
            assert len(listed._pages) < 10
            await press(pilot, "slash", *"shelf 13", "enter")
            found = listed.count
            assert found >= 20
            await press(pilot, "end")
            await wait_until_idle(pilot, lambda: listed.count > found)
            widgets = sum(1 for _ in pilot.app.screen.walk_children())
            assert widgets < 200

    with running_gateway(tmp_path) as made:
        make_long(made.store, entries)
        asyncio.run(tour())
