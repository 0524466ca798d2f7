"""Requests, responses and errors of OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping

from recto.errors import MalformedMessage
from recto.formats.errors import openai_error_body, openai_overflow, usual_status
from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in
from recto.formats.response import ProviderReply, provider_error, source_at, usage_in
from recto.formats.streaming import sse


def session_id(fields: Mapping[str, Json]) -> str:
    """Returns the session id that a client gives in `metadata`."""
    return text_in(object_in(fields.get("metadata")).get("session_id"))


def conversation_id(fields: Mapping[str, Json]) -> str:
    """Nothing: the server stores no conversations for clients of Chat."""
    return ""


def names_history(fields: Mapping[str, Json]) -> bool:
    """Never: a request brings its full history."""
    return False


def read_response(text: str, fields: dict[str, Json]) -> ProviderReply:
    """Reads a response body. The first choice is the answer."""
    choices = fields.get("choices")
    listed = choices if isinstance(choices, list) else []
    choice = object_in(listed[0]) if listed else {}
    if not isinstance(choice.get("message"), dict):
        raise MalformedMessage(f"the reply has no choices[0].message{provider_error(fields)}")
    return ProviderReply(
        messages=(source_at(text, "choices", 0, "message"),),
        stop_reason=text_in(choice.get("finish_reason")),
        usage=usage_in(fields.get("usage")),
        id=text_in(fields.get("id")),
        alternatives=tuple(
            source_at(text, "choices", place, "message")
            for place in range(1, len(listed))
            if isinstance(object_in(listed[place]).get("message"), dict)
        ),
    )


def status_for(code: str) -> int:
    """Returns the HTTP status of an error code."""
    return usual_status(code)


def error_body(
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: Mapping[str, Json] | None = None,
    request_id: str = "",
) -> bytes:
    """Builds the body of an error response."""
    return openai_error_body(status, code, message, param=param, details=details)


def overflow(tokens: int, limit: int, *, detail: str = "", request_id: str = "") -> tuple[int, bytes]:
    """Returns the status and body for a prompt that is too long."""
    return openai_overflow(tokens, limit, param="messages", detail=detail)


def stream_error(code: str, message: str, sequence: int = 0, *, response: Mapping[str, Json] | None = None) -> bytes:
    """Builds the last event of a stream that fails."""
    return sse(None, openai_error_body(usual_status(code), code, message))


def unsupported_request(fields: Mapping[str, Json], request_id: str) -> tuple[int, bytes] | None:
    """Nothing: the gateway supports every feature of Chat."""
    return None
