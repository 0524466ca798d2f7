"""Wire formats: parsing, editing, validating and converting provider JSON. Untouched bytes go out as they came in.

`FORMATS` lists the formats; each is one object with everything in which providers differ (see `recto.formats.format`).
The functions here take the name of a format, as entries carry it in their `wire` column.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from recto.errors import InputError, MalformedMessage
from recto.formats.canonical import canonical, fingerprint
from recto.formats.format import Format
from recto.formats.json_spans import Json, parse, text_of
from recto.formats.message import MEDIUM_BYTES, SHORT_BYTES, Message, fields_of
from recto.formats.registry import (
    DEFAULT_FORMAT,
    FORMATS,
    address_at,
    detect,
    format_at,
    format_named,
    format_of_client,
    format_of_provider,
    own_format,
    passed_at,
)
from recto.formats.request_body import Body, open_body, render, reopen_body
from recto.formats.response import ProviderReply, Usage
from recto.transcript.entries import MESSAGE, Draft

__all__ = [
    "DEFAULT_FORMAT",
    "FORMATS",
    "Body",
    "Format",
    "ProviderReply",
    "Usage",
    "address_at",
    "canonical",
    "detect",
    "entry_text",
    "fingerprint",
    "format_at",
    "format_named",
    "format_of_client",
    "format_of_provider",
    "open_body",
    "own_format",
    "passed_at",
    "problems",
    "read",
    "read_reply",
    "render",
    "reopen_body",
]


def read(raw: bytes, wire: str) -> Message:
    """Parses a message; short ones are cached. Raises `MalformedJson` or `MalformedMessage`."""
    if len(raw) <= SHORT_BYTES:
        return _read_short(raw, wire)
    return _read_medium(raw, wire) if len(raw) <= MEDIUM_BYTES else _read(raw, wire)


def _read(raw: bytes, wire: str) -> Message:
    return format_named(wire).messages.read(raw)


_read_short = lru_cache(maxsize=16_384)(_read)
_read_medium = lru_cache(maxsize=1024)(_read)


def read_reply(raw: bytes, wire: str) -> ProviderReply:
    """Parses a complete response body. Raises `MalformedJson` or `MalformedMessage`."""
    text = text_of(raw)
    fields = parse(text)
    if not isinstance(fields, dict):
        raise MalformedMessage("the reply is not an object")
    return format_named(wire).read_response(text, fields)


def entry_text(entry: Draft) -> str:
    """Returns the text for display and search. It is always derived from the content, so the two never differ."""
    if entry.kind == MESSAGE:
        try:
            return read(entry.content, entry.wire).text
        except InputError:
            pass  # stored content that cannot be parsed is shown as it is
    return entry.content.decode(errors="replace")


def problems(messages: Sequence[bytes], wire: str) -> list[str]:
    """Describes everything for which a provider would reject these messages; an empty list if it would accept them.

    Only the messages are checked, not system text, tools or other request members, and nothing is repaired. Unknown
    kinds of items and blocks pass.
    """
    format = format_named(wire)
    if not messages:
        return ["there is no message"]
    parsed: list[dict[str, Json]] = []
    for place, raw in enumerate(messages):
        try:
            parsed.append(fields_of(raw))
        except InputError as error:
            return [f"message {place}: {error}"]
    return list(format.validation.problems(parsed))
