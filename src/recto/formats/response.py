"""A provider's whole answer: the messages in it, what it cost, and why it ended. Streams are assembled elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from recto.errors import MalformedMessage
from recto.formats.json_spans import Json, JsonSpan, elements, members, parse, text_of
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES, object_in, text_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them."""

    prompt: int
    """Everything that was sent, read from a cache or not."""
    output: int
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderReply:
    """A provider's answer, read."""

    messages: tuple[bytes, ...]
    """What belongs into the transcript, ready to be sent again: one message, or the items of a response."""
    stop_reason: str
    usage: Usage | None


def read_reply(raw: bytes, wire: str) -> ProviderReply:
    """Reads the body of an answer."""
    text = text_of(raw)
    whole = parse(text)
    if not isinstance(whole, dict):
        raise MalformedMessage("the reply is not an object")
    read = _READERS.get(wire)
    if read is None:
        raise MalformedMessage(f"'{wire}' is not a wire format; known are {', '.join(_READERS)}")
    return read(text, whole)


def usage_in(value: Json) -> Usage | None:
    """A provider's `usage` object, whichever provider's."""
    found = object_in(value)
    output = _count(found.get("output_tokens"))
    if "prompt_tokens" in found:
        output = _count(found.get("completion_tokens"))
        return _usage(_count(found["prompt_tokens"]), output, object_in(found.get("prompt_tokens_details")))
    if "input_tokens_details" in found:
        return _usage(_count(found.get("input_tokens")), output, object_in(found["input_tokens_details"]))
    if "input_tokens" in found:
        # Anthropic counts what came from the cache apart from the rest
        read, write = _count(found.get("cache_read_input_tokens")), _count(found.get("cache_creation_input_tokens"))
        prompt = _count(found["input_tokens"]) + read + write
        return Usage(prompt=prompt, output=output, cache_read=read, cache_write=write)
    return None


def _chat(text: str, whole: dict[str, Json]) -> ProviderReply:
    message = _at(text, "choices", 0, "message")
    if message is None or not isinstance(message.value, dict):
        raise MalformedMessage(f"the reply has no choices[0].message{_told(whole)}")
    finish = _at(text, "choices", 0, "finish_reason")
    return ProviderReply(
        messages=(text[message.start : message.end].encode(),),
        stop_reason=text_in(finish.value) if finish else "",
        usage=usage_in(whole.get("usage")),
    )


def _anthropic(text: str, whole: dict[str, Json]) -> ProviderReply:
    content = _at(text, "content")
    if content is None or not isinstance(content.value, list | str):
        raise MalformedMessage(f"the reply has no content{_told(whole)}")
    message = f'{{"role": "assistant", "content": {text[content.start : content.end]}}}'
    return ProviderReply(
        messages=(message.encode(),),
        stop_reason=text_in(whole.get("stop_reason")),
        usage=usage_in(whole.get("usage")),
    )


def _responses(text: str, whole: dict[str, Json]) -> ProviderReply:
    output = _at(text, "output")
    if output is None or not isinstance(output.value, list):
        raise MalformedMessage(f"the reply has no output{_told(whole)}")
    stop = text_in(object_in(whole.get("incomplete_details")).get("reason")) or text_in(whole.get("status"))
    items = tuple(text[span.start : span.end].encode() for span in elements(text, output.start))
    return ProviderReply(messages=items, stop_reason=stop, usage=usage_in(whole.get("usage")))


def _at(text: str, *path: str | int) -> JsonSpan | None:
    span: JsonSpan | None = None
    at = 0
    for step in path:
        if isinstance(step, str):
            if span is not None and not isinstance(span.value, dict):
                return None
            spans = [member.value for member in members(text, at) if member.key == step]
        else:
            if span is None or not isinstance(span.value, list):
                return None
            spans = list(elements(text, at))[step : step + 1]
        if not spans:
            return None
        span = spans[-1]
        at = span.start
    return span


def _usage(prompt: int, output: int, details: dict[str, Json]) -> Usage:
    read, write = _count(details.get("cached_tokens")), _count(details.get("cache_write_tokens"))
    return Usage(prompt=prompt, output=output, cache_read=read, cache_write=write)


def _count(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _told(whole: dict[str, Json]) -> str:
    message = text_in(object_in(whole.get("error")).get("message"))
    return f"; the provider says: {message}" if message else ""


_READERS: Final[Mapping[str, Callable[[str, dict[str, Json]], ProviderReply]]] = {
    CHAT: _chat,
    RESPONSES: _responses,
    ANTHROPIC: _anthropic,
}
