"""The gateway's own tools in Gemini's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from recto.formats.gemini.message import named
from recto.formats.json_spans import Json
from recto.formats.message import json_of, object_in, text_in
from recto.formats.streaming import SseEvent, event_object, sse
from recto.formats.tools import OwnTool, added_usage

no_calls: Final[Mapping[str, Json]] = {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}}


def definition(tool: OwnTool) -> dict[str, Json]:
    """Returns the tool as an element of `tools`."""
    function: dict[str, Json] = {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": dict(tool.schema),
    }
    return {"functionDeclarations": [function]}


def join(bodies: Sequence[Mapping[str, Json]], names: frozenset[str]) -> dict[str, Json]:
    """Joins complete responses: the parts of their first candidates follow each other."""
    usage: dict[str, Json] = {}
    parts: list[Json] = []
    for body in bodies:
        usage = added_usage(usage, object_in(body.get("usageMetadata")))
        parts += [part for part in _parts(body) if not _is_own(part, names)]
    candidates = bodies[-1].get("candidates")
    last = object_in(candidates[0]) if isinstance(candidates, list) and candidates else {}
    content: dict[str, Json] = {**object_in(last.get("content")), "role": "model", "parts": parts}
    joined: dict[str, Json] = {**bodies[-1], "candidates": [{**last, "content": content}], "usageMetadata": usage}
    if "responseId" in bodies[0]:
        joined["responseId"] = bodies[0]["responseId"]
    return joined


def rounds(names: frozenset[str]) -> GeminiRounds:
    """Creates what joins streams."""
    return GeminiRounds(names)


class GeminiRounds:
    """Joins streams of chunks. A call and the end of its response mostly come in one chunk."""

    def __init__(self, names: frozenset[str]) -> None:
        self.has_own_calls = False
        self._names = names
        self._spent: dict[str, Json] = {}
        self._usage: dict[str, Json] = {}
        self._id: Json = None
        """The id of the response, from the first round on."""
        self._unsent: list[Json] = []
        """Parts of a chunk that was not passed on because a call of an own tool ended it."""

    def ends_round(self, event: SseEvent) -> bool:
        """Whether the event has the reason why the model stopped."""
        data = event_object(event) or {}
        if any(_is_own(part, self._names) for part in _parts(data)):
            self.has_own_calls = True
        return bool(_candidate(data).get("finishReason"))

    def observe(self, event: SseEvent) -> None:
        """Takes an event that is not passed on."""
        data = event_object(event) or {}
        self._count(data)
        self._unsent += [part for part in _parts(data) if not _is_own(part, self._names) and part != {"text": ""}]

    def next_round(self) -> None:
        """Begins the next round."""
        self._spent = added_usage(self._spent, self._usage)
        self._usage, self.has_own_calls = {}, False

    def feed(self, event: SseEvent) -> list[bytes]:
        """Takes an event. Returns what is passed on of it."""
        data = event_object(event)
        if data is None:
            return [event.raw]
        self._count(data)
        parts = _parts(data)
        kept = [part for part in parts if not _is_own(part, self._names)]
        self.has_own_calls = self.has_own_calls or len(kept) < len(parts)
        if self._id is None:
            self._id = data.get("responseId")
        if len(kept) == len(parts) and not self._spent and not self._unsent:
            return [event.raw]
        candidate = _candidate(data)
        if parts and not kept and not self._unsent and not candidate.get("finishReason"):
            return []
        if candidate:
            content: dict[str, Json] = {**object_in(candidate.get("content")), "role": "model"}
            content["parts"] = [*self._unsent, *kept] or [{"text": ""}]
            self._unsent = []
            data["candidates"] = [{**candidate, "content": content}]
        if self._spent and self._usage:
            data["usageMetadata"] = added_usage(self._spent, self._usage)
        if self._id is not None:
            data["responseId"] = self._id
        return [sse(event.name or None, json_of(data))]

    def _count(self, data: Mapping[str, Json]) -> None:
        """Counts are running totals of the round: a later value replaces an earlier one."""
        self._usage |= {key: value for key, value in object_in(data.get("usageMetadata")).items() if value is not None}


def _candidate(data: Mapping[str, Json]) -> dict[str, Json]:
    candidates = data.get("candidates")
    return object_in(candidates[0]) if isinstance(candidates, list) and candidates else {}


def _parts(data: Mapping[str, Json]) -> list[Json]:
    parts = object_in(_candidate(data).get("content")).get("parts")
    return parts if isinstance(parts, list) else []


def _is_own(part: Json, names: frozenset[str]) -> bool:
    call = named(object_in(part)).get("functionCall")
    return isinstance(call, dict) and text_in(call.get("name")) in names
