"""What the keys change: every change goes through the gateway, and a key without the right changes nothing."""

from __future__ import annotations

import asyncio

from tests.tui.driving import MAIN, drawn, driven, press, settled

from recto.config.factory import open_memory


def events_of(made, kind: str) -> list[int]:
    return [entry.seq for entry in made.store.read(MAIN) if entry.kind == kind]


def test_a_decision_is_undone_and_made_again(fresh):
    async def change() -> None:
        async with driven(fresh) as pilot:
            await press(pilot, "escape", "7", "u")
            await settled(pilot, lambda: "↺ undone" in drawn(pilot))
            assert len(events_of(fresh, "restored")) == 1
            await press(pilot, "u")
            assert "is undone already" in drawn(pilot)
            made = len(events_of(fresh, "context_window_pruned"))
            await press(pilot, "y")
            await settled(pilot, lambda: len(events_of(fresh, "context_window_pruned")) == made + 1)
            await press(pilot, "3", "u")
            await settled(pilot, lambda: len(events_of(fresh, "restored")) == 2)

    asyncio.run(change())


def test_an_entry_is_pinned_and_let_go_from_every_screen_that_shows_it(fresh):
    async def change() -> None:
        async with driven(fresh) as pilot:
            await press(pilot, "escape", "5", "g", "4", "enter", "p")
            await settled(pilot, lambda: "⚑ tool" in drawn(pilot))
            assert len(events_of(fresh, "pinned")) == 2
            await press(pilot, "enter")
            assert "pinned ⚑" in drawn(pilot)
            await press(pilot, "p")
            await settled(pilot, lambda: "pinned ⚑" not in drawn(pilot))
            assert len(events_of(fresh, "unpinned")) == 1
            await press(pilot, "escape", "4", "p")
            await settled(pilot, lambda: "pinned" in drawn(pilot))
            assert len(events_of(fresh, "pinned")) == 3

    asyncio.run(change())


def test_a_proposal_is_approved_by_the_digest_of_what_was_shown(fresh):
    known = open_memory(fresh.gateway.settings, fresh.store)

    async def change() -> None:
        async with driven(fresh) as pilot:
            await press(pilot, "escape", "9", "a")
            assert "Remember exactly this?" in drawn(pilot)
            await press(pilot, "n")
            assert len(known.proposals()) == 2
            await press(pilot, "a", "y")
            await settled(pilot, lambda: "1 waiting for a decision" in drawn(pilot))
            assert len(open_memory(fresh.gateway.settings, fresh.store).remembered()) == 1
            rest = next(iter(open_memory(fresh.gateway.settings, fresh.store).proposals()))
            open_memory(fresh.gateway.settings, fresh.store).reject(rest.id, by="somebody else")
            await press(pilot, "a", "y")
            assert "Nothing" in drawn(pilot) or "rejected" in drawn(pilot)
            assert len(open_memory(fresh.gateway.settings, fresh.store).remembered()) == 1
            await press(pilot, "t")
            assert "1 remembered" in drawn(pilot)

    asyncio.run(change())


def test_proposals_are_rejected_and_notes_and_checkpoints_written(fresh):
    async def change() -> None:
        async with driven(fresh) as pilot:
            await press(pilot, "escape", "9", "x", *"not true", "enter")
            await settled(pilot, lambda: "1 waiting for a decision" in drawn(pilot))
            await press(pilot, "0", "n", "down", "enter", *"the gate is green", "enter")
            await settled(pilot, lambda: "the gate is green" in drawn(pilot))
            await press(pilot, "k")
            await settled(pilot, lambda: "checkpoint 2" in drawn(pilot))
            await press(pilot, "c", *"the ledger", "enter")
            await settled(pilot)

    asyncio.run(change())
    assert len(events_of(fresh, "checkpoint_saved")) >= 2
    assert events_of(fresh, "compaction") or events_of(fresh, "content_compressed")


def test_a_key_that_may_only_look_changes_nothing_and_is_told(fresh):
    before = fresh.store.head(MAIN).seq
    key = fresh.key(rights=frozenset({"read"}))

    async def change() -> None:
        async with driven(fresh, key=key) as pilot:
            await press(pilot, *"hello", "enter", "escape")
            for keys in (("7", "u"), ("5", "p"), ("4", "c"), ("9", "a"), ("0", "n"), ("0", "k")):
                await press(pilot, *keys)
                assert "it needs the right" in drawn(pilot), keys

    asyncio.run(change())
    assert fresh.store.head(MAIN).seq == before
