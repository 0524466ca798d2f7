"""Arrays of messages, wherever they stand in a JSON document, and messages that stand on lines by themselves.

`{"messages": […]}`, bare arrays, fine-tuning lines, benchmark files with a conversation in every record: each outermost
array that holds messages is a conversation. Everything around the messages goes into the layouts of their neighbours.
One pass over the text finds the arrays, so a document costs the same however deep it hides them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from recto.formats.json_spans import Json, parse, text_of, value_at
from recto.formats.message import ROLES, object_in
from recto.formats.registry import DEFAULT_FORMAT, FORMATS, format_named, own_format
from recto.formats.session_files.jsonl import JsonlLine, Take
from recto.formats.session_files.types import IMPORTED_LINE, SourceEntry, layout_of, microseconds, session_name, told
from recto.transcript.entries import MESSAGE

NAME: Final = "message_arrays"

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]', re.DOTALL)
_BODY_KEYS = frozenset({"content", "tool_calls", "function_call", "refusal", "audio", "reasoning_content"})
_ID_KEYS = ("session_id", "conversation_id", "question_id", "sessionId", "id", "uuid")
_TIME_KEYS = ("ts", "timestamp", "created_at", "time")
_PARTED = "turns"
"""The key under which a list of lists is one conversation, cut into turns, and not many."""

Step: TypeAlias = str | int


@dataclass(slots=True)
class MessageArray:
    """An array of messages."""

    path: tuple[Step, ...]
    start: int
    items: list[tuple[int, int]]
    """Where its objects stand. One of them at least is a message."""


@dataclass(slots=True)
class _Open:
    """A container whose end is not reached yet."""

    start: int
    array: bool
    index: int = 0
    key: str = ""
    at_key: bool = False
    role: str = ""
    kind: str = ""
    has_body: bool = False
    holds_message: bool = False
    items: list[tuple[int, int]] = field(default_factory=list)

    @property
    def step(self) -> Step:
        return self.index if self.array else self.key

    @property
    def is_message(self) -> bool:
        return not self.array and _is_message(self.role, self.kind, self.has_body)


def looks_like_message(fields: dict[str, Json]) -> bool:
    """Whether an object is a message of some format."""
    role, kind = fields.get("role"), fields.get("type")
    return _is_message(
        role if isinstance(role, str) else "",
        kind if isinstance(kind, str) else "",
        not _BODY_KEYS.isdisjoint(fields),
    )


def find_arrays(text: str) -> list[MessageArray]:
    """The outermost arrays that hold messages, in order. The text must be valid JSON."""
    found: list[MessageArray] = []
    top = _Open(-1, array=False)
    stack = [top]
    for token in _TOKEN.finditer(text):
        sign = text[token.start()]
        if sign == '"':
            if not top.array:
                _note(top, token.group())
        elif sign == ",":
            top.index += 1
            top.at_key = not top.array
        elif sign == ":":
            top.at_key = False
        elif sign in "[{":
            top = _Open(token.start(), array=sign == "[", at_key=sign == "{")
            stack.append(top)
        else:
            closed = stack.pop()
            top = stack[-1]
            _close(closed, token.end(), stack, found)
    return found


def reader(session: str, wire: str | None = None) -> Take:
    """Reads lines that are each a message, or each hold conversations. `wire` is what the first lines are in."""
    names = _Names()
    wire = wire or DEFAULT_FORMAT.name

    def take(line: JsonlLine) -> list[SourceEntry]:
        nonlocal wire
        text = text_of(line.body)
        whole = parse(text)
        if isinstance(whole, dict) and looks_like_message(whole):
            own = own_format(whole)
            wire = own.name if own else wire
            start, end = text.index("{"), text.rindex("}") + 1
            return _entries(line, text, [(session, [(start, end)])], wire)
        arrays = find_arrays(text)
        if not arrays:
            return [line.as_event(session)]
        label = _id_in(whole) or line.number
        base = session_name(session, label) or session
        return _entries(line, text, names.given(base, whole, arrays))

    return take


def read_document(line: JsonlLine, session: str) -> list[SourceEntry]:
    """The entries of a document, given as one long line; none where it holds no messages."""
    text = text_of(line.body)
    whole = parse(text)
    if isinstance(whole, dict) and looks_like_message(whole):
        return _entries(line, text, [(session, [(text.index("{"), text.rindex("}") + 1)])])
    arrays = find_arrays(text)
    return _entries(line, text, _Names().given(session, whole, arrays)) if arrays else []


def _is_message(role: str, kind: str, has_body: bool) -> bool:
    return (has_body and role in ROLES) or (bool(kind) and _is_item_type(kind))


@lru_cache(maxsize=256)
def _is_item_type(kind: str) -> bool:
    """Whether objects of this `type` are messages without a role in some format."""
    return any(format.messages.is_own_message({"type": kind}) for format in FORMATS.values())


def _note(top: _Open, string: str) -> None:
    """A string in an object: a key, or the value of one that matters."""
    if top.at_key:
        top.key = json.loads(string) if "\\" in string else string[1:-1]
        top.has_body = top.has_body or top.key in _BODY_KEYS
    elif top.key == "role":
        top.role = string[1:-1]
    elif top.key == "type":
        top.kind = string[1:-1]


def _close(closed: _Open, end: int, stack: Sequence[_Open], found: list[MessageArray]) -> None:
    parent = stack[-1]
    if not closed.array:
        if parent.array:
            parent.items.append((closed.start, end))
            parent.holds_message = parent.holds_message or closed.is_message
        return
    if not closed.holds_message:
        return
    while found and found[-1].start > closed.start:  # arrays inside of this one's messages are part of them
        found.pop()
    path = tuple(container.step for container in stack[1:])
    found.append(MessageArray(path, closed.start, closed.items))


def _entries(
    line: JsonlLine, text: str, parts: Sequence[tuple[str, list[tuple[int, int]]]], wire: str | None = None
) -> list[SourceEntry]:
    """An entry for each object of each array; what stands between two goes before the second."""
    entries: list[SourceEntry] = []
    last = parts[-1][1][-1][1]
    at = 0
    for session, items in parts:
        values = [object_in(value_at(text, start).value) for start, _ in items]
        spoken = wire or _wire_of(values)
        for fields, (start, end) in zip(values, items, strict=True):
            before = (line.before if at == 0 else "") + text[at:start]
            after = text[end:] + line.after if end == last else ""
            entries.append(_entry(session, fields, text[start:end].encode(), (before, after), spoken, line.number))
            at = end
    return entries


def _entry(
    session: str, fields: dict[str, Json], content: bytes, around: tuple[str, str], wire: str, number: int
) -> SourceEntry:
    is_message = looks_like_message(fields)
    ts = next((ts for key in _TIME_KEYS if (ts := microseconds(fields.get(key))) is not None), None)
    format = (own_format(fields) or format_named(wire)) if is_message else None
    return SourceEntry(
        session=session,
        role=format.messages.role_of(fields) if format else "event",
        kind=MESSAGE if format else IMPORTED_LINE,
        wire=format.name if format else "",
        content=content,
        ts=ts,
        meta={"line": number, **told(fields, "id", "model", "usage")},
        layout=layout_of(around[0], (0, len(content)), around[1]),
    )


def _wire_of(values: Sequence[dict[str, Json]]) -> str:
    """What a conversation is in: what the first message that could be in one format only is in."""
    return next((own.name for fields in values if (own := own_format(fields))), DEFAULT_FORMAT.name)


@dataclass(slots=True)
class _Names:
    """Names for conversations: the document's, then the way to the array, by ids where there are some."""

    used: dict[str, int] = field(default_factory=dict)

    def given(self, base: str, whole: Json, arrays: Sequence[MessageArray]) -> list[tuple[str, list[tuple[int, int]]]]:
        """Each array's objects under the name of their conversation."""
        if len(arrays) == 1 or any(_is_parted(array.path) for array in arrays):
            name = self._unused(base)
            return [(name, array.items) for array in arrays]
        named = []
        for array in arrays:
            steps = _labels(whole, array.path)
            named.append((self._unused(session_name(base, *steps) or base), array.items))
        return named

    def _unused(self, name: str) -> str:
        count = self.used[name] = self.used.get(name, 0) + 1
        return name if count == 1 else session_name(f"{name}~{count}") or f"{name[:200]}~{count}"


def _is_parted(path: tuple[Step, ...]) -> bool:
    return len(path) >= 2 and path[-2] == _PARTED and isinstance(path[-1], int)


def _labels(whole: Json, path: tuple[Step, ...]) -> Iterator[Step]:
    holder: Json = None
    node = whole
    for step in path:
        inner: Json = None
        if isinstance(step, int) and isinstance(node, list) and step < len(node):
            inner = node[step]
            yield _id_in(inner) or _id_beside(holder, len(node), step) or step
        else:
            inner = object_in(node).get(str(step))
            yield step
        holder, node = node, inner


def _id_in(value: Json) -> str | None:
    fields = object_in(value)
    return next((found for key in _ID_KEYS if isinstance(found := fields.get(key), str) and found), None)


def _id_beside(holder: Json, count: int, place: int) -> str | None:
    """`"sessions": [a, b]` next to `"session_ids": ["x", "y"]`."""
    for key, value in object_in(holder).items():
        if key.endswith("_ids") and isinstance(value, list) and len(value) == count:
            found = value[place]
            if isinstance(found, str) and found:
                return found
    return None
