"""A request body taken apart and put together again.

Everything but the array of messages stays exactly as the client wrote it, and so does every message that is put back
as it was found. The body is opened, not rebuilt: unknown members are none of our business and ride along.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recto.errors import MalformedJson, MalformedMessage
from recto.formats import anthropic, openai_responses
from recto.formats.json_spans import Json, JsonSpan, Member, array_at, members, text_of, value_at
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES, stated_role, text_in
from recto.transcript.entries import Role

_EMPTY_OBJECT = re.compile(r"[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
_END = re.compile(r"[ \t\r\n]*\}[ \t\r\n]*")


@dataclass(frozen=True, slots=True)
class _Keys:
    messages: str
    system: str | None
    optional: bool = False


_KEYS: Final[Mapping[str, _Keys]] = {
    CHAT: _Keys("messages", None),
    RESPONSES: _Keys("input", "instructions", optional=True),
    ANTHROPIC: _Keys("messages", "system"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A request body, opened. What it holds are exact slices of it."""

    wire: str
    raw: bytes
    model: str
    system: bytes | None
    """The value of the member that holds system text, where the format keeps it apart from the messages."""
    tools: bytes | None
    messages: tuple[bytes, ...]
    fields: Mapping[str, Json]
    """All its members but the messages, read. Not to be changed."""
    _text: str = field(repr=False)
    _value: JsonSpan | None = field(repr=False)
    """Where the messages stand; nothing where the body has none."""
    _spans: tuple[JsonSpan, ...] = field(repr=False)
    """Where each message stands; empty where the messages are one text."""

    def with_messages(self, messages: Sequence[bytes]) -> bytes:
        """The body with other messages in the place of its own. Messages at the front that stay keep their spacing."""
        if tuple(messages) == self.messages:
            return self.raw
        if self._value is None:
            return self._with_member(messages)
        tail = self._text[self._value.end :].encode()
        kept = self._kept(messages)
        joint = self._joint().encode()
        if not kept:
            return self._text[: self._value.start].encode() + b"[" + joint.join(messages) + b"]" + tail
        head = self._text[: self._spans[kept - 1].end].encode()
        return head + b"".join(joint + message for message in messages[kept:]) + b"]" + tail

    def _kept(self, messages: Sequence[bytes]) -> int:
        if not self._spans:
            return 0
        pairs = zip(messages, self.messages, strict=False)
        return next(
            (place for place, (new, old) in enumerate(pairs) if new != old), min(len(messages), len(self.messages))
        )

    def _joint(self) -> str:
        if len(self._spans) < 2:
            return ", "
        between = self._text[self._spans[0].end : self._spans[1].start]
        return "," + between[between.index(",") + 1 :]

    def _with_member(self, messages: Sequence[bytes]) -> bytes:
        at = self._text.index("{") + 1
        comma = b"" if _EMPTY_OBJECT.fullmatch(self._text) else b", "
        member = f'"{_KEYS[self.wire].messages}": '.encode() + render(messages)
        return self._text[:at].encode() + member + comma + self._text[at:].encode()

    @property
    def roles(self) -> list[Role]:
        """Who says each of the messages."""
        if self.messages and not self._spans:
            return ["user"]
        return [_role(span.value, self.wire) for span in self._spans]


def open_body(raw: bytes, wire: str, *, shallow: bool = False) -> Body:
    """Takes a request body apart. `shallow` says that somebody has looked already how deep it is nested."""
    keys = _KEYS.get(wire)
    if keys is None:
        raise MalformedMessage(f"'{wire}' is not a wire format; known are {', '.join(_KEYS)}")
    text = text_of(raw, shallow=shallow)
    spans: tuple[JsonSpan, ...] = ()

    def read(key: str, text: str, at: int) -> JsonSpan:
        nonlocal spans
        if key != keys.messages or text[at : at + 1] != "[":
            return value_at(text, at)
        value, spans = array_at(text, at)  # nearly all of a body are its messages
        return value

    found = envelope(text, read)
    value = found[keys.messages].value if keys.messages in found else None
    if value is None and not keys.optional:
        raise MalformedMessage(f"the body has no '{keys.messages}'")
    _refuse_no_list(value, keys.messages)
    messages = [text[span.start : span.end].encode() for span in spans]
    if value is not None and isinstance(value.value, str):
        messages = [f'{{"role": "user", "content": {text[value.start : value.end]}}}'.encode()]
    return Body(
        wire=wire,
        raw=raw,
        model=text_in(found["model"].value.value) if "model" in found else "",
        system=_slice(text, found.get(keys.system) if keys.system else None),
        tools=_slice(text, found.get("tools")),
        messages=tuple(messages),
        fields={key: member.value.value for key, member in found.items() if key != keys.messages},
        _text=text,
        _value=value,
        _spans=spans,
    )


def render(contents: Iterable[bytes]) -> bytes:
    """Messages as one JSON array, each exactly as it is."""
    return b"[" + b", ".join(contents) + b"]"


def envelope(text: str, read: Callable[[str, str, int], JsonSpan] | None = None) -> dict[str, Member]:
    """The members of the one object that the text is, by key. A key twice is refused: readers would disagree."""
    found: dict[str, Member] = {}
    end = None
    for member in members(text, read=read):
        if member.key in found:
            raise MalformedJson(f"the key '{member.key}' stands twice in one object", member.start)
        found[member.key] = member
        end = member.value.end
    closed = _EMPTY_OBJECT.fullmatch(text) if end is None else _END.fullmatch(text, end)
    if closed is None:
        raise MalformedJson("something follows the value", end)
    return found


def _refuse_no_list(value: JsonSpan | None, key: str) -> None:
    if value is None or isinstance(value.value, list) or (isinstance(value.value, str) and key == "input"):
        return
    raise MalformedMessage(f"'{key}' is not a list of messages")


def _role(value: Json, wire: str) -> Role:
    if not isinstance(value, dict):
        raise MalformedMessage("a message is not an object")
    if wire == RESPONSES:
        return openai_responses.role_of(value)
    return anthropic.role_of(value) if wire == ANTHROPIC else stated_role(value)


def _slice(text: str, member: Member | None) -> bytes | None:
    return None if member is None else text[member.value.start : member.value.end].encode()
