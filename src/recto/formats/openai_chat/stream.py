"""Captures Chat streams: assembles one message from the deltas of the first choice.

Vendors stream members of their own, and the assembled message keeps them so that they can be sent back. Texts are
appended, list elements are appended or merged by `index`, and all other values are replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec.structs import replace

from recto.formats.message import is_object, json_of, object_in, text_in
from recto.formats.response import ProviderReply, usage_in
from recto.formats.streaming import (
    DONE,
    MAX_CAPTURED_BYTES,
    RepeatedEvent,
    TextBuffer,
    code_in,
    error_in,
    event_object,
    index_of,
)

if TYPE_CHECKING:
    from recto.formats.json_spans import Json
    from recto.formats.response import Usage
    from recto.formats.streaming import SseEvent

_Growing: TypeAlias = "bool | int | float | str | list[Json] | TextBuffer | _GrowingList | dict[str, _Growing] | None"

_APPENDED: Final = frozenset(
    {"content", "refusal", "reasoning_content", "reasoning", "arguments", "input", "text", "summary", "data"}
) | frozenset({"transcript", "thinking"})
_REPLACED: Final = frozenset({"role", "id", "name", "type", "object", "model", "format", "phase", "channel"})
_APPENDED_ELEMENTS: Final = frozenset({"text", "thinking", "reasoning.text", "reasoning.summary"})


class ChatCapture:
    """Captures one response of Chat Completions."""

    def __init__(self, max_bytes: int = MAX_CAPTURED_BYTES) -> None:
        self.ended = False
        self.failed = ""
        self.code = ""
        self.overflowed = False
        self.id = ""
        self._remaining = max_bytes
        self._message: dict[str, _Growing] | None = None
        self._finish = ""
        self._usage: Usage | None = None
        self._repeated: RepeatedEvent | None = None
        """The form of the last event that only added to a text."""
        self._alternatives: dict[int, dict[str, _Growing]] = {}

    def take(self, event: SseEvent) -> None:
        """Records an event."""
        if self._repeated is not None and self._message is not None:
            text = self._repeated.text_in(event.data)
            if text is not None:
                self._remaining -= len(event.data)
                if self._remaining >= 0:
                    _append_text(self._message, self._repeated.key, text)
                else:
                    self.overflowed = True
                return
        if event.data.strip() == DONE:
            self.ended = True
            return
        data = event_object(event)
        if data is None:
            return
        self._remaining -= len(event.data)
        self.overflowed = self._remaining < 0
        if error := data.get("error"):
            self.failed = error_in(error) or "the provider reported an error"
            self.code = code_in(error)
        self.id = self.id or text_in(data.get("id"))
        if usage := data.get("usage"):
            self._usage = usage_in(usage) or self._usage
        choices = data.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                self._choice(choice)
            elif isinstance(choice, dict) and not self.overflowed:
                place = index_of(choice.get("index")) or 0
                _merge(self._alternatives.setdefault(place, {}), object_in(choice.get("delta")), vendor=True)
        key = _appended_key(data)
        self._repeated = RepeatedEvent.of(event.data, key) if key else None

    def reply(self) -> ProviderReply:
        """Returns the complete response."""
        if self._message is None:
            return ProviderReply(messages=(), stop_reason=self._finish, usage=self._usage, id=self.id)
        others = [self._alternatives[index] for index in sorted(self._alternatives)]
        alternatives = tuple(json_of(_fields(other)).encode() for other in others)
        return replace(self._as_reply(_fields(self._message)), alternatives=alternatives)

    def partial(self) -> ProviderReply:
        """Returns what can be stored of a response that was cut."""
        fields = _fields(self._message or {})
        fields.pop("audio", None)
        calls = fields.pop("tool_calls", None)
        complete: list[Json] = [call for call in calls if _is_complete(call)] if isinstance(calls, list) else []
        if complete:
            fields["tool_calls"] = complete
        if not is_object(text_in(object_in(fields.get("function_call")).get("arguments"))):
            fields.pop("function_call", None)
        if not any(fields.get(key) for key in ("content", "refusal", "tool_calls", "function_call")):
            return ProviderReply(messages=(), stop_reason=self._finish, usage=self._usage, id=self.id)
        return self._as_reply(fields)

    def _as_reply(self, fields: dict[str, Json]) -> ProviderReply:
        return ProviderReply(
            messages=(json_of(fields).encode(),), stop_reason=self._finish, usage=self._usage, id=self.id
        )

    def _choice(self, choice: dict[str, Json]) -> None:
        if self._message is None:
            self._message = {}
        # Some vendors send the complete message in place of a delta
        delta = object_in(choice.get("delta")) or object_in(choice.get("message"))
        if delta and not self.overflowed:
            _merge(self._message, delta, vendor=True)
        if usage := choice.get("usage"):
            self._usage = usage_in(usage) or self._usage
        if finish := text_in(choice.get("finish_reason")):
            self._finish = finish
            self.ended = True


def _appended_key(data: dict[str, Json]) -> str:
    """Returns the key of the text that an event adds to; empty if it has another effect that counts once."""
    choices = data.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or data.get("error") or data.get("usage"):
        return ""
    choice = object_in(choices[0])
    if choice.get("index") not in (None, 0) or choice.get("usage") or choice.get("finish_reason"):
        return ""
    delta = {key: value for key, value in object_in(choice.get("delta")).items() if value is not None}
    if isinstance(delta.get("role"), str):  # vendors repeat it
        del delta["role"]
    key = next(iter(delta)) if len(delta) == 1 else ""
    return key if key in _APPENDED and isinstance(delta[key], str) else ""


class _GrowingList:
    """A list whose elements arrive in pieces."""

    __slots__ = ("_calls", "_places", "elements")

    def __init__(self, *, calls: bool = False) -> None:
        self.elements: list[_Growing] = []
        self._places: dict[int, int] = {}
        self._calls = calls

    def add(self, values: list[Json]) -> None:
        """Adds the elements of one delta. Each continues an existing element or is a new one."""
        for place, value in enumerate(values):
            if not isinstance(value, dict):
                self.elements.append(value)
                continue
            index = index_of(value.get("index"))
            at = self._places.get(index) if index is not None else self._last(value, first=place == 0)
            element = None if at is None else self.elements[at]
            if not isinstance(element, dict) or _is_new_element(element, value):
                element = {}
                self.elements.append(element)
                if index is not None:
                    self._places[index] = len(self.elements) - 1
            _merge(element, value)

    def _last(self, value: dict[str, Json], *, first: bool) -> int | None:
        grows = self._calls or (first and text_in(value.get("type")) in _APPENDED_ELEMENTS)
        return len(self.elements) - 1 if self.elements and grows else None


def _is_new_element(element: dict[str, _Growing], value: dict[str, Json]) -> bool:
    # from some vendors all parallel calls have index 0, and only their ids differ
    return any(value.get(key) and element.get(key) and value[key] != element[key] for key in ("id", "type"))


def _merge(into: dict[str, _Growing], delta: dict[str, Json], *, vendor: bool = False) -> None:
    for key, value in delta.items():
        match value:
            case None:
                pass
            case str() if key in _APPENDED or (vendor and key not in _REPLACED):
                _append_text(into, key, value)
            case str() if key == "name" and isinstance(current := into.get(key), str) and current != value:
                into[key] = current + value  # the name of a call may come in pieces, or repeated in full
            case str():
                into[key] = value or into.get(key, "")
            case list():
                _append_elements(into, key, value)
            case dict():
                current = into.get(key)
                inner: dict[str, _Growing] = current if isinstance(current, dict) else {}
                into[key] = inner
                _merge(inner, value)
            case _:
                into[key] = value


def _append_text(into: dict[str, _Growing], key: str, piece: str) -> None:
    current = into.get(key)
    if isinstance(current, TextBuffer):
        current.add(piece)
    elif isinstance(current, _GrowingList):
        current.add([{"type": "text", "text": piece}])
    else:
        into[key] = TextBuffer(piece)


def _append_elements(into: dict[str, _Growing], key: str, values: list[Json]) -> None:
    current = into.get(key)
    if not isinstance(current, _GrowingList):
        elements = _GrowingList(calls=key == "tool_calls")
        if isinstance(current, TextBuffer) and str(current):
            elements.add([{"type": "text", "text": str(current)}])
        into[key] = current = elements
    current.add(values)


def _fields(message: dict[str, _Growing]) -> dict[str, Json]:
    fields: dict[str, Json] = {"role": "assistant", "content": None}
    fields.update({key: _finished(value) for key, value in message.items()})
    calls = fields.get("tool_calls")
    if isinstance(calls, list):
        fields["tool_calls"] = [_without_index(call) for call in calls]
    return fields


def _without_index(call: Json) -> Json:
    return {key: value for key, value in call.items() if key != "index"} if isinstance(call, dict) else call


def _finished(current: _Growing) -> Json:
    match current:
        case TextBuffer():
            return str(current)
        case _GrowingList():
            return [_finished(element) for element in current.elements]
        case dict():
            return {key: _finished(value) for key, value in current.items()}
        case _:
            return current


def _is_complete(call: Json) -> bool:
    match call:
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return bool(call_id and name) and is_object(arguments)
        case _:
            return False
