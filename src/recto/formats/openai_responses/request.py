"""Requests, responses and errors of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recto.errors import MalformedMessage
from recto.formats.errors import MALFORMED, openai_error_body, openai_overflow, usual_status
from recto.formats.json_spans import Json, elements
from recto.formats.message import json_of, object_in, text_in
from recto.formats.response import ProviderReply, provider_error, source_at, usage_in
from recto.formats.streaming import DONE, sse

STORED_HISTORY: Final = frozenset({"previous_response_id", "conversation"})
"""Members that name history on the server."""


def session_id(fields: Mapping[str, Json]) -> str:
    """Returns the session id that a client gives in `client_metadata` (Codex) or in `metadata`."""
    own = text_in(object_in(fields.get("client_metadata")).get("session_id"))
    return own or text_in(object_in(fields.get("metadata")).get("session_id"))


def conversation_id(fields: Mapping[str, Json]) -> str:
    """Returns the id of the conversation that a request names."""
    conversation = fields.get("conversation")
    return text_in(conversation) or text_in(object_in(conversation).get("id"))


def names_history(fields: Mapping[str, Json]) -> bool:
    """Whether the request refers to a previous response, a conversation, or a stored prompt."""
    return any(map(fields.get, (*STORED_HISTORY, "prompt")))


def read_response(text: str, fields: dict[str, Json]) -> ProviderReply:
    """Reads a response body: its output items are the messages."""
    output = fields.get("output")
    if not isinstance(output, list):
        raise MalformedMessage(f"the reply has no output{provider_error(fields)}")
    stop = text_in(object_in(fields.get("incomplete_details")).get("reason")) or text_in(fields.get("status"))
    source = source_at(text, "output").decode()
    items = tuple(source[span.start : span.end].encode() for span in elements(source))
    return ProviderReply(
        messages=items, stop_reason=stop, usage=usage_in(fields.get("usage")), id=text_in(fields.get("id"))
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
    return openai_overflow(tokens, limit, param="input", detail=detail)


def stream_error(code: str, message: str, sequence: int = 0, *, response: Mapping[str, Json] | None = None) -> bytes:
    """Builds the last events of a stream that fails.

    Client libraries pass an `error` event on to the program like any other event and keep waiting for the end of the
    stream, which is `response.failed`. `response` is the response object that the stream began with, if it did.
    """
    error: dict[str, Json] = {"type": "error", "code": code, "message": message, "param": None}
    error["sequence_number"] = sequence
    events = sse("error", json_of(error))
    if response is not None:
        failed: dict[str, Json] = {**response, "status": "failed", "error": {"code": code, "message": message}}
        last: dict[str, Json] = {"type": "response.failed", "sequence_number": sequence + 1, "response": failed}
        events += sse("response.failed", json_of(last))
    return events + sse(None, DONE)


def unsupported_request(fields: Mapping[str, Json], request_id: str) -> tuple[int, bytes] | None:
    """Refuses background responses: the gateway does not store responses for clients to fetch later."""
    if fields.get("background") is not True:
        return None
    message = "'background' answers are not kept here; ask for a stream instead."
    status = usual_status(MALFORMED)
    return status, openai_error_body(status, MALFORMED, message)
