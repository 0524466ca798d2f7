"""Arrays of messages anywhere in a JSON document, and files with one message per line.

`{"messages": […]}`, bare arrays, fine-tuning lines, benchmark files with a conversation in every record: each outermost
array with messages is a conversation. Everything around the messages goes into the layouts of adjacent entries. One
pass over the text finds all arrays, whatever their depth.
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
from recto.formats.session_files.jsonl import JsonlLine, LineReader
from recto.formats.session_files.types import (
    IMPORTED_LINE,
    SourceEntry,
    layout_of,
    microseconds,
    present_members,
    session_name,
)
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MESSAGE

NAME: Final = "message_arrays"

_TOKEN = lazy_re(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},:]', re.DOTALL)
_BODY_KEYS = frozenset({"content", "parts", "tool_calls", "function_call", "refusal", "audio", "reasoning_content"})
_ID_KEYS = ("session_id", "conversation_id", "question_id", "sessionId", "id", "uuid")
_TIME_KEYS = ("ts", "timestamp", "created_at", "time")
_SPLIT_KEY = "turns"
"""The key of a list of lists that is one conversation split into turns, and not many conversations."""

Step: TypeAlias = str | int


@dataclass(slots=True)
class MessageArray:
    """An array of messages."""

    path: tuple[Step, ...]
    start: int
    items: list[tuple[int, int]]
    """The positions of its objects. At least one of them is a message."""


@dataclass(slots=True)
class _OpenContainer:
    """An object or array whose end is not reached yet."""

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
    """Whether an object is a message in some format."""
    role, kind = fields.get("role"), fields.get("type")
    return _is_message(
        role if isinstance(role, str) else "",
        kind if isinstance(kind, str) else "",
        not _BODY_KEYS.isdisjoint(fields),
    )


def find_arrays(text: str) -> list[MessageArray]:
    """Finds the outermost arrays with messages, in order. The text must be valid JSON."""
    arrays: list[MessageArray] = []
    top = _OpenContainer(-1, array=False)
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
            top = _OpenContainer(token.start(), array=sign == "[", at_key=sign == "{")
            stack.append(top)
        else:
            closed = stack.pop()
            top = stack[-1]
            _close(closed, token.end(), stack, arrays)
    return arrays


def reader(session: str, wire: str | None = None) -> LineReader:
    """Creates a reader for lines that are messages or contain conversations. `wire` is the first lines' format."""
    names = _SessionNames()
    wire = wire or DEFAULT_FORMAT.name

    def read(line: JsonlLine) -> list[SourceEntry]:
        nonlocal wire
        text = text_of(line.body)
        document = parse(text)
        if isinstance(document, dict) and looks_like_message(document):
            own = own_format(document)
            wire = own.name if own else wire
            start, end = text.index("{"), text.rindex("}") + 1
            return _entries(line, text, [(session, [(start, end)])], wire)
        arrays = find_arrays(text)
        if not arrays:
            return [line.as_event(session)]
        label = _id_in(document) or line.number
        base = session_name(session, label) or session
        return _entries(line, text, names.assign(base, document, arrays))

    return read


def read_document(line: JsonlLine, session: str) -> list[SourceEntry]:
    """Reads a document, passed as one line; returns no entries if it contains no messages."""
    text = text_of(line.body)
    document = parse(text)
    if isinstance(document, dict) and looks_like_message(document):
        return _entries(line, text, [(session, [(text.index("{"), text.rindex("}") + 1)])])
    arrays = find_arrays(text)
    return _entries(line, text, _SessionNames().assign(session, document, arrays)) if arrays else []


def _is_message(role: str, kind: str, has_body: bool) -> bool:
    return (has_body and role in ROLES) or (bool(kind) and _is_item_type(kind))


@lru_cache(maxsize=256)
def _is_item_type(kind: str) -> bool:
    """Whether objects of this `type` are messages without a role in some format."""
    return any(format.messages.is_own_message({"type": kind}) for format in FORMATS.values())


def _note(top: _OpenContainer, string: str) -> None:
    """Handles a string in an object: a key, or the value of a key that matters."""
    if top.at_key:
        top.key = json.loads(string) if "\\" in string else string[1:-1]
        top.has_body = top.has_body or top.key in _BODY_KEYS
    elif top.key == "role":
        top.role = string[1:-1]
    elif top.key == "type":
        top.kind = string[1:-1]


def _close(closed: _OpenContainer, end: int, stack: Sequence[_OpenContainer], arrays: list[MessageArray]) -> None:
    parent = stack[-1]
    if not closed.array:
        if parent.array:
            parent.items.append((closed.start, end))
            parent.holds_message = parent.holds_message or closed.is_message
        return
    if not closed.holds_message:
        return
    while arrays and arrays[-1].start > closed.start:  # arrays inside messages of this array are part of them
        arrays.pop()
    path = tuple(container.step for container in stack[1:])
    arrays.append(MessageArray(path, closed.start, closed.items))


def _entries(
    line: JsonlLine, text: str, parts: Sequence[tuple[str, list[tuple[int, int]]]], wire: str | None = None
) -> list[SourceEntry]:
    """Creates an entry for each object of each array; the text between two objects goes before the second."""
    entries: list[SourceEntry] = []
    last = parts[-1][1][-1][1]
    at = 0
    for session, items in parts:
        values = [object_in(value_at(text, start).value) for start, _ in items]
        format_name = wire or _wire_of(values)
        for fields, (start, end) in zip(values, items, strict=True):
            before = (line.before if at == 0 else "") + text[at:start]
            after = text[end:] + line.after if end == last else ""
            entries.append(_entry(session, fields, text[start:end].encode(), (before, after), format_name, line.number))
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
        meta={"line": number, **present_members(fields, "id", "model", "usage")},
        layout=layout_of(around[0], (0, len(content)), around[1]),
    )


def _wire_of(values: Sequence[dict[str, Json]]) -> str:
    """Returns the format of a conversation: that of its first message that can be in one format only."""
    return next((own.name for fields in values if (own := own_format(fields))), DEFAULT_FORMAT.name)


@dataclass(slots=True)
class _SessionNames:
    """Names conversations by the document and the path to the array, with ids in place of indexes if there are any."""

    used: dict[str, int] = field(default_factory=dict)

    def assign(
        self, base: str, document: Json, arrays: Sequence[MessageArray]
    ) -> list[tuple[str, list[tuple[int, int]]]]:
        """Returns the objects of each array with the name of their conversation."""
        if len(arrays) == 1 or any(_is_split(array.path) for array in arrays):
            name = self._unused(base)
            return [(name, array.items) for array in arrays]
        named = []
        for array in arrays:
            steps = _labels(document, array.path)
            named.append((self._unused(session_name(base, *steps) or base), array.items))
        return named

    def _unused(self, name: str) -> str:
        count = self.used[name] = self.used.get(name, 0) + 1
        return name if count == 1 else session_name(f"{name}~{count}") or f"{name[:200]}~{count}"


def _is_split(path: tuple[Step, ...]) -> bool:
    return len(path) >= 2 and path[-2] == _SPLIT_KEY and isinstance(path[-1], int)


def _labels(document: Json, path: tuple[Step, ...]) -> Iterator[Step]:
    holder: Json = None
    node = document
    for step in path:
        inner: Json = None
        if isinstance(step, int) and isinstance(node, list) and step < len(node):
            inner = node[step]
            yield _id_in(inner) or _id_in_sibling(holder, len(node), step) or step
        else:
            inner = object_in(node).get(str(step))
            yield step
        holder, node = node, inner


def _id_in(value: Json) -> str | None:
    fields = object_in(value)
    return next((name for key in _ID_KEYS if isinstance(name := fields.get(key), str) and name), None)


def _id_in_sibling(holder: Json, count: int, place: int) -> str | None:
    """Finds the id of an element in a sibling list: `"sessions": [a, b]` with `"session_ids": ["x", "y"]`."""
    for key, value in object_in(holder).items():
        if key.endswith("_ids") and isinstance(value, list) and len(value) == count:
            name = value[place]
            if isinstance(name, str) and name:
                return name
    return None
