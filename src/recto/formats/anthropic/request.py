"""Requests, responses and errors of Anthropic's Messages API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from recto.errors import MalformedMessage
from recto.formats.errors import OVERFLOW, OVERLOADED, THREAD_UNSUPPORTED, sentence, usual_status
from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.response import ProviderReply, provider_error, source_at, usage_in
from recto.formats.streaming import sse
from recto.text.lazy_re import lazy_re

_SESSION_SUFFIX = lazy_re(r"_session_([0-9a-fA-F-]{8,64})$", re.ASCII)


def session_id(fields: Mapping[str, Json]) -> str:
    """Returns the session id that Claude Code puts into the user id: in a JSON object, in older versions at its end."""
    user = text_in(object_in(fields.get("metadata")).get("user_id"))
    if user.startswith("{") and len(user) <= 2_000:
        try:
            parsed: Json = json.loads(user)
        except (ValueError, RecursionError):
            return ""
        return text_in(object_in(parsed).get("session_id"))
    match = _SESSION_SUFFIX.search(user[:500])
    return match[1] if match else ""


def conversation_id(fields: Mapping[str, Json]) -> str:
    """Nothing: the server stores no conversations for clients of this API."""
    return ""


def names_history(fields: Mapping[str, Json]) -> bool:
    """Never: a request brings its full history."""
    return False


def read_response(text: str, fields: dict[str, Json]) -> ProviderReply:
    """Reads a response body. The message is its content with the role; the other members are not sent back."""
    if not isinstance(fields.get("content"), list | str):
        raise MalformedMessage(f"the reply has no content{provider_error(fields)}")
    return ProviderReply(
        messages=(b'{"role": "assistant", "content": %s}' % source_at(text, "content"),),
        stop_reason=text_in(fields.get("stop_reason")),
        usage=usage_in(fields.get("usage")),
        id=text_in(fields.get("id")),
    )


_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def status_for(code: str) -> int:
    """Returns the HTTP status of an error code. Anthropic has its own for an overloaded server."""
    return 529 if code == OVERLOADED else usual_status(code)


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
    return json_of(_error(status, code, message, details, request_id)).encode()


def overflow(tokens: int, limit: int, *, detail: str = "", request_id: str = "") -> tuple[int, bytes]:
    """Returns the status and body for a prompt that is too long."""
    message = f"prompt is too long: {tokens} tokens > {limit} maximum"
    message = f"{message}. {sentence(detail)}" if detail else message
    return 400, error_body(400, OVERFLOW, message, request_id=request_id)


def stream_error(code: str, message: str, sequence: int = 0, *, response: Mapping[str, Json] | None = None) -> bytes:
    """Builds the last event of a stream that fails."""
    return sse("error", json_of(_error(status_for(code), code, message, None, "")))


def unsupported_request(fields: Mapping[str, Json], request_id: str) -> tuple[int, bytes] | None:
    """Refuses threads: Anthropic's client then resends its full history by itself."""
    if fields.get("thread") is None:
        return None
    details: dict[str, Json] = {"error_code": THREAD_UNSUPPORTED, "unsupported": ["thread"]}
    message = "Threads are not held here; send the whole history without 'thread'."
    return 400, error_body(400, THREAD_UNSUPPORTED, message, details=details, request_id=request_id)


def _error(
    status: int, code: str, message: str, details: Mapping[str, Json] | None, request_id: str
) -> dict[str, Json]:
    fallback = "api_error" if status >= 500 else "invalid_request_error"
    all_details: dict[str, Json] = {"error_code": code, **(details or {})}
    error: dict[str, Json] = {"type": _TYPES.get(status, fallback), "message": message, "details": all_details}
    return {"type": "error", "error": error, "request_id": request_id or None}
