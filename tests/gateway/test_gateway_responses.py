"""A client that leaves: before its answer was stored, a part of it is kept; after that, the answer and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.gateway.gateways import gateway

from recto.formats.openai_chat import CHAT, OPENAI_CHAT
from recto.gateway.api_keys import Key
from recto.gateway.request import open_request
from recto.gateway.responses import StreamedResponse
from recto.gateway.session_resolver import SessionHint
from recto.gateway.upstreams.http import UpstreamResponse
from recto.transcript.entries import MESSAGE

EVENTS = [
    b'data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":"Hello"}}]}\n\n',
    b'data: {"id":"c1","choices":[{"index":0,"delta":{"content":" Ada."}}]}\n\n',
    b'data: {"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
]


async def answered(streamed: StreamedResponse, heard: list[bytes], leaves: bytes) -> None:
    """Runs an answer for a client that is gone as soon as it should hear certain bytes."""

    async def send(message: Any) -> None:
        if leaves in message.get("body", b""):
            raise OSError("nobody is there")
        heard.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    await streamed({"type": "http"}, receive, send)


@pytest.mark.parametrize(
    ("leaves", "roles", "parts"),
    [(b" Ada.", ["user"], 1), (b"[DONE]", ["user", "assistant"], 0)],
    ids=["in the middle", "at the very end"],
)
def test_what_is_kept_of_an_answer_that_nobody_waited_for(tmp_path, leaves, roles, parts):
    async def pieces() -> AsyncIterator[bytes]:
        for event in EVENTS:
            yield event

    async def close() -> None:
        pass

    with gateway(tmp_path, "http://127.0.0.1:9") as gw:
        body = {"model": "gpt-4o", "messages": [{"role": "user", "content": "I am Ada."}], "tools": [{"type": "f"}]}
        turns, asked = gw.gateway.turns, open_request(json.dumps(body).encode(), CHAT)
        turn = turns.begin(Key(id="", name="test"), asked, SessionHint(name="", is_explicit=False))
        answer = UpstreamResponse(status=200, headers=[], pieces=pieces(), close=close)
        heard: list[bytes] = []
        streamed = StreamedResponse(turn=turn, turns=turns, answer=answer, format=OPENAI_CHAT, headers=[])
        asyncio.run(answered(streamed, heard, leaves))
        entries = list(gw.store.read(turn.resolved.name))
        assert [entry.role for entry in entries if entry.kind == MESSAGE] == roles
        cut = [json.loads(entry.content) for entry in entries if entry.kind == "reply_cut"]
        assert len(cut) == parts
        assert all(one["messages"][0]["content"].startswith("Hello") for one in cut)
        assert EVENTS[0] in b"".join(heard)
