"""Hostile requests inside ongoing sessions, in three protocols, with a check of the session after every request.

A client sends lone surrogates in any field, texts that can never fit, claims about limits that the provider repeats in
its errors, and messages that the provider refuses, and retries refused ones. After each of them the session answers a
plain question, nothing is stored twice, no refused message is sent again, and the model's window is as large as before.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chaos import PATHS, TOOLS, Direct, GatewayResponse, Provider, direct
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from test_gateway_surrogates import HALF, with_half
from test_learned_limits import CLAIMS
from tests.gateway.upstream import Asked, Says, ScriptedUpstream

from recto.engine import session as session_module
from recto.engine.window import Window
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_responses import RESPONSES
from recto.gateway import lineage, proxy
from recto.tokens.limits import limits_in_error

pytestmark = [pytest.mark.timeout(0), pytest.mark.filterwarnings("ignore:model:UserWarning")]
MODEL, WINDOW = "gpt-4o", 16_000
BAD, ECHO = "forbidden-words", "repeat-this"
ECHO_CODE = "invalid_prompt"
LONG, LONGEST = "word " * 60_000, "word " * 220_000
"""Longer than the window, whatever else is in the prompt; the longest is refused before it is stored."""


def spite(upstream_request: Asked) -> Response | None:
    """Refuses some prompts, with errors that repeat text of the client."""
    raw = upstream_request.raw.decode("utf-8", "replace")
    choice = upstream_request.body.get("tool_choice")
    last_message = json.dumps(upstream_request.messages[-1:])
    if isinstance(choice, str) and choice != "auto":
        message, code = f"Invalid value for 'tool_choice': '{choice}'.", "invalid_value"
    elif ECHO in last_message:
        message, code = f"This cannot be answered: {last_message}", ECHO_CODE
    elif BAD in raw:
        message, code = f"refused by policy: {last_message}", "content_filter"
    else:
        return None
    error = {"message": message, "type": "invalid_request_error", "code": code}
    if "plainly" in last_message:
        return PlainTextResponse(message, 400)
    if not upstream_request.body.get("stream") or "streamed" not in last_message:
        return JSONResponse({"type": "error", "error": error}, 400)

    async def events():
        yield f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n".encode()

    return StreamingResponse(events(), media_type="text/event-stream")


def request(wire: str, text: str, **more: Any) -> dict[str, Any]:
    """Returns a request in a format, with fields of each kind."""
    content = [{"type": "input_text" if wire == RESPONSES else "text", "text": text}]
    body: dict[str, Any] = {"model": MODEL, "metadata": {"k": "v"}, "user": "me"}
    if wire == RESPONSES:
        body |= {"instructions": "Be kind.", "input": [{"type": "message", "role": "user", "content": content}]}
    else:
        body |= {"messages": [{"role": "user", "content": content}], "max_tokens": 100}
    if wire == ANTHROPIC:
        body |= {"system": [{"type": "text", "text": "Be kind."}], "metadata": {"user_id": "me"}}
        del body["user"]
    return {**body, **more}


@dataclass
class Talk:
    """One session, and the violations found in it."""

    gw: Direct
    provider: Provider
    wire: str
    name: str
    rng: random.Random
    wrong: list[Any] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    room: str = ""
    count: int = 0

    def mark(self) -> str:
        self.count += 1
        return f"mark-{self.name.rpartition(':')[2]}-{self.count}-end"

    async def send(self, body: dict[str, Any]) -> GatewayResponse:
        raw = json.dumps(body).encode()  # lone surrogates as escapes, which is valid JSON
        headers = {"x-recto-session-id": self.name}
        try:
            return await self.gw.ask("POST", PATHS[self.wire], raw, headers=headers)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            return GatewayResponse(500, {}, repr(error).encode())

    def hostile(self) -> tuple[str, str, dict[str, Any]]:
        """Returns the kind of attack, its mark, and the request."""
        rng, mark = self.rng, self.mark()
        stream = rng.random() < 0.5
        how = rng.choice(("", "plainly ", "streamed "))
        match rng.choice(("half", "half", "long", "long field", "echo", "echoed words", "refused", "refused")):
            case "half":
                body, half = request(self.wire, f"{mark} hello", stream=stream), rng.choice(HALF)
                if self.wire == RESPONSES and rng.random() < 0.5:
                    return "half", mark, {**body, "previous_response_id": half}
                return "half", mark, rng.choice(list(with_half(body, half)))
            case "long":
                return "long", mark, request(self.wire, f"{mark} {LONGEST}", stream=stream)
            case "long field":
                body = request(self.wire, f"{mark} hello", stream=stream, tools=deepcopy(TOOLS[self.wire]))
                tool = body["tools"][0].get("function", body["tools"][0])
                tool["description"] = LONG
                return "long field", mark, body
            case "echo":
                claim = rng.choice(CLAIMS)
                size = rng.choice((1, 400, 2_000))
                text = f"{mark} {how}" + "word " * size
                return "echo", mark, request(self.wire, text, stream=stream, tool_choice=claim)
            case "echoed words":
                return (
                    "echoed words",
                    mark,
                    request(self.wire, f"{mark} {how}{ECHO} {rng.choice(CLAIMS)} " + "word " * 2_000, stream=stream),
                )
            case _:
                return "refused", mark, request(self.wire, f"{mark} {how}say {BAD}", stream=stream)

    async def step(self) -> None:
        kind, mark, body = self.hostile()
        answer = await self.send(body)
        self.check(answer.status < 500, kind, "failed", body, answer)
        is_refused = answer.status >= 400 or (kind != "half" and b'"error"' in answer.body)
        self.kinds[f"{kind} {'refused' if is_refused else 'answered'}"] += 1
        if is_refused and self.rng.random() < 0.5:
            again = await self.send(body)
            self.check(again.status == answer.status, kind, "answered otherwise when it was sent again", body, again)
        self.stored_once(kind, mark, body, at_most=0 if kind == "long" else 1)
        await self.plain(kind)

    async def plain(self, after: str) -> None:
        """Checks that the session answers a plain question, without refused messages and with an unchanged window."""
        mark = self.mark()
        answer = await self.send(request(self.wire, f"{mark} and now?"))
        self.check(answer.status == 200 and b"heard" in answer.body, after, "stopped the session", answer)
        if answer.status != 200:
            return
        upstream_request = next(entry for entry in reversed(self.provider.scripted.asked) if mark in entry.raw.decode())
        sent = upstream_request.raw.decode()
        prompt_messages = json.dumps(upstream_request.messages)
        self.check(sent.count(mark) == 1, after, "the question is in the prompt twice", sent)
        self.check(
            not any(word in prompt_messages for word in (BAD, ECHO, LONG[:5_000])), after, "is sent again", sent[:500]
        )
        self.check(not upstream_request.problems, after, "an upstream would refuse", upstream_request.problems)
        room = answer.headers["x-recto-tokens"].split("/")[1]
        self.room = self.room or room
        self.check(room == self.room, after, "narrowed the window", room, self.room)
        self.stored_once(after, mark, answer.status)

    def stored_once(self, kind: str, mark: str, *details: Any, at_most: int = 1) -> None:
        entries = self.gw.store.read(self.name)
        many = sum(mark.encode() in entry.content for entry in entries if entry.kind == "message")
        self.check(many <= at_most, kind, f"is stored {many} times", *details)

    def check(self, is_well: bool, *details: Any) -> None:
        if not is_well:
            self.wrong.append((self.wire, *(ascii(detail)[:400] for detail in details)))


def run(folder: Path, seed: int, sessions: int, steps: int) -> tuple[list[Any], Counter[str]]:
    async def work() -> tuple[list[Any], Counter[str]]:
        scripted = ScriptedUpstream(lambda _: Says(text="heard"), fail=spite)
        models = {MODEL: {"window": WINDOW}}
        async with Provider(scripted).listening() as provider, direct(folder, provider.url, models=models) as gw:
            rng = random.Random(seed)
            talks = [
                Talk(gw, provider, wire, f"agent:default:{wire}-{number}", random.Random(rng.random()))
                for wire in PATHS
                for number in range(sessions)
            ]
            for talk in talks:
                await talk.plain("nothing")
            for _ in range(steps):
                await asyncio.gather(*(talk.step() for talk in talks))
                scripted.asked.clear()
            kinds = sum((talk.kinds for talk in talks), Counter())
            return [finding for talk in talks for finding in talk.wrong], kinds

    return asyncio.run(work())


@pytest.mark.promise
def test_a_session_goes_on_after_every_hostile_request(swift_folder, scale):
    wrong, kinds = run(swift_folder, 1, 2, scale(12, ci=50, release=3_000))
    assert wrong == []
    for kind in ("half answered", "long refused", "echo refused", "echoed words refused", "refused refused"):
        assert kinds[kind], kinds


@pytest.mark.parametrize(
    ("place", "name", "broken", "finding"),
    [
        (Window, "refuse", lambda self, seqs, why: [], "stopped the session"),
        (lineage, "_key", lambda name: name.hex() if isinstance(name, bytes) else name.encode().hex(), "failed"),
        (proxy, "_overflow_in", lambda error, request: limits_in_error(error), "narrowed the window"),
        (session_module, "_LARGE_MESSAGE", 10**12, "is stored 1 times"),
        (sys.modules[__name__], "ECHO_CODE", "context_length_exceeded", "narrowed the window"),
    ],
    ids=["a refused message", "a fragile door", "an echo that is believed", "a long text", "a limit"],
)
def test_without_each_check_the_failure_is_detected(swift_folder, monkeypatch, place, name, broken, finding):
    """In the last case the provider itself reports a limit: the session adopts it, and the smaller window is detected.
    A client's claim that is believed has the same effect."""
    monkeypatch.setattr(place, name, broken)
    wrong, _ = run(swift_folder, 1, 1, 12)
    assert finding in str(wrong)
