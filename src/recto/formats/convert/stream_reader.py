"""Streams of each format, heard as pieces. What the meaning of an answer cannot hold is refused here, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal, Protocol

from recto.formats.convert import anthropic, openai_chat
from recto.formats.convert.openai_responses import read_ending
from recto.formats.convert.reasoning import sealed_in, thought, unsaid
from recto.formats.convert.stream_types import (
    Begin,
    Broke,
    CallBegin,
    CallEnd,
    CallWords,
    End,
    PartEnd,
    Piece,
    ReasoningSealed,
    TextDelta,
)
from recto.formats.convert.types import CallPart, Cost, Ending, Road, Stop, Thought
from recto.formats.json_spans import Json
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES, object_in, text_in
from recto.formats.sse import DONE, SseEvent
from recto.formats.streaming._common import error_in, event_object, index_of

_DELTA: Final = frozenset(
    {"role", "content", "refusal", "tool_calls", "reasoning_content", "reasoning", "reasoning_details"}
)

_SPOKEN: Final[Mapping[str, Literal["text", "thought", "refusal"]]] = {
    "output_text.delta": "text",
    "refusal.delta": "refusal",
    "reasoning_summary_text.delta": "thought",
    "reasoning_text.delta": "thought",
}


class Listener(Protocol):
    """Hears one stream."""

    def hear(self, event: SseEvent) -> Iterator[Piece]:
        """What an event says."""
        ...

    def finish(self) -> Iterator[Piece]:
        """What is still to be said when the stream is over."""
        ...


class ChatListener:
    """Hears Chat Completions. What it cost comes after why it ended, so the end waits for the end."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._began = False
        self._over = False
        self._stop: Stop | None = None
        self._cost: Cost | None = None
        self._places: dict[int, int] = {}
        self._ids: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._begun: set[int] = set()
        self._unsigned: dict[int, list[str]] = {}

    def hear(self, event: SseEvent) -> Iterator[Piece]:
        """What an event says."""
        if event.data.strip() == DONE:
            yield from self.finish()
            return
        found = event_object(event)
        if found is None:
            return
        if error := found.get("error"):
            yield Broke(error_in(error))
            return
        if not self._began:
            self._began = True
            yield Begin(text_in(found.get("model")))
        self._cost = openai_chat.read_cost(found.get("usage")) or self._cost
        choices = found.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if isinstance(choice, dict) and choice.get("index") in (None, 0):
                yield from self._delta(object_in(choice.get("delta")))
                if finish := text_in(choice.get("finish_reason")):
                    self._stop = openai_chat.STOPS.get(finish, "ended")

    def finish(self) -> Iterator[Piece]:
        """The end, where it was told why."""
        if self._stop is not None and not self._over:
            self._over = True
            for key in sorted(self._names.keys() - self._begun):
                yield from self._begin_call(key)
            stop: Stop = "calls" if self._stop == "ended" and self._begun else self._stop
            yield End(Ending(stop=stop, cost=self._cost))

    def _delta(self, delta: dict[str, Json]) -> Iterator[Piece]:
        self._road.only(delta, _DELTA, "delta")
        yield from self._reasoning(delta)
        content = delta.get("content")
        if content is not None and not isinstance(content, str):
            raise self._road.lost("delta.content that is not text")
        if content:
            yield TextDelta("text", content)
        if refusal := text_in(delta.get("refusal")):
            yield TextDelta("refusal", refusal)
        for call in openai_chat.objects_in(delta, "tool_calls"):
            yield from self._call(call)

    def _reasoning(self, delta: dict[str, Json]) -> Iterator[Piece]:
        words = text_in(delta.get("reasoning_content")) or text_in(delta.get("reasoning"))
        sealed: list[Piece] = []
        unsigned = ""
        for detail in openai_chat.objects_in(delta, "reasoning_details"):
            before = self._unsigned.setdefault(index_of(detail.get("index")) or 0, [])
            read = thought(detail, self._road, "delta.reasoning_details", "".join(before) if unsaid(detail) else "")
            if read.block is None:
                before.append(read.text)
                unsigned += read.text
            else:
                sealed.append(ReasoningSealed(dict(read.block)))
        if words or unsigned:
            yield TextDelta("thought", words or unsigned)
        yield from sealed

    def _call(self, delta: dict[str, Json]) -> Iterator[Piece]:
        given = openai_chat.read_call(delta, self._road, "delta.tool_calls")
        key = self._key(index_of(delta.get("index")), given.id)
        if key in self._begun:
            if given.arguments:
                yield CallWords(key, given.arguments)
            return
        self._names[key] = self._names.get(key, "") + given.name
        if given.arguments:  # the name is complete once they begin
            yield from self._begin_call(key)
            yield CallWords(key, given.arguments)

    def _key(self, index: int | None, call_id: str) -> int:
        """Which call is meant: by its index, or by a new id where all come with the same index."""
        place = max(self._places, default=0) if index is None else index
        key = self._places.setdefault(place, place)
        if call_id and self._ids.get(key, call_id) != call_id:
            key = self._places[place] = max(*self._places.values(), *self._ids) + 1
        if call_id:
            self._ids[key] = call_id
        return key

    def _begin_call(self, key: int) -> Iterator[Piece]:
        self._begun.add(key)
        yield CallBegin(key, self._ids.get(key, ""), self._names[key])


class AnthropicListener:
    """Hears the Messages API."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._kinds: dict[int, str] = {}
        self._thoughts: dict[int, list[str]] = {}
        self._signatures: dict[int, str] = {}
        self._usage: dict[str, Json] = {}
        self._ending: dict[str, Json] = {}
        self._over = False

    def hear(self, event: SseEvent) -> Iterator[Piece]:
        """What an event says."""
        found = event_object(event)
        if found is None:
            return
        index = index_of(found.get("index")) or 0
        match text_in(found.get("type")) or event.name:
            case "message_start":
                message = object_in(found.get("message"))
                self._count(message.get("usage"))
                yield Begin(text_in(message.get("model")))
            case "content_block_start":
                yield from self._open(index, object_in(found.get("content_block")))
            case "content_block_delta":
                yield from self._delta(index, object_in(found.get("delta")))
            case "content_block_stop":
                yield from self._close(index)
            case "message_delta":
                self._count(found.get("usage"))
                self._ending |= object_in(found.get("delta"))
            case "message_stop" if not self._over:
                self._over = True
                reason = text_in(self._ending.get("stop_reason"))
                yield End(anthropic.read_ending(reason, self._ending, self._usage, self._road))
            case "error":
                yield Broke(error_in(found.get("error")))

    def finish(self) -> Iterator[Piece]:
        """Nothing: this format says when it is over."""
        return iter(())

    def _count(self, usage: Json) -> None:
        self._usage.update({key: value for key, value in object_in(usage).items() if value is not None})

    def _open(self, index: int, block: dict[str, Json]) -> Iterator[Piece]:
        part = anthropic.read_block(block, self._road, f"content[{index}]")
        self._kinds[index] = text_in(block.get("type"))
        if isinstance(part, CallPart):
            yield CallBegin(index, part.id, part.name)
            if block.get("input"):
                yield CallWords(index, part.arguments)
        elif isinstance(part, Thought) and part.block is not None:
            yield ReasoningSealed(dict(part.block))
        elif text := text_in(block.get("text")):
            yield TextDelta("text", text)

    def _delta(self, index: int, delta: dict[str, Json]) -> Iterator[Piece]:
        match delta:
            case {"type": "text_delta", "text": str(text)}:
                yield TextDelta("text", text)
            case {"type": "input_json_delta", "partial_json": str(text)}:
                yield CallWords(index, text)
            case {"type": "thinking_delta", "thinking": str(text)}:
                self._thoughts.setdefault(index, []).append(text)
                yield TextDelta("thought", text)
            case {"type": "signature_delta", "signature": str(signature)}:
                self._signatures[index] = signature
            case _:
                raise self._road.lost(f"content[{index}] ({text_in(delta.get('type'))})")

    def _close(self, index: int) -> Iterator[Piece]:
        if self._kinds.get(index) == "tool_use":
            yield CallEnd(index)
        elif signature := self._signatures.get(index):
            text = "".join(self._thoughts.get(index, ()))
            block = anthropic.sealed_block({"type": "thinking", "thinking": text, "signature": signature})
            if block is not None:
                yield ReasoningSealed(dict(block))
        elif index in self._thoughts:
            yield PartEnd()


class ResponsesListener:
    """Hears the Responses API."""

    def __init__(self, road: Road) -> None:
        self._road = road
        self._kinds: dict[int, str] = {}
        self._told: set[int] = set()
        self._called = False
        self._over = False

    def hear(self, event: SseEvent) -> Iterator[Piece]:
        """What an event says."""
        found = event_object(event)
        if found is None:
            return
        index = index_of(found.get("output_index")) or 0
        kind = text_in(found.get("type")) or event.name
        delta = text_in(found.get("delta"))
        response = object_in(found.get("response"))
        match kind.removeprefix("response."):
            case "created":
                yield Begin(text_in(response.get("model")))
            case "output_item.added":
                yield from self._open(index, object_in(found.get("item")))
            case spoken if spoken in _SPOKEN:
                yield TextDelta(_SPOKEN[spoken], delta)
            case "reasoning_summary_part.added":
                if index in self._told:
                    yield TextDelta("thought", "\n\n")
                self._told.add(index)
            case "function_call_arguments.delta":
                self._told.add(index)
                yield CallWords(index, delta)
            case "output_item.done":
                yield from self._close(index, object_in(found.get("item")))
            case "completed" | "incomplete" if not self._over:
                self._over = True
                yield End(self._ending(response))
            case "failed":
                yield Broke(error_in(response.get("error")))
            case "error":
                yield Broke(error_in(found.get("error") or found))

    def finish(self) -> Iterator[Piece]:
        """Nothing: this format says when it is over."""
        return iter(())

    def _ending(self, response: dict[str, Json]) -> Ending:
        calls = (CallPart(id="", name="", arguments=""),) if self._called else ()
        return read_ending(response, calls, self._road)

    def _open(self, index: int, item: dict[str, Json]) -> Iterator[Piece]:
        kind = self._kinds[index] = text_in(item.get("type"))
        if kind == "function_call":
            self._called = True
            yield CallBegin(index, text_in(item.get("call_id")), text_in(item.get("name")))
        elif kind not in ("message", "reasoning"):
            raise self._road.lost(f"output[{index}] ({kind})")

    def _close(self, index: int, item: dict[str, Json]) -> Iterator[Piece]:
        kind = text_in(item.get("type"))
        if index not in self._kinds:
            yield from self._open(index, item)
        if kind == "function_call":
            if index not in self._told:
                yield CallWords(index, text_in(item.get("arguments")))
            yield CallEnd(index)
        elif kind == "reasoning":
            block = sealed_in(item)
            yield PartEnd() if block is None else ReasoningSealed(dict(block))
        elif kind == "message":
            self._refuse_notes(index, item)

    def _refuse_notes(self, index: int, item: dict[str, Json]) -> None:
        for part in openai_chat.objects_in(item, "content"):
            if part.get("annotations"):
                raise self._road.lost(f"output[{index}].content.annotations")


LISTENERS: Final[Mapping[str, Callable[[Road], Listener]]] = {
    CHAT: ChatListener,
    RESPONSES: ResponsesListener,
    ANTHROPIC: AnthropicListener,
}
