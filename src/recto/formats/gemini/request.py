"""Requests, responses and errors of Gemini's API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recto.errors import MalformedMessage
from recto.formats.errors import OVERFLOW, usual_status
from recto.formats.json_spans import Json, apply_edits, elements_of, member_at, quoted, set_member
from recto.formats.message import is_object, json_of, object_in, text_in
from recto.formats.response import ProviderReply, provider_error, source_at, usage_in
from recto.formats.sse import sse


def session_id(fields: Mapping[str, Json]) -> str:
    """Nothing: the API has no member for it."""
    return ""


def conversation_id(fields: Mapping[str, Json]) -> str:
    """Nothing: the server stores no conversations for clients of this API."""
    return ""


def names_history(fields: Mapping[str, Json]) -> bool:
    """Never: a request brings its full history."""
    return False


def with_system(system: str, more: str) -> str:
    """Returns the value of `systemInstruction` with text appended."""
    part = f'{{"text": {quoted(more)}}}'
    if system.startswith('"'):
        return f'{{"parts": [{{"text": {system}}}, {part}]}}'
    parts = member_at(system, 0, "parts") if is_object(system) else None
    spans = [] if parts is None else elements_of(system, parts.value)
    if not spans:
        kept = system if is_object(system) else "{}"
        return apply_edits(kept, [set_member(kept, 0, "parts", f"[{part}]")])
    return f"{system[: spans[-1].end]}, {part}{system[spans[-1].end :]}"


def read_response(text: str, fields: dict[str, Json]) -> ProviderReply:
    """Reads a response body. A candidate without parts is no message: the API would not take it back."""
    candidates = fields.get("candidates")
    blocked = text_in(object_in(fields.get("promptFeedback")).get("blockReason"))
    if not isinstance(candidates, list) or not candidates:
        if not blocked and "usageMetadata" not in fields:
            raise MalformedMessage(f"the reply has no candidates{provider_error(fields)}")
        candidates = []
    contents = [_content(text, place, object_in(one)) for place, one in enumerate(candidates)]
    first = object_in(candidates[0]) if candidates else {}
    return ProviderReply(
        messages=tuple(raw for raw in contents[:1] if raw),
        stop_reason=text_in(first.get("finishReason")) or blocked,
        usage=usage_in(fields.get("usageMetadata")),
        id=text_in(fields.get("responseId")),
        alternatives=tuple(raw for raw in contents[1:] if raw),
    )


def _content(text: str, place: int, candidate: dict[str, Json]) -> bytes:
    """Returns the content of a candidate as it came, with its role; empty if it has no parts."""
    content = object_in(candidate.get("content"))
    parts = content.get("parts")
    if not isinstance(parts, list) or not parts:
        return b""
    if content.get("role") == "model":
        return source_at(text, "candidates", place, "content")
    return b'{"role": "model", "parts": %s}' % source_at(text, "candidates", place, "content", "parts")


_STATUSES: Final[Mapping[int, str]] = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


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
    return json_of(_error(status, code, message, details, request_id)).encode()


def overflow(tokens: int, limit: int, *, detail: str = "", request_id: str = "") -> tuple[int, bytes]:
    """Returns the status and body for a prompt that is too long."""
    message = f"The input token count ({tokens}) exceeds the maximum number of tokens allowed ({limit})."
    message = f"{message} {detail}" if detail else message
    return 400, error_body(400, OVERFLOW, message, request_id=request_id)


def stream_error(code: str, message: str, sequence: int = 0, *, response: Mapping[str, Json] | None = None) -> bytes:
    """Builds the last event of a stream that fails."""
    return sse(None, json_of(_error(status_for(code), code, message, None, "")))


def unsupported_request(fields: Mapping[str, Json], request_id: str) -> tuple[int, bytes] | None:
    """Nothing: everything can be passed on."""
    return None


def _error(
    status: int, code: str, message: str, details: Mapping[str, Json] | None, request_id: str
) -> dict[str, Json]:
    fallback = "INTERNAL" if status >= 500 else "INVALID_ARGUMENT"
    metadata: dict[str, Json] = {key: json_of(value) for key, value in (details or {}).items()}
    if request_id:
        metadata["requestId"] = request_id
    info: dict[str, Json] = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": code, "domain": "recto"}
    info |= {"metadata": metadata} if metadata else {}
    return {"error": {"code": status, "message": message, "status": _STATUSES.get(status, fallback), "details": [info]}}
