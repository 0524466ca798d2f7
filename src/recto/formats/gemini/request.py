"""Addresses, requests, responses and errors of Gemini's API.

Addresses hold the model and whether the response is streamed. The gateway reads both from the body, as other formats
have them there: they are put in front of its members when a request arrives, and taken out again when one is sent to an
upstream, which is always asked for server-sent events. A client that did not ask for them gets its stream as a JSON
array. The rest of the API is passed on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from recto.errors import InputError, MalformedMessage
from recto.formats.address import PassedAddress, RequestAddress
from recto.formats.errors import OVERFLOW, usual_status
from recto.formats.json_spans import (
    Json,
    TextEdit,
    apply_edits,
    elements_of,
    member_at,
    members,
    quoted,
    removals,
    set_member,
)
from recto.formats.message import is_object, json_of, object_in, text_in, value_in
from recto.formats.response import ProviderReply, provider_error, source_at, usage_in
from recto.formats.streaming import sse
from recto.text.lazy_re import lazy_re

ROOT: Final = "/v1beta"
GENERATE: Final = f"{ROOT}/models/{{model}}:generateContent"
COUNT: Final = f"{ROOT}/models/{{model}}:countTokens"
_ADDRESS = lazy_re(r"/v1(?:alpha|beta)?/(?:models/)?([^/].*?):(generateContent|streamGenerateContent|countTokens)")
ROOTS: Final = (ROOT, "/v1alpha", f"/upload{ROOT}", f"/download{ROOT}")
"""Beginnings of paths that only this API has."""
OPEN_PATHS: Final = (f"{ROOT}/models",)
SHARED_PATHS: Final = tuple(
    f"{ROOT}/{name}"
    for name in ("batches", "cachedContents", "corpora", "fileSearchStores", "files", "operations", "tunedModels")
)
_PASSED = lazy_re(r"((?:/upload|/download)?)/v1((?:alpha|beta)?)/(.+)")
_MODEL = lazy_re(r"models(?:/([^/:]+)(?::([A-Za-z]+)|/(operations/.+))?)?")
_KEEPS_NOTHING: Final = frozenset({"embedContent", "batchEmbedContents", "predict"})
_KEEPS: Final = {
    "batchGenerateContent": "batches",
    "asyncBatchEmbedContent": "batches",
    "predictLongRunning": "operations",
}
"""Methods of models that begin what the provider keeps, and where it is found then."""
_HEAD = lazy_re(rb'\s*\{\s*"model":\s*("(?:[^"\\]|\\.)*"),\s*"stream":\s*(true|false)(, ?)?')
_EMPTY = lazy_re(rb"\s*\}")
_OTHER_MEMBER = lazy_re(
    rb'"(?:model|stream|generateContentRequest|[a-z]+_(?:instruction|config|settings|content))"\s*:'
)
"""Members that need a closer look; in nearly all bodies there are none."""
_SNAKE: Final = {
    "system_instruction": "systemInstruction",
    "generation_config": "generationConfig",
    "tool_config": "toolConfig",
    "safety_settings": "safetySettings",
    "cached_content": "cachedContent",
}


def read_address(path: str, query: str) -> RequestAddress | None:
    """Reads an address; `None` if it is no address of a model request."""
    found = _ADDRESS.fullmatch(path)
    if found is None:
        return None
    streams = found[2] == "streamGenerateContent"
    return RequestAddress(
        path=COUNT if found[2] == "countTokens" else GENERATE,
        query=query,
        model=found[1],
        stream=streams,
        as_array=streams and ("alt", "sse") not in parse_qsl(query, keep_blank_values=True),
    )


def read_passed_address(path: str) -> PassedAddress | None:
    """Reads an address of the rest of the API; `None` if other formats may have it, too."""
    found = _PASSED.fullmatch(path)
    if found is None:
        return None
    kind, version, rest = found[1], found[2], found[3]
    of_model = _MODEL.fullmatch(rest)
    method = (of_model and of_model[2]) or ""
    if not version and (kind or method not in _KEEPS_NOTHING | _KEEPS.keys()):
        return None
    model = (of_model and of_model[1]) or ""
    if of_model and of_model[3]:
        return PassedAddress(f"{ROOT}/{of_model[3]}", model)
    if method in _KEEPS:
        return PassedAddress(f"{ROOT}/{_KEEPS[method]}", model)
    if rest.startswith("models") and (kind or of_model is None or method not in _KEEPS_NOTHING | {""}):
        return PassedAddress(f"{ROOT}/{method or 'unknown'}", model)
    return PassedAddress(f"{ROOT}/{rest.replace(':', '/')}", model)


def enclose(address: RequestAddress, body: bytes) -> bytes:
    """Returns a body with the model and the kind of response, and with the names of its members in camel case."""
    if _OTHER_MEMBER.search(body):
        with suppress(InputError, UnicodeDecodeError):  # which is refused when it is parsed
            body = _with_usual_members(body.decode(), address).encode()
    start = body.find(b"{")
    if start < 0 or body[:start].strip():
        return body  # no object, which is refused then, too
    rest = body[start + 1 :]
    comma = b"" if _EMPTY.match(rest) else b", "
    stream = b"true" if address.stream else b"false"
    return b'{"model": %s, "stream": %s%s%s' % (quoted(address.model).encode(), stream, comma, rest)


def _with_usual_members(text: str, address: RequestAddress) -> str:
    """Returns a body with the names of its members in camel case, and without those that the address has."""
    found = list(members(text))
    counted = [member.value for member in found if member.key == "generateContentRequest"]
    if counted and address.path == COUNT:
        text = text[counted[0].start : counted[0].end]
        found = list(members(text))
    renamed = [
        TextEdit(member.start, text.index(":", member.start + len(member.key)), f'"{_SNAKE[member.key]}"')
        for member in found
        if member.key in _SNAKE
    ]
    spans = [(member.start, member.value.end) for member in found]
    return apply_edits(text, [*removals(spans, [member.key in ("model", "stream") for member in found]), *renamed])


def upstream_address(body: bytes, query: str) -> tuple[str, str, bytes]:
    """Returns the path, the query and the body of a request to an upstream."""
    found = _HEAD.match(body)
    if found is not None:
        model, streams = text_in(value_in(found[1].decode())), found[2] == b"true"
        body = b"{" + body[found.end() :]
    else:
        text = body.decode()
        by_key = {member.key: member for member in members(text)}
        model = text_in(by_key["model"].value.value) if "model" in by_key else ""
        streams = "stream" in by_key and by_key["stream"].value.value is True
        spans = [(member.start, member.value.end) for member in by_key.values()]
        body = apply_edits(text, removals(spans, [key in ("model", "stream") for key in by_key])).encode()
    pairs = [(name, value) for name, value in parse_qsl(query, keep_blank_values=True) if name not in ("alt", "key")]
    if streams:
        pairs.append(("alt", "sse"))
    name = model if model.startswith("tunedModels/") else f"models/{model.removeprefix('models/')}"
    method = "streamGenerateContent" if streams else "generateContent"
    return f"{ROOT}/{quote(name, safe='/@.-_')}:{method}", urlencode(pairs), body


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
