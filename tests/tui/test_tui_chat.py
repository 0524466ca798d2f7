"""A conversation on the screen: answers are streamed, can be cancelled, and are stored in full."""

from __future__ import annotations

import asyncio
import json
import threading

from starlette.responses import JSONResponse, StreamingResponse
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running
from tests.tui.driving import MAIN, SMALL, drawn, driven, press, wait_until_idle
from textual import events

from recto.gateway.turn import CUT
from recto.tui.screens.chat import ChatLine, Composer


def kinds(made, session: str = MAIN) -> list[tuple[str, str]]:
    return [(entry.kind, entry.role) for entry in made.store.read(session)]


def start_and_hang(go_on: threading.Event):
    """A streamed answer that starts, then hangs until `go_on` is set."""

    async def pieces():
        head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-4o"}
        choice = {"index": 0, "delta": {"role": "assistant", "content": "The first words"}, "finish_reason": None}
        yield f"data: {json.dumps({**head, 'choices': [choice]})}\n\n"
        await asyncio.to_thread(go_on.wait, 60)

    return lambda request: StreamingResponse(pieces(), media_type="text/event-stream")


def test_a_streamed_answer_updates_the_gauge(fresh_gateway):
    async def talk() -> None:
        async with driven(fresh_gateway) as pilot:
            before = pilot.app.state.now.reading.tokens
            await pilot.press(*"where is the ledger")
            await press(pilot, "ctrl+j", *"please", "enter")
            await wait_until_idle(pilot, lambda: "The ledger is in store/ledger.py" in drawn(pilot))
            assert pilot.app.state.now.reading.tokens != before  # smaller if relief ran before the turn
            assert f"{pilot.app.state.now.reading.tokens:,}/" in drawn(pilot)
            assert not pilot.app.screen.query(".live")
            lines = [line.text for line in pilot.app.screen.query(ChatLine)]
            assert lines[-2] == "where is the ledger\nplease"
            assert pilot.app.screen.query_one(Composer).text == ""

    asyncio.run(talk())
    messages = [entry for entry in fresh_gateway.store.read(MAIN) if entry.kind == "message"]
    assert [entry.role for entry in messages[-2:]] == ["user", "assistant"]


def test_escape_cancels_an_answer_and_its_partial_text_is_stored(tmp_path):
    go_on = threading.Event()
    upstream = ScriptedUpstream(lambda request: Says(text="All of it."), fail=start_and_hang(go_on))

    async def talk() -> None:
        async with driven(made) as pilot:
            await pilot.press(*"tell me everything", "enter")
            async with asyncio.timeout(60):
                while "The first words" not in drawn(pilot):
                    await pilot.pause(0.02)
            await pilot.press(*"and more", "enter")
            assert "An answer is under way" in drawn(pilot)
            assert pilot.app.screen.query_one(Composer).text == "and more"
            await press(pilot, "escape")
            upstream.fail = lambda request: None
            async with asyncio.timeout(60):
                while (CUT, "event") not in kinds(made):
                    await asyncio.sleep(0.02)
            await wait_until_idle(pilot, lambda: "cut off: it is kept" in drawn(pilot))
            assert "The first words" in drawn(pilot)
            await press(pilot, "enter")
            await wait_until_idle(pilot, lambda: "All of it." in drawn(pilot))

    try:
        with running(upstream), gateway(tmp_path, upstream.url, model="gpt-4o", models=SMALL) as made:
            asyncio.run(talk())
            cut = next(entry for entry in made.store.read(MAIN) if entry.kind == CUT)
            assert b"The first words" in cut.content
    finally:
        go_on.set()


def test_an_upstream_error_is_explained_and_the_chat_continues_in_a_new_session(tmp_path):
    upstream = ScriptedUpstream(lambda request: Says(text="Good morning."))
    upstream.fail = lambda request: JSONResponse({"error": {"message": "the machine is on fire"}}, 500)

    async def talk() -> None:
        async with driven(made) as pilot:
            await press(pilot, *"hello", "enter")
            assert "upstream failed (entry" in drawn(pilot)
            assert "on fire" in drawn(pilot)
            assert "Traceback" not in drawn(pilot)
            upstream.fail = lambda request: None
            await press(pilot, "f2", "n", *"second", "enter")
            assert pilot.app.state.session == "agent:default:second"
            assert pilot.app.screen.PLACE == "chat"
            await press(pilot, "i", *"hello again", "enter")
            await wait_until_idle(pilot, lambda: "Good morning." in drawn(pilot))

    with running(upstream), gateway(tmp_path, upstream.url, model="gpt-4o", models=SMALL) as made:
        asyncio.run(talk())
        assert ("message", "assistant") in kinds(made, "agent:default:second")


def test_pasted_text_stays_whole_and_is_drawn_inert(seeded_gateway):
    pasted = "one\ntwo \x1b]52;c;cm0gLXJmIH4K\x07 three\n\u202efour"

    async def talk() -> None:
        async with driven(seeded_gateway) as pilot:
            composer = pilot.app.screen.query_one(Composer)
            pilot.app.post_message(events.Paste(pasted))
            await wait_until_idle(pilot)
            assert composer.text == pasted
            assert "␛]52;c;cm0gLXJmIH4K␇" in drawn(pilot)
            assert not set("\x1b\x07\u202e") & set(drawn(pilot))

    asyncio.run(talk())
