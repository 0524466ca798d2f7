"""Errors as each protocol's own clients expect them: bodies, and events for streams that have begun.

Clients read more than the status: some retry by the type, some shorten their history by the words of an overflow, one
sends its whole history again by the code of a refused thread. It knows these shapes. When to refuse is decided
elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES, json_of
from recto.formats.sse import DONE, sse

OVERFLOW: Final = "context_length_exceeded"
UNAUTHORISED: Final = "invalid_api_key"
FORBIDDEN: Final = "forbidden"
NOT_FOUND: Final = "not_found"
TOO_LARGE: Final = "request_too_large"
RATE_LIMITED: Final = "rate_limit_exceeded"
OVERLOADED: Final = "overloaded"
TIMED_OUT: Final = "timeout"
UPSTREAM_FAILED: Final = "upstream_failed"
MALFORMED: Final = "malformed_request"
CANNOT_CROSS: Final = "cannot_cross_formats"
THREAD_UNSUPPORTED: Final = "thread_unsupported_request"
INTERNAL: Final = "internal_error"

_STATUSES: Final[Mapping[str, int]] = {
    OVERFLOW: 400,
    UNAUTHORISED: 401,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    TOO_LARGE: 413,
    RATE_LIMITED: 429,
    OVERLOADED: 503,
    TIMED_OUT: 504,
    UPSTREAM_FAILED: 502,
    MALFORMED: 400,
    CANNOT_CROSS: 400,
    THREAD_UNSUPPORTED: 400,
    INTERNAL: 500,
}
_OPENAI_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES: Final[Mapping[int, str]] = {
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


def status_for(wire: str, code: str) -> int:
    """The HTTP status of a refusal. Anthropic has one of its own for a server that has too much to do."""
    if wire == ANTHROPIC and code == OVERLOADED:
        return 529
    return _STATUSES.get(code, 500)


def refusal(
    wire: str,
    status: int,
    code: str,
    message: str,
    *,
    param: str | None = None,
    details: Mapping[str, Json] | None = None,
    request_id: str = "",
) -> bytes:
    """The body of an error."""
    if wire == ANTHROPIC:
        return json_of(_anthropic(_anthropic_type(status), code, message, details, request_id)).encode()
    error: dict[str, Json] = {"message": message, "type": _openai_type(status), "param": param, "code": code}
    if details:
        error["details"] = dict(details)
    return json_of({"error": error}).encode()


def overflow(wire: str, tokens: int, room: int, *, told: str = "", request_id: str = "") -> tuple[int, bytes]:
    """The status and body that say a prompt is too long, in the words that clients look for."""
    if wire == ANTHROPIC:
        message = f"prompt is too long: {tokens} tokens > {room} maximum"
    else:
        message = (
            f"This model's maximum context length is {room} tokens. However, your messages resulted in {tokens} "
            "tokens. Please reduce the length of the messages."
        )
    message = f"{message} {told}" if told else message
    param = "input" if wire == RESPONSES else "messages"
    return 400, refusal(wire, 400, OVERFLOW, message, param=param, request_id=request_id)


def thread_unsupported(unsupported: Sequence[str] = ("thread",), *, request_id: str = "") -> tuple[int, bytes]:
    """Says that threads are not held here. Anthropic's client then sends its whole history again, by itself."""
    details: dict[str, Json] = {"error_code": THREAD_UNSUPPORTED, "unsupported": list(unsupported)}
    message = "Threads are not held here; send the whole history without 'thread'."
    return 400, refusal(ANTHROPIC, 400, THREAD_UNSUPPORTED, message, details=details, request_id=request_id)


def stream_refusal(
    wire: str, code: str, message: str, sequence: int = 0, *, response: Mapping[str, Json] | None = None
) -> bytes:
    """The error as the last events of a stream that has begun.

    In Responses an `error` event alone is handed to the program as one event among others, and a client that waits for
    the end would wait; `response.failed` is that end. `response` is what was told at the beginning, if it was.
    """
    status = status_for(wire, code)
    if wire == ANTHROPIC:
        return sse("error", json_of(_anthropic(_anthropic_type(status), code, message, None, "")))
    if wire == CHAT:
        return sse(None, refusal(CHAT, status, code, message))
    error: dict[str, Json] = {"type": "error", "code": code, "message": message, "param": None}
    error["sequence_number"] = sequence
    events = sse("error", json_of(error))
    if response is not None:
        whole: dict[str, Json] = {**response, "status": "failed", "error": {"code": code, "message": message}}
        last: dict[str, Json] = {"type": "response.failed", "sequence_number": sequence + 1, "response": whole}
        events += sse("response.failed", json_of(last))
    return events + sse(None, DONE)


def _anthropic(
    kind: str, code: str, message: str, details: Mapping[str, Json] | None, request_id: str
) -> dict[str, Json]:
    told: dict[str, Json] = {"error_code": code, **(details or {})}
    error: dict[str, Json] = {"type": kind, "message": message, "details": told}
    return {"type": "error", "error": error, "request_id": request_id or None}


def _openai_type(status: int) -> str:
    fallback = "server_error" if status >= 500 else "invalid_request_error"
    return _OPENAI_TYPES.get(status, fallback)


def _anthropic_type(status: int) -> str:
    fallback = "api_error" if status >= 500 else "invalid_request_error"
    return _ANTHROPIC_TYPES.get(status, fallback)
