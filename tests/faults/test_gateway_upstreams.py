"""Promise 13: a failing upstream never breaks a transcript.

Clients talk through the gateway to a provider behind a faulty connection: responses are cut anywhere, corrupted,
duplicated, compressed, refused, of another type, or no HTTP at all. Each client retries until it gets an answer and
goes on from there. Partial responses are stored as partial, completed ones in full, no request is sent upstream twice,
and a provider accepts every prompt that follows.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from chaos import (
    FAULTS,
    PATHS,
    TOOLS,
    Direct,
    Fault,
    GatewayResponse,
    Line,
    Provider,
    Reply,
    clean,
    cut,
    cut_between_events,
    direct,
    is_refusal,
    refused,
)
from tests.gateway.upstream import Asked, Says, ScriptedUpstream

from recto.engine.verification import verify
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.formats.streaming import SseReader
from recto.gateway import responses
from recto.gateway.turn import TurnRunner
from recto.gateway.upstreams.http import HttpUpstream
from recto.transcript.entries import MESSAGE

pytestmark = pytest.mark.timeout(0)
CLIENTS = 12
TURNS = 3
TRIES = 12
SHARDS = 2


def script(request: Asked) -> Says:
    """Calls a tool for a question of the user, and answers with text after its result."""
    last = request.messages[-1]
    content = json.dumps(last)
    if "tool_call_id" in content or "tool_result" in content or "call_output" in content:
        return Says(text="Done, as you can see from the output.")
    return Says(text="One moment.", calls=(("run", {"command": "ls", "times": 3}), ("run", {"command": "pwd"})))


@dataclass
class Seen:
    """Totals over all clients."""

    streams: int = 0
    ended: int = 0
    partly: int = 0
    empty: int = 0
    abandoned: int = 0
    wrong: list[Any] = field(default_factory=list)
    sessions: set[str] = field(default_factory=set)
    statuses: Counter[int] = field(default_factory=Counter)


def events_in(body: bytes) -> list[dict[str, Any]]:
    """Returns the JSON events of a stream, as a client parses them."""
    found = []
    for event in body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n\n"):
        data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
        try:
            value = json.loads(data)
        except ValueError:
            continue
        found += [value] if isinstance(value, dict) else []
    return found


def saw_end(wire: str, events: list[dict[str, Any]]) -> bool:
    if wire == CHAT:
        choices = [choice for event in events for choice in event.get("choices") or () if isinstance(choice, dict)]
        return any(choice.get("finish_reason") for choice in choices)
    ends = ("response.completed", "message_stop")
    return any(event.get("type") in ends for event in events)


def saw_error(wire: str, events: list[dict[str, Any]]) -> bool:
    if wire == CHAT:
        return any("error" in event for event in events)
    return any(event.get("type") == "error" for event in events)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def results(wire: str, replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the results of all calls in a response."""
    if wire == CHAT:
        ids = [call["id"] for reply in replies for call in reply.get("tool_calls", ())]
        return [{"role": "tool", "tool_call_id": id, "content": "out"} for id in ids]
    if wire == RESPONSES:
        ids = [reply["call_id"] for reply in replies if reply.get("type") == "function_call"]
        return [{"type": "function_call_output", "call_id": id, "output": "out"} for id in ids]
    parts = [part for reply in replies for part in reply["content"] if isinstance(part, dict)]
    blocks = [{"type": "tool_result", "tool_use_id": part["id"]} for part in parts if part.get("type") == "tool_use"]
    return [{"role": "user", "content": blocks}] if blocks else []


def says_something(reply: dict[str, Any]) -> bool:
    content = reply.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    has_text = any(str(part.get("text", "")).strip() or part.get("type") == "tool_use" for part in parts)
    return has_text or bool(reply.get("tool_calls")) or reply.get("type") == "function_call"


def stored(gw: Direct, session: str) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Returns the messages of a session, and how many entries it has of each kind."""
    entries = list(gw.store.read(session))
    return [json.loads(entry.content) for entry in entries if entry.kind == MESSAGE], Counter(
        entry.kind for entry in entries
    )


def was_answered(wire: str, stream: bool, answer: GatewayResponse, seen: Seen, sent: bytes) -> bool:
    """Returns whether the client has an answer. Anything else but an error of the protocol is recorded as wrong."""
    if answer.status not in (200, 201):
        if answer.status < 400 or not is_refusal(wire, answer):
            seen.wrong.append(("no refusal", sent, answer))
        return False
    if not stream:
        return True
    events = events_in(answer.body)
    failed = saw_error(wire, events)
    # Libraries recognize the end by the name of its event, even if its data is damaged.
    named = b"data: [DONE]" in answer.body or b"event: message_stop\n" in answer.body
    ended = saw_end(wire, events) or (not failed and named)
    if not ended and not failed:
        seen.wrong.append(("neither an end nor an error", sent, answer))
    return ended


async def converse(gw: Direct, wire: str, name: str, rng: random.Random, seen: Seen) -> None:
    """Runs one client: it retries each request until it is answered, and goes on."""
    history: list[dict[str, Any]] = [user(f"{name} begins")]
    messages: list[dict[str, Any]] = []
    session = ""
    kinds: Counter[str] = Counter()
    for _ in range(TURNS * 2):
        for _ in range(TRIES):
            stream = rng.random() < 0.8
            member = "input" if wire == RESPONSES else "messages"
            body = {"model": "gpt-4o", member: history, "tools": TOOLS[wire], "stream": stream}
            raw = json.dumps(body if wire == RESPONSES else {**body, "max_tokens": 100}).encode()
            before = kinds
            answer = await gw.ask("POST", PATHS[wire], raw)
            seen.streams += 1
            seen.statuses[answer.status] += 1
            session = session or answer.headers["x-recto-session-id"]
            if answer.headers.get("x-recto-session-id") != session:
                seen.wrong.append(("another session", raw, answer))
            answered = was_answered(wire, stream, answer, seen, raw)
            messages, kinds = stored(gw, session)
            new = kinds - before
            is_stored = len(messages) > len(history)
            if messages == history and answered:
                seen.empty += 1  # garbage replaced all of it but the end: there is no message to store
                return
            if is_stored != answered or messages[: len(history)] != history:
                seen.wrong.append(("answered and stored differ", answered, is_stored, raw, answer))
            if not answered and new["reply_cut"] + new["upstream_failed"] != 1:
                seen.wrong.append(("no record of the failure", new, raw, answer))
            seen.partly += new["reply_cut"]
            if answered:
                break
        else:
            seen.abandoned += 1
            break
        seen.ended += 1
        replies = messages[len(history) :]
        if not any(says_something(reply) for reply in replies):
            break  # garbage replaced all of it, and there is nothing to go on from
        history = [*messages, *(results(wire, replies) or [user(f"{name} goes on")])]
    seen.sessions.add(session)


async def trouble(folder: Any, seed: int, many: int, faults: tuple[Fault, ...]) -> tuple[Seen, Provider]:
    """Runs so many streams through a faulty connection."""
    rng, seen = random.Random(seed), Seen()
    drawn = random.Random(f"faults {seed}")
    fault = lambda request: drawn.choice(faults) if drawn.random() < 0.7 else clean  # noqa: E731
    provider = Provider(ScriptedUpstream(script), fault, seed=seed)
    async with provider.listening(), direct(folder, provider.url) as gw:
        number = 0
        while seen.streams < many:
            wires = [rng.choice((CHAT, RESPONSES, ANTHROPIC)) for _ in range(CLIENTS)]
            talking = [
                converse(gw, wire, f"client {number + place}", random.Random(rng.random()), seen)
                for place, wire in enumerate(wires)
            ]
            await asyncio.gather(*talking)
            number += CLIENTS
        seen.wrong += [("the chain is broken", finding) for finding in verify(gw.store).findings]
        lost = seen.sessions - {summary.session for summary in gw.store.sessions()}
        seen.wrong += [("a session is gone", session) for session in lost]
        requests = provider.scripted.asked
        seen.wrong += [
            ("a provider would refuse", request.problems, request.raw) for request in requests if request.problems
        ]
        if len(requests) != seen.streams:
            seen.wrong.append(("asked more than once", len(requests), seen.streams))
    return seen, provider


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_upstream_faults_never_break_a_transcript(swift_folder, shard, scale):
    many = scale(200, ci=10_000, release=100_000) // SHARDS
    seen, _ = asyncio.run(trouble(swift_folder, 13 + shard, many, FAULTS))
    assert seen.wrong == []
    assert seen.ended > many // 4
    assert seen.partly > many // 20
    assert seen.empty < many // 50


def test_a_gateway_that_stores_a_partial_response_as_complete_is_caught(swift_folder, monkeypatch):
    monkeypatch.setattr(TurnRunner, "cut", lambda turns, turn, partial, why: turns.finish(turn, partial))
    seen, _ = asyncio.run(trouble(swift_folder, 13, 30, (cut, cut_between_events)))
    assert {wrong[0] for wrong in seen.wrong} >= {"answered and stored differ"}


def test_a_gateway_that_retries_by_itself_is_caught(swift_folder, monkeypatch):
    ask = HttpUpstream.ask

    async def stubborn(upstream: HttpUpstream, *args: Any, **kwargs: Any) -> Any:
        answer = await ask(upstream, *args, **kwargs)
        return answer if answer.status < 500 else await ask(upstream, *args, **kwargs)

    monkeypatch.setattr(HttpUpstream, "ask", stubborn)
    seen, _ = asyncio.run(trouble(swift_folder, 13, 30, (refused,)))
    assert "asked more than once" in {wrong[0] for wrong in seen.wrong}


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, ANTHROPIC])
def test_after_an_overflow_the_provider_is_called_once_more_and_only_once(swift_folder, wire):
    async def work() -> tuple[list[Asked], GatewayResponse]:
        scripted = ScriptedUpstream(lambda request: Says(text="never"), window=20_000)
        async with Provider(scripted).listening() as provider, direct(swift_folder, provider.url) as gw:
            member = "input" if wire == RESPONSES else "messages"
            turns = [user("word " * 4_000), {"role": "assistant", "content": "yes"}] * 6
            answer = await gw.post(PATHS[wire], {"model": "gpt-4o", member: [*turns, user("now")], "stream": True})
            return scripted.asked, answer

    requests, answer = asyncio.run(work())
    assert len(requests) == 2
    assert requests[1].tokens < requests[0].tokens
    assert answer.status == (200 if requests[1].tokens <= 20_000 else 400)


def test_an_oversized_event_is_dropped_and_the_events_before_it_are_stored(swift_folder, monkeypatch):
    async def endless(line: Line, reply: Reply, request: Asked) -> None:
        events = reply.body.split(b"\n\n")
        long = b"\n\n".join(events[:3]) + b"\n\ndata: " + b"x" * 4_000_000
        await line.send(Reply(200, reply.headers, long).wired())

    monkeypatch.setattr(responses, "SseReader", partial(SseReader, max_bytes=1_000_000))

    async def work() -> tuple[GatewayResponse, Counter[str]]:
        provider = Provider(ScriptedUpstream(script), lambda request: endless)
        async with provider.listening(), direct(swift_folder, provider.url) as gw:
            body = {"model": "gpt-4o", "messages": [user("go")], "tools": TOOLS[CHAT], "stream": True}
            answer = await gw.post(PATHS[CHAT], body)
            return answer, stored(gw, answer.headers["x-recto-session-id"])[1]

    answer, kinds = asyncio.run(work())
    assert saw_error(CHAT, events_in(answer.body))
    assert kinds["reply_cut"] == 1
    assert len(answer.body) < 1_000_000


def test_an_upstream_stream_that_never_ends_after_its_message_is_cut_off(swift_folder):
    async def endless(line: Line, reply: Reply, request: Asked) -> None:
        whole = reply.body.replace(b"data: [DONE]\n\n", b"")
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + whole)
        while True:
            await line.send(b": still here\n\n" * 100)
            await asyncio.sleep(0)

    async def work() -> tuple[GatewayResponse, Counter[str], int]:
        provider = Provider(ScriptedUpstream(script), lambda request: endless)
        async with provider.listening(), direct(swift_folder, provider.url) as gw:
            body = {"model": "gpt-4o", "messages": [user("go")], "tools": TOOLS[CHAT], "stream": True}
            answer = await gw.post(PATHS[CHAT], body)
            return answer, stored(gw, answer.headers["x-recto-session-id"])[1], len(answer.body)

    answer, kinds, size = asyncio.run(work())
    assert saw_end(CHAT, events_in(answer.body))
    assert kinds["message"] == 2
    assert size < 200_000
