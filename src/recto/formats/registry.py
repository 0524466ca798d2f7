"""The wire formats that Recto knows, and the functions that read a message in any of them.

A new format is a package of this folder and one line here. Entries carry the name of their format in the `wire` column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from recto.errors import InputError, MalformedMessage
from recto.formats.anthropic import ANTHROPIC_MESSAGES
from recto.formats.gemini import GEMINI
from recto.formats.json_spans import Json, parse, text_of
from recto.formats.message import MEDIUM_BYTES, SHORT_BYTES, Message, fields_of
from recto.formats.openai_chat import OPENAI_CHAT
from recto.formats.openai_responses import OPENAI_RESPONSES
from recto.formats.response import ProviderReply
from recto.transcript.entries import MESSAGE, Draft

if TYPE_CHECKING:
    from recto.formats.address import PassedAddress, RequestAddress
    from recto.formats.format import Format, HttpApi

FORMATS: Final[Mapping[str, Format]] = {
    format.name: format
    for format in (
        OPENAI_CHAT,
        OPENAI_RESPONSES,
        ANTHROPIC_MESSAGES,
        GEMINI,
    )
}
"""The formats by name."""

DEFAULT_FORMAT: Final = OPENAI_CHAT
"""The format of messages that all formats write alike, and of requests that name no format."""


def format_named(name: str) -> Format:
    """Returns a format by the name that entries carry. Raises `MalformedMessage` for an unknown name."""
    format = FORMATS.get(name) if isinstance(name, str) else None
    if format is None:
        raise MalformedMessage(f"'{name}' is not a wire format; known are {', '.join(FORMATS)}")
    return format


def format_of_provider(provider: str) -> Format:
    """Returns the format in which requests to a provider's models are sent by default."""
    return next((format for format in FORMATS.values() if provider in format.providers), DEFAULT_FORMAT)


def format_at(path: str) -> Format:
    """Returns the format of requests to a path of the gateway; the default one for paths that all formats share."""
    return next((format for format in FORMATS.values() if _is_at(path, format.api)), DEFAULT_FORMAT)


def address_at(path: str, query: str) -> tuple[Format, RequestAddress] | None:
    """Returns the format whose addresses hold more than a path, and what this one holds; `None` for other paths."""
    for format in FORMATS.values():
        if (
            format.api.addressing is not None
            and (address := format.api.addressing.read_address(path, query)) is not None
        ):
            return format, address
    return None


def passed_at(path: str) -> tuple[Format, PassedAddress] | None:
    """Returns the only format that has a path without a conversation, and what it holds; `None` for other paths."""
    for format in FORMATS.values():
        if (
            format.api.addressing is not None
            and (address := format.api.addressing.read_passed_address(path)) is not None
        ):
            return format, address
    return None


def _is_at(path: str, api: HttpApi) -> bool:
    addressing = api.addressing
    shown = addressing is not None and bool(addressing.read_address(path, "") or addressing.read_passed_address(path))
    return shown or path.startswith(api.path) or bool(api.models_path and path.startswith(api.models_path))


def format_of_client(headers: Mapping[str, str]) -> Format:
    """Returns the format that a client's headers show; the default one if they show none."""
    own = (format for format in FORMATS.values() if format.api.client_header and format.api.client_header in headers)
    return next(own, DEFAULT_FORMAT)


def format_of_response(fields: Mapping[str, Json]) -> Format | None:
    """Returns the format of a complete response body; `None` if it is none."""
    return next((format for format in FORMATS.values() if format.response_member in fields), None)


def detect(raw: bytes) -> str:
    """Returns the name of the format of a message. A message that all formats write alike is in the default one."""
    fields = fields_of(raw)
    format = own_format(fields) or DEFAULT_FORMAT
    format.messages.role_of(fields)  # raises for what is no message
    return format.name


_MESSAGE_CHECKS: Final = tuple((format, format.messages.is_own_message) for format in FORMATS.values())
_BLOCK_CHECKS: Final = tuple((format, format.messages.is_own_block) for format in FORMATS.values())


def own_format(fields: dict[str, Json]) -> Format | None:
    """Returns the only format that a message can be in; `None` if several formats write such a message."""
    for format, is_own_message in _MESSAGE_CHECKS:
        if is_own_message(fields):
            return format
    content = fields.get("content")
    if isinstance(content, list):
        for block in content:
            if isinstance(block, dict):
                for format, is_own_block in _BLOCK_CHECKS:
                    if is_own_block(block):
                        return format
    if fields.get("type") == "message":
        return next((format for format in FORMATS.values() if format.messages.is_own_wrapper(fields)), None)
    return None


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
