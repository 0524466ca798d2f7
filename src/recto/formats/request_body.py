"""Opens a request body, and replaces its messages.

Everything except the array of messages stays exactly as the client wrote it, and so does every message that is put
back unchanged. Unknown members are forwarded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import compress, count
from operator import ne

from recto.errors import MalformedJson, MalformedMessage
from recto.formats.format import BodyKeys, Format
from recto.formats.json_spans import (
    Json,
    JsonSpan,
    Member,
    array_at,
    elements_after,
    members,
    members_after,
    text_of,
    value_at,
)
from recto.formats.message import text_in
from recto.formats.registry import format_named
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import Role

_EMPTY_OBJECT = lazy_re(r"[ \t\r\n]*\{[ \t\r\n]*\}[ \t\r\n]*")
_END = lazy_re(r"[ \t\r\n]*\}[ \t\r\n]*")
_MAX_BETWEEN = 32 * 1024
"""Bytes between two parts of a body that are known, up to which it is looked at how they are nested."""


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
    _roles: tuple[Role, ...] | MalformedMessage = field(repr=False)
    """The role of each message, or why a message has none."""
    _before: Mapping[str, tuple[Json, bytes]] = field(repr=False)
    """The members before the messages, parsed, with the source of those that are passed on."""
    _start: int | None = field(repr=False)
    """Where the messages begin, in bytes; `None` if the body has none."""
    _ends: tuple[int, ...] = field(repr=False)
    """Where each message ends; empty if the messages are one string."""
    _stop: int = field(repr=False)
    """Where all messages end."""

    def with_messages(self, messages: Sequence[bytes]) -> bytes:
        """Returns the body with other messages. Leading messages that are unchanged keep their spacing."""
        if tuple(messages) == self.messages:
            return self.raw
        if self._start is None:
            return self._with_member(messages)
        unchanged = self._unchanged(messages)
        separator = self._separator()
        if not unchanged:
            return b"".join((self.raw[: self._start], b"[", separator.join(messages), b"]", self.raw[self._stop :]))
        rest = [piece for message in messages[unchanged:] for piece in (separator, message)]
        before = memoryview(self.raw)[: self._ends[unchanged - 1]]  # most of a long body, which is copied once
        return b"".join((before, *rest, b"]", self.raw[self._stop :]))

    def common_messages(self, raw: bytes) -> int:
        """How many messages another body begins with too, byte for byte with everything before them."""
        own, ends = memoryview(self.raw), self._ends  # its slices are no copies
        if not ends or not isinstance(self._roles, tuple):
            return 0
        same, least, most = 0, 0, len(ends)
        if self.begins(raw):
            return most
        while least < most:
            count = (least + most + 1) // 2
            end = ends[count - 1]
            if raw.startswith(own[same:end], same):
                least, same = count, end
            else:
                most = count - 1
        return least

    def begins(self, raw: bytes) -> bool:
        """Whether another body begins with all messages of this one and everything before them."""
        return bool(self._ends) and raw.startswith(memoryview(self.raw)[: self._ends[-1]])

    def common_end(self, raw: bytes, count: int) -> int:
        """How many bytes from the end of the array of messages on are the end of that of another body, too.

        The other body begins with `count` messages of this one. 0 if there are none, if much is new between the two
        parts, or if what is new ends inside of a string, an object or an array of its own.
        """
        end = memoryview(self.raw)[self._stop - 1 :]
        start, stop = self._ends[count - 1], len(raw) - len(end)
        is_same = start <= stop <= start + _MAX_BETWEEN and raw.endswith(end)
        return len(end) if is_same and _is_level(raw[start:stop]) else 0

    @property
    def ends(self) -> tuple[int, ...]:
        """Where, in bytes, each message ends; empty if the messages are one string."""
        return self._ends

    def _unchanged(self, messages: Sequence[bytes]) -> int:
        if not self._ends:
            return 0
        differing = compress(count(), map(ne, messages, self.messages))  # for every request: no loop
        return next(differing, min(len(messages), len(self.messages)))

    def _separator(self) -> bytes:
        if len(self._ends) < 2:
            return b", "
        between = self.raw[self._ends[0] : self._ends[1] - len(self.messages[1])]
        return b"," + between[between.index(b",") + 1 :]

    def _with_member(self, messages: Sequence[bytes]) -> bytes:
        at = self.raw.index(b"{") + 1
        comma = b"" if _EMPTY_OBJECT.fullmatch(self.raw.decode()) else b", "
        member = f'"{self.format.body.messages}": '.encode() + render(messages)
        return self.raw[:at] + member + comma + self.raw[at:]

    @property
    def roles(self) -> tuple[Role, ...]:
        """The role of each message. Raises `MalformedMessage`."""
        if isinstance(self._roles, MalformedMessage):
            raise self._roles
        return self._roles


def open_body(raw: bytes, wire: str, *, shallow: bool = False) -> Body:
    """Parses a request body. `shallow` skips the check of the nesting depth, if the caller did it already.

    Raises `MalformedJson` or `MalformedMessage`.
    """
    format = format_named(wire)
    keys = format.body
    text = text_of(raw, shallow=shallow)
    spans: Sequence[JsonSpan] = ()

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
    members = {key: _with_source(text, member, keys) for key, member in by_key.items() if key != keys.messages}
    start = None if value is None else len(text[: value.start].encode())
    stop = len(raw) if value is None else len(raw) - len(text[value.end :].encode())
    if value is not None and isinstance(value.value, str):
        message = f'{{"role": "user", "content": {text[value.start : value.end]}}}'.encode()
        return _body(format, raw, members, {}, start, [message], (), stop, ("user",))
    messages = [text[span.start : span.end].encode() for span in spans]
    ends = _ends_of(spans, messages, start or 0, 0 if value is None else value.start)
    before: dict[str, tuple[Json, bytes]] = {}
    for key in by_key:
        if key == keys.messages:
            break
        before[key] = members[key]
    return _body(format, raw, members, before, start, messages, ends, stop, _roles(spans, format))


def reopen_body(raw: bytes, known: Body, count: int, end_bytes: int = 0) -> Body:
    """Parses a body that begins like another up to and including its first `count` messages (`common_messages`).

    Only what follows is parsed, and of that not the last `end_bytes`, which are known too (`common_end`). The result is
    the same as that of `open_body`. The nesting depth is not checked.

    Raises `MalformedJson` or `MalformedMessage`; positions are counted from the end of the known messages.
    """
    format, keys = known.format, known.format.body
    at = known._ends[count - 1]
    text = text_of(raw[at : len(raw) - end_bytes + 1] if end_bytes else raw[at:], shallow=True)
    spans, end = elements_after(text, 0)
    if end_bytes and end < len(text):  # the array ends earlier, so what follows it is not the same
        return reopen_body(raw, known, count)
    new = [text[span.start : span.end].encode() for span in spans]
    messages = (*known.messages[:count], *new)
    ends = (*known._ends[:count], *_ends_of(spans, new, at, 0))
    roles = _roles(spans, format)
    roles = (*known.roles[:count], *roles) if isinstance(roles, tuple) else roles
    if end_bytes:
        stop = len(raw) - end_bytes + 1
        return replace(known, raw=raw, messages=messages, _roles=roles, _ends=ends, _stop=stop)
    by_key = envelope_rest(text, end, {*known._before, keys.messages})
    members = {**known._before, **{key: _with_source(text, member, keys) for key, member in by_key.items()}}
    stop = len(raw) - len(text[end:].encode())
    return _body(format, raw, members, known._before, known._start, messages, ends, stop, roles)


def _is_level(raw: bytes) -> bool:
    """Whether as many brackets are closed as are opened in a part of a JSON text, and every string ends."""
    pieces = raw.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
    outside = b"".join(pieces[::2])
    opened, closed = outside.count(b"[") + outside.count(b"{"), outside.count(b"]") + outside.count(b"}")
    return len(pieces) % 2 == 1 and opened == closed


def _body(  # noqa: PLR0913, PLR0917  # the parts of a body
    format: Format,
    raw: bytes,
    members: Mapping[str, tuple[Json, bytes]],
    before: Mapping[str, tuple[Json, bytes]],
    start: int | None,
    messages: Sequence[bytes],
    ends: Sequence[int],
    stop: int,
    roles: tuple[Role, ...] | MalformedMessage,
) -> Body:
    system = members.get(format.body.system) if format.body.system else None
    return Body(
        format=format,
        raw=raw,
        model=text_in(members["model"][0]) if "model" in members else "",
        system=None if system is None else system[1],
        tools=members["tools"][1] if "tools" in members else None,
        messages=tuple(messages),
        fields={key: value for key, (value, _) in members.items()},
        _roles=roles,
        _before=before,
        _start=start,
        _ends=tuple(ends),
        _stop=stop,
    )


def _ends_of(spans: Sequence[JsonSpan], messages: Sequence[bytes], at: int, start: int) -> list[int]:
    """Where each element ends in bytes; `at` is the byte at the character `start`. What is between them is ASCII."""
    ends: list[int] = []
    for span, message in zip(spans, messages, strict=True):
        at += span.start - start + len(message)
        start = span.end
        ends.append(at)
    return ends


def _roles(spans: Sequence[JsonSpan], format: Format) -> tuple[Role, ...] | MalformedMessage:
    try:
        return tuple(_role(span.value, format) for span in spans)
    except MalformedMessage as error:
        return error


def _with_source(text: str, member: Member, keys: BodyKeys) -> tuple[Json, bytes]:
    """The value of a member, and its source where that is passed on."""
    span = member.value
    kept = member.key in ("tools", keys.system)
    return span.value, text[span.start : span.end].encode() if kept else b""


def render(contents: Iterable[bytes]) -> bytes:
    """Joins messages into one JSON array without changing them."""
    return b"[" + b", ".join(contents) + b"]"


def envelope(text: str, read: Callable[[str, str, int], JsonSpan] | None = None) -> dict[str, Member]:
    """Returns the members of an object by key. Raises `MalformedJson` for a repeated key: parsers disagree about it."""
    by_key, end = _by_key(members(text, read=read), set())
    closed = _EMPTY_OBJECT.fullmatch(text) if end is None else _END.fullmatch(text, end)
    if closed is None:
        raise MalformedJson("something follows the value", end)
    return by_key


def envelope_rest(text: str, at: int, taken: Set[str]) -> dict[str, Member]:
    """Returns the members of an object that follow one whose value ends at a position; `taken` are those before."""
    by_key, end = _by_key(members_after(text, at), taken)
    if _END.fullmatch(text, at if end is None else end) is None:
        raise MalformedJson("something follows the value", end)
    return by_key


def _by_key(found: Iterable[Member], taken: Set[str]) -> tuple[dict[str, Member], int | None]:
    by_key: dict[str, Member] = {}
    end = None
    for member in found:
        if member.key in by_key or member.key in taken:
            raise MalformedJson(f"the key '{member.key}' is twice in one object", member.start)
        by_key[member.key] = member
        end = member.value.end
    return by_key, end


def _refuse_no_list(value: JsonSpan | None, keys: BodyKeys) -> None:
    if value is None or isinstance(value.value, list) or (isinstance(value.value, str) and keys.accepts_text):
        return
    raise MalformedMessage(f"'{keys.messages}' is not a list of messages")


def _role(value: Json, format: Format) -> Role:
    if not isinstance(value, dict):
        raise MalformedMessage("a message is not an object")
    return format.messages.role_of(value)
