"""Opens a request body, and replaces its messages.

Everything except the array of messages stays exactly as the client wrote it, and so does every message that is put
back unchanged. Unknown members are forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recto.errors import MalformedJson, MalformedMessage
from recto.formats.format import BodyKeys, Format
from recto.formats.json_spans import Json, JsonSpan, Member, array_at, members, text_of, value_at
from recto.formats.message import text_in
from recto.formats.registry import format_named
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import Role

_EMPTY_OBJECT = lazy_re(r"[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
_END = lazy_re(r"[ \t\r\n]*\}[ \t\r\n]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A parsed request body. Its byte fields are exact slices of it."""

    format: Format
    raw: bytes
    model: str
    system: bytes | None
    """The value of the member that holds system text, if the format has one."""
    tools: bytes | None
    messages: tuple[bytes, ...]
    fields: Mapping[str, Json]
    """All members except the messages, parsed. Do not modify them."""
    _text: str = field(repr=False)
    _value: JsonSpan | None = field(repr=False)
    """The position of the messages; `None` if the body has none."""
    _spans: tuple[JsonSpan, ...] = field(repr=False)
    """The position of each message; empty if the messages are one string."""

    def with_messages(self, messages: Sequence[bytes]) -> bytes:
        """Returns the body with other messages. Leading messages that are unchanged keep their spacing."""
        if tuple(messages) == self.messages:
            return self.raw
        if self._value is None:
            return self._with_member(messages)
        tail = self._text[self._value.end :].encode()
        unchanged = self._unchanged(messages)
        separator = self._separator().encode()
        if not unchanged:
            return self._text[: self._value.start].encode() + b"[" + separator.join(messages) + b"]" + tail
        head = self._text[: self._spans[unchanged - 1].end].encode()
        return head + b"".join(separator + message for message in messages[unchanged:]) + b"]" + tail

    def _unchanged(self, messages: Sequence[bytes]) -> int:
        if not self._spans:
            return 0
        pairs = zip(messages, self.messages, strict=False)
        return next(
            (place for place, (new, old) in enumerate(pairs) if new != old), min(len(messages), len(self.messages))
        )

    def _separator(self) -> str:
        if len(self._spans) < 2:
            return ", "
        between = self._text[self._spans[0].end : self._spans[1].start]
        return "," + between[between.index(",") + 1 :]

    def _with_member(self, messages: Sequence[bytes]) -> bytes:
        at = self._text.index("{") + 1
        comma = b"" if _EMPTY_OBJECT.fullmatch(self._text) else b", "
        member = f'"{self.format.body.messages}": '.encode() + render(messages)
        return self._text[:at].encode() + member + comma + self._text[at:].encode()

    @property
    def roles(self) -> list[Role]:
        """The role of each message. Raises `MalformedMessage`."""
        if self.messages and not self._spans:
            return ["user"]
        return [_role(span.value, self.format) for span in self._spans]


def open_body(raw: bytes, wire: str, *, shallow: bool = False) -> Body:
    """Parses a request body. `shallow` skips the check of the nesting depth, if the caller did it already.

    Raises `MalformedJson` or `MalformedMessage`.
    """
    format = format_named(wire)
    keys = format.body
    text = text_of(raw, shallow=shallow)
    spans: tuple[JsonSpan, ...] = ()

    def read(key: str, text: str, at: int) -> JsonSpan:
        nonlocal spans
        if key != keys.messages or text[at : at + 1] != "[":
            return value_at(text, at)
        value, spans = array_at(text, at)  # nearly all of a body is its messages: parse them once
        return value

    by_key = envelope(text, read)
    value = by_key[keys.messages].value if keys.messages in by_key else None
    if value is None and not keys.optional:
        raise MalformedMessage(f"the body has no '{keys.messages}'")
    _refuse_no_list(value, keys)
    messages = [text[span.start : span.end].encode() for span in spans]
    if value is not None and isinstance(value.value, str):
        messages = [f'{{"role": "user", "content": {text[value.start : value.end]}}}'.encode()]
    return Body(
        format=format,
        raw=raw,
        model=text_in(by_key["model"].value.value) if "model" in by_key else "",
        system=_slice(text, by_key.get(keys.system) if keys.system else None),
        tools=_slice(text, by_key.get("tools")),
        messages=tuple(messages),
        fields={key: member.value.value for key, member in by_key.items() if key != keys.messages},
        _text=text,
        _value=value,
        _spans=spans,
    )


def render(contents: Iterable[bytes]) -> bytes:
    """Joins messages into one JSON array without changing them."""
    return b"[" + b", ".join(contents) + b"]"


def envelope(text: str, read: Callable[[str, str, int], JsonSpan] | None = None) -> dict[str, Member]:
    """Returns the members of an object by key. Raises `MalformedJson` for a repeated key: parsers disagree about it."""
    by_key: dict[str, Member] = {}
    end = None
    for member in members(text, read=read):
        if member.key in by_key:
            raise MalformedJson(f"the key '{member.key}' stands twice in one object", member.start)
        by_key[member.key] = member
        end = member.value.end
    closed = _EMPTY_OBJECT.fullmatch(text) if end is None else _END.fullmatch(text, end)
    if closed is None:
        raise MalformedJson("something follows the value", end)
    return by_key


def _refuse_no_list(value: JsonSpan | None, keys: BodyKeys) -> None:
    if value is None or isinstance(value.value, list) or (isinstance(value.value, str) and keys.accepts_text):
        return
    raise MalformedMessage(f"'{keys.messages}' is not a list of messages")


def _role(value: Json, format: Format) -> Role:
    if not isinstance(value, dict):
        raise MalformedMessage("a message is not an object")
    return format.messages.role_of(value)


def _slice(text: str, member: Member | None) -> bytes | None:
    return None if member is None else text[member.value.start : member.value.end].encode()
