"""A message that the provider refuses stays in the transcript, out of the prompt; the session goes on."""

from __future__ import annotations

import json
import random

import httpx2
import pytest
from starlette.responses import JSONResponse, Response, StreamingResponse
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

import recto
from recto.engine.window import Window
from recto.formats import FORMATS
from recto.formats.gemini import GEMINI

WIRES = tuple(format.short_name for format in FORMATS.values())
PATHS = {format.short_name: format.api.path for format in FORMATS.values()}
BAD = "forbidden-words"
CODES = ("content_filter", "invalid_request_error", "invalid_image", "invalid_prompt")


class Filter:
    """A provider that refuses every prompt that holds certain words, however it is asked."""

    def __init__(self) -> None:
        self.way = "status"
        self.code = CODES[0]
        self.status = 400

    def __call__(self, asked) -> Response | None:
        if BAD not in asked.raw.decode():
            return None
        error = {"message": f"refused: {self.code}", "type": "invalid_request_error", "code": self.code}
        if self.way == "status" or not asked.body.get("stream"):
            return JSONResponse({"type": "error", "error": error}, self.status)

        async def events():
            yield f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n".encode()

        return StreamingResponse(events(), media_type="text/event-stream")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    provider = Filter()
    scripted = ScriptedUpstream(lambda asked: Says(text=f"heard {len(asked.messages)}"), fail=provider)
    folder = tmp_path_factory.mktemp("refused")
    with running(scripted) as upstream, gateway(folder, upstream.url, speaks=WIRES) as gw:
        yield gw, upstream, provider


def body(wire: str, messages: list[dict], *, stream: bool, **more) -> dict:
    if wire == "responses":
        return {"model": "gpt-4o", "input": messages, "stream": stream, **more}
    if wire == "gemini":
        contents = [json.loads(GEMINI.text_message(one["role"], one["content"])) for one in messages]
        return {"contents": contents, "generationConfig": {"maxOutputTokens": 50}, **more}
    return {"model": "gpt-4o", "messages": messages, "stream": stream, "max_tokens": 50, **more}


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def ask(gw, wire, messages, *, session="", stream=False, **more):
    headers = {"authorization": f"Bearer {gw.secret}"} | ({"x-recto-session-id": session} if session else {})
    sent = body(wire, messages, stream=stream, **more)
    path = PATHS[wire].format(model="gpt-4o")
    if wire == "gemini" and stream:
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse")
    return httpx2.post(gw.url + path, json=sent, headers=headers, timeout=30)


def texts(store, session: str) -> list[str]:
    return [entry.content.decode() for entry in store.read(session) if entry.kind == "message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("way", ["status", "in the stream"])
@pytest.mark.parametrize("wire", WIRES)
def test_a_session_goes_on_after_a_refused_message(place, wire, way, stream):
    gw, upstream, provider = place
    provider.way, provider.status, provider.code = way, 400, "content_filter"
    session = f"agent:default:refused-{wire}-{way[:2]}-{stream}"
    assert ask(gw, wire, [user("hello")], session=session, stream=stream).status_code == 200
    for _ in range(2):  # a retry is refused too, and is not stored twice
        refused = ask(gw, wire, [user(f"say {BAD}")], session=session, stream=stream)
        assert refused.status_code == (400 if way == "status" or not stream else 200)
        assert "refused: content_filter" in refused.text
    assert sum(BAD in text for text in texts(gw.store, session)) == 1
    after = ask(gw, wire, [user("and now?")], session=session, stream=stream)
    assert after.status_code == 200
    assert "heard" in after.text
    assert BAD not in upstream.asked[-1].raw.decode()
    kinds = [entry.kind for entry in gw.store.read(session)]
    assert kinds.count("message_refused") == 2
    assert kinds.count("message_retried") == 1
    assert sum(BAD in text for text in texts(gw.store, session)) == 1


@pytest.mark.parametrize("wire", WIRES)
def test_a_client_that_sends_its_history_goes_on_in_the_same_session(place, wire):
    gw, upstream, provider = place
    provider.way, provider.status = "status", 400
    history = [user(f"hello from {wire}"), {"role": "assistant", "content": "hi"}, user("question one")]
    first = ask(gw, wire, history)
    session = first.headers["x-recto-session-id"]
    answered = [*history, {"role": "assistant", "content": "heard 3"}]
    assert ask(gw, wire, [*answered, user(f"say {BAD}")]).status_code == 400
    again = ask(gw, wire, [*answered, user("something else")])
    assert again.status_code == 200
    assert again.headers["x-recto-session-id"] == session
    assert BAD not in upstream.asked[-1].raw.decode()
    later = [*answered, user("something else"), {"role": "assistant", "content": "heard 5"}, user("more")]
    more = ask(gw, wire, later)
    assert (more.status_code, more.headers["x-recto-session-id"]) == (200, session)
    assert len(texts(gw.store, session)) == 9  # all that was said, the refused message once


@pytest.mark.parametrize("wire", WIRES)
def test_the_same_message_works_once_the_provider_takes_it(place, wire):
    gw, upstream, provider = place
    provider.way, provider.status = "status", 422
    session = f"agent:default:accepted-{wire}"
    assert ask(gw, wire, [user(f"first, {BAD}")], session=session).status_code == 422
    upstream.fail = lambda asked: None
    try:
        assert ask(gw, wire, [user(f"first, {BAD}")], session=session).status_code == 200
        assert sum(BAD in str(message) for message in upstream.asked[-1].messages) == 1
        assert ask(gw, wire, [user("next")], session=session).status_code == 200
        assert sum(BAD in str(message) for message in upstream.asked[-1].messages) == 1
    finally:
        upstream.fail = provider
    assert sum(BAD in text for text in texts(gw.store, session)) == 1


@pytest.mark.parametrize("status", [401, 403, 404, 408, 409, 429, 500, 503, 529])
def test_other_errors_leave_the_message_in_the_prompt(place, status):
    gw, upstream, provider = place
    provider.way, provider.status = "status", status
    session = f"agent:default:other-{status}"
    assert ask(gw, "chat", [user(f"keep {BAD}")], session=session).status_code == status
    upstream.fail = lambda asked: None
    try:
        assert ask(gw, "chat", [user("next")], session=session).status_code == 200
    finally:
        upstream.fail = provider
    assert BAD in upstream.asked[-1].raw.decode()
    assert "message_refused" not in [entry.kind for entry in gw.store.read(session)]


def test_a_refused_conversation_item_and_response_are_left_behind_too(place):
    gw, upstream, provider = place
    provider.way, provider.status = "status", 400
    headers = {"authorization": f"Bearer {gw.secret}"}
    conversation = httpx2.post(f"{gw.url}/v1/conversations", json={}, headers=headers).json()["id"]
    assert ask(gw, "responses", [user("hello")], conversation=conversation).status_code == 200
    for _ in range(2):
        assert ask(gw, "responses", [user(f"say {BAD}")], conversation=conversation).status_code == 400
    assert ask(gw, "responses", [user("on")], conversation=conversation).status_code == 200
    assert BAD not in upstream.asked[-1].raw.decode()
    response = ask(gw, "responses", [user("another start")]).json()["id"]
    assert ask(gw, "responses", [user(f"say {BAD}")], previous_response_id=response).status_code == 400
    on = ask(gw, "responses", [user("other words")], previous_response_id=response)
    assert on.status_code == 200
    assert BAD not in upstream.asked[-1].raw.decode()


@pytest.mark.parametrize("mode", ["sliding_window", "auto_compact", "zones"])
def test_nothing_derived_from_a_refused_message_reaches_a_prompt(tmp_path, mode):
    settings = {"window": {"mode": mode, "reserve": 500}, "models": {"small": {"window": 3_000}}, "model": "small"}
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps(settings))
    for opening in range(3):
        with recto.open(tmp_path / "a.db", config=file, session="agent:default:main") as session:
            for turn in range(12):
                text = f"Never use port 4711, and never say {BAD}." if turn == opening == 0 else f"Task {turn}: go on."
                entry = session.append(user(text))
                if turn == opening == 0:
                    session.window.refuse([entry.seq], {"status": 400})
                session.append({"role": "assistant", "content": f"Done with {turn}. " + "It is all right. " * 30})
                session.append(user("Which port must never be used?"))
                prompt = b"".join(session.prompt().raw)
                assert b"4711" not in prompt
                assert BAD.encode() not in prompt
                session.append({"role": "assistant", "content": "I do not know."})
            assert BAD.encode() not in session.checkpoint().content
            assert any(hit.seq == 1 for hit in session.recall("port 4711").hits)  # it is still found when asked for


def outcome(gw, upstream, wire, seed: int) -> int:
    """How many requests after a refusal worked, of sessions in which refusals come anywhere."""
    chance, worked = random.Random(seed), 0
    session = f"agent:default:random-{wire}-{seed}"
    for turn in range(6):
        bad = chance.random() < 0.5
        message = user(f"{BAD} {turn}" if bad else f"fine {turn}")
        for _ in range(chance.choice([1, 1, 2])):
            answer = ask(gw, wire, [message], session=session, stream=chance.random() < 0.5)
            worked += (answer.status_code == 200) == (not bad)
            if not bad:
                break
    return worked


@pytest.mark.promise
def test_refusals_anywhere_never_stop_a_session(place, scale):
    gw, upstream, provider = place
    provider.way, provider.status = "status", 400
    for seed in range(scale(2, ci=20, release=1_000)):
        for wire in WIRES:
            before = len(upstream.asked)
            expected = outcome(gw, upstream, wire, seed)
            assert expected == len(upstream.asked) - before
            said = texts(gw.store, f"agent:default:random-{wire}-{seed}")
            assert len(set(said)) == len(said)


def test_without_the_mark_a_refused_message_stops_its_session(place, monkeypatch):
    gw, _, provider = place
    provider.way, provider.status = "status", 400
    monkeypatch.setattr(Window, "refuse", lambda self, seqs, why: [])
    session = "agent:default:stopped"
    assert ask(gw, "chat", [user(f"say {BAD}")], session=session).status_code == 400
    assert ask(gw, "chat", [user("and now?")], session=session).status_code == 400
