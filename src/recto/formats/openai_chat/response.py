"""Complete responses of Chat Completions."""

from __future__ import annotations

from recto.errors import MalformedMessage
from recto.formats.json_spans import Json
from recto.formats.message import text_in
from recto.formats.response import ProviderReply, provider_error, span_at, usage_in


def read_response(text: str, fields: dict[str, Json]) -> ProviderReply:
    """Reads a response body. Only the first choice counts."""
    message = span_at(text, "choices", 0, "message")
    if message is None or not isinstance(message.value, dict):
        raise MalformedMessage(f"the reply has no choices[0].message{provider_error(fields)}")
    finish = span_at(text, "choices", 0, "finish_reason")
    return ProviderReply(
        messages=(text[message.start : message.end].encode(),),
        stop_reason=text_in(finish.value) if finish else "",
        usage=usage_in(fields.get("usage")),
    )
