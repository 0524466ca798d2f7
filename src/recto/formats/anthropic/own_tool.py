"""The gateway's own tools in Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.streaming import SseEvent, event_object, index_of, sse
from recto.formats.tools import OwnTool, added_usage

no_calls: Final[Mapping[str, Json]] = {"tool_choice": {"type": "none"}}


def definition(tool: OwnTool) -> dict[str, Json]:
    """Returns the tool as an element of `tools`."""
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema)}


def join(bodies: Sequence[Mapping[str, Json]], names: frozenset[str]) -> dict[str, Json]:
    """Joins complete responses: their blocks follow each other."""
    usage: dict[str, Json] = {}
    blocks: list[Json] = []
    has_own = has_other = False
    for body in bodies:
        usage = added_usage(usage, object_in(body.get("usage")))
        content = body.get("content")
        for block in content if isinstance(content, list) else []:
            is_call = object_in(block).get("type") == "tool_use"
            if is_call and object_in(block).get("name") in names:
                has_own = True
            else:
                blocks.append(block)
                has_other = has_other or is_call
    joined: dict[str, Json] = {**bodies[-1], "content": blocks, "usage": usage}
    if "id" in bodies[0]:
        joined["id"] = bodies[0]["id"]
    if has_own and not has_other and joined.get("stop_reason") == "tool_use":
        joined["stop_reason"] = "end_turn"
    return joined


def rounds(names: frozenset[str]) -> AnthropicRounds:
    """Creates what joins streams."""
    return AnthropicRounds(names)


class AnthropicRounds:
    """Joins streams of blocks."""

    def __init__(self, names: frozenset[str]) -> None:
        self.has_own_calls = False
        self._names = names
        self._spent: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._is_later = False
        self._has_other_calls = False
        self._places: dict[int, int | None] = {}
        """The index that each block of the round has for the client; `None` for a call of an own tool."""
        self._count = 0

    def ends_round(self, event: SseEvent) -> bool:
        """Whether the event has the reason why the model stopped."""
        data = event_object(event) or {}
        return data.get("type") == "message_delta" and bool(object_in(data.get("delta")).get("stop_reason"))

    def observe(self, event: SseEvent) -> None:
        """Takes an event that is not passed on."""
        data = event_object(event) or {}
        usage = object_in(object_in(data.get("message")).get("usage")) or object_in(data.get("usage"))
        # counts are running totals: a later value replaces an earlier one
        self._usage.update({key: value for key, value in usage.items() if value is not None})

    def next_round(self) -> None:
        """Begins the next round."""
        self._spent = added_usage(self._spent, self._usage)
        self._usage, self._places = {}, {}
        self.has_own_calls, self._is_later = False, True

    def feed(self, event: SseEvent) -> list[bytes]:
        """Takes an event. Returns what is passed on of it."""
        data = event_object(event)
        if data is None:
            return [event.raw]
        self.observe(event)
        match text_in(data.get("type")):
            case "message_start":
                return [] if self._is_later else [event.raw]
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                return self._block(event, data)
            case "message_delta":
                return self._last(event, data)
            case _:
                return [event.raw]

    def _block(self, event: SseEvent, data: dict[str, Json]) -> list[bytes]:
        index = index_of(data.get("index"))
        if index is None:
            return [event.raw]
        if data["type"] == "content_block_start":
            block = object_in(data.get("content_block"))
            is_call = block.get("type") == "tool_use"
            if is_call and block.get("name") in self._names:
                self.has_own_calls, self._places[index] = True, None
            else:
                self._has_other_calls = self._has_other_calls or is_call
                self._places[index], self._count = self._count, self._count + 1
        place = self._places.get(index, index)
        if place is None:
            return []
        return [event.raw] if place == index else [sse(event.name or None, json_of({**data, "index": place}))]

    def _last(self, event: SseEvent, data: dict[str, Json]) -> list[bytes]:
        delta = object_in(data.get("delta"))
        ends_own = self.has_own_calls and not self._has_other_calls and delta.get("stop_reason") == "tool_use"
        if not self._spent and not ends_own:
            return [event.raw]
        if ends_own:
            data["delta"] = {**delta, "stop_reason": "end_turn"}
        if self._spent:
            data["usage"] = added_usage(self._spent, self._usage)
        return [sse(event.name or None, json_of(data))]
