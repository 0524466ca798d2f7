"""Complete responses of Anthropic's Messages API."""

from __future__ import annotations

from recto.errors import MalformedMessage
from recto.formats.json_spans import Json
from recto.formats.message import text_in
from recto.formats.response import ProviderReply, provider_error, span_at, usage_in


def read_response(text: str, fields: dict[str, Json]) -> ProviderReply:
    """Reads a response body. The message is its content with the role; the other members are not sent back."""
    content = span_at(text, "content")
    if content is None or not isinstance(content.value, list | str):
        raise MalformedMessage(f"the reply has no content{provider_error(fields)}")
    message = f'{{"role": "assistant", "content": {text[content.start : content.end]}}}'
    return ProviderReply(
        messages=(message.encode(),),
        stop_reason=text_in(fields.get("stop_reason")),
        usage=usage_in(fields.get("usage")),
    )
