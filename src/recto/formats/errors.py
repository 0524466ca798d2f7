"""Error codes of the gateway, their HTTP statuses, and OpenAI's error body.

Clients read more than the status: some retry by error type, some shorten their history when the message names a
context overflow, one resends its full history when it reads a certain code. So each format keeps its own shapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import json_of

OVERFLOW: Final = "context_length_exceeded"
WINDOW_TOO_SMALL: Final = "window_too_small"
"""Not an overflow that clients know: they would shorten their history and ask again, without end."""
UNAUTHORISED: Final = "invalid_api_key"
FORBIDDEN: Final = "forbidden"
NOT_FOUND: Final = "not_found"
TOO_LARGE: Final = "request_too_large"
RATE_LIMITED: Final = "rate_limit_exceeded"
BUDGET_SPENT: Final = "insufficient_quota"
"""OpenAI's code for it: clients that retry after a rate limit give up at this one."""
OVERLOADED: Final = "overloaded"
TIMED_OUT: Final = "timeout"
UPSTREAM_FAILED: Final = "upstream_failed"
MALFORMED: Final = "malformed_request"
CANNOT_CROSS: Final = "cannot_cross_formats"
THREAD_UNSUPPORTED: Final = "thread_unsupported_request"
IDEMPOTENCY_REUSED: Final = "idempotency_key_reused"
IN_PROGRESS: Final = "request_in_progress"
INTERNAL: Final = "internal_error"

_STATUSES: Final[Mapping[str, int]] = {
    OVERFLOW: 400,
    WINDOW_TOO_SMALL: 400,
    UNAUTHORISED: 401,
    FORBIDDEN: 403,
    NOT_FOUND: 404,
    TOO_LARGE: 413,
    RATE_LIMITED: 429,
    BUDGET_SPENT: 429,
    OVERLOADED: 503,
    TIMED_OUT: 504,
    UPSTREAM_FAILED: 502,
    MALFORMED: 400,
    CANNOT_CROSS: 400,
    THREAD_UNSUPPORTED: 400,
    IDEMPOTENCY_REUSED: 422,
    IN_PROGRESS: 409,
    INTERNAL: 500,
}
_OPENAI_TYPES: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


def usual_status(code: str) -> int:
    """Returns the HTTP status of an error code, unless a format has a status of its own for it."""
    return _STATUSES.get(code, 500)


def openai_error_body(
    status: int, code: str, message: str, *, param: str | None = None, details: Mapping[str, Json] | None = None
) -> bytes:
    """Builds an error body as OpenAI's endpoints send it."""
    fallback = "server_error" if status >= 500 else "invalid_request_error"
    kind = code if code == BUDGET_SPENT else _OPENAI_TYPES.get(status, fallback)
    error: dict[str, Json] = {"message": message, "type": kind, "param": param, "code": code}
    if details:
        error["details"] = dict(details)
    return json_of({"error": error}).encode()


def sentence(text: str) -> str:
    """Returns a text with a capital letter at its beginning, to follow another sentence."""
    return text[:1].upper() + text[1:]


def openai_overflow(tokens: int, limit: int, *, param: str, detail: str = "") -> tuple[int, bytes]:
    """Returns the status and body for a prompt that is too long, in the words that OpenAI's clients look for."""
    message = (
        f"This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} "
        "tokens. Please reduce the length of the messages."
    )
    message = f"{message} {sentence(detail)}" if detail else message
    return 400, openai_error_body(400, OVERFLOW, message, param=param)
