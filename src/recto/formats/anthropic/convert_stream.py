"""Streams of Anthropic's Messages API, converted to and from neutral stream events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from recto.formats.anthropic import convert
from recto.formats.anthropic.errors import stream_error
from recto.formats.convert.reasoning import seal
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
    Thought,
)
from recto.formats.json_spans import Json
from recto.formats.message import THINKING, json_of, object_in, text_in
from recto.formats.sse import SseEvent, sse
from recto.formats.streaming import error_in, event_object, index_of


class AnthropicStreamReader:
    """Reads the Messages API."""

    def __init__(self, conversion: Conversion) -> None:
        self._conversion = conversion
        self._kinds: dict[int, str] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._signatures: dict[int, str] = {}
        self._usage: dict[str, Json] = {}
        self._ending: dict[str, Json] = {}
        self._has_ended = False

    def read(self, event: SseEvent) -> Iterator[StreamEvent]:
        """Yields what an event holds."""
        data = event_object(event)
        if data is None:
            return
        index = index_of(data.get("index")) or 0
        match text_in(data.get("type")) or event.name:
            case "message_start":
                message = object_in(data.get("message"))
                self._count(message.get("usage"))
                yield StreamStart(text_in(message.get("model")))
            case "content_block_start":
                yield from self._open(index, object_in(data.get("content_block")))
            case "content_block_delta":
                yield from self._delta(index, object_in(data.get("delta")))
            case "content_block_stop":
                yield from self._close(index)
            case "message_delta":
                self._count(data.get("usage"))
                self._ending |= object_in(data.get("delta"))
            case "message_stop" if not self._has_ended:
                self._has_ended = True
                reason = text_in(self._ending.get("stop_reason"))
                yield StreamEnd(convert.read_ending(reason, self._ending, self._usage, self._conversion))
            case "error":
                yield StreamFailure(error_in(data.get("error")))

    def finish(self) -> Iterator[StreamEvent]:
        """Yields nothing: this format marks its end itself."""
        return iter(())

    def _count(self, usage: Json) -> None:
        self._usage.update({key: value for key, value in object_in(usage).items() if value is not None})

    def _open(self, index: int, block: dict[str, Json]) -> Iterator[StreamEvent]:
        part = convert.read_block(block, self._conversion, f"content[{index}]")
        self._kinds[index] = text_in(block.get("type"))
        if isinstance(part, CallPart):
            yield CallStart(index, part.id, part.name)
            if block.get("input"):
                yield CallDelta(index, part.arguments)
        elif isinstance(part, Thought) and part.block is not None:
            yield ReasoningSealed(dict(part.block))
        elif text := text_in(block.get("text")):
            yield TextDelta("text", text)

    def _delta(self, index: int, delta: dict[str, Json]) -> Iterator[StreamEvent]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                yield TextDelta("text", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                yield CallDelta(index, text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._thoughts.setdefault(index, []).append(text)
                yield TextDelta("thought", text)
            case {"type": "signature_delta", "signature": str(signature)}:
                self._signatures[index] = signature
            case _:
                raise self._conversion.unsupported(f"content[{index}] ({text_in(delta.get('type'))})")

    def _close(self, index: int) -> Iterator[StreamEvent]:
        if self._kinds.get(index) == "tool_use":
            yield CallEnd(index)
        elif signature := self._signatures.get(index):
            text = "".join(self._thoughts.get(index, ()))
            block = convert.sealed_block({"type": "thinking", "thinking": text, "signature": signature})
            if block is not None:
                yield ReasoningSealed(dict(block))
        elif index in self._thoughts:
            yield PartEnd()


class AnthropicStreamWriter:
    """Writes the Messages API, one block after the other."""

    def __init__(self, conversion: Conversion, ids: ResponseIds, include_usage: bool) -> None:
        self._conversion = conversion
        self._ids = ids
        self._events = AnthropicEvents()
        self._open = False
        self._call: CallStart | None = None
        self._arguments: list[str] = []
        self._parts: list[ContentPart] = []
        """Parts that determine the stop reason, if the source format does not report it."""

    def write(self, event: StreamEvent) -> Iterator[bytes]:
        """Yields the events for a neutral one."""
        match event:
            case StreamStart(model=model):
                yield self._events.begin(convert.envelope(self._ids, model))
            case TextDelta():
                yield from self._write_text(event)
            case ReasoningSealed(block=block):
                yield from self._write_sealed(block)
            case CallStart():
                self._call, self._open, self._arguments = event, True, []
                call_id = event.id or self._ids.item("call", len(self._parts))
                self._parts.append(CallPart(id=call_id, name=event.name, arguments=""))
                yield self._events.open({"type": "tool_use", "id": call_id, "name": event.name, "input": {}})
            case CallDelta(text=text) if text:
                self._arguments.append(text)
                yield self._events.delta("input_json_delta", "partial_json", text)
            case PartEnd() if self._open:
                self._check_call()
                self._open = False
                yield self._events.close()
            case StreamEnd(ending=ending):
                yield from self._end(ending)

    def fail(self, code: str, message: str) -> bytes:
        """Returns the last events of a stream that cannot go on."""
        return stream_error(code, message)

    def _write_text(self, event: TextDelta) -> Iterator[bytes]:
        thinking = event.kind == "thought"
        if not self._open:
            self._open = True
            empty: dict[str, Json] = {"type": "thinking", "thinking": "", "signature": ""}
            yield self._events.open(empty if thinking else {"type": "text", "text": ""})
        if event.kind == "refusal" and RefusalPart("") not in self._parts:
            self._parts.append(RefusalPart(""))
        kind = "thinking" if thinking else "text"
        yield self._events.delta(f"{kind}_delta", kind, event.text)

    def _write_sealed(self, block: dict[str, Json]) -> Iterator[bytes]:
        own = block.get("type") in THINKING
        if self._open:
            signature = block.get("signature") if own else seal(block)
            yield self._events.delta("signature_delta", "signature", signature)
        elif own:
            yield from self._events.block(block)
        else:
            yield from self._events.block({"type": "redacted_thinking", "data": seal(block)})

    def _check_call(self) -> None:
        if self._call is not None:
            call = CallPart(id=self._call.id, name=self._call.name, arguments="".join(self._arguments))
            convert.input_of(call, self._conversion)
            self._call = None

    def _end(self, ending: Ending) -> Iterator[bytes]:
        delta: dict[str, Json] = {"stop_reason": convert.stop_reason(ending, self._parts)}
        delta["stop_sequence"] = ending.sequence or None
        yield from self._events.end(delta, convert.write_cost(ending.cost))


class AnthropicEvents:
    """Builds the events of the Messages API, one block after the other."""

    def __init__(self) -> None:
        self._index = -1

    def begin(self, message: Mapping[str, Json]) -> bytes:
        """Starts the message."""
        return _named({"type": "message_start", "message": dict(message)})

    def open(self, block: Mapping[str, Json]) -> bytes:
        """Starts a block."""
        self._index += 1
        return _named({"type": "content_block_start", "index": self._index, "content_block": dict(block)})

    def delta(self, kind: str, key: str, value: Json) -> bytes:
        """Builds one delta of the open block."""
        return _named({"type": "content_block_delta", "index": self._index, "delta": {"type": kind, key: value}})

    def close(self) -> bytes:
        """Ends the open block."""
        return _named({"type": "content_block_stop", "index": self._index})

    def block(self, block: Mapping[str, Json], source: str = "") -> Iterator[bytes]:
        """Builds all events of a complete block. `source` is the exact JSON of a call's input, if it is known."""
        match block:
            case {"type": "text", "text": str(text)}:
                yield self.open({**block, "text": "", **({"citations": []} if block.get("citations") else {})})
                yield from (self.delta("text_delta", "text", piece) for piece in text_chunks(text))
                cited = block.get("citations")
                for citation in cited if isinstance(cited, list) else []:
                    yield self.delta("citations_delta", "citation", citation)
            case {"type": "thinking", "thinking": str(text)}:
                yield self.open({**block, "thinking": "", "signature": ""})
                yield from (self.delta("thinking_delta", "thinking", piece) for piece in text_chunks(text))
                if signature := text_in(block.get("signature")):
                    yield self.delta("signature_delta", "signature", signature)
            case {"type": str(kind), "input": dict()} if kind.endswith("tool_use"):
                yield self.open({**block, "input": {}})
                yield from (
                    self.delta("input_json_delta", "partial_json", piece)
                    for piece in text_chunks(source or json_of(block["input"]))
                )
            case _:
                yield self.open(block)
        yield self.close()

    def end(self, delta: Mapping[str, Json], usage: Json) -> Iterator[bytes]:
        """Builds the stop reason, the usage, and the end."""
        yield _named({"type": "message_delta", "delta": dict(delta), "usage": usage})
        yield _named({"type": "message_stop"})


def _named(event: dict[str, Json]) -> bytes:
    return sse(text_in(event["type"]), json_of(event))


def reader(conversion: Conversion) -> AnthropicStreamReader:
    """Creates a reader for one stream."""
    return AnthropicStreamReader(conversion)


def writer(conversion: Conversion, ids: ResponseIds, include_usage: bool) -> AnthropicStreamWriter:
    """Creates a writer for one stream."""
    return AnthropicStreamWriter(conversion, ids, include_usage)
