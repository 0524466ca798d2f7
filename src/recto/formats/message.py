"""What the three formats share: how a text, an image or something unknown becomes a `Part`.

It knows no format. What nobody here understands is still weighed, so that no tokens are missed.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from recto.errors import MalformedJson, MalformedMessage
from recto.formats.image_size import size_of_base64
from recto.formats.json_spans import Json, parse, text_of
from recto.transcript.entries import Role

PartKind = Literal["text", "thinking", "call", "result", "image", "media", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One piece of a message that costs tokens."""

    kind: PartKind
    text: str = ""
    """What a person or a search would read: prose, a call's arguments, a result's output."""
    name: str = ""
    """The tool, for a call (and for a result, where the format says it)."""
    call_id: str = ""
    """What ties a result to its call."""
    size: tuple[int, int] | None = None
    """Width and height of an image in pixels, where the data is at hand."""
    detail: str = ""
    """The detail level asked for an image."""
    weight: int = 0
    """Bytes of opaque data that are sent with the part (signatures, encrypted reasoning, base64)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message, read."""

    role: Role
    parts: tuple[Part, ...]
    name: str = ""
    """The speaker's name, where the format carries one."""

    @property
    def calls(self) -> tuple[Part, ...]:
        """The tool calls it makes."""
        return tuple(part for part in self.parts if part.kind == "call")

    @property
    def results(self) -> tuple[Part, ...]:
        """The tool results it carries."""
        return tuple(part for part in self.parts if part.kind == "result")

    @property
    def text(self) -> str:
        """What search sees: every piece of text, tool names and arguments included."""
        return "\n".join(
            f"{part.name} {part.text}".strip()
            for part in self.parts
            if part.text or (part.name and part.kind == "call")
        )


CHAT: Final = "openai.chat"
RESPONSES: Final = "openai.responses"
ANTHROPIC: Final = "anthropic.messages"


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
"""The roles people write, in Recto's words."""

CACHE_MARKS: Final = frozenset({"cache_control", "prompt_cache_breakpoint"})
"""Members that only steer a provider's cache: they say nothing and cost nothing."""

_OPAQUE = re.compile(r"[A-Za-z0-9+/=_-]{256,}")


_SHORT, _SMALL = 1024, 16 * 1024
"""Bytes up to which a message that was read is remembered, among many or among few: a prompt is looked at again with
every call, and one that is longer than what is remembered finds nothing of it."""


def fields_of(raw: bytes) -> dict[str, Json]:
    """The members of the one object that the bytes are. To be read, never changed: others may hold the same one."""
    if len(raw) <= _SHORT:
        return _short(raw)
    return _longer(raw) if len(raw) <= _SMALL else _fields(raw)


def _fields(raw: bytes) -> dict[str, Json]:
    value = parse(text_of(raw))
    if not isinstance(value, dict):
        raise MalformedMessage(f"it is {_a_kind_of(value)}, not an object")
    return value


_short = lru_cache(maxsize=16_384)(_fields)
_longer = lru_cache(maxsize=1024)(_fields)


def stated_role(fields: dict[str, Json]) -> Role:
    """The role an object gives itself. A word nobody knows is taken for someone outside: a user."""
    role = fields.get("role")
    if role is None:
        raise MalformedMessage("it has no 'role'")
    if not isinstance(role, str):
        raise MalformedMessage(f"its 'role' is {_a_kind_of(role)}, not a word")
    return ROLES.get(role, "user")


def text_in(value: Json) -> str:
    """The value where it is text, else nothing."""
    return value if isinstance(value, str) else ""


def object_in(value: Json) -> dict[str, Json]:
    """The value where it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def weight_in(value: Json) -> int:
    """Bytes of an opaque value."""
    if value is None or isinstance(value, bool | int | float):
        return 0
    return len(value) if isinstance(value, str) else len(as_json(value))


def as_json(value: Json) -> str:
    """A value as text, for looking at: never sent, never stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def image(source: Json, detail: Json = "") -> Part:
    """An image given as a data URL, as bare base64 or as an address."""
    url = text_in(source)
    if url.startswith("data:"):
        url = url[url.find(",") + 1 :]
    elif url.startswith(("http:", "https:", "file:", "gs:", "s3:")):
        return Part(kind="image", text=url, detail=text_in(detail))
    return Part(kind="image", size=size_of_base64(url), detail=text_in(detail), weight=len(url))


def other(value: Json) -> Part:
    """Something nobody here understands: its words as text, its long encoded strings as weight."""
    readable, weight = _without_opaque(value)
    text = readable if isinstance(readable, str) else as_json(readable)
    return Part(kind="other", text=text, weight=weight)


def leftovers(fields: dict[str, Json], known: frozenset[str]) -> Iterable[Part]:
    """Members the format does not know. They are weighed and not read: labels are not what a message says."""
    weight = sum(weight_in(value) for key, value in fields.items() if key not in known and value)
    return (Part(kind="other", weight=weight),) if weight else ()


def result(call_id: str, name: str, content: Iterable[Part]) -> list[Part]:
    """A tool's result: its text in one part, its images and files each in one of their own."""
    texts, rest, weight = [], [], 0
    for part in content:
        if part.kind in ("image", "media"):
            rest.append(part)
        else:
            texts.append(part.text)
            weight += part.weight
    return [Part(kind="result", text="\n".join(texts), name=name, call_id=call_id, weight=weight), *rest]


def _without_opaque(value: Json) -> tuple[Json, int]:
    match value:
        case str():
            return ("", len(value)) if _OPAQUE.fullmatch(value) else (value, 0)
        case list():
            pairs = [_without_opaque(item) for item in value]
            return [item for item, _ in pairs], sum(weight for _, weight in pairs)
        case dict():
            found = {key: _without_opaque(item) for key, item in value.items() if key not in CACHE_MARKS}
            return {key: item for key, (item, _) in found.items()}, sum(weight for _, weight in found.values())
        case _:
            return value, 0


def _a_kind_of(value: Json) -> str:
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


def json_of(value: Json) -> str:
    """A value as JSON that can be encoded: lone surrogates are escaped, a number beyond every float is the largest."""
    try:
        source = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        source = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    try:
        source.encode()
    except UnicodeEncodeError:
        return json.dumps(_finite(value), separators=(",", ":"))
    return source


def value_in(text: str) -> Json:
    """The one JSON value that a text is. Raises `MalformedJson` where it is none."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise MalformedJson("a lone surrogate stands in it") from None
    return parse(text_of(raw))


def is_object(text: str) -> bool:
    """Whether a text is one JSON object and nothing else. One that is complete cannot go on."""
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
