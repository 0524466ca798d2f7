"""Promise 27: no request has more or larger images, documents or audio than its provider accepts.

Old media become one line with a pointer, in `session.prompt()` and in `recto.fit`; the newest stay as they are.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib

import pytest

import recto
from recto.errors import MalformedMessage
from recto.formats.media import media_in
from recto.formats.validation import problems
from recto.tokens import media_limits
from recto.tokens.media_limits import LIMITS, MediaLimits

MODELS = {"anthropic.messages": "claude-sonnet-4-5", "openai.chat": "gpt-4o", "openai.responses": "gpt-4o"}
MB = 1024 * 1024


def png(width: int, height: int, weight: int = 0) -> str:
    """The beginning of a picture of this size, in base64 of about so many bytes."""
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


def said(wire: str, role: str, *blocks: dict, text: str = "Look.") -> dict:
    if wire == "openai.responses":
        kind = "input_text" if role == "user" else "output_text"
        return {"type": "message", "role": role, "content": [{"type": kind, "text": text}, *blocks]}
    return {"role": role, "content": [{"type": "text", "text": text}, *blocks]}


def talk(wire: str, blocks: list[dict], each: int = 1) -> list[dict]:
    """A conversation in which the user shows so many of these in each turn."""
    messages = []
    for start in range(0, len(blocks), each):
        messages += [said(wire, "user", *blocks[start : start + each]), said(wire, "assistant", text="Seen.")]
    return [*messages, said(wire, "user", text="Which was the nicest?")]


def violations(raws: list[bytes], limits: MediaLimits) -> list[str]:
    """What the provider would refuse, by its own words: checked without the code that decides what is replaced."""
    found = [item for raw in raws for item in media_in(raw)]
    images = [item for item in found if item.kind == "image"]
    wrong = []
    if sum(map(len, raws)) > limits.body:
        wrong.append(f"a body of {sum(map(len, raws))} bytes")
    if len(found) > limits.items:
        wrong.append(f"{len(found)} items")
    wrong += [f"{item.kind} of {item.weight} bytes" for item in found if not limits.accepts(item)]
    if len(images) > limits.crowd and any(max(item.size or (0,)) > limits.crowd_side for item in images):
        wrong.append(f"{len(images)} images, some larger than {limits.crowd_side}")
    return wrong


CASES = {
    "150 images": lambda wire: talk(wire, [picture(wire, png(64, 64))] * 150),
    "600 images in large turns": lambda wire: talk(wire, [picture(wire, png(64, 64))] * 600, each=50),
    "40 images of 3040×2000": lambda wire: talk(wire, [picture(wire, png(3040, 2000))] * 40),
    "one image of 9000 pixels": lambda wire: talk(wire, [picture(wire, png(9000, 500)), picture(wire, png(64, 64))]),
    "150 images at once": lambda wire: [said(wire, "user", *[picture(wire, png(64, 64))] * 150)],
}
HEAVY = {
    "a body of 72 MB": lambda wire: talk(wire, [picture(wire, png(900, 900, 3 * MB))] * 24),
    "documents of 60 MB": lambda wire: talk(wire, [document(wire, 20 * MB)] * 3),
}
EACH = [(wire, name) for wire in MODELS for name in CASES]
FITTED = [*EACH, ("anthropic.messages", "a body of 72 MB"), ("openai.chat", "documents of 60 MB")]


def fitted_to(wire: str, messages: list[dict]) -> list[dict]:
    """As much as there can be: only what is no matter of tokens is replaced."""
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
    assert refused >= 7  # all five of Anthropic's, and 600 images in both formats of OpenAI


@pytest.mark.parametrize("role", ["wizard", "System", "", "tool_result", "root"])
def test_a_role_that_no_provider_knows_is_refused_and_not_stored(role):
    with recto.open("memory:") as session:
        session.append({"role": "user", "content": "hello"})
        with pytest.raises(MalformedMessage, match="no provider knows the role"):
            session.append({"role": role, "content": "obey"})
        assert session.store.head(session.key).seq == 1
        assert len(session.prompt().messages) == 1
