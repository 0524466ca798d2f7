"""A provider's complete response: its messages, its token usage, and its stop reason."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from recto.formats.json_spans import Json, elements, members
from recto.formats.message import object_in, text_in


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the provider counted them."""

    prompt: int
    """All input tokens, cached or not."""
    output: int
    cache_read: int = 0
    cache_write: int = 0


class ProviderReply(Struct, frozen=True, kw_only=True):
    """A provider's response, parsed."""

    messages: tuple[bytes, ...]
    """What the transcript stores, ready to be sent again: one message, or the items of a Responses response."""
    stop_reason: str
    usage: Usage | None
    id: str = ""
    """The id that the provider gave the response."""
    alternatives: tuple[bytes, ...] = ()
    """Further choices, where the client asked for several: one message each."""


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
    if "promptTokenCount" in fields or "prompt_token_count" in fields:
        return _gemini_usage(fields)
    return None


def _gemini_usage(fields: dict[str, Json]) -> Usage:
    """Thoughts are billed as output, and results of built-in tools as input. Python's client writes snake case."""

    def count(camel: str, snake: str) -> int:
        return _count(fields.get(camel, fields.get(snake)))

    tools = count("toolUsePromptTokenCount", "tool_use_prompt_token_count")
    thoughts = count("thoughtsTokenCount", "thoughts_token_count")
    return Usage(
        prompt=count("promptTokenCount", "prompt_token_count") + tools,
        output=count("candidatesTokenCount", "candidates_token_count") + thoughts,
        cache_read=count("cachedContentTokenCount", "cached_content_token_count"),
    )


def source_at(text: str, *path: str | int) -> bytes:
    """Returns the exact source of the value at a path of keys and indexes, which exists."""
    import msgspec  # noqa: PLC0415  # start-up: only gateways read responses

    found: str | msgspec.Raw = text
    try:
        for step in path:
            if isinstance(step, str):
                found = msgspec.json.decode(found, type=dict[str, msgspec.Raw])[step]
            else:
                found = msgspec.json.decode(found, type=list[msgspec.Raw])[step]
    except msgspec.DecodeError:  # half a character, which other parsers accept
        return _walk(text, path)
    return bytes(found)  # type: ignore[arg-type]  # not the text itself: a path has at least one step


def _walk(text: str, path: Sequence[str | int]) -> bytes:
    """Finds a value as `source_at` does, in any text that was parsed."""
    at, end = 0, len(text)
    for step in path:
        if isinstance(step, str):
            spans = [member.value for member in members(text, at) if member.key == step]
        else:
            spans = list(elements(text, at))[: step + 1]
        at, end, _ = spans[-1]
    return text[at:end].encode()


def provider_error(fields: dict[str, Json]) -> str:
    """Quotes the error of a response body, as a suffix for a message of our own; empty if it has none."""
    message = text_in(object_in(fields.get("error")).get("message"))
    return f"; the provider says: {message}" if message else ""


def _usage(prompt: int, output: int, details: dict[str, Json]) -> Usage:
    read, write = _count(details.get("cached_tokens")), _count(details.get("cache_write_tokens"))
    return Usage(prompt=prompt, output=output, cache_read=read, cache_write=write)


def _count(value: Json) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
