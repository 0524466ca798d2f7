"""Captures Anthropic streams: assembles one message from its blocks, by their index.

The input of a call stays as the model wrote it, byte for byte. A call whose input is not valid JSON is dropped, because
no provider accepts it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct, field

from recto.formats.json_spans import quoted
from recto.formats.message import THINKING, is_object, json_of, object_in, text_in
from recto.formats.response import ProviderReply, usage_in
from recto.formats.streaming import (
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


class _StartedBlock(Struct):
    fields: dict[str, Json]
    texts: dict[str, TextBuffer] = field(default_factory=dict)
    input: TextBuffer = field(default_factory=TextBuffer)
    """The input of a call, as JSON text."""
    citations: list[Json] = field(default_factory=list)
    stopped: bool = False


class AnthropicCapture:
    """Captures one response of the Messages API."""

    def __init__(self, max_bytes: int = MAX_CAPTURED_BYTES) -> None:
        self.ended = False
        self.failed = ""
        self.code = ""
        self.overflowed = False
        self.id = ""
        self._remaining = max_bytes
        self._began = False
        self._blocks: dict[int, _StartedBlock] = {}
        self._stop = ""
        self._usage: dict[str, Json] = {}
        self._repeated: tuple[RepeatedEvent, int, str] | None = None
        """The form of the last event that only added to a text, the index of its block, and the type of its delta."""

    def take(self, event: SseEvent) -> None:
        """Records an event."""
        if self._repeated is not None:
            repeated, index, kind = self._repeated
            text = repeated.text_in(event.data)
            if text is not None:
                self._spend(event)
                block = self._blocks.get(index)
                if block is not None and not self.overflowed:
                    _take_delta(block, {"type": kind, repeated.key: text})
                return
        data = event_object(event)
        if data is None:
            return
        self._spend(event)
        self._repeated = _repeated(event.data, data)
        match text_in(data.get("type")) or event.name:
            case "message_start":
                self._begin(object_in(data.get("message")))
            case "message_delta":
                self._count(data.get("usage"))
                self._stop = text_in(object_in(data.get("delta")).get("stop_reason")) or self._stop
            case "message_stop":
                self.ended = True
            case "error":
                self.failed = error_in(data.get("error")) or "the provider reported an error"
                self.code = code_in(data.get("error"))
            case kind if not self.overflowed:
                self._block_event(kind, data)

    def _spend(self, event: SseEvent) -> None:
        self._remaining -= len(event.data)
        self.overflowed = self.overflowed or self._remaining < 0

    def reply(self) -> ProviderReply:
        """Returns the complete response."""
        if not self._began and not self._blocks:
            return self._as_reply(None)
        return self._as_reply(source for block in self._in_order() if (source := _source(block)) is not None)

    def partial(self) -> ProviderReply:
        """Returns what can be stored of a response that was cut."""
        answered = {text_in(block.fields.get("tool_use_id")) for block in self._blocks.values() if block.stopped}
        blocks = [block for block in self._in_order() if _is_storable(block, answered)]
        while blocks and blocks[-1].fields.get("type") in THINKING:
            blocks.pop()  # the output it led to is missing, and thinking alone is rejected
        sources = [source for block in blocks if (source := _source(block)) is not None]
        return self._as_reply(sources or None)

    def _as_reply(self, sources: Iterable[str] | None) -> ProviderReply:
        messages: tuple[bytes, ...] = ()
        if sources is not None:
            messages = (f'{{"role": "assistant", "content": [{", ".join(sources)}]}}'.encode(),)
        usage: Usage | None = usage_in(self._usage)
        return ProviderReply(messages=messages, stop_reason=self._stop, usage=usage, id=self.id)

    def _in_order(self) -> list[_StartedBlock]:
        return [self._blocks[index] for index in sorted(self._blocks)]

    def _begin(self, message: dict[str, Json]) -> None:
        self._began = True
        self.id = text_in(message.get("id"))
        self._stop = text_in(message.get("stop_reason"))
        self._count(message.get("usage"))

    def _count(self, usage: Json) -> None:
        """Records usage. Counts are running totals, so a later value replaces an earlier one."""
        self._usage.update({key: value for key, value in object_in(usage).items() if value is not None})

    def _block_event(self, kind: str, data: dict[str, Json]) -> None:
        index = index_of(data.get("index"))
        if index is None:
            return
        if kind == "content_block_start":
            self._blocks[index] = _StartedBlock(object_in(data.get("content_block")))
        elif (block := self._blocks.get(index)) is None:
            return
        elif kind == "content_block_stop":
            block.stopped = True
        elif kind == "content_block_delta":
            _take_delta(block, object_in(data.get("delta")))


def _repeated(text: str, data: dict[str, Json]) -> tuple[RepeatedEvent, int, str] | None:
    """Returns the form of an event that adds to one text of a block; `None` for any other."""
    index, delta = index_of(data.get("index")), object_in(data.get("delta"))
    keys = [key for key, value in delta.items() if key != "type" and isinstance(value, str)]
    kind = text_in(delta.get("type"))
    if data.get("type") != "content_block_delta" or index is None or not kind or len(delta) != 2 or len(keys) != 1:
        return None
    repeated = RepeatedEvent.of(text, keys[0])
    return None if repeated is None else (repeated, index, kind)


def _take_delta(block: _StartedBlock, delta: dict[str, Json]) -> None:
    match delta:
        case {"type": "input_json_delta"}:
            block.input.add(text_in(delta.get("partial_json")))
        case {"type": "citations_delta"}:
            block.citations.append(delta.get("citation"))
        case {"type": "signature_delta" | "compaction_delta"}:
            block.fields = {**block.fields, **{key: value for key, value in delta.items() if key != "type"}}
        case _:
            for key, value in delta.items():
                if isinstance(value, str) and key != "type":
                    block.texts.setdefault(key, TextBuffer(text_in(block.fields.get(key)))).add(value)


def _source(block: _StartedBlock) -> str | None:
    """Returns a block as JSON; `None` for a call without usable input."""
    fields: dict[str, Json] = {**block.fields, **{key: str(text) for key, text in block.texts.items()}}
    if block.citations:
        before = fields.get("citations")
        fields["citations"] = [*(before if isinstance(before, list) else []), *block.citations]
    written = str(block.input)
    if not written.strip():
        return json_of(fields)
    if not is_object(written):
        return None
    members = [f"{quoted(key)}: {json_of(value)}" for key, value in fields.items() if key != "input"]
    return "{" + ", ".join([*members, f'"input": {written}']) + "}"


def _is_storable(block: _StartedBlock, answered: set[str]) -> bool:
    """Whether a block can be stored when the stream was cut."""
    match text_in(block.fields.get("type")):
        case "text":
            text = str(block.texts["text"]) if "text" in block.texts else text_in(block.fields.get("text"))
            return bool(text.strip())
        case "tool_use":
            return block.stopped or is_object(str(block.input))
        case kind if kind.endswith("tool_use"):
            return block.stopped and text_in(block.fields.get("id")) in answered
        case _:
            return block.stopped
