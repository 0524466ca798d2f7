"""What clients of the Responses API have held for them: conversations, and histories that were compacted.

A compacted history is a name for a point of a session. The client sends the name instead of the history, and what it
stands for is found here, for the same tenant only.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

from recto.errors import InputError, NotHeld
from recto.formats import Format, read
from recto.formats.json_spans import Json, member_at, put_member, spliced, text_of
from recto.formats.message import fields_of, text_in
from recto.formats.sse import SseEvent, sse
from recto.gateway.api_keys import Key
from recto.gateway.lineage import LineagePoint
from recto.gateway.request import ClientRequest, surface_of
from recto.gateway.session_pool import SessionPool
from recto.gateway.session_resolver import COMPACTED, Named, compacted_in
from recto.gateway.turn import TurnRunner
from recto.transcript.entries import MESSAGE
from recto.transcript.events import event
from recto.transcript.protocols import Clock
from recto.transcript.tenancy import TenantStore

_OPENED = "conversation_opened"
_PAGE = 100


class Holding:
    """Counts, compacts and holds histories. Everything here blocks, and runs on threads."""

    def __init__(self, sessions: SessionPool, turns: TurnRunner, clock: Clock) -> None:
        self._sessions = sessions
        self._turns = turns
        self._clock = clock

    def tokens(self, key: Key, asked: ClientRequest) -> int:
        """What the prompt of a request would cost: never more than the room, whatever its history."""
        store = self._sessions.view(key)
        held = self._held(store, asked)
        name = store.name(held.session) if held else f"agent:{key.agent}:main"
        with self._sessions.use(key, name, asked.model) as session:
            tokens = session.meter.prompt(
                [read(raw, asked.wire) for raw in asked.messages], asked.tools.decode()
            ) + session.meter.text(asked.beside.decode())
            if held is not None:
                tokens += session.report().tokens
            return min(tokens, session.window.budget.input_budget)

    def compact(self, key: Key, asked: ClientRequest, named: Named) -> dict[str, Any]:
        """Makes a history shorter and gives it a name. The messages are stored first, as ever."""
        turn = self._turns.begin(key, asked, named)
        try:
            with self._sessions.use(key, turn.placed.session, asked.model) as session:
                before = turn.prompt.tokens
                session.compact(text_in(asked.fields.get("instructions"))[:500])
                after = session.report(json.loads(asked.tools or b"[]")).tokens
                place = LineagePoint(session=turn.placed.stored, seq=session.head.seq)
        finally:
            self._turns.end(turn)
        id = f"cmp_{secrets.token_hex(16)}"
        self._turns.placing.lineage.note(turn.store, f"compaction/{id}", place)
        spoken = [json.loads(raw) for raw in asked.messages if asked.format.messages.role_of(fields_of(raw)) == "user"]
        item = {"id": id, "type": "compaction", "encrypted_content": f"{COMPACTED}{id}"}
        usage = {
            "input_tokens": before,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": after,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": before + after,
        }
        return {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response.compaction",
            "created_at": self._clock.now() // 1_000_000,
            "output": [*spoken, item],
            "usage": usage,
        }

    def open_conversation(self, key: Key, given: Mapping[str, Any], format: Format) -> dict[str, Any]:
        """A conversation that is held here, with the items it begins with."""
        metadata, items = given.get("metadata") or {}, given.get("items") or []
        if not isinstance(metadata, dict) or not isinstance(items, list) or len(items) > 20:
            raise InputError("a conversation has 'metadata' and at most 20 'items' to begin with")
        id = f"conv_{secrets.token_hex(16)}"
        name = f"agent:{key.agent}:{id}"
        store = self._sessions.view(key)
        stored = store.key(name)
        about = {"id": id, "metadata": metadata}
        opened = store.append(stored, [event(self._clock, _OPENED, about, _OPENED, surface="gateway")])[0]
        if items:
            with self._sessions.use(key, name) as session:
                session.append_all(
                    [json.dumps(item).encode() for item in items], surface=surface_of(format), wire=format.name
                )
        self._turns.placing.lineage.note(store, f"conversation/{id}", LineagePoint(session=stored, seq=0))
        return _conversation(id, opened.ts, metadata)

    def conversation(self, key: Key, id: str) -> dict[str, Any]:
        """What is known of a conversation. Raises `NotHeld`."""
        store = self._sessions.view(key)
        place = self._conversation(store, id)
        entry = store.find(place.session, _OPENED)
        if entry is None:
            raise NotHeld(f"Conversation '{id:.80}' not found.")
        return _conversation(id, entry.ts, json.loads(entry.content)["metadata"])

    def items(self, key: Key, id: str, *, after: str = "", limit: int = 20, order: str = "desc") -> dict[str, Any]:
        """A page of what was said in a conversation."""
        store = self._sessions.view(key)
        place = self._conversation(store, id)
        most = min(max(limit, 1), _PAGE)
        start = store.get(place.session, after) if after else None
        if after and start is None:
            raise NotHeld(f"Item '{after:.80}' not found.")
        head = store.head(place.session).seq
        found: list[dict[str, Any]] = []
        ascending = order == "asc"
        at = start.seq if start else 0 if ascending else head + 1
        while len(found) <= most and (at < head if ascending else at > 1):
            at += 1 if ascending else -1
            entry = next(iter(store.read(place.session, at, at)), None)
            if entry is not None and entry.kind == MESSAGE:
                fields = json.loads(entry.content)
                found.append({"type": "message", **fields, "id": entry.id})
        page = found[:most]
        return {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(found) > most,
        }

    def _conversation(self, store: TenantStore, id: str) -> LineagePoint:
        place = self._turns.placing.lineage.find(store, f"conversation/{id}")
        if place is None:
            raise NotHeld(f"Conversation '{id:.80}' not found.")
        return place

    def _held(self, store: TenantStore, asked: ClientRequest) -> LineagePoint | None:
        before = text_in(asked.fields.get("previous_response_id"))
        _, compacted = compacted_in(asked.messages) if asked.format.body.stored_history else (-1, "")
        name = f"compaction/{compacted}" if compacted else f"response/{before}" if before else ""
        return self._turns.placing.lineage.find(store, name) if name else None


def _conversation(id: str, ts: int, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id, "object": "conversation", "created_at": ts // 1_000_000, "metadata": dict(metadata)}


_WITH_RESPONSE: Final = frozenset(
    f"response.{state}" for state in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
)


def held_names(asked: ClientRequest) -> dict[str, Json]:
    """What an answer shall repeat of a request's names for histories that are held here; empty where it has none."""
    if not asked.format.body.stored_history:
        return {}
    found: dict[str, Json] = {}
    if before := text_in(asked.fields.get("previous_response_id")):
        found["previous_response_id"] = before
    if conversation := asked.format.request.conversation_id(asked.fields):
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
