"""Captures Responses streams: the items as they are completed, or the final response if it arrives.

An item is complete only with `output_item.done`: earlier events lack the encrypted content of its reasoning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from recto.errors import InputError
from recto.formats.json_spans import member_at
from recto.formats.message import fields_of, is_object, json_of, object_in, text_in
from recto.formats.openai_responses.request import read_response
from recto.formats.response import ProviderReply, usage_in
from recto.formats.streaming import MAX_CAPTURED_BYTES, TextBuffer, code_in, error_in, event_object, index_of

if TYPE_CHECKING:
    from recto.formats.json_spans import Json
    from recto.formats.response import Usage
    from recto.formats.streaming import SseEvent

_LAST_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_DELTAS: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
}
_FINAL_TEXTS: Final = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.function_call_arguments.done": "arguments",
}


class _StartedItem(Struct):
    """An item that has started."""

    fields: dict[str, Json]
    parts: dict[int, dict[str, Json]] = field(default_factory=dict)
    texts: dict[tuple[str, int], TextBuffer] = field(default_factory=dict)
    done: bytes | None = None


class ResponsesCapture:
    """Captures one response of the Responses API."""

    def __init__(self, max_bytes: int = MAX_CAPTURED_BYTES) -> None:
        self.ended = False
        self.failed = ""
        self.code = ""
        self.overflowed = False
        self.id = ""
        self._remaining = max_bytes
        self._items: dict[int, _StartedItem] = {}
        self._final: ProviderReply | None = None
        self._stop = ""
        self._usage: Usage | None = None

    def take(self, event: SseEvent) -> None:
        """Records an event."""
        data = event_object(event)
        if data is None:
            return
        self._remaining -= len(event.data)
        self.overflowed = self.overflowed or self._remaining < 0
        kind = text_in(data.get("type")) or event.name
        response = object_in(data.get("response"))
        self.id = self.id or text_in(response.get("id"))
        if kind == "error" or data.get("error"):
            self.failed = error_in(data.get("error") or data) or "the provider reported an error"
            self.code = code_in(data.get("error") or data)
        elif kind in _LAST_EVENTS:
            self._finish(event.data, response)
        elif not self.overflowed:
            self._item_event(kind, data, event.data)

    def reply(self) -> ProviderReply:
        """Returns the complete response."""
        if self._final is not None and len(self._final.messages) >= len(self._items):
            return self._final
        messages = tuple(_raw(item) for item in self._in_order())
        return ProviderReply(messages=messages, stop_reason=self._stop, usage=self._usage, id=self.id)

    def partial(self) -> ProviderReply:
        """Returns what can be stored of a response that was cut."""
        items = [raw for item in self._in_order() if (raw := _storable(item)) is not None]
        while items and fields_of(items[-1]).get("type") == "reasoning":
            items.pop()  # the output it led to is missing, and reasoning alone is rejected
        return ProviderReply(messages=tuple(items), stop_reason=self._stop, usage=self._usage, id=self.id)

    def _in_order(self) -> list[_StartedItem]:
        return [self._items[index] for index in sorted(self._items)]

    def _finish(self, text: str, response: dict[str, Json]) -> None:
        self.ended = True
        self._usage = usage_in(response.get("usage"))
        reason = text_in(object_in(response.get("incomplete_details")).get("reason"))
        self._stop = reason or text_in(response.get("status"))
        if self._stop == "failed" or response.get("error"):
            self.failed = error_in(response.get("error")) or "the response failed"
            self.code = code_in(response.get("error"))
        try:
            source = _member(text, "response").decode()
            self._final = read_response(source, response)
        except InputError:
            self._final = None

    def _item_event(self, kind: str, data: dict[str, Json], text: str) -> None:
        item = object_in(data.get("item"))
        place = index_of(data.get("output_index"))
        if kind == "response.output_item.added":
            self._items[len(self._items) if place is None else place] = _StartedItem(item)
            return
        if kind == "response.output_item.done" and item:
            place = max(self._items, default=0) if place is None else place
            started = self._items.setdefault(place, _StartedItem(item))
            started.done, started.fields = _member(text, "item"), item
            started.texts.clear()
            return
        open_item = self._items.get(max(self._items, default=0) if place is None else place)
        if open_item is not None and open_item.done is None:
            _take_delta(open_item, kind, data)


def _take_delta(item: _StartedItem, kind: str, data: dict[str, Json]) -> None:
    at = index_of(data.get("content_index")) or 0
    if kind == "response.content_part.added":
        item.parts.setdefault(at, object_in(data.get("part")))
    elif kind in _DELTAS:
        item.texts.setdefault((_DELTAS[kind], at), TextBuffer()).add(text_in(data.get("delta")))
    elif kind in _FINAL_TEXTS:
        key = _FINAL_TEXTS[kind]
        item.texts[key, at] = TextBuffer(text_in(data.get(key)))


def _raw(item: _StartedItem) -> bytes:
    if item.done is not None:
        return item.done
    fields = dict(item.fields)
    content: list[Json] = []
    for key, at in sorted(item.texts, key=lambda place: place[1]):
        text = str(item.texts[key, at])
        if key == "arguments":
            fields["arguments"] = text
        else:
            base: dict[str, Json] = {"type": "output_text" if key == "text" else "refusal"}
            content.append({**base, **item.parts.get(at, {}), key: text})
    if content:
        fields["content"] = content
    return json_of(fields).encode()


def _storable(item: _StartedItem) -> bytes | None:
    """Returns an item as it can be stored when the stream was cut; `None` if it is unusable."""
    kind = text_in(item.fields.get("type"))
    if kind == "function_call":
        raw = _raw(item)
        fields = fields_of(raw)
        named = fields.get("call_id") and fields.get("name")
        return raw if named and is_object(text_in(fields.get("arguments"))) else None
    if item.done is not None:
        return item.done
    if kind != "message" or not any(str(text) for text in item.texts.values()):
        return None
    fields = {**fields_of(_raw(item)), "status": "incomplete"}
    return json_of(fields).encode()


def _member(text: str, key: str) -> bytes:
    member = member_at(text, 0, key)
    return b"{}" if member is None else text[member.value.start : member.value.end].encode()
