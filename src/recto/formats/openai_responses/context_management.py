"""Compaction in the Responses API: with a threshold in `context_management`, or with a `compaction_trigger`.

A response over the threshold begins with a compaction item, and the client may drop everything before it:
https://developers.openai.com/api/docs/guides/compaction. The response to a trigger is one compaction item, and nothing
else: Codex compacts this way, and stops with an error if there is any other number of items.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

from recto.errors import InputError
from recto.formats.context_management import COMPACTED, MEMBER, ContextPlan, ContextReport
from recto.formats.convert.types import Ending, ResponseIds
from recto.formats.json_spans import Json, apply_edits, elements_of, member_at, set_member, text_of
from recto.formats.message import fields_of, json_of, object_in, text_in
from recto.formats.openai_responses.convert import envelope, finished
from recto.formats.streaming import SseEvent, event_object, sse

BETAS: Final[frozenset[str]] = frozenset()
_STARTS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})


def read_plan(value: Json) -> ContextPlan:
    """Reads the member of a request. Raises `InputError`, which names an entry that is not known."""
    if value is not None and not isinstance(value, list):
        raise InputError(f"'{MEMBER}' is a list of entries with a 'type'")
    plan = ContextPlan()
    for entry in map(object_in, value or []):
        if entry.get("type") != "compaction":
            kind = json.dumps(entry.get("type"))
            raise InputError(f"'{MEMBER}' has an entry of a type that is not known: {kind:.80}")
        threshold = entry.get("compact_threshold")
        if threshold is not None and (not isinstance(threshold, int) or threshold < 1):
            raise InputError("'compact_threshold' is a number of tokens")
        plan = ContextPlan(compact_at=threshold)
    return plan


def local_tools(tools: bytes) -> bytes:
    """Returns the tools of a request unchanged."""
    return tools


def compaction_item(id: str, summary: str) -> dict[str, Json]:
    """Writes the item that represents a history. It is opaque to clients."""
    return {"id": id, "type": "compaction", "encrypted_content": f"{COMPACTED}{id}"}


def after_compaction(messages: Sequence[bytes]) -> tuple[str, tuple[bytes, ...]]:
    """Returns the id of the last compaction made here, and the messages after its item; no id without one."""
    for place in range(len(messages) - 1, -1, -1):
        if b"compaction" in messages[place]:
            fields = fields_of(messages[place])
            content = text_in(fields.get("encrypted_content"))
            if fields.get("type") == "compaction" and content.startswith(COMPACTED):
                return content.removeprefix(COMPACTED), tuple(messages[place + 1 :])
    return "", ()


def with_report(raw: bytes, report: ContextReport) -> bytes:
    """Returns a response body that begins with the compaction item."""
    return raw if report.compaction is None else _with_item(text_of(raw), 0, report.compaction).encode()


class ResponsesReportStream:
    """Adds the compaction item to the events of a stream, before the first item; numbers go up behind it."""

    def __init__(self, report: ContextReport) -> None:
        self._item = report.compaction
        self._next = 0
        """The number of the next event."""
        self._is_sent = False

    def feed(self, event: SseEvent) -> list[bytes]:
        """Converts an event."""
        data = event_object(event)
        if self._item is None or data is None:
            return [event.raw]
        events: list[bytes] = []
        if not self._is_sent and data.get("type") not in _STARTS:
            self._is_sent = True
            names = "response.output_item.added", "response.output_item.done"
            events += [self._written(name, {"type": name, "output_index": 0, "item": self._item}) for name in names]
        if isinstance(index := data.get("output_index"), int):
            data["output_index"] = index + 1
        if self._is_sent and isinstance(response := data.get("response"), dict):
            output = response.get("output")
            data["response"] = {**response, "output": [self._item, *(output if isinstance(output, list) else [])]}
        return [*events, self._written(event.name, data)]

    def finish(self) -> list[bytes]:
        """Returns nothing: an incomplete stream stays incomplete."""
        return []

    def _written(self, name: str, data: dict[str, Json]) -> bytes:
        data = {**data, "sequence_number": self._next}
        self._next += 1
        return sse(name or None, json_of(data))


def report_stream(report: ContextReport) -> ResponsesReportStream:
    """Creates the converter of one stream."""
    return ResponsesReportStream(report)


def _with_item(text: str, at: int, item: dict[str, Json]) -> str:
    output = member_at(text, at, "output")
    if output is None or not isinstance(output.value.value, list):
        return text
    items = [json_of(item), *(text[one.start : one.end] for one in elements_of(text, output.value))]
    return apply_edits(text, [set_member(text, at, "output", f"[{', '.join(items)}]")])


def compaction_response(item: dict[str, Json], usage: Json, ids: ResponseIds, model: str) -> bytes:
    """Writes the response with a compaction item."""
    return json_of({**finished(ids, model, [item], Ending()), "usage": usage}).encode()


def compaction_stream(item: dict[str, Json], usage: Json, ids: ResponseIds, model: str) -> bytes:
    """Writes the same response as a stream."""
    return b"".join(_events(item, usage, ids, model))


def _events(item: dict[str, Json], usage: Json, ids: ResponseIds, model: str) -> Iterator[bytes]:
    started: dict[str, Json] = {"response": envelope(ids, model)}
    added: dict[str, Json] = {"output_index": 0, "item": item}
    completed: dict[str, Json] = {"response": {**finished(ids, model, [item], Ending()), "usage": usage}}
    for number, (name, members) in enumerate(
        (
            ("response.created", started),
            ("response.in_progress", started),
            ("response.output_item.added", added),
            ("response.output_item.done", added),
            ("response.completed", completed),
        )
    ):
        yield sse(name, json_of({"type": name, "sequence_number": number, **members}))
