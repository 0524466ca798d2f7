"""The gateway's own tools in OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.streaming import SseEvent, event_object, index_of, sse
from recto.formats.tools import OwnTool, added_usage

no_calls: Final[Mapping[str, Json]] = {"tool_choice": "none"}
_LAST: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
_HEAD: Final = ("id", "created_at")
"""Members of the first response that the joined one keeps."""


def definition(tool: OwnTool) -> dict[str, Json]:
    """Returns the tool as an element of `tools`."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.schema),
        "strict": False,
    }


def join(bodies: Sequence[Mapping[str, Json]], names: frozenset[str]) -> dict[str, Json]:
    """Joins complete responses: their items follow each other."""
    usage: dict[str, Json] = {}
    items: list[Json] = []
    for body in bodies:
        usage = added_usage(usage, object_in(body.get("usage")))
        items += _visible_items(body, names)
    head = {key: bodies[0][key] for key in _HEAD if key in bodies[0]}
    joined: dict[str, Json] = {**_without_tools(bodies[-1], names), **head, "output": items}
    return {**joined, "usage": usage} if usage else joined


def rounds(names: frozenset[str]) -> ResponsesRounds:
    """Creates what joins streams."""
    return ResponsesRounds(names)


def _is_own(item: Mapping[str, Json], names: frozenset[str]) -> bool:
    return item.get("type") == "function_call" and item.get("name") in names


def _visible_items(response: Mapping[str, Json], names: frozenset[str]) -> list[Json]:
    output = response.get("output")
    return [item for item in (output if isinstance(output, list) else []) if not _is_own(object_in(item), names)]


def _without_tools(response: Mapping[str, Json], names: frozenset[str]) -> dict[str, Json]:
    """A response repeats the tools of its request: returns it without the gateway's."""
    tools = response.get("tools")
    kept = [tool for tool in (tools if isinstance(tools, list) else []) if object_in(tool).get("name") not in names]
    return {**response, "tools": kept} if isinstance(tools, list) else dict(response)


class ResponsesRounds:
    """Joins streams of items."""

    def __init__(self, names: frozenset[str]) -> None:
        self.has_own_calls = False
        self._names = names
        self._head: dict[str, Json] = {}
        self._spent: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._is_later = False
        self._items: list[Json] = []
        """Visible items of the rounds before."""
        self._done: list[Json] = []
        """Visible items of this round."""
        self._places: dict[int, int | None] = {}
        """The index that each item of the round has for the client; `None` for a call of an own tool."""
        self._count = 0
        self._number = 0

    def ends_round(self, event: SseEvent) -> bool:
        """Whether the event has the complete response."""
        return _kind(event, event_object(event) or {}) in _LAST

    def observe(self, event: SseEvent) -> None:
        """Takes an event that is not passed on."""
        data = event_object(event) or {}
        if _kind(event, data) in _LAST:
            response = object_in(data.get("response"))
            self._usage = object_in(response.get("usage"))
            self._done = _visible_items(response, self._names) or self._done

    def next_round(self) -> None:
        """Begins the next round."""
        self._spent = added_usage(self._spent, self._usage)
        self._items += self._done
        self._usage, self._done, self._places = {}, [], {}
        self.has_own_calls, self._is_later = False, True

    def feed(self, event: SseEvent) -> list[bytes]:
        """Takes an event. Returns what is passed on of it."""
        data = event_object(event)
        if data is None:
            return [event.raw]
        passed = self._passed(_kind(event, data), event, data)
        if passed is None:
            return []
        if "sequence_number" in passed:
            passed["sequence_number"] = self._number
        self._number += 1
        return [event.raw] if passed == data else [sse(event.name or None, json_of(passed))]

    def _passed(self, kind: str, event: SseEvent, data: dict[str, Json]) -> dict[str, Json] | None:
        """Returns the data of an event as the client gets it; `None` if it does not."""
        if kind in _LAST:
            self.observe(event)
            return {**data, "response": self._whole(object_in(data.get("response")))}
        if isinstance(response := data.get("response"), dict):
            if self._is_later:
                return None
            self._head = self._head or {key: response[key] for key in _HEAD if key in response}
            return {**data, "response": _without_tools(response, self._names)}
        if (index := index_of(data.get("output_index"))) is not None:
            place = self._place(kind, index, object_in(data.get("item")))
            return None if place is None else {**data, "output_index": place}
        return dict(data)

    def _place(self, kind: str, index: int, item: dict[str, Json]) -> int | None:
        if kind == "response.output_item.added" or (index not in self._places and item):
            if _is_own(item, self._names):
                self.has_own_calls, self._places[index] = True, None
            else:
                self._places[index], self._count = self._count, self._count + 1
        place = self._places.get(index, index)
        if kind == "response.output_item.done" and place is not None:
            self._done.append(item)
        return place

    def _whole(self, response: dict[str, Json]) -> dict[str, Json]:
        """Returns the last response with the items of all rounds, and their usage."""
        joined: dict[str, Json] = {**_without_tools(response, self._names), **self._head}
        if self._is_later or self.has_own_calls:
            joined["output"] = [*self._items, *self._done]
        if self._spent:
            joined["usage"] = added_usage(self._spent, self._usage)
        return joined


def _kind(event: SseEvent, data: Mapping[str, Json]) -> str:
    return text_in(data.get("type")) or event.name
