"""The gateway's own tools in Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.streaming import SseEvent, event_object, index_of, sse
from recto.formats.tools import OwnTool, added_usage

no_calls: Final[Mapping[str, Json]] = {"tool_choice": "none"}
_SEPARATOR: Final = "\n\n"
"""Between the texts of two rounds."""


def definition(tool: OwnTool) -> dict[str, Json]:
    """Returns the tool as an element of `tools`."""
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.schema),
    }
    return {"type": "function", "function": function}


def join(bodies: Sequence[Mapping[str, Json]], names: frozenset[str]) -> dict[str, Json]:
    """Joins complete responses: the texts follow each other, and of everything else the last response counts."""
    usage: dict[str, Json] = {}
    texts: list[str] = []
    for body in bodies:
        usage = added_usage(usage, object_in(body.get("usage")))
        content = _message(body).get("content")
        texts += [content] if isinstance(content, str) and content else []
    last, message = bodies[-1], dict(_message(bodies[-1]))
    if len(bodies) > 1 and texts:
        message["content"] = _SEPARATOR.join(texts)
    choice = dict(_choice(last))
    calls = message.pop("tool_calls", None)
    listed = calls if isinstance(calls, list) else []
    if others := [call for call in listed if _name_of(object_in(call)) not in names]:
        message["tool_calls"] = others
    elif listed and choice.get("finish_reason") == "tool_calls":
        choice["finish_reason"] = "stop"
    head = {key: bodies[0][key] for key in ("id", "created") if key in bodies[0]}
    joined: dict[str, Json] = {**last, **head, "choices": [{**choice, "message": message}]}
    return {**joined, "usage": usage} if usage else joined


def rounds(names: frozenset[str]) -> ChatRounds:
    """Creates what joins streams."""
    return ChatRounds(names)


def _choice(body: Mapping[str, Json]) -> dict[str, Json]:
    choices = body.get("choices")
    return object_in(choices[0]) if isinstance(choices, list) and choices else {}


def _message(body: Mapping[str, Json]) -> dict[str, Json]:
    return object_in(_choice(body).get("message"))


def _name_of(call: Mapping[str, Json]) -> str:
    return text_in(object_in(call.get("function")).get("name")) or text_in(object_in(call.get("custom")).get("name"))


@dataclass(slots=True)
class _Call:
    """A call whose pieces arrive."""

    id: str
    name: str = ""
    place: int | None = None
    """Its index for the client; `None` while it is unknown, and for a call of an own tool."""
    held: list[dict[str, Json]] = field(default_factory=list)
    """Pieces that came before the name was known."""


class ChatRounds:
    """Joins streams of chunks."""

    def __init__(self, names: frozenset[str]) -> None:
        self.has_own_calls = False
        self._names = names
        self._head: dict[str, Json] = {}
        self._spent: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._is_later = False
        self._has_text = False
        self._separate = False
        self._calls: dict[int, _Call] = {}
        self._shown = 0

    def ends_round(self, event: SseEvent) -> bool:
        """Whether the chunk has the reason why the model stopped."""
        data = event_object(event)
        return data is not None and bool(_choice(data).get("finish_reason"))

    def observe(self, event: SseEvent) -> None:
        """Takes a chunk that is not passed on."""
        data = event_object(event)
        if data is not None:
            self._usage = object_in(data.get("usage")) or self._usage

    def next_round(self) -> None:
        """Begins the next round."""
        self._spent = added_usage(self._spent, self._usage)
        self._usage, self._calls = {}, {}
        self.has_own_calls, self._is_later, self._separate = False, True, self._has_text

    def feed(self, event: SseEvent) -> list[bytes]:
        """Takes a chunk. Returns what is passed on of it."""
        data = event_object(event)
        if data is None:
            return [event.raw]
        self.observe(event)
        changed = self._in_head(data)
        if self._spent and isinstance(usage := data.get("usage"), dict):
            data["usage"], changed = added_usage(self._spent, usage), True
        choice = _choice(data)
        delta = object_in(choice.get("delta"))
        if self._is_later:
            delta.pop("role", None)
        if isinstance(content := delta.get("content"), str) and content:
            if self._separate:
                delta["content"], self._separate, changed = _SEPARATOR + content, False, True
            self._has_text = True
        pieces = delta.get("tool_calls")
        if isinstance(pieces, list):
            shown = self._visible(pieces)
            if shown != pieces:
                changed = True
                if shown:
                    delta["tool_calls"] = shown
                else:
                    del delta["tool_calls"]
                    if not any(value for value in delta.values()) and not choice.get("finish_reason"):
                        return []
        if self.has_own_calls and not self._shown and choice.get("finish_reason") == "tool_calls":
            choice["finish_reason"], changed = "stop", True
        return [sse(event.name or None, json_of(data))] if changed else [event.raw]

    def _in_head(self, data: dict[str, Json]) -> bool:
        """Gives a chunk of a later round the id of the first response."""
        if not self._is_later:
            self._head = self._head or {key: data[key] for key in ("id", "created") if key in data}
            return False
        data.update(self._head)
        return True

    def _visible(self, pieces: Sequence[Json]) -> list[Json]:
        """Returns the pieces of the client's calls, with the index that they have for the client."""
        shown: list[Json] = []
        for number, value in enumerate(pieces):
            piece = object_in(value)
            index = index_of(piece.get("index"))
            at = number if index is None else index
            call = self._calls.get(at)
            id = text_in(piece.get("id"))
            if call is None or (id and call.id and id != call.id):  # from some vendors all calls have index 0
                call = self._calls[at] = _Call(id)
            call.id = call.id or id
            if call.place is None:
                name = _name_of(piece)
                call.name += "" if name == call.name else name
                if call.name in self._names:
                    self.has_own_calls = True
                    call.held.clear()
                    continue
                call.held.append(piece)
                if any(name.startswith(call.name) for name in self._names):
                    continue  # it may still become the name of an own tool
                call.place, self._shown = self._shown, self._shown + 1
                held, call.held = call.held, []
                shown += [self._placed(each, call.place) for each in held]
            else:
                shown.append(self._placed(piece, call.place))
        return shown

    def _placed(self, piece: dict[str, Json], place: int) -> dict[str, Json]:
        return piece if piece.get("index") in (None, place) else {**piece, "index": place}
