"""Promise 27: no request has more or larger images, documents or audio than its provider accepts.

Old media are replaced by one line with a pointer, in `session.prompt()` and in `recto.fit`; the newest are unchanged.

Promise 29: a new message whose media exceed what the provider accepts in any request, or whose role no provider knows,
is refused before it is stored.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

import recto
from recto.errors import MalformedMessage, MediaRefused
from recto.formats import problems
from recto.formats.message import media_in
from recto.tokens import media_limits
from recto.tokens.media_limits import LIMITS, MediaLimits

MODELS = {"anthropic.messages": "claude-sonnet-4-5", "openai.chat": "gpt-4o", "openai.responses": "gpt-4o"}
MB = 1024 * 1024


def png(width: int, height: int, weight: int = 0) -> str:
    """Returns the header of a picture of this size, in base64 of about `weight` bytes."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    return base64.b64encode(data + bytes(max(weight * 3 // 4 - len(data), 0))).decode()


def picture(wire: str, data: str) -> dict:
    if wire == "anthropic.messages":
        return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    address = f"data:image/png;base64,{data}"
    if wire == "openai.responses":
        return {"type": "input_image", "image_url": address, "detail": "low"}
    return {"type": "image_url", "image_url": {"url": address, "detail": "low"}}


def document(wire: str, weight: int) -> dict:
    data = "A" * weight
    if wire == "anthropic.messages":
        return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
    if wire == "openai.responses":
        return {"type": "input_file", "filename": "a.pdf", "file_data": data}
    return {"type": "file", "file": {"filename": "a.pdf", "file_data": data}}


def pdf(pages: int, *, packed: bool = False) -> str:
    """Returns the objects of a document with so many pages, in base64; `packed` uses an object stream."""
    root = f"<</Type/Catalog/Pages 2 0 R>> <</Kids[3 0 R]/Type /Pages\n/Count {pages}>>"
    leaf = f"<</Type/Pages/Parent 2 0 R/Count {pages // 2}>> <</Type/Page/Parent 2 0 R>> <</Type/Outlines/Count 9999>>"
    objects = f"{root} {leaf}".encode()
    if packed:
        stream = zlib.compress(objects)
        objects = b"5 0 obj <</Type/ObjStm/N 5/Filter/FlateDecode>> stream\r\n" + stream + b"\r\nendstream endobj"
    return base64.b64encode(b"%PDF-1.7\n" + objects + b"\n%%EOF").decode()


def paper(wire: str, data: str) -> dict:
    if wire == "anthropic.messages":
        return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
    address = f"data:application/pdf;base64,{data}"
    if wire == "openai.responses":
        return {"type": "input_file", "filename": "a.pdf", "file_data": address}
    return {"type": "file", "file": {"filename": "a.pdf", "file_data": address}}


def sound(weight: int) -> dict:
    return {"type": "input_audio", "input_audio": {"data": "A" * weight, "format": "wav"}}


def message_with(wire: str, role: str, *blocks: dict, text: str = "Look.") -> dict:
    if wire == "openai.responses":
        kind = "input_text" if role == "user" else "output_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}, *blocks]}
    return {"role": role, "content": [{"type": "text", "text": text}, *blocks]}


def talk(wire: str, blocks: list[dict], each: int = 1) -> list[dict]:
    """Returns a conversation in which the user sends `each` of the blocks per turn."""
    messages = []
    for start in range(0, len(blocks), each):
        messages += [
            message_with(wire, "user", *blocks[start : start + each]),
            message_with(wire, "assistant", text="Seen."),
        ]
    return [*messages, message_with(wire, "user", text="Which was the nicest?")]


def violations(raws: list[bytes], limits: MediaLimits) -> list[str]:
    """Returns why the provider would refuse a request, checked independently of the code under test."""
    found = [item for raw in raws for item in media_in(raw)]
    images = [item for item in found if item.kind == "image"]
    wrong = []
    if sum(map(len, raws)) > limits.body:
        wrong.append(f"a body of {sum(map(len, raws))} bytes")
    if len(found) > limits.items:
        wrong.append(f"{len(found)} items")
    if sum(item.pages for item in found) > limits.pages:
        wrong.append(f"{sum(item.pages for item in found)} pages")
    wrong += [f"{item.kind} of {item.weight} bytes" for item in found if not limits.accepts(item)]
    if len(images) > limits.crowd and any(max(item.size or (0,)) > limits.crowd_side for item in images):
        wrong.append(f"{len(images)} images, some larger than {limits.crowd_side}")
    return wrong


CASES = {
    "150 images": lambda wire: talk(wire, [picture(wire, png(64, 64))] * 150),
    "600 images in large turns": lambda wire: talk(wire, [picture(wire, png(64, 64))] * 600, each=50),
    "40 images of 3040×2000": lambda wire: talk(wire, [picture(wire, png(3040, 2000))] * 40),
    "one image of 9000 pixels": lambda wire: talk(wire, [picture(wire, png(9000, 500)), picture(wire, png(64, 64))]),
    "documents of 240 pages": lambda wire: talk(wire, [paper(wire, pdf(60, packed=at % 2 > 0)) for at in range(4)]),
    "150 images at once": lambda wire: [message_with(wire, "user", *[picture(wire, png(64, 64))] * 150)],
}
HEAVY = {
    "a body of 72 MB": lambda wire: talk(wire, [picture(wire, png(900, 900, 3 * MB))] * 24),
    "documents of 60 MB": lambda wire: talk(wire, [document(wire, 20 * MB)] * 3),
}
EACH = [(wire, name) for wire in MODELS for name in CASES]
FITTED = [*EACH, ("anthropic.messages", "a body of 72 MB"), ("openai.chat", "documents of 60 MB")]


def fitted_to(wire: str, messages: list[dict]) -> list[dict]:
    """Fits messages without a token limit: only the limits of media apply."""
    return recto.fit(messages, 1_000_000_000, model=MODELS[wire], threshold=1.0)


@pytest.mark.parametrize(("wire", "name"), FITTED)
def test_fit_returns_what_the_provider_accepts(wire, name):
    messages, limits = (CASES | HEAVY)[name](wire), media_limits.media_limits("", wire)
    fitted = fitted_to(wire, messages)
    raws = [json.dumps(message, separators=(",", ":")).encode() for message in fitted]
    assert violations(raws, limits) == []
    assert problems(raws, wire) == []
    assert len(fitted) == len(messages)
    assert fitted[-1] == messages[-1] or "at once" in name
    before = sum(len(media_in(json.dumps(message).encode())) for message in messages)
    after = sum(map(len, map(media_in, raws)))
    assert after > 0
    assert sum(raw.count(b"is not shown here, to stay within what the provider accepts") for raw in raws) == (
        before - after
    )


@pytest.mark.parametrize("wire", MODELS)
def test_a_prompt_is_within_the_limits_counted_exactly_and_stable_between_steps(wire):
    models = {MODELS[wire]: {"window": 4_000_000, "max_input": 4_000_000}}
    limits = media_limits.media_limits("", wire)
    with recto.open("memory:", model=MODELS[wire], models=models, recall={"enabled": False}) as session:
        changed, before = 0, ()
        for message in talk(wire, [picture(wire, png(3040, 2000))] * 44):
            session.append(message)
            prompt = session.prompt()
            assert violations(list(prompt.raw), limits) == []
            assert prompt.tokens == session.count(list(prompt.raw))
            changed += prompt.raw[: len(before)] != before
            before = prompt.raw
        assert changed <= 8
        if wire == "anthropic.messages":
            assert session.window.pointer(1).encode() in prompt.raw[0]
        assert next(entry.content for entry in session.read(1, 1)).count(b"base64") == 1


def test_without_the_limits_the_same_lists_are_refused(monkeypatch):
    nothing = MediaLimits(item_bytes={})
    refused = 0
    for wire, name in EACH:
        limits = media_limits.media_limits("", wire)
        with monkeypatch.context() as patch:
            patch.setattr(media_limits, "LIMITS", dict.fromkeys(LIMITS, nothing))
            fitted = fitted_to(wire, CASES[name](wire))
        refused += bool(violations([json.dumps(message).encode() for message in fitted], limits))
    assert refused >= 8  # all six of Anthropic's, and 600 images in both formats of OpenAI


@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize("packed", [False, True])
def test_the_pages_of_a_document_are_read_from_its_tree(wire, packed):
    (found,) = media_in(json.dumps(message_with(wire, "user", paper(wire, pdf(60, packed=packed)))).encode())
    assert (found.kind, found.pages) == ("document", 60)
    (unknown,) = media_in(json.dumps(message_with(wire, "user", document(wire, 1_000))).encode())
    assert unknown.pages == 0


HOSTILE = {
    "cut": lambda: pdf(60)[:90],
    "no base64": lambda: pdf(60)[:90] + "é!",
    "a bomb": lambda: base64.b64encode(
        b"%PDF-1.7 " + 300 * (b"/ObjStm>> stream\n" + zlib.compress(bytes(5_000_000))[:4_000])
    ).decode(),
    "trees": lambda: base64.b64encode(b"%PDF-1.7 " + b"/Type/Pages " * 100_000).decode(),
    "counts": lambda: base64.b64encode(b"%PDF-1.7 /Type/Pages" + b"/Count 99999999999" * 50_000).decode(),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_invalid_document_has_no_pages(name):
    raw = json.dumps(
        message_with("openai.chat", "user", paper("openai.chat", HOSTILE[name]())), ensure_ascii=False
    ).encode()
    assert [item.pages for item in media_in(raw)] == [0]


NEVER = {
    "a document of 101 pages": ("anthropic.messages", lambda wire: [paper(wire, pdf(101))]),
    "two documents of 60 pages": ("anthropic.messages", lambda wire: [paper(wire, pdf(60))] * 2),
    "101 images": ("anthropic.messages", lambda wire: [picture(wire, png(64, 64))] * 101),
    "21 large images": ("anthropic.messages", lambda wire: [picture(wire, png(2400, 300))] * 21),
    "an image of 9000 pixels": ("anthropic.messages", lambda wire: [picture(wire, png(9000, 500))]),
    "an image of 6 MB": ("anthropic.messages", lambda wire: [picture(wire, png(64, 64, 6 * MB))]),
    "501 images": ("openai.chat", lambda wire: [picture(wire, png(64, 64))] * 501),
    "501 images as items": ("openai.responses", lambda wire: [picture(wire, png(64, 64))] * 501),
    "audio of 21 MB": ("openai.chat", lambda wire: [sound(28 * MB)]),
}


def opened(wire: str, **more):
    models = {MODELS[wire]: {"window": 900_000, "max_input": 900_000}}
    return recto.open("memory:", model=MODELS[wire], models=models, recall={"enabled": False}, **more)


@pytest.mark.parametrize("name", NEVER)
def test_new_media_that_no_request_may_contain_are_refused_before_they_are_stored(name):
    wire, blocks = NEVER[name]
    with opened(wire) as session:
        session.append(message_with(wire, "user", picture(wire, png(64, 64))))
        with pytest.raises(MediaRefused, match="Nothing was stored"):
            session.append(message_with(wire, "user", *blocks(wire)))
        assert session.head.seq == 1
        session.append(message_with(wire, "assistant", text="Seen."))
        session.append(message_with(wire, "user", text="Go on."))
        assert violations(list(session.prompt().raw), media_limits.media_limits("", wire)) == []


def test_without_the_check_the_media_are_stored_and_missing_in_the_prompt(monkeypatch):
    monkeypatch.setattr(media_limits, "refusal_of", lambda media, text_bytes, limits: "")
    wire = "anthropic.messages"
    with opened(wire) as session:
        session.append(message_with(wire, "user", paper(wire, pdf(101)), text="What does it say?"))
        assert b"is not shown here" in session.prompt().raw[-1]


def test_a_model_with_a_long_window_accepts_more_pages_and_images():
    wire = "anthropic.messages"
    blocks = [picture(wire, png(64, 64))] * 400 + [paper(wire, pdf(300))] * 2
    message = message_with(wire, "user", *blocks)
    models = {"claude-sonnet-4-6": {"max_input": 1_000_000}}
    with recto.open("memory:", model="claude-sonnet-4-6", models=models, recall={"enabled": False}) as session:
        session.append(message)
        assert json.loads(session.prompt().raw[0]) == message
        with pytest.raises(MediaRefused, match="601 items"):
            session.append(message_with(wire, "user", *[picture(wire, png(64, 64))] * 601))


@pytest.mark.parametrize("wire", MODELS)
@pytest.mark.parametrize("role", ["wizard", "System", "", "tool_result", "root", 7, None])
def test_a_role_that_no_provider_knows_is_refused_and_not_stored(wire, role):
    with opened(wire) as session:
        session.append(message_with(wire, "user", text="hello"))
        with pytest.raises(MalformedMessage):
            session.append(message_with(wire, "user", text="obey") | {"role": role})
        assert session.head.seq == 1
        assert len(session.prompt().messages) == 1


PATHS = {"openai.chat": "chat/completions", "openai.responses": "responses", "anthropic.messages": "messages"}


@pytest.mark.parametrize("wire", MODELS)
def test_the_gateway_refuses_media_and_roles_before_anything_is_stored(tmp_path, wire):
    def ask(message: dict, name: str) -> httpx2.Response:
        field = "input" if wire == "openai.responses" else "messages"
        body = {"model": MODELS[wire], "max_tokens": 100, field: [message]}
        headers = {"authorization": f"Bearer {gw.secret}", "x-recto-session": name}
        return client.post(f"{gw.url}/v1/{PATHS[wire]}", json=body, headers=headers)

    upstream = ScriptedUpstream(lambda request: Says(text="All is well."))
    many = 101 if wire == "anthropic.messages" else 501
    with running(upstream) as up, gateway(tmp_path, up.url) as gw, httpx2.Client(timeout=60) as client:
        bad = [
            message_with(wire, "user", *[picture(wire, png(64, 64))] * many),
            *(message_with(wire, "user", text="obey") | {"role": role} for role in ("wizard", "", 7)),
        ]
        for number, message in enumerate(bad):
            assert ask(message, f"bad-{number}").status_code == 400
        assert upstream.asked == []
        assert [summary for summary in gw.store.sessions() if "bad" in summary.session] == []
        assert ask(message_with(wire, "user", picture(wire, png(64, 64))), "good").status_code == 200
