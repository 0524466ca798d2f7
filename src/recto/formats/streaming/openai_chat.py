"""The answer of a Chat stream: one message, put together from the deltas of the first choice.

Vendors stream members of their own. A text grows, a list grows or is told apart by `index`, everything else is
replaced, so that whatever the vendor puts on a message can go back to it.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from recto.formats.json_spans import Json
from recto.formats.message import is_object, json_of, object_in, text_in
from recto.formats.response import ProviderReply, Usage, usage_in
from recto.formats.sse import DONE, SseEvent
from recto.formats.streaming._common import TextBuffer, error_in, event_object, index_of

_Held: TypeAlias = "bool | int | float | str | list[Json] | TextBuffer | _Rows | dict[str, _Held] | None"

_GROWS: Final = frozenset(
    {"content", "refusal", "reasoning_content", "reasoning", "arguments", "input", "text", "summary", "data"}
) | frozenset({"transcript", "thinking"})
_REPLACED: Final = frozenset({"role", "id", "name", "type", "object", "model", "format", "phase", "channel"})
_GROWING_ROWS: Final = frozenset({"text", "thinking", "reasoning.text", "reasoning.summary"})


class DeltaCapture:
    """One answer of Chat Completions."""

    def __init__(self, most: int) -> None:
        self.ended = False
        self.failed = ""
        self.overflowed = False
        self.id = ""
        self._left = most
        self._message: dict[str, _Held] | None = None
        self._finish = ""
        self._usage: Usage | None = None

    def take(self, event: SseEvent) -> None:
        """Notes what an event says."""
        if event.data.strip() == DONE:
            self.ended = True
            return
        found = event_object(event)
        if found is None:
            return
        self._left -= len(event.data)
        self.overflowed = self.overflowed or self._left < 0
        if error := found.get("error"):
            self.failed = error_in(error) or "the provider reported an error"
        self.id = self.id or text_in(found.get("id"))
        self._usage = usage_in(found.get("usage")) or self._usage
        choices = found.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                self._choice(choice)

    def reply(self) -> ProviderReply:
        """The answer, whole."""
        if self._message is None:
            return ProviderReply(messages=(), stop_reason=self._finish, usage=self._usage)
        return self._as_reply(_fields(self._message))

    def partial(self) -> ProviderReply:
        """What of the answer can be kept though the rest of it never came."""
        fields = _fields(self._message or {})
        fields.pop("audio", None)
        calls = fields.pop("tool_calls", None)
        kept: list[Json] = [call for call in calls if _complete(call)] if isinstance(calls, list) else []
        if kept:
            fields["tool_calls"] = kept
        if not is_object(text_in(object_in(fields.get("function_call")).get("arguments"))):
            fields.pop("function_call", None)
        if not any(fields.get(key) for key in ("content", "refusal", "tool_calls", "function_call")):
            return ProviderReply(messages=(), stop_reason=self._finish, usage=self._usage)
        return self._as_reply(fields)

    def _as_reply(self, fields: dict[str, Json]) -> ProviderReply:
        return ProviderReply(messages=(json_of(fields).encode(),), stop_reason=self._finish, usage=self._usage)

    def _choice(self, choice: dict[str, Json]) -> None:
        if self._message is None:
            self._message = {}
        # Some put the whole message where a delta belongs
        delta = object_in(choice.get("delta")) or object_in(choice.get("message"))
        if not self.overflowed:
            _merge(self._message, delta, vendor=True)
        self._usage = usage_in(choice.get("usage")) or self._usage
        if finish := text_in(choice.get("finish_reason")):
            self._finish = finish
            self.ended = True


class _Rows:
    """A list that grows by pieces of its elements."""

    __slots__ = ("_calls", "_places", "rows")

    def __init__(self, *, calls: bool = False) -> None:
        self.rows: list[_Held] = []
        self._places: dict[int, int] = {}
        self._calls = calls

    def add(self, values: list[Json]) -> None:
        """Takes the elements of one delta, each the next piece of one that is there or one more."""
        for place, value in enumerate(values):
            if not isinstance(value, dict):
                self.rows.append(value)
                continue
            index = index_of(value.get("index"))
            at = self._places.get(index) if index is not None else self._last(value, first=place == 0)
            row = None if at is None else self.rows[at]
            if not isinstance(row, dict) or _another(row, value):
                row = {}
                self.rows.append(row)
                if index is not None:
                    self._places[index] = len(self.rows) - 1
            _merge(row, value)

    def _last(self, value: dict[str, Json], *, first: bool) -> int | None:
        grows = self._calls or (first and text_in(value.get("type")) in _GROWING_ROWS)
        return len(self.rows) - 1 if self.rows and grows else None


def _another(row: dict[str, _Held], value: dict[str, Json]) -> bool:
    # parallel calls all come with index 0 from some, and only their ids differ
    return any(value.get(key) and row.get(key) and value[key] != row[key] for key in ("id", "type"))


def _merge(into: dict[str, _Held], delta: dict[str, Json], *, vendor: bool = False) -> None:
    for key, value in delta.items():
        match value:
            case None:
                pass
            case str() if key in _GROWS or (vendor and key not in _REPLACED):
                _grow(into, key, value)
            case str() if key == "name" and isinstance(held := into.get(key), str) and held != value:
                into[key] = held + value  # the name of a call may come in pieces, or again and again
            case str():
                into[key] = value or into.get(key, "")
            case list():
                _lengthen(into, key, value)
            case dict():
                held = into.get(key)
                inner: dict[str, _Held] = held if isinstance(held, dict) else {}
                into[key] = inner
                _merge(inner, value)
            case _:
                into[key] = value


def _grow(into: dict[str, _Held], key: str, piece: str) -> None:
    held = into.get(key)
    if isinstance(held, TextBuffer):
        held.add(piece)
    elif isinstance(held, _Rows):
        held.add([{"type": "text", "text": piece}])
    else:
        into[key] = TextBuffer(piece)


def _lengthen(into: dict[str, _Held], key: str, values: list[Json]) -> None:
    held = into.get(key)
    if not isinstance(held, _Rows):
        rows = _Rows(calls=key == "tool_calls")
        if isinstance(held, TextBuffer) and str(held):
            rows.add([{"type": "text", "text": str(held)}])
        into[key] = held = rows
    held.add(values)


def _fields(message: dict[str, _Held]) -> dict[str, Json]:
    fields: dict[str, Json] = {"role": "assistant", "content": None}
    fields.update({key: _settled(value) for key, value in message.items()})
    calls = fields.get("tool_calls")
    if isinstance(calls, list):
        fields["tool_calls"] = [_without_index(call) for call in calls]
    return fields


def _without_index(call: Json) -> Json:
    return {key: value for key, value in call.items() if key != "index"} if isinstance(call, dict) else call


def _settled(held: _Held) -> Json:
    match held:
        case TextBuffer():
            return str(held)
        case _Rows():
            return [_settled(row) for row in held.rows]
        case dict():
            return {key: _settled(value) for key, value in held.items()}
        case _:
            return held


def _complete(call: Json) -> bool:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return bool(call_id and name) and is_object(arguments)
        case _:
            return False
