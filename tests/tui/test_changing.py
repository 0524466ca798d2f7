"""Keys that change the session: every change goes through the gateway, and needs an API key with the right."""

from __future__ import annotations

import asyncio

from tests.tui.driving import MAIN, drawn, driven, press, wait_until_idle

from recto.config.factory import open_memory


def events_of(made, kind: str) -> list[int]:
    return [entry.seq for entry in made.store.read(MAIN) if entry.kind == kind]


def test_a_decision_is_undone_and_redone(fresh_gateway):
    async def change() -> None:
        async with driven(fresh_gateway) as pilot:
            await press(pilot, "escape", "7", "u")
            await wait_until_idle(pilot, lambda: "↺ undone" in drawn(pilot))
            assert len(events_of(fresh_gateway, "restored")) == 1
            await press(pilot, "u")
            assert "is undone already" in drawn(pilot)
            made = len(events_of(fresh_gateway, "context_window_pruned"))
            await press(pilot, "y")
            await wait_until_idle(pilot, lambda: len(events_of(fresh_gateway, "context_window_pruned")) == made + 1)
            await press(pilot, "3", "u")
            await wait_until_idle(pilot, lambda: len(events_of(fresh_gateway, "restored")) == 2)

    asyncio.run(change())


def test_an_entry_is_pinned_and_unpinned_from_every_screen_that_shows_it(fresh_gateway):
    async def change() -> None:
        async with driven(fresh_gateway) as pilot:
            await press(pilot, "escape", "5", "g", "4", "enter", "p")
            await wait_until_idle(pilot, lambda: "⚑ tool" in drawn(pilot))
            assert len(events_of(fresh_gateway, "pinned")) == 2
            await press(pilot, "enter")
            assert "pinned ⚑" in drawn(pilot)
            await press(pilot, "p")
            await wait_until_idle(pilot, lambda: "pinned ⚑" not in drawn(pilot))
            assert len(events_of(fresh_gateway, "unpinned")) == 1
            await press(pilot, "escape", "4", "p")
            await wait_until_idle(pilot, lambda: "pinned" in drawn(pilot))
            assert len(events_of(fresh_gateway, "pinned")) == 3

    asyncio.run(change())


def test_a_proposal_is_approved_by_the_digest_of_the_shown_text(fresh_gateway):
    known = open_memory(fresh_gateway.gateway.settings, fresh_gateway.store)

    async def change() -> None:
        async with driven(fresh_gateway) as pilot:
            await press(pilot, "escape", "9", "a")
            assert "Remember exactly this?" in drawn(pilot)
            await press(pilot, "n")
            assert len(known.proposals()) == 2
            await press(pilot, "a", "y")
            await wait_until_idle(pilot, lambda: "1 waiting for a decision" in drawn(pilot))
            assert len(open_memory(fresh_gateway.gateway.settings, fresh_gateway.store).remembered()) == 1
            remaining = next(iter(open_memory(fresh_gateway.gateway.settings, fresh_gateway.store).proposals()))
            open_memory(fresh_gateway.gateway.settings, fresh_gateway.store).reject(remaining.id, by="somebody else")
            await press(pilot, "a", "y")
            assert "Nothing" in drawn(pilot) or "rejected" in drawn(pilot)
            assert len(open_memory(fresh_gateway.gateway.settings, fresh_gateway.store).remembered()) == 1
            await press(pilot, "t")
            assert "1 remembered" in drawn(pilot)

    asyncio.run(change())


def test_proposals_are_rejected_and_notes_and_checkpoints_are_written(fresh_gateway):
    async def change() -> None:
        async with driven(fresh_gateway) as pilot:
            await press(pilot, "escape", "9", "x", *"not true", "enter")
            await wait_until_idle(pilot, lambda: "1 waiting for a decision" in drawn(pilot))
            await press(pilot, "0", "n", "down", "enter", *"the gate is green", "enter")
            await wait_until_idle(pilot, lambda: "the gate is green" in drawn(pilot))
            await press(pilot, "k")
            await wait_until_idle(pilot, lambda: "checkpoint 2" in drawn(pilot))
            await press(pilot, "c", *"the ledger", "enter")
            await wait_until_idle(pilot)

    asyncio.run(change())
    assert len(events_of(fresh_gateway, "checkpoint_saved")) >= 2
    assert events_of(fresh_gateway, "compaction") or events_of(fresh_gateway, "content_compressed")


def test_a_read_only_key_changes_nothing_and_sees_an_error(fresh_gateway):
    before = fresh_gateway.store.head(MAIN).seq
    key = fresh_gateway.key(rights=frozenset({"read"}))

    async def change() -> None:
        async with driven(fresh_gateway, key=key) as pilot:
            await press(pilot, *"hello", "enter", "escape")
            for keys in (("7", "u"), ("5", "p"), ("4", "c"), ("9", "a"), ("0", "n"), ("0", "k")):
                await press(pilot, *keys)
                assert "it needs the right" in drawn(pilot), keys

    asyncio.run(change())
    assert fresh_gateway.store.head(MAIN).seq == before
