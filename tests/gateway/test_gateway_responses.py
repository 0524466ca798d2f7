"""Clients that disconnect: before the end of the response a part is stored, after it the whole response."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from tests.gateway.gateways import gateway

from recto.formats.openai_chat import CHAT, OPENAI_CHAT
from recto.gateway.api_keys import Key
from recto.gateway.request import open_request
from recto.gateway.responses import StreamedResponse, unless_disconnected
from recto.gateway.session_resolver import SessionHint
from recto.gateway.upstreams.http import UpstreamResponse
from recto.transcript.entries import MESSAGE

EVENTS = [
    b'data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}\n\n',
    b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":" Ada."}}]}\n\n',
    b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]


async def send_response(streamed: StreamedResponse, received: list[bytes], disconnects_at: bytes) -> None:
    """Sends a response to a client that disconnects when it should receive certain bytes."""

    async def send(message: Any) -> None:
        if disconnects_at in message.get("body", b""):
            raise OSError("nobody is there")
        received.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    await streamed({"type": "http"}, receive, send)


@pytest.mark.parametrize(
    ("disconnects_at", "roles", "parts"),
    [(b" Ada.", ["user"], 1), (b"[DONE]", ["user", "assistant"], 0)],
    ids=["in the middle", "at the very end"],
)
def test_a_response_whose_client_disconnects_is_stored_in_part_or_whole(tmp_path, disconnects_at, roles, parts):
    async def pieces() -> AsyncIterator[bytes]:
        for event in EVENTS:
            yield event

    async def close() -> None:
        pass

    with gateway(tmp_path, "http://127.0.0.1:9") as gw:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "I am Ada."}], "tools": [{"type": "f"}]}
        turns, request = gw.gateway.turns, open_request(json.dumps(body).encode(), CHAT)
        turn = turns.begin(Key(id="", name="test"), request, SessionHint(name="", is_explicit=False))
        answer = UpstreamResponse(status=200, headers=[], pieces=pieces(), close=close)
        received: list[bytes] = []
        streamed = StreamedResponse(turn=turn, turns=turns, answer=answer, format=OPENAI_CHAT, headers=[])
        asyncio.run(send_response(streamed, received, disconnects_at))
        entries = list(gw.store.read(turn.resolved.name))
        assert [entry.role for entry in entries if entry.kind == MESSAGE] == roles
        cut = [json.loads(entry.content) for entry in entries if entry.kind == "reply_cut"]
        assert len(cut) == parts
        assert all(event["messages"][0]["content"].startswith("Hello") for event in cut)
        assert EVENTS[0] in b"".join(received)


@pytest.mark.parametrize("broken", [False, True], ids=["it says so", "it cannot be read any more"])
def test_work_for_a_client_that_disconnects_is_cancelled_and_its_task_continues(broken):
    async def serve() -> str:
        left, cleaned = asyncio.Event(), []

        async def work() -> None:
            left.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append("up")

        async def receive() -> Any:
            await left.wait()
            if broken:
                raise OSError("reset")
            return {"type": "http.disconnect"}

        with pytest.raises(ClientDisconnect):
            await unless_disconnected(work(), receive)
        task = asyncio.current_task()
        assert task is not None
        assert not task.cancelling()
        await asyncio.sleep(0)  # no cancellation is pending for the code that follows
        return cleaned[0]

    assert asyncio.run(serve()) == "up"


def test_work_is_cancelled_with_its_task_while_the_client_waits():
    async def serve() -> bool:
        started, watched = asyncio.Event(), []

        async def work() -> None:
            started.set()
            await asyncio.Event().wait()

        async def receive() -> Any:
            try:
                await asyncio.Event().wait()
            finally:
                watched.append("ended")

        task = asyncio.create_task(unless_disconnected(work(), receive))
        await started.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return watched == ["ended"]

    assert asyncio.run(serve())


def test_the_result_of_work_is_returned_and_the_connection_is_no_longer_watched():
    async def serve() -> tuple[int, list[str]]:
        watched: list[str] = []

        async def work() -> int:
            await asyncio.sleep(0)
            return 7

        async def receive() -> Any:
            watched.append("began")
            try:
                await asyncio.Event().wait()
            finally:
                watched.append("ended")

        return await unless_disconnected(work(), receive), watched

    assert asyncio.run(serve()) == (7, ["began", "ended"])
