"""Streams of Chat Completions, converted to and from neutral stream events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from recto.formats.convert.reasoning import read_detail, signs_earlier_text, write_detail
from recto.formats.convert.stream_types import (
    CallDelta,
    CallStart,
    PartEnd,
    ReasoningSealed,
    StreamEnd,
    StreamEvent,
    StreamFailure,
    StreamStart,
    TextDelta,
)
from recto.formats.convert.types import (
    Conversion,
    Cost,
    Ending,
    ResponseIds,
    Stop,
    objects_in,
)
from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.openai_chat import convert
from recto.formats.openai_chat.errors import stream_error
from recto.formats.sse import DONE, SseEvent, sse
from recto.formats.streaming import error_in, event_object, index_of

_DELTA: Final = frozenset(
    {"role", "content", "refusal", "tool_calls", "reasoning_content", "reasoning", "reasoning_details"}
)
_DELTA_KEYS: Final = {"text": "content", "thought": "reasoning_content", "refusal": "refusal"}


class ChatStreamReader:
    """Reads Chat Completions. Usage follows the finish reason, so the end is reported only at the end of the stream."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._has_started = False
        self._has_ended = False
        self._stop: Stop | None = None
        self._cost: Cost | None = None
        self._places: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._started: set[int] = set()
        self._unsigned: dict[int, list[str]] = {}

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds."""
        if event.data.strip() == DONE:
            yield from self.finish()
            return
        data = event_object(event)
        if data is None:
            return
        if error := data.get("error"):
            yield StreamFailure(error_in(error))
            return
        if not self._has_started:
            self._has_started = True
            yield StreamStart(text_in(data.get("model")))
        self._cost = convert.read_cost(data.get("usage")) or self._cost
        choices = data.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                yield from self._delta(object_in(choice.get("delta")))
                if finish := text_in(choice.get("finish_reason")):
                    self._stop = convert.STOPS.get(finish, "ended")

    def finish(self) -> Iterator[StreamEvent]:
        """Yields the end, if a finish reason arrived."""
        if self._stop is not None and not self._has_ended:
            self._has_ended = True
            for key in sorted(self._names.keys() - self._started):
                yield from self._start_call(key)
            stop: Stop = "calls" if self._stop == "ended" and self._started else self._stop
            yield StreamEnd(Ending(stop=stop, cost=self._cost))

    def _delta(self, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        self._conversion.allow_only(delta, _DELTA, "delta")
        yield from self._reasoning(delta)
        content = delta.get("content")
        if content is not None and not isinstance(content, str):
            raise self._conversion.unsupported("delta.content that is not text")
        if content:
            yield TextDelta("text", content)
        if refusal := text_in(delta.get("refusal")):
            yield TextDelta("refusal", refusal)
        for call in objects_in(delta, "tool_calls"):
            yield from self._call(call)

    def _reasoning(self, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        text = text_in(delta.get("reasoning_content")) or text_in(delta.get("reasoning"))
        sealed: list[StreamEvent] = []
        unsigned = ""
        for detail in objects_in(delta, "reasoning_details"):
            before = self._unsigned.setdefault(index_of(detail.get("index")) or 0, [])
            signed = "".join(before) if signs_earlier_text(detail) else ""
            thought = read_detail(detail, self._conversion, "delta.reasoning_details", signed)
            if thought.block is None:
                before.append(thought.text)
                unsigned += thought.text
            else:
                sealed.append(ReasoningSealed(dict(thought.block)))
        if text or unsigned:
            yield TextDelta("thought", text or unsigned)
        yield from sealed

    def _call(self, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        call = convert.read_call(delta, self._conversion, "delta.tool_calls")
        key = self._key(index_of(delta.get("index")), call.id)
        if key in self._started:
            if call.arguments:
                yield CallDelta(key, call.arguments)
            return
        self._names[key] = self._names.get(key, "") + call.name
        if call.arguments:  # the name is complete once the arguments start
            yield from self._start_call(key)
            yield CallDelta(key, call.arguments)

    def _key(self, index: int | None, call_id: str) -> int:
        """Returns the key of the call: its index, or a new key if a new id repeats an index."""
        place = max(self._places, default=0) if index is None else index
        key = self._places.setdefault(place, place)
        if call_id and self._ids.get(key, call_id) != call_id:
            key = self._places[place] = max(*self._places.values(), *self._ids) + 1
        if call_id:
            self._ids[key] = call_id
        return key

    def _start_call(self, key: int) -> Iterator[StreamEvent]:
        self._started.add(key)
        yield CallStart(key, self._ids.get(key, ""), self._names[key])


class ChatStreamWriter:
    """Writes Chat Completions."""

    def __init__(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> None:
        self._ids = ids
        self._include_usage = include_usage
        self._events = self._events_for("")
        self._calls: list[int] = []
        self._sealed = 0
        self._thought: Literal["no", "now", "before"] = "no"

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the events for a neutral one."""
        events = self._events
        match event:
            case StreamStart(model=model):
                self._events = self._events_for(model)
                yield self._events.delta({"role": "assistant"})
            case TextDelta(kind=kind, text=text):
                separator = "\n\n" if kind == "thought" and self._thought == "before" else ""
                if kind == "thought":
                    self._thought = "now"
                else:
                    self._end_thought()
                yield events.delta({_DELTA_KEYS[kind]: separator + text})
            case PartEnd():
                self._end_thought()
            case ReasoningSealed(block=block):
                self._end_thought()
                yield events.delta({"reasoning_details": [write_detail(block, self._sealed)]})
                self._sealed += 1
            case CallStart(key=key):
                self._end_thought()
                self._calls.append(key)
                call_id = event.id or self._ids.item("call", len(self._calls))
                function: Json = {"name": event.name, "arguments": ""}
                start: Json = {"index": len(self._calls) - 1, "id": call_id, "type": "function", "function": function}
                yield events.delta({"tool_calls": [start]})
            case CallDelta(key=key, text=text) if key in self._calls:
                more: Json = {"index": self._calls.index(key), "function": {"arguments": text}}
                yield events.delta({"tool_calls": [more]})
            case StreamEnd(ending=ending):
                yield from events.end(convert.FINISH[ending.stop], convert.write_cost(ending.cost))

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        return stream_error(code, message)

    def _end_thought(self) -> None:
        """Separates the next reasoning part from this one: in Chat, all reasoning is one text."""
        self._thought = "before" if self._thought == "now" else self._thought

    def _events_for(self, model: str) -> ChatEvents:
        head: dict[str, Json] = {"id": self._ids.reply, "created": self._ids.created, "model": model}
        return ChatEvents(head, include_usage=self._include_usage)


class ChatEvents:
    """Builds the chunks of Chat Completions. There are no other events: clients look for `choices` in each."""

    def __init__(self, head: Mapping[str, Json], *, include_usage: bool) -> None:
        self._head: dict[str, Json] = {**head, "object": "chat.completion.chunk"}
        self._include_usage = include_usage

    def delta(self, delta: Mapping[str, Json], finish: str | None = None) -> bytes:
        """Builds one chunk."""
        choice: Json = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
        usage: dict[str, Json] = {"usage": None} if self._include_usage else {}
        return sse(None, json_of({**self._head, "choices": [choice], **usage}))

    def end(self, finish: str, usage: Json) -> Iterator[bytes]:
        """Builds the last chunks: the finish reason, the usage if the client requested it, and the end."""
        yield self.delta({}, finish)
        if self._include_usage and usage is not None:
            yield sse(None, json_of({**self._head, "choices": [], "usage": usage}))
        yield sse(None, DONE)


def reader(conversion: Conversion) -> ChatStreamReader:
    """Creates a reader for one stream."""
    return ChatStreamReader(conversion)


def writer(conversion: Conversion, ids: ResponseIds, include_usage: bool) -> ChatStreamWriter:
    """Creates a writer for one stream."""
    return ChatStreamWriter(conversion, ids, include_usage)
