"""Streams of the Responses API, converted to and from neutral stream events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from recto.formats.convert.reasoning import sealed_in
from recto.formats.convert.stream_types import (
    CallDelta,
    CallEnd,
    CallStart,
    PartEnd,
    ReasoningSealed,
    StreamEnd,
    StreamEvent,
    StreamFailure,
    StreamStart,
    TextDelta,
    text_chunks,
)
from recto.formats.convert.types import (
    CallPart,
    ContentPart,
    Conversion,
    Ending,
    RefusalPart,
    ResponseIds,
    TextPart,
    Thought,
    objects_in,
)
from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.openai_responses import convert
from recto.formats.openai_responses.errors import stream_error
from recto.formats.sse import DONE, SseEvent, sse
from recto.formats.streaming import error_in, event_object, index_of

_TEXT_DELTAS: Final[Mapping[str, Literal["text", "thought", "refusal"]]] = {
    "output_text.delta": "text",
    "refusal.delta": "refusal",
    "reasoning_summary_text.delta": "thought",
    "reasoning_text.delta": "thought",
}
_PARTS: Final[Mapping[str, ContentPart]] = {
    "text": TextPart(""),
    "thought": Thought(text=""),
    "refusal": RefusalPart(""),
}


class ResponsesStreamReader:
    """Reads the Responses API."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._kinds: dict[int, str] = {}
        self._seen_parts: set[int] = set()
        self._has_calls = False
        self._has_ended = False

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds."""
        data = event_object(event)
        if data is None:
            return
        index = index_of(data.get("output_index")) or 0
        kind = text_in(data.get("type")) or event.name
        delta = text_in(data.get("delta"))
        response = object_in(data.get("response"))
        match kind.removeprefix("response."):
            case "created":
                yield StreamStart(text_in(response.get("model")))
            case "output_item.added":
                yield from self._open(index, object_in(data.get("item")))
            case kind if kind in _TEXT_DELTAS:
                yield TextDelta(_TEXT_DELTAS[kind], delta)
            case "reasoning_summary_part.added":
                if index in self._seen_parts:
                    yield TextDelta("thought", "\n\n")
                self._seen_parts.add(index)
            case "function_call_arguments.delta":
                self._seen_parts.add(index)
                yield CallDelta(index, delta)
            case "output_item.done":
                yield from self._close(index, object_in(data.get("item")))
            case "completed" | "incomplete" if not self._has_ended:
                self._has_ended = True
                yield StreamEnd(self._ending(response))
            case "failed":
                yield StreamFailure(error_in(response.get("error")))
            case "error":
                yield StreamFailure(error_in(data.get("error") or data))

    def finish(self) -> Iterator[StreamEvent]:
        """Yields nothing: this format marks its end itself."""
        return iter(())

    def _ending(self, response: dict[str, Json]) -> Ending:
        calls = (CallPart(id="", name="", arguments=""),) if self._has_calls else ()
        return convert.read_ending(response, calls, self._conversion)

    def _open(self, index: int, item: dict[str, Json]) -> Iterator[StreamEvent]:
        kind = self._kinds[index] = text_in(item.get("type"))
        if kind == "function_call":
            self._has_calls = True
            yield CallStart(index, text_in(item.get("call_id")), text_in(item.get("name")))
        elif kind not in ("message", "reasoning"):
            raise self._conversion.unsupported(f"output[{index}] ({kind})")

    def _close(self, index: int, item: dict[str, Json]) -> Iterator[StreamEvent]:
        kind = text_in(item.get("type"))
        if index not in self._kinds:
            yield from self._open(index, item)
        if kind == "function_call":
            if index not in self._seen_parts:
                yield CallDelta(index, text_in(item.get("arguments")))
            yield CallEnd(index)
        elif kind == "reasoning":
            block = sealed_in(item)
            yield PartEnd() if block is None else ReasoningSealed(dict(block))
        elif kind == "message":
            self._refuse_annotations(index, item)

    def _refuse_annotations(self, index: int, item: dict[str, Json]) -> None:
        for part in objects_in(item, "content"):
            if part.get("annotations"):
                raise self._conversion.unsupported(f"output[{index}].content.annotations")


class ResponsesStreamWriter:
    """Writes the Responses API, one item after the other."""

    def __init__(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> None:
        self._conversion = conversion
        self._ids = ids
        self._model = ""
        self._events = ResponsesEvents()
        self._items: list[Json] = []
        self._open: ContentPart | None = None
        self._text: list[str] = []
        self._block: dict[str, Json] | None = None
        self._has_started = False

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the events for a neutral one."""
        match event:
            case StreamStart(model=model):
                self._has_started, self._model = True, model
                yield from self._events.begin(convert.envelope(self._ids, model))
            case TextDelta(kind=kind, text=text):
                yield from self._begin(_PARTS[kind])
                self._text.append(text)
                yield self._delta(kind, text)
            case ReasoningSealed(block=block):
                yield from self._begin(_PARTS["thought"], summary=False)
                self._block = block
            case CallStart():
                call_id = event.id or self._ids.item("call", len(self._items))
                yield from self._begin(CallPart(id=call_id, name=event.name, arguments=""))
            case CallDelta(text=text) if text:
                self._text.append(text)
                yield self._events.piece("function_call_arguments.delta", {"delta": text})
            case PartEnd() if self._open is not None:
                yield from self._close(self._open, "".join(self._text))
                self._open, self._text, self._block = None, [], None
            case StreamEnd(ending=ending):
                yield from self._events.end(convert.finished(self._ids, self._model, self._items, ending))

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        response = convert.envelope(self._ids, self._model) | {"output": self._items} if self._has_started else None
        return stream_error(code, message, self._events.sequence, response=response)

    def _begin(self, part: ContentPart, *, summary: bool = True) -> Iterator[bytes]:
        if self._open is not None:
            return
        self._open = part
        match part:
            case TextPart() | RefusalPart():
                empty: dict[str, Json] = {"type": "message", "role": "assistant", "content": []}
                yield self._events.open(self._numbered(empty) | {"status": "in_progress"})
                yield self._events.part_added(0, convert.output_part(part))
            case CallPart():
                start = self._numbered(convert.call_item(part)) | {"status": "in_progress", "arguments": ""}
                yield self._events.open(start)
            case _:
                yield self._events.open(self._numbered({"type": "reasoning", "summary": []}))
                if summary:
                    yield self._events.summary_added(0)

    def _delta(self, kind: str, text: str) -> bytes:
        if kind == "thought":
            return self._events.piece("reasoning_summary_text.delta", {"summary_index": 0, "delta": text})
        return self._events.text_delta(0, "output_text" if kind == "text" else "refusal", text)

    def _close(self, part: ContentPart, text: str) -> Iterator[bytes]:
        match part:
            case TextPart() | RefusalPart():
                content = convert.output_part(TextPart(text) if isinstance(part, TextPart) else RefusalPart(text))
                yield from self._events.part_done(0, content)
                item: dict[str, Json] = {"type": "message", "role": "assistant", "content": [content]}
            case CallPart():
                item = convert.call_item(CallPart(id=part.id, name=part.name, arguments=text))
                yield self._events.piece("function_call_arguments.done", {"arguments": item["arguments"]})
            case _:
                if text:
                    yield from self._events.summary_done(0, text)
                item = convert.reasoning_item(Thought(text=text, block=self._block), self._conversion)
                item["id"] = self._numbered({"type": "reasoning"})["id"]  # the id that the item started with
        complete = self._numbered(item)
        self._items.append(complete)
        yield self._events.close(complete)

    def _numbered(self, item: dict[str, Json]) -> dict[str, Json]:
        return convert.with_id(item, self._ids, len(self._items))


class ResponsesEvents:
    """Builds the numbered events of the Responses API; the name of each is its type."""

    def __init__(self) -> None:
        self.sequence = 0
        self._output = -1
        self._item = ""

    def begin(self, response: Mapping[str, Json]) -> Iterator[bytes]:
        """Starts the response."""
        yield self._event("response.created", {"response": dict(response)})
        yield self._event("response.in_progress", {"response": dict(response)})

    def open(self, item: Mapping[str, Json]) -> bytes:
        """Starts an item."""
        self._output += 1
        self._item = text_in(item.get("id"))
        return self._event("response.output_item.added", {"output_index": self._output, "item": dict(item)})

    def close(self, item: Mapping[str, Json]) -> bytes:
        """Ends an item."""
        return self._event("response.output_item.done", {"output_index": self._output, "item": dict(item)})

    def piece(self, kind: str, more: Mapping[str, Json]) -> bytes:
        """Builds an event inside the open item."""
        return self._event(f"response.{kind}", {"item_id": self._item, "output_index": self._output, **more})

    def part_added(self, at: int, part: Mapping[str, Json]) -> bytes:
        """Starts a part of a message."""
        return self.piece("content_part.added", {"content_index": at, "part": dict(part)})

    def part_done(self, at: int, part: Mapping[str, Json]) -> Iterator[bytes]:
        """Ends a part of a message."""
        match part:
            case {"type": "output_text", "text": str(text)}:
                logprobs = part.get("logprobs") or []
                yield self.piece("output_text.done", {"content_index": at, "text": text, "logprobs": logprobs})
            case {"type": "refusal", "refusal": str(text)}:
                yield self.piece("refusal.done", {"content_index": at, "refusal": text})
        yield self.piece("content_part.done", {"content_index": at, "part": dict(part)})

    def text_delta(self, at: int, kind: str, delta: str) -> bytes:
        """Builds the next characters of a part: `output_text` or `refusal`."""
        logprobs: dict[str, Json] = {"logprobs": []} if kind == "output_text" else {}
        return self.piece(f"{kind}.delta", {"content_index": at, "delta": delta, **logprobs})

    def summary_added(self, at: int) -> bytes:
        """Starts a part of the reasoning summary."""
        empty: Json = {"type": "summary_text", "text": ""}
        return self.piece("reasoning_summary_part.added", {"summary_index": at, "part": empty})

    def summary_done(self, at: int, text: str) -> Iterator[bytes]:
        """Ends a part of the reasoning summary."""
        yield self.piece("reasoning_summary_text.done", {"summary_index": at, "text": text})
        part: Json = {"type": "summary_text", "text": text}
        yield self.piece("reasoning_summary_part.done", {"summary_index": at, "part": part})

    def item(self, item: Mapping[str, Json]) -> Iterator[bytes]:
        """Builds all events of a complete item."""
        match item:
            case {"type": "message", "content": list(content)}:
                yield self.open({**item, "status": "in_progress", "content": []})
                for at, part in enumerate(content):
                    yield from self._part(at, object_in(part))
            case {"type": "function_call", "arguments": str(arguments)}:
                yield self.open({**item, "status": "in_progress", "arguments": ""})
                for piece in text_chunks(arguments):
                    yield self.piece("function_call_arguments.delta", {"delta": piece})
                yield self.piece("function_call_arguments.done", {"arguments": arguments})
            case {"type": "reasoning", "summary": list(summary)}:
                yield self.open(
                    {key: value for key, value in item.items() if key != "encrypted_content"} | {"summary": []}
                )
                for at, part in enumerate(summary):
                    text = text_in(object_in(part).get("text"))
                    yield self.summary_added(at)
                    for piece in text_chunks(text):
                        yield self.piece("reasoning_summary_text.delta", {"summary_index": at, "delta": piece})
                    yield from self.summary_done(at, text)
            case _:
                yield self.open(item)
        yield self.close(item)

    def end(self, response: Mapping[str, Json]) -> Iterator[bytes]:
        """Builds the complete response, and the end."""
        status = text_in(response.get("status"))
        kind = status if status in ("incomplete", "failed") else "completed"
        yield self._event(f"response.{kind}", {"response": dict(response)})
        yield sse(None, DONE)

    def _part(self, at: int, part: dict[str, Json]) -> Iterator[bytes]:
        kind = text_in(part.get("type"))
        key = "refusal" if kind == "refusal" else "text"
        text = text_in(part.get(key))
        if kind not in ("output_text", "refusal"):
            yield self.part_added(at, part)
        else:
            yield self.part_added(at, {**part, key: ""})
            yield from (self.text_delta(at, kind, piece) for piece in text_chunks(text))
        yield from self.part_done(at, part)

    def _event(self, kind: str, more: Mapping[str, Json]) -> bytes:
        event: dict[str, Json] = {"type": kind, "sequence_number": self.sequence, **more}
        self.sequence += 1
        return sse(kind, json_of(event))


def reader(conversion: Conversion) -> ResponsesStreamReader:
    """Creates a reader for one stream."""
    return ResponsesStreamReader(conversion)


def writer(conversion: Conversion, ids: ResponseIds, include_usage: bool) -> ResponsesStreamWriter:
    """Creates a writer for one stream."""
    return ResponsesStreamWriter(conversion, ids, include_usage)
