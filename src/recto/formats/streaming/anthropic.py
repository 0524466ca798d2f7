"""The answer of an Anthropic stream: one message, its blocks put together by their index.

What a call is given stays as the model wrote it, byte for byte; a call whose input never became JSON is left out,
because no provider takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from recto.formats.json_spans import Json, quoted
from recto.formats.message import is_object, json_of, object_in, text_in
from recto.formats.response import ProviderReply, Usage, usage_in
from recto.formats.sse import SseEvent
from recto.formats.streaming._common import TextBuffer, error_in, event_object, index_of
from recto.formats.validation import THINKING


@dataclass(slots=True)
class _Block:
    fields: dict[str, Json]
    texts: dict[str, TextBuffer] = field(default_factory=dict)
    input: TextBuffer = field(default_factory=TextBuffer)
    """The input of a call, as JSON text."""
    citations: list[Json] = field(default_factory=list)
    stopped: bool = False


class BlockCapture:
    """One answer of the Messages API."""

    def __init__(self, most: int) -> None:
        self.ended = False
        self.failed = ""
        self.overflowed = False
        self.id = ""
        self._left = most
        self._began = False
        self._blocks: dict[int, _Block] = {}
        self._stop = ""
        self._usage: dict[str, Json] = {}

    def take(self, event: SseEvent) -> None:
        """Notes what an event says."""
        found = event_object(event)
        if found is None:
            return
        self._left -= len(event.data)
        self.overflowed = self.overflowed or self._left < 0
        match text_in(found.get("type")) or event.name:
            case "message_start":
                self._begin(object_in(found.get("message")))
            case "message_delta":
                self._count(found.get("usage"))
                self._stop = text_in(object_in(found.get("delta")).get("stop_reason")) or self._stop
            case "message_stop":
                self.ended = True
            case "error":
                self.failed = error_in(found.get("error")) or "the provider reported an error"
            case kind if not self.overflowed:
                self._block_event(kind, found)

    def reply(self) -> ProviderReply:
        """The answer, whole."""
        if not self._began and not self._blocks:
            return self._as_reply(None)
        return self._as_reply(source for block in self._in_order() if (source := _source(block)) is not None)

    def partial(self) -> ProviderReply:
        """What of the answer can be kept though the rest of it never came."""
        answered = {text_in(block.fields.get("tool_use_id")) for block in self._blocks.values() if block.stopped}
        kept = [block for block in self._in_order() if _whole(block, answered)]
        while kept and kept[-1].fields.get("type") in THINKING:
            kept.pop()  # what it led to never came, and alone it is refused
        sources = [source for block in kept if (source := _source(block)) is not None]
        return self._as_reply(sources or None)

    def _as_reply(self, sources: Iterable[str] | None) -> ProviderReply:
        messages: tuple[bytes, ...] = ()
        if sources is not None:
            messages = (f'{{"role": "assistant", "content": [{", ".join(sources)}]}}'.encode(),)
        usage: Usage | None = usage_in(self._usage)
        return ProviderReply(messages=messages, stop_reason=self._stop, usage=usage)

    def _in_order(self) -> list[_Block]:
        return [self._blocks[index] for index in sorted(self._blocks)]

    def _begin(self, message: dict[str, Json]) -> None:
        self._began = True
        self.id = text_in(message.get("id"))
        self._stop = text_in(message.get("stop_reason"))
        self._count(message.get("usage"))

    def _count(self, usage: Json) -> None:
        """Counts are totals so far: what is told again replaces what was told."""
        self._usage.update({key: value for key, value in object_in(usage).items() if value is not None})

    def _block_event(self, kind: str, found: dict[str, Json]) -> None:
        index = index_of(found.get("index"))
        if index is None:
            return
        if kind == "content_block_start":
            self._blocks[index] = _Block(object_in(found.get("content_block")))
        elif (block := self._blocks.get(index)) is None:
            return
        elif kind == "content_block_stop":
            block.stopped = True
        elif kind == "content_block_delta":
            _take_delta(block, object_in(found.get("delta")))


def _take_delta(block: _Block, delta: dict[str, Json]) -> None:
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


def _source(block: _Block) -> str | None:
    """A block as JSON text; nothing where it is a call without usable input."""
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


def _whole(block: _Block, answered: set[str]) -> bool:
    """Whether a block may stay when the stream was cut."""
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
