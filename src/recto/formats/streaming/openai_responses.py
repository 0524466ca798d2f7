"""The answer of a Responses stream: its items as they were finished, or the whole response where that came.

An item counts from `output_item.done`: what seals its reasoning is not in it before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from recto.errors import InputError
from recto.formats.json_spans import Json, member_at
from recto.formats.message import RESPONSES, fields_of, is_object, json_of, object_in, text_in
from recto.formats.response import ProviderReply, Usage, read_reply, usage_in
from recto.formats.sse import SseEvent
from recto.formats.streaming._common import TextBuffer, error_in, event_object, index_of

_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_GROWING: Final = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.function_call_arguments.delta": "arguments",
}
_FINISHED: Final = {
    "response.output_text.done": "text",
    "response.refusal.done": "refusal",
    "response.function_call_arguments.done": "arguments",
}


@dataclass(slots=True)
class _Open:
    """An item that was begun."""

    fields: dict[str, Json]
    parts: dict[int, dict[str, Json]] = field(default_factory=dict)
    texts: dict[tuple[str, int], TextBuffer] = field(default_factory=dict)
    done: bytes | None = None


class ItemCapture:
    """One answer of the Responses API."""

    def __init__(self, most: int) -> None:
        self.ended = False
        self.failed = ""
        self.overflowed = False
        self.id = ""
        self._left = most
        self._items: dict[int, _Open] = {}
        self._final: ProviderReply | None = None
        self._stop = ""
        self._usage: Usage | None = None

    def take(self, event: SseEvent) -> None:
        """Notes what an event says."""
        found = event_object(event)
        if found is None:
            return
        self._left -= len(event.data)
        self.overflowed = self.overflowed or self._left < 0
        kind = text_in(found.get("type")) or event.name
        response = object_in(found.get("response"))
        self.id = self.id or text_in(response.get("id"))
        if kind == "error" or found.get("error"):
            self.failed = error_in(found.get("error") or found) or "the provider reported an error"
        elif kind in _LAST:
            self._finish(event.data, response)
        elif not self.overflowed:
            self._item_event(kind, found, event.data)

    def reply(self) -> ProviderReply:
        """The answer, whole."""
        if self._final is not None and len(self._final.messages) >= len(self._items):
            return self._final
        messages = tuple(_raw(item) for item in self._in_order())
        return ProviderReply(messages=messages, stop_reason=self._stop, usage=self._usage)

    def partial(self) -> ProviderReply:
        """What of the answer can be kept though the rest of it never came."""
        kept = [raw for item in self._in_order() if (raw := _kept(item)) is not None]
        while kept and fields_of(kept[-1]).get("type") == "reasoning":
            kept.pop()  # what it led to never came, and alone it is refused
        return ProviderReply(messages=tuple(kept), stop_reason=self._stop, usage=self._usage)

    def _in_order(self) -> list[_Open]:
        return [self._items[index] for index in sorted(self._items)]

    def _finish(self, text: str, response: dict[str, Json]) -> None:
        self.ended = True
        self._usage = usage_in(response.get("usage"))
        reason = text_in(object_in(response.get("incomplete_details")).get("reason"))
        self._stop = reason or text_in(response.get("status"))
        if self._stop == "failed" or response.get("error"):
            self.failed = error_in(response.get("error")) or "the response failed"
        try:
            self._final = read_reply(_member(text, "response"), RESPONSES)
        except InputError:
            self._final = None

    def _item_event(self, kind: str, found: dict[str, Json], text: str) -> None:
        item = object_in(found.get("item"))
        place = index_of(found.get("output_index"))
        if kind == "response.output_item.added":
            self._items[len(self._items) if place is None else place] = _Open(item)
            return
        if kind == "response.output_item.done" and item:
            place = max(self._items, default=0) if place is None else place
            opened = self._items.setdefault(place, _Open(item))
            opened.done, opened.fields = _member(text, "item"), item
            opened.texts.clear()
            return
        opened_at = self._items.get(max(self._items, default=0) if place is None else place)
        if opened_at is not None and opened_at.done is None:
            _take_piece(opened_at, kind, found)


def _take_piece(item: _Open, kind: str, found: dict[str, Json]) -> None:
    at = index_of(found.get("content_index")) or 0
    if kind == "response.content_part.added":
        item.parts.setdefault(at, object_in(found.get("part")))
    elif kind in _GROWING:
        item.texts.setdefault((_GROWING[kind], at), TextBuffer()).add(text_in(found.get("delta")))
    elif kind in _FINISHED:
        key = _FINISHED[kind]
        item.texts[key, at] = TextBuffer(text_in(found.get(key)))


def _raw(item: _Open) -> bytes:
    if item.done is not None:
        return item.done
    fields = dict(item.fields)
    content: list[Json] = []
    for key, at in sorted(item.texts, key=lambda place: place[1]):
        text = str(item.texts[key, at])
        if key == "arguments":
            fields["arguments"] = text
        else:
            made: dict[str, Json] = {"type": "output_text" if key == "text" else "refusal"}
            content.append({**made, **item.parts.get(at, {}), key: text})
    if content:
        fields["content"] = content
    return json_of(fields).encode()


def _kept(item: _Open) -> bytes | None:
    """An item as it may stay when the stream was cut; nothing where it is broken."""
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
    found = member_at(text, 0, key)
    return b"{}" if found is None else text[found.value.start : found.value.end].encode()
