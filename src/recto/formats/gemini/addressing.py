"""Addresses of Gemini's API, which hold the model and whether the response is streamed.

The gateway reads both from the body, as other formats have them there: they are put in front of its members when a
request arrives, and taken out again when one is sent to an upstream, which is always asked for server-sent events. A
client that did not ask for them gets its stream as a JSON array.

The rest of the API is passed on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from recto.errors import InputError
from recto.formats.address import PassedAddress, RequestAddress
from recto.formats.json_spans import TextEdit, apply_edits, members, quoted, removals
from recto.formats.message import text_in, value_in
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


def read(path: str, query: str) -> RequestAddress | None:
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


def passed(path: str) -> PassedAddress | None:
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


def address(body: bytes, query: str) -> tuple[str, str, bytes]:
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
