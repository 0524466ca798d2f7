"""Complete responses of the Responses API."""

from __future__ import annotations

from recto.errors import MalformedMessage
from recto.formats.json_spans import Json, elements
from recto.formats.message import object_in, text_in
from recto.formats.response import ProviderReply, provider_error, span_at, usage_in


def read_response(text: str, fields: dict[str, Json]) -> ProviderReply:
    """Reads a response body: its output items are the messages."""
    output = span_at(text, "output")
    if output is None or not isinstance(output.value, list):
        raise MalformedMessage(f"the reply has no output{provider_error(fields)}")
    stop = text_in(object_in(fields.get("incomplete_details")).get("reason")) or text_in(fields.get("status"))
    items = tuple(text[span.start : span.end].encode() for span in elements(text, output.start))
    return ProviderReply(messages=items, stop_reason=stop, usage=usage_in(fields.get("usage")))
