"""Says in a response which history it goes on from.

An upstream is sent the history itself and not its name, so its response names none; clients and the specification of
Open Responses expect the name that was asked with.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from recto.core.json_text import Json, text_of
from recto.errors import InputError
from recto.gateway.asking import Asked, conversation_of
from recto.wire.names import RESPONSES
from recto.wire.parts import text_in
from recto.wire.splicing import member_at, put_member, spliced
from recto.wire.sse import SseEvent, sse

_WITH_RESPONSE: Final = frozenset(
    f"response.{state}" for state in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
)


def held_names(asked: Asked) -> dict[str, Json]:
    """What an answer shall repeat of a request's names for histories that are held here; empty where it has none."""
    if asked.wire != RESPONSES:
        return {}
    found: dict[str, Json] = {}
    if before := text_in(asked.fields.get("previous_response_id")):
        found["previous_response_id"] = before
    if conversation := conversation_of(asked):
        found["conversation"] = {"id": conversation}
    return found


def with_names(raw: bytes, names: Mapping[str, Json], inside: str = "") -> bytes:
    """A response, or an event that holds one, with the names in it; anything else as it is."""
    if not names:
        return raw
    try:
        text = text_of(raw)
        for key, value in names.items():
            at = 0
            if inside:
                member = member_at(text, 0, inside)
                if member is None or not isinstance(member.value.value, dict):
                    return raw
                at = member.value.start
            text = spliced(text, [put_member(text, at, key, json.dumps(value))])
    except InputError:
        return raw
    return text.encode()


class Naming:
    """Puts the names into the events of a stream that hold the response; passes all others on as they are."""

    def __init__(self, names: Mapping[str, Json]) -> None:
        self._names = names

    def feed(self, event: SseEvent) -> list[bytes]:
        """What an event becomes."""
        if event.name not in _WITH_RESPONSE:
            return [event.raw]
        return [sse(event.name, with_names(event.data.encode(), self._names, "response"))]

    def finish(self) -> list[bytes]:
        """Nothing: what is missing at the end of a stream is missing."""
        return []
