"""Parsed messages, their media, and the helpers that all formats parse with.

This module knows no format. Content that no parser understands still becomes a `Part` with its size, so that no tokens
are missed. Images, documents and audio are found in lists of blocks only: a screenshot that is the whole output of a
call cannot be replaced by text.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from recto.errors import MalformedJson, MalformedMessage
from recto.formats.json_spans import Json, apply_edits, elements_of, member_at, parse, removals, text_of
from recto.formats.media_size import pages_in_base64, size_of_base64
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import Role

PartKind = Literal["text", "thinking", "call", "result", "image", "media", "other"]


class Part(Struct, frozen=True, kw_only=True):
    """One piece of a message that costs tokens."""

    kind: PartKind
    text: str = ""
    """The readable content: prose, a call's arguments, a result's output."""
    name: str = ""
    """The tool of a call (and of a result, if the format names it)."""
    call_id: str = ""
    """The id that links a result to its call."""
    size: tuple[int, int] | None = None
    """Width and height of an image in pixels, if the image data is in the message."""
    detail: str = ""
    """The requested detail level of an image."""
    weight: int = 0
    """Bytes of opaque data that are sent with the part (signatures, encrypted reasoning, base64)."""
    failed: bool = False
    """Whether the client marked a result as an error. Formats without such a mark leave it False."""


class Message(Struct, frozen=True, kw_only=True):
    """One message, parsed."""

    role: Role
    parts: tuple[Part, ...]
    name: str = ""
    """The author's name, if the format carries one."""

    @property
    def calls(self) -> tuple[Part, ...]:
        """The tool calls in the message."""
        return tuple([part for part in self.parts if part.kind == "call"])

    @property
    def results(self) -> tuple[Part, ...]:
        """The tool results in the message."""
        return tuple([part for part in self.parts if part.kind == "result"])

    @property
    def text(self) -> str:
        """The searchable text: every text part, including tool names and arguments."""
        return "\n".join(
            [
                f"{part.name} {part.text}".strip()
                for part in self.parts
                if part.text or (part.name and part.kind == "call")
            ]
        )


ROLES: Final[dict[str, Role]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
}
"""Maps the roles of all formats to Recto's roles."""

CACHE_MARKS: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Members that only control a provider's cache. They carry no content and cost no tokens."""

MAX_CACHE_MARKS: Final = 4
"""Cache marks that a provider accepts in one request."""

THINKING: Final = ("thinking", "redacted_thinking")
"""Types of blocks that hold thinking. A tuple, because a `type` from outside may be unhashable."""

REPLY_ONLY: Final = frozenset(
    {"id", "type", "model", "stop_reason", "stop_sequence", "stop_details", "usage", "container", "context_management"}
)
"""Members of an Anthropic response that are not part of the message: clients do not send them back."""

_OPAQUE = re.compile(r"[A-Za-z0-9+/=_-]{256,}")


SHORT_BYTES, MEDIUM_BYTES = 1024, 16 * 1024
"""Sizes in bytes up to which parsed messages are cached: many short ones, fewer medium ones. Every model call parses
the messages of the same prompt again. A prompt with more messages than a cache holds would evict all of its own."""


def fields_of(raw: bytes) -> dict[str, Json]:
    """Parses a JSON object. The result is shared through a cache: do not modify it."""
    if len(raw) <= SHORT_BYTES:
        return _short_fields(raw)
    return _medium_fields(raw) if len(raw) <= MEDIUM_BYTES else _parse_fields(raw)


def copied(fields: dict[str, Json]) -> dict[str, Json]:
    """Copies a parsed object; only strings, numbers and constants are shared. Far cheaper than parsing it again."""
    return {key: value if type(value) is str else _copied(value) for key, value in fields.items()}


def _copied(value: Json) -> Json:
    if isinstance(value, dict):
        return copied(value)
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _parse_fields(raw: bytes) -> dict[str, Json]:
    value = parse(text_of(raw))
    if not isinstance(value, dict):
        raise MalformedMessage(f"it is {_json_type(value)}, not an object")
    return value


_short_fields = lru_cache(maxsize=16_384)(_parse_fields)
_medium_fields = lru_cache(maxsize=1024)(_parse_fields)


def stated_role(fields: Mapping[str, Json]) -> Role:
    """Returns the role in the member `role`. An unknown role counts as the user's, the least trusted one."""
    role = fields.get("role")
    if role is None:
        raise MalformedMessage("it has no 'role'")
    if not isinstance(role, str):
        raise MalformedMessage(f"its 'role' is {_json_type(role)}, not a word")
    return ROLES.get(role, "user")


def text_in(value: Json) -> str:
    """Returns the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def object_in(value: Json) -> dict[str, Json]:
    """Returns the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def weight_in(value: Json) -> int:
    """Returns the size of an opaque value in bytes."""
    if value is None or isinstance(value, bool | int | float):
        return 0
    return len(value) if isinstance(value, str) else len(as_json(value))


def as_json(value: Json) -> str:
    """Serialises a value for display. The result may not be encodable: it is neither sent nor stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def image_part(source: Json, detail: Json = "") -> Part:
    """Creates a part for an image from a data URL, bare base64, or an address."""
    url = text_in(source)
    if url.startswith("data:"):
        url = url[url.find(",") + 1 :]
    elif url.startswith(("http:", "https:", "file:", "gs:", "s3:")):
        return Part(kind="image", text=url, detail=text_in(detail))
    return Part(kind="image", size=size_of_base64(url), detail=text_in(detail), weight=len(url))


def unknown_part(value: Json) -> Part:
    """Creates a part for unknown content: its readable strings as text, long encoded strings as weight."""
    readable, weight = _without_opaque(value)
    text = readable if isinstance(readable, str) else as_json(readable)
    return Part(kind="other", text=text, weight=weight)


def unknown_members(fields: dict[str, Json], known: frozenset[str]) -> Iterable[Part]:
    """Creates a part with the size of members that the format does not know. They are not indexed as text."""
    weight = sum(weight_in(value) for key, value in fields.items() if key not in known and value)
    return (Part(kind="other", weight=weight),) if weight else ()


def result_parts(call_id: str, name: str, content: Iterable[Part], *, failed: bool = False) -> list[Part]:
    """Creates the parts of a tool result: one for all of its text, and one for each image or file."""
    texts, rest, weight = [], [], 0
    for part in content:
        if part.kind in ("image", "media"):
            rest.append(part)
        else:
            texts.append(part.text)
            weight += part.weight
    text = "\n".join(texts)
    return [Part(kind="result", text=text, name=name, call_id=call_id, weight=weight, failed=failed), *rest]


def _without_opaque(value: Json) -> tuple[Json, int]:
    match value:
        case str():
            return ("", len(value)) if _OPAQUE.fullmatch(value) else (value, 0)
        case list():
            pairs = [_without_opaque(item) for item in value]
            return [item for item, _ in pairs], sum(weight for _, weight in pairs)
        case dict():
            split = {key: _without_opaque(item) for key, item in value.items() if key not in CACHE_MARKS}
            return {key: item for key, (item, _) in split.items()}, sum(weight for _, weight in split.values())
        case _:
            return value, 0


def _json_type(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


_ENCODE: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
"""As `json.dumps`, which makes an encoder for every call."""


def json_of(value: Json) -> str:
    """Serialises a value so that it can be encoded: escapes lone surrogates, replaces infinity by the largest float."""
    try:
        source = _ENCODE(value)
    except ValueError:
        source = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    try:
        source.encode()
    except UnicodeEncodeError:
        return json.dumps(_finite(value), separators=(",", ":"))
    return source


def value_in(text: str) -> Json:
    """Parses one JSON value. Raises `MalformedJson`."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise MalformedJson("it contains a lone surrogate") from None
    return parse(text_of(raw))


def is_object(text: str) -> bool:
    """Whether a text is one complete JSON object and nothing else."""
    try:
        return isinstance(value_in(text), dict)
    except MalformedJson:
        return False


def _finite(value: Json) -> Json:
    match value:
        case float() if math.isinf(value):
            return math.copysign(sys.float_info.max, value)
        case list():
            return [_finite(item) for item in value]
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case _:
            return value


_ESCAPE = lazy_re(rb"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)
"""An escape in JSON: a surrogate pair, half of one (the group), or any other."""


def whole_characters(raw: bytes) -> bytes:
    """Replaces each half of a surrogate pair: it is valid JSON, but no client can encode it and providers refuse it."""
    if b"\\ud" not in raw and b"\\uD" not in raw:
        return raw
    whole = _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], raw)
    return raw if whole == raw else whole


def without_empty_calls(raw: bytes) -> bytes:
    """Removes an empty list of tool calls, as a loop that collects a stream writes it: OpenAI refuses it."""
    fields = {name: value for name, value in fields_of(raw).items() if name != "tool_calls"}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def content_blocks(fields: Mapping[str, Json]) -> list[dict[str, Json]]:
    """Returns the content blocks of a message. Content that is a string counts as one text block."""
    content = fields.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def is_blank(block: Json) -> bool:
    """Whether a block is text without visible characters, which Anthropic rejects."""
    return isinstance(block, dict) and block.get("type") == "text" and not text_in(block.get("text")).strip()


def without_blocks(raw: bytes, goes: Callable[[Json], bool]) -> bytes | None:
    """Removes the content blocks for which `goes` is true; returns `None` if none remains.

    A message whose content is a string is returned as it is.
    """
    text = text_of(raw)
    content = member_at(text, 0, "content")
    spans = [] if content is None else elements_of(text, content.value)
    if not spans:
        return raw
    gone = [goes(span.value) for span in spans]
    if all(gone):
        return None
    if not any(gone):
        return raw
    return apply_edits(text, removals([(span.start, span.end) for span in spans], gone)).encode()


def role_defect(fields: Mapping[str, Json]) -> str:
    """Returns why no provider accepts the `role` of a message; empty if one might."""
    role = fields.get("role")
    if isinstance(role, str) and role not in ROLES:
        return f"no provider knows the role {role!r:.40}; roles are {', '.join(ROLES)}"
    return ""


def missing_content(fields: Mapping[str, Json], message: Message) -> str:
    """Returns what a user message lacks that has no content at all; empty for every other message.

    An assistant may say nothing beside its calls, a tool may return nothing, and an empty text or list is content.
    Servers other than the vendors' own accept a system message that says nothing.
    """
    stated = (fields.get("content"), fields.get("parts"))
    if message.role != "user" or message.parts or any(value is not None for value in stated):
        return ""
    return "it has no 'parts'" if "parts" in fields else "it has no 'content'"


def content_defect(fields: Mapping[str, Json]) -> str:
    """Returns why no provider accepts the `role` or the `content` of a message; empty if one might."""
    if wrong := role_defect(fields):
        return wrong
    content = fields.get("content")
    if content is None or isinstance(content, str):
        return ""
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return "its 'content' is neither a text nor a list of parts"
    if fields.get("role") != "assistant" and any(map(_lacks_text, content)):
        return "a part of its 'content' is of type 'text' and has no text"
    return ""


def _lacks_text(part: Json) -> bool:
    fields = object_in(part)
    return fields.get("type") in ("text", "input_text") and not isinstance(fields.get("text"), str)


MediaKind = Literal["image", "document", "audio"]

_MARKS = (
    *(b'"image', b'"input_image"', b'"document"', b'"file"', b'"input_file"', b'"input_audio"'),
    *(b'"inlineData"', b'"inline_data"', b'"fileData"', b'"file_data"'),
)
"""What a message with media contains; most contain none, and are not parsed for it."""
_PREFIXES = (b'"i', b'"file', b'"document"')
"""What every mark begins with: to find none of these takes a third of the time."""
_MAX_DEPTH = 4
"""Blocks in results in messages; nothing is nested deeper."""


class Media(NamedTuple):
    """One image, document or piece of audio in a message."""

    kind: MediaKind
    weight: int
    """Bytes of it in the request; 0 if only an address is sent."""
    size: tuple[int, int] | None
    """Width and height of an image in pixels, if they are known."""
    pages: int = 0
    """Pages of a document, if they are known."""


def media_in(raw: bytes) -> tuple[Media, ...]:
    """Returns the media of a message, in order."""
    if not any(map(raw.__contains__, _PREFIXES)) or not any(map(raw.__contains__, _MARKS)):
        return ()
    return tuple(media for _, _, media in _found(fields_of(raw)))


def with_placeholders(raw: bytes, texts: Mapping[int, str]) -> bytes:
    """Replaces media of a message, by their place in `media_in`, by lines of text."""
    fields = copied(fields_of(raw))
    for place, (blocks, at, _) in enumerate(list(_found(fields))):
        if place in texts:
            blocks[at] = {**_text_type(fields, object_in(blocks[at])), "text": texts[place]}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def _found(value: Json, depth: int = 0) -> Iterator[tuple[list[Json], int, Media]]:
    """Yields each block with media: the list it is in, its place there, and what it holds."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for name in ("content", "output", "parts"):
            if isinstance(value.get(name), list):
                yield from _found(value[name], depth + 1)
    elif isinstance(value, list):
        for at, block in enumerate(value):
            if isinstance(block, dict):
                media = _media(block)
                if media is not None:
                    yield value, at, media
                else:
                    yield from _found(block, depth + 1)


def _media(block: dict[str, Json]) -> Media | None:
    match block.get("type"):
        case "image":
            source = object_in(block.get("source"))
            return _image(source.get("data") or source.get("url"))
        case "image_url" | "input_image":
            given = block.get("image_url")
            return _image(object_in(given).get("url") if isinstance(given, dict) else given)
        case "document":
            source = object_in(block.get("source"))
            return _document(source.get("data")) if source.get("type") != "text" else None
        case "file":
            return _document(object_in(block.get("file")).get("file_data"))
        case "input_file":
            return _document(block.get("file_data"))
        case "input_audio":
            return Media("audio", weight_in(object_in(block.get("input_audio")).get("data")), None)
        case None:
            return _gemini_media(block)
    return None


def _gemini_media(part: dict[str, Json]) -> Media | None:
    data = part.get("inlineData", part.get("inline_data"))
    file = object_in(part.get("fileData", part.get("file_data")))
    fields = object_in(data) or file
    kind = text_in(fields.get("mimeType", fields.get("mime_type")))
    if not fields:
        return None
    if kind.startswith("image/"):
        return _image(fields.get("data")) if data else Media("image", 0, None)
    if kind.startswith(("audio/", "video/")):
        return Media("audio", weight_in(fields.get("data")), None)
    return _document(fields.get("data"))


def _document(data: Json) -> Media:
    return Media("document", weight_in(data), None, pages_in_base64(text_in(data)))


def _image(source: Json) -> Media:
    part = image_part(text_in(source))
    return Media("image", part.weight, part.size)


def _text_type(fields: dict[str, Json], block: dict[str, Json]) -> dict[str, Json]:
    """The type of a text block beside this one: Responses has types of its own, and parts of Gemini have none."""
    if "type" not in block:
        return {}
    if text_in(block.get("type")).startswith("input_") and ("type" in fields or "output" in fields):
        return {"type": "input_text"}
    return {"type": "text"}
