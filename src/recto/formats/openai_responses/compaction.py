"""The response to a request that ends with a `compaction_trigger`: one compaction item, and nothing else.

Codex compacts this way, and stops with an error if there is any other number of items.
"""

from __future__ import annotations

from collections.abc import Iterator

from recto.formats.convert.types import Ending, ResponseIds
from recto.formats.json_spans import Json
from recto.formats.message import json_of
from recto.formats.openai_responses.convert import envelope, finished
from recto.formats.sse import sse


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
