"""Converts a complete reply to a stream of events, for tests of stream readers.

A client that assembles the stream gets the reply, vendor members included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from recto.errors import MalformedMessage
from recto.formats.anthropic import ANTHROPIC
from recto.formats.anthropic.convert import AnthropicEvents
from recto.formats.convert.types import text_chunks
from recto.formats.gemini import GEMINI
from recto.formats.json_spans import Json, elements_of, member_at, parse, text_of
from recto.formats.message import json_of, object_in, text_in
from recto.formats.openai_chat import CHAT
from recto.formats.openai_chat.convert import ChatEvents
from recto.formats.openai_responses import RESPONSES
from recto.formats.openai_responses.convert import ResponsesEvents
from recto.formats.streaming import sse

_Read = tuple[str, dict[str, Json]]
_ORDER: Final = {"reasoning_content": 0, "reasoning": 0, "reasoning_details": 0, "content": 1, "tool_calls": 3}
"""Order of the parts: reasoning, text, calls. Clients show them in order of arrival."""
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")


def as_stream(reply: bytes, wire: str, *, include_usage: bool = False) -> Iterator[bytes]:
    """Yields the events of the stream as bytes. Only Chat clients have to request the usage."""
    write = _WRITERS.get(wire)
    if write is None:
        raise MalformedMessage(f"'{wire}' is not a wire format; known are {', '.join(_WRITERS)}")
    text = text_of(reply)
    whole = parse(text)
    if not isinstance(whole, dict):
        raise MalformedMessage("the reply is not an object")
    return write((text, whole), include_usage)


def _chat(read: _Read, include_usage: bool) -> Iterator[bytes]:
    whole = read[1]
    choices = whole.get("choices")
    first = object_in(choices[0]) if isinstance(choices, list) and choices else {}
    message = first.get("message")
    if not isinstance(message, dict):
        raise MalformedMessage("the reply has no choices[0].message")
    head = {key: value for key, value in whole.items() if key not in ("choices", "usage")}
    events = ChatEvents(head, include_usage=include_usage)
    # Validated before anything is written, so that an invalid reply is refused before its stream begins.
    return _chat_events(events, message, text_in(first.get("finish_reason")) or "stop", whole.get("usage"))


def _chat_events(events: ChatEvents, message: dict[str, Json], finish: str, usage: Json) -> Iterator[bytes]:
    yield events.delta({"role": message.get("role", "assistant")})
    for key, value in sorted(message.items(), key=lambda member: _ORDER.get(member[0], 2)):
        if key in _TEXTS and isinstance(value, str) and value:
            yield from (events.delta({key: piece}) for piece in text_chunks(value))
        elif key == "tool_calls" and isinstance(value, list):
            for place, call in enumerate(value):
                yield events.delta({key: [{**object_in(call), "index": place}]})
        elif key != "role" and value is not None:
            yield events.delta({key: value})
    yield from events.end(finish, usage)


def _anthropic(read: _Read, include_usage: bool) -> Iterator[bytes]:
    text, whole = read
    content = member_at(text, 0, "content")
    if content is None or not isinstance(content.value.value, list | str):
        raise MalformedMessage("the reply has no content")
    blocks: list[tuple[Json, str]] = []
    for span in elements_of(text, content.value):
        given = member_at(text, span.start, "input") if isinstance(span.value, dict) else None
        blocks.append((span.value, text[given.value.start : given.value.end] if given else ""))
    if isinstance(content.value.value, str):
        blocks.append(({"type": "text", "text": content.value.value}, ""))
    return _anthropic_events(whole, blocks)


def _anthropic_events(whole: dict[str, Json], blocks: list[tuple[Json, str]]) -> Iterator[bytes]:
    events = AnthropicEvents()
    usage = object_in(whole.get("usage"))
    begun: dict[str, Json] = {**usage, "output_tokens": 0} if usage else {}
    yield events.begin({**whole, "content": [], "stop_reason": None, "stop_sequence": None, "usage": begun})
    for block, source in blocks:
        yield from events.block(object_in(block), source)
    ending: dict[str, Json] = {key: whole.get(key) for key in ("stop_reason", "stop_sequence")}
    fields = {key: whole[key] for key in ("stop_details", "container") if whole.get(key) is not None}
    yield from events.end(ending | fields, usage)


def _responses(read: _Read, include_usage: bool) -> Iterator[bytes]:
    whole = read[1]
    output = whole.get("output")
    if not isinstance(output, list):
        raise MalformedMessage("the reply has no output")
    return _responses_events(whole, output)


def _responses_events(whole: dict[str, Json], output: list[Json]) -> Iterator[bytes]:
    events = ResponsesEvents()
    begun: dict[str, Json] = {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    done: dict[str, Json] = {"completed_at": None} if "completed_at" in whole else {}
    yield from events.begin({**whole, **begun, **done})
    for item in output:
        yield from events.item(object_in(item))
    yield from events.end(whole)


def _gemini(read: _Read, include_usage: bool) -> Iterator[bytes]:
    whole = read[1]
    candidates = whole.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        raise MalformedMessage("the reply has no candidates")
    head = {key: value for key, value in whole.items() if key not in ("candidates", "usageMetadata")}
    return _gemini_chunks(head, object_in(candidates[0]), whole.get("usageMetadata"))


def _gemini_chunks(head: dict[str, Json], candidate: dict[str, Json], usage: Json) -> Iterator[bytes]:
    """Yields text in pieces, every other part in a chunk of its own, and the end with an empty text."""

    def chunk(part: Json, **more: Json) -> bytes:
        fields: dict[str, Json] = {**head, "usageMetadata": usage} if more else head
        content: Json = {"parts": [part], "role": "model"}
        return sse(None, json_of({"candidates": [{"content": content, "index": 0, **more}], **fields}))

    parts = object_in(candidate.get("content")).get("parts")
    for part in map(object_in, parts if isinstance(parts, list) else []):
        text = part.get("text")
        if isinstance(text, str) and part.keys() <= {"text", "thought"}:
            yield from (chunk({**part, "text": text[at : at + 3]}) for at in range(0, len(text), 3))
        else:
            yield chunk(part)
    yield chunk({"text": ""}, finishReason=candidate.get("finishReason"))


_WRITERS: Final[Mapping[str, Callable[[_Read, bool], Iterator[bytes]]]] = {
    CHAT: _chat,
    RESPONSES: _responses,
    ANTHROPIC: _anthropic,
    GEMINI.name: _gemini,
}
