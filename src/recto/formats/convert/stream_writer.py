"""Pieces told as a stream of each format. An answer told in pieces is the answer told at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Literal, Protocol

from recto.formats.convert import anthropic, openai_chat
from recto.formats.convert.openai_responses import call_item, envelope, finished, reasoning_item, said_part, with_id
from recto.formats.convert.reasoning import detail, seal
from recto.formats.convert.stream_events import AnthropicEvents, ChatEvents, ResponsesEvents
from recto.formats.convert.stream_types import (
    Begin,
    CallBegin,
    CallWords,
    End,
    PartEnd,
    Piece,
    ReasoningSealed,
    TextDelta,
)
from recto.formats.convert.types import CallPart, Ending, Ids, Part, RefusalPart, Road, TextPart, Thought
from recto.formats.errors import stream_refusal
from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES
from recto.formats.validation import THINKING


class StreamWriter(Protocol):
    """Tells one stream."""

    def tell(self, piece: Piece) -> Iterator[bytes]:
        """A piece, as events."""
        ...

    def refuse(self, code: str, message: str) -> bytes:
        """The end of a stream that cannot go on."""
        ...


class ChatTeller:
    """Tells Chat Completions."""

    def __init__(self, road: Road, ids: Ids, include_usage: bool) -> None:
        self._ids = ids
        self._include_usage = include_usage
        self._events = self._named("")
        self._calls: list[int] = []
        self._sealed = 0
        self._thought: Literal["no", "now", "before"] = "no"

    def tell(self, piece: Piece) -> Iterator[bytes]:
        """A piece, as events."""
        events = self._events
        match piece:
            case Begin(model=model):
                self._events = self._named(model)
                yield self._events.delta({"role": "assistant"})
            case TextDelta(kind=kind, text=text):
                apart = "\n\n" if kind == "thought" and self._thought == "before" else ""
                if kind == "thought":
                    self._thought = "now"
                else:
                    self._end_thought()
                yield events.delta({_CHAT_WORDS[kind]: apart + text})
            case PartEnd():
                self._end_thought()
            case ReasoningSealed(block=block):
                self._end_thought()
                yield events.delta({"reasoning_details": [detail(block, self._sealed)]})
                self._sealed += 1
            case CallBegin(key=key):
                self._end_thought()
                self._calls.append(key)
                call_id = piece.id or self._ids.item("call", len(self._calls))
                function: Json = {"name": piece.name, "arguments": ""}
                begun: Json = {"index": len(self._calls) - 1, "id": call_id, "type": "function", "function": function}
                yield events.delta({"tool_calls": [begun]})
            case CallWords(key=key, text=text) if key in self._calls:
                more: Json = {"index": self._calls.index(key), "function": {"arguments": text}}
                yield events.delta({"tool_calls": [more]})
            case End(ending=ending):
                yield from events.end(openai_chat.FINISH[ending.stop], openai_chat.write_cost(ending.cost))

    def refuse(self, code: str, message: str) -> bytes:
        """The end of a stream that cannot go on."""
        return stream_refusal(CHAT, code, message)

    def _end_thought(self) -> None:
        """Thoughts are one text here: what is told next of them stands apart from what was told."""
        self._thought = "before" if self._thought == "now" else self._thought

    def _named(self, model: str) -> ChatEvents:
        head: dict[str, Json] = {"id": self._ids.reply, "created": self._ids.created, "model": model}
        return ChatEvents(head, include_usage=self._include_usage)


class AnthropicTeller:
    """Tells the Messages API, one block after the other."""

    def __init__(self, road: Road, ids: Ids, include_usage: bool) -> None:
        self._road = road
        self._ids = ids
        self._events = AnthropicEvents()
        self._open = False
        self._call: CallBegin | None = None
        self._arguments: list[str] = []
        self._parts: list[Part] = []
        """What tells why the answer ended, where the format itself does not."""

    def tell(self, piece: Piece) -> Iterator[bytes]:
        """A piece, as events."""
        match piece:
            case Begin(model=model):
                yield self._events.begin(anthropic.envelope(self._ids, model))
            case TextDelta():
                yield from self._words(piece)
            case ReasoningSealed(block=block):
                yield from self._sealed(block)
            case CallBegin():
                self._call, self._open, self._arguments = piece, True, []
                call_id = piece.id or self._ids.item("call", len(self._parts))
                self._parts.append(CallPart(id=call_id, name=piece.name, arguments=""))
                yield self._events.open({"type": "tool_use", "id": call_id, "name": piece.name, "input": {}})
            case CallWords(text=text) if text:
                self._arguments.append(text)
                yield self._events.delta("input_json_delta", "partial_json", text)
            case PartEnd() if self._open:
                self._judge_call()
                self._open = False
                yield self._events.close()
            case End(ending=ending):
                yield from self._end(ending)

    def refuse(self, code: str, message: str) -> bytes:
        """The end of a stream that cannot go on."""
        return stream_refusal(ANTHROPIC, code, message)

    def _words(self, piece: TextDelta) -> Iterator[bytes]:
        thinking = piece.kind == "thought"
        if not self._open:
            self._open = True
            empty: dict[str, Json] = {"type": "thinking", "thinking": "", "signature": ""}
            yield self._events.open(empty if thinking else {"type": "text", "text": ""})
        if piece.kind == "refusal" and RefusalPart("") not in self._parts:
            self._parts.append(RefusalPart(""))
        kind = "thinking" if thinking else "text"
        yield self._events.delta(f"{kind}_delta", kind, piece.text)

    def _sealed(self, block: dict[str, Json]) -> Iterator[bytes]:
        own = block.get("type") in THINKING
        if self._open:
            signature = block.get("signature") if own else seal(block)
            yield self._events.delta("signature_delta", "signature", signature)
        elif own:
            yield from self._events.block(block)
        else:
            yield from self._events.block({"type": "redacted_thinking", "data": seal(block)})

    def _judge_call(self) -> None:
        if self._call is not None:
            call = CallPart(id=self._call.id, name=self._call.name, arguments="".join(self._arguments))
            anthropic.input_of(call, self._road)
            self._call = None

    def _end(self, ending: Ending) -> Iterator[bytes]:
        delta: dict[str, Json] = {"stop_reason": anthropic.stop_reason(ending, self._parts)}
        delta["stop_sequence"] = ending.sequence or None
        yield from self._events.end(delta, anthropic.write_cost(ending.cost))


class ResponsesTeller:
    """Tells the Responses API, one item after the other."""

    def __init__(self, road: Road, ids: Ids, include_usage: bool) -> None:
        self._road = road
        self._ids = ids
        self._model = ""
        self._events = ResponsesEvents()
        self._items: list[Json] = []
        self._open: Part | None = None
        self._words: list[str] = []
        self._block: dict[str, Json] | None = None
        self._began = False

    def tell(self, piece: Piece) -> Iterator[bytes]:
        """A piece, as events."""
        match piece:
            case Begin(model=model):
                self._began, self._model = True, model
                yield from self._events.begin(envelope(self._ids, model))
            case TextDelta(kind=kind, text=text):
                yield from self._begin(_PARTS[kind])
                self._words.append(text)
                yield self._delta(kind, text)
            case ReasoningSealed(block=block):
                yield from self._begin(_PARTS["thought"], words=False)
                self._block = block
            case CallBegin():
                call_id = piece.id or self._ids.item("call", len(self._items))
                yield from self._begin(CallPart(id=call_id, name=piece.name, arguments=""))
            case CallWords(text=text) if text:
                self._words.append(text)
                yield self._events.piece("function_call_arguments.delta", {"delta": text})
            case PartEnd() if self._open is not None:
                yield from self._close(self._open, "".join(self._words))
                self._open, self._words, self._block = None, [], None
            case End(ending=ending):
                yield from self._events.end(finished(self._ids, self._model, self._items, ending))

    def refuse(self, code: str, message: str) -> bytes:
        """The end of a stream that cannot go on."""
        response = envelope(self._ids, self._model) | {"output": self._items} if self._began else None
        return stream_refusal(RESPONSES, code, message, self._events.sequence, response=response)

    def _begin(self, part: Part, *, words: bool = True) -> Iterator[bytes]:
        if self._open is not None:
            return
        self._open = part
        match part:
            case TextPart() | RefusalPart():
                empty: dict[str, Json] = {"type": "message", "role": "assistant", "content": []}
                yield self._events.open(self._item(empty) | {"status": "in_progress"})
                yield self._events.part_added(0, said_part(part))
            case CallPart():
                begun = self._item(call_item(part)) | {"status": "in_progress", "arguments": ""}
                yield self._events.open(begun)
            case _:
                yield self._events.open(self._item({"type": "reasoning", "summary": []}))
                if words:
                    yield self._events.summary_added(0)

    def _delta(self, kind: str, text: str) -> bytes:
        if kind == "thought":
            return self._events.piece("reasoning_summary_text.delta", {"summary_index": 0, "delta": text})
        return self._events.text_delta(0, "output_text" if kind == "text" else "refusal", text)

    def _close(self, part: Part, words: str) -> Iterator[bytes]:
        match part:
            case TextPart() | RefusalPart():
                said = said_part(TextPart(words) if isinstance(part, TextPart) else RefusalPart(words))
                yield from self._events.part_done(0, said)
                item: dict[str, Json] = {"type": "message", "role": "assistant", "content": [said]}
            case CallPart():
                item = call_item(CallPart(id=part.id, name=part.name, arguments=words))
                yield self._events.piece("function_call_arguments.done", {"arguments": item["arguments"]})
            case _:
                if words:
                    yield from self._events.summary_done(0, words)
                item = reasoning_item(Thought(text=words, block=self._block), self._road)
                item["id"] = self._item({"type": "reasoning"})["id"]  # the one it began with
        whole = self._item(item)
        self._items.append(whole)
        yield self._events.close(whole)

    def _item(self, item: dict[str, Json]) -> dict[str, Json]:
        return with_id(item, self._ids, len(self._items))


_CHAT_WORDS: Final = {"text": "content", "thought": "reasoning_content", "refusal": "refusal"}
_PARTS: Final[Mapping[str, Part]] = {"text": TextPart(""), "thought": Thought(text=""), "refusal": RefusalPart("")}

TELLERS: Final[Mapping[str, Callable[[Road, Ids, bool], StreamWriter]]] = {
    CHAT: ChatTeller,
    RESPONSES: ResponsesTeller,
    ANTHROPIC: AnthropicTeller,
}


def told(teller: StreamWriter, pieces: Iterable[Piece]) -> list[bytes]:
    """The events of some pieces."""
    return [event for piece in pieces for event in teller.tell(piece)]
