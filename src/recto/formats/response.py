"""A provider's complete response: its messages, its token usage, and its stop reason."""

from __future__ import annotations

from dataclasses import dataclass

from recto.formats.json_spans import Json, JsonSpan, elements, members
from recto.formats.message import object_in, text_in


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the provider counted them."""

    prompt: int
    """All input tokens, cached or not."""
    output: int
    cache_read: int = 0
    cache_write: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderReply:
    """A provider's response, parsed."""

    messages: tuple[bytes, ...]
    """What the transcript stores, ready to be sent again: one message, or the items of a Responses response."""
    stop_reason: str
    usage: Usage | None


def usage_in(value: Json) -> Usage | None:
    """Parses the `usage` object of any provider."""
    fields = object_in(value)
    output = _count(fields.get("output_tokens"))
    if "prompt_tokens" in fields:
        output = _count(fields.get("completion_tokens"))
        return _usage(_count(fields["prompt_tokens"]), output, object_in(fields.get("prompt_tokens_details")))
    if "input_tokens_details" in fields:
        return _usage(_count(fields.get("input_tokens")), output, object_in(fields["input_tokens_details"]))
    if "input_tokens" in fields:
        # Anthropic's `input_tokens` excludes tokens that were read from or written to the cache.
        read, write = _count(fields.get("cache_read_input_tokens")), _count(fields.get("cache_creation_input_tokens"))
        prompt = _count(fields["input_tokens"]) + read + write
        return Usage(prompt=prompt, output=output, cache_read=read, cache_write=write)
    return None


def span_at(text: str, *path: str | int) -> JsonSpan | None:
    """Finds the value at a path of keys and indexes; `None` if the path does not exist."""
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


def provider_error(fields: dict[str, Json]) -> str:
    """Quotes the error of a response body, as a suffix for a message of our own; empty if it has none."""
    message = text_in(object_in(fields.get("error")).get("message"))
    return f"; the provider says: {message}" if message else ""


def _usage(prompt: int, output: int, details: dict[str, Json]) -> Usage:
    read, write = _count(details.get("cached_tokens")), _count(details.get("cache_write_tokens"))
    return Usage(prompt=prompt, output=output, cache_read=read, cache_write=write)


def _count(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
