"""State that the gateway stores for clients of the Responses API: conversations and compacted histories.

A compacted history is an id for a point of a session. The client sends the id instead of the history; it is resolved
here, for the same tenant and agent only.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from recto.engine.prompt_builder import render_marker
from recto.engine.report import preview
from recto.errors import InputError, NotHeld
from recto.formats import Format, read
from recto.formats.convert.types import ResponseIds
from recto.formats.json_spans import Json, apply_edits, member_at, set_member, text_of
from recto.formats.message import fields_of, text_in
from recto.formats.streaming import SseEvent, sse
from recto.gateway.api_keys import Key
from recto.gateway.item_references import has_references
from recto.gateway.lineage import LineagePoint
from recto.gateway.request import ClientRequest, surface_of
from recto.gateway.responses import BufferedResponse
from recto.gateway.session_pool import SessionPool
from recto.gateway.session_resolver import SessionHint
from recto.gateway.turn import TurnRunner, refuse_defects
from recto.transcript.entries import MESSAGE, Clock, event, is_hidden
from recto.transcript.session_keys import TenantStore

_OPENED = "conversation_opened"
_MAX_PAGE = 100


def wants_compaction(request: ClientRequest) -> bool:
    """Whether a request ends with an item that asks for its history to be compacted."""
    trigger = request.format.api.compaction_trigger
    last = request.messages[-1] if request.messages and trigger else b""
    return trigger.encode() in last and bool(last) and fields_of(last).get("type") == trigger


def compaction_response(
    request: ClientRequest,
    item: dict[str, Json],
    usage: Json,
    ids: ResponseIds,
    headers: Sequence[tuple[str, str]] = (),
) -> BufferedResponse:
    """Return a response, streamed or not, that is only a compaction. The upstream is not asked."""
    if request.format.context_management is None:
        raise InputError(f"{request.format.title} has no compaction")
    format = request.format.context_management()
    write = format.compaction_stream if request.stream else format.compaction_response
    kind = "text/event-stream; charset=utf-8" if request.stream else "application/json"
    return BufferedResponse(200, write(item, usage, ids, request.model), [("content-type", kind), *headers])


class ConversationState:
    """Counts, compacts and stores histories. Everything here blocks and runs on threads."""

    def __init__(self, sessions: SessionPool, turns: TurnRunner, clock: Clock) -> None:
        self._sessions = sessions
        self._turns = turns
        self._clock = clock

    def tokens(self, key: Key, request: ClientRequest, hint: SessionHint) -> int:
        """Count the prompt of a request: never more than the input budget, whatever its history.

        Raises:
            NotHeld: The request names a history that is not stored here.
            InputError: The key may not use the session that it names.
        """
        if has_references(request):
            request = self._turns.with_items(key, request)
        stored = self._turns.resolver.stored_history(key, self._sessions.view(key), request, hint)
        name, messages = stored or (f"agent:{key.agent}:main", request.messages)
        with self._sessions.use(key, name, request.model) as session:
            tokens = session.meter.prompt(
                [read(raw, request.wire) for raw in messages], request.tools.decode()
            ) + session.meter.text(request.instructions.decode())
            if stored and len(session):
                tokens += preview(session.window).tokens
            return min(tokens, session.window.budget.input_budget)

    def compact(self, key: Key, request: ClientRequest, hint: SessionHint) -> dict[str, Any]:
        """Compact a history and give it an id. Its messages are stored first."""
        if has_references(request):
            request = self._turns.with_items(key, request)
        turn = self._turns.begin(key, request, hint)
        try:
            with self._sessions.use(key, turn.resolved.name, request.model) as session:
                before = turn.prompt.tokens
                session.compact(text_in(request.fields.get("instructions"))[:500])
                after = session.report(json.loads(request.tools or b"[]")).tokens
                point = LineagePoint(session=turn.resolved.key, seq=session.head.seq)
                summary = render_marker(session.window.state)
        finally:
            self._turns.end(turn)
        item = self._turns.record_compaction(turn.store, request, point, summary)
        user_messages = [
            _output_item(fields)
            for fields in map(fields_of, request.messages)
            if request.format.messages.role_of(fields) == "user"
        ]
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
            "output": [*user_messages, item],
            "usage": usage,
        }

    def compact_on_trigger(self, key: Key, request: ClientRequest, hint: SessionHint) -> BufferedResponse:
        """Answer a request that ends with a compaction trigger: with the compaction item of its history alone."""
        end = len(request.messages) - 1
        replies = tuple(place for place in request.replies if place < end)
        history = replace(request, messages=request.messages[:end], replies=replies, shared=min(request.shared, end))
        compacted = self.compact(key, history, hint)
        item, usage = compacted["output"][-1], compacted["usage"]
        ids = ResponseIds(reply=compacted["id"], created=compacted["created_at"], request=request.body.raw)
        return compaction_response(request, item, usage, ids)

    def open_conversation(self, key: Key, fields: Mapping[str, Any], format: Format) -> dict[str, Any]:
        """Create a conversation with its first items."""
        metadata, items = fields.get("metadata") or {}, fields.get("items") or []
        if not isinstance(metadata, dict) or not isinstance(items, list) or len(items) > 20:
            raise InputError("a conversation has 'metadata' and at most 20 'items' to begin with")
        messages = [json.dumps(item).encode() for item in items]
        refuse_defects(messages, format)
        id = f"conv_{secrets.token_hex(16)}"
        name = f"agent:{key.agent}:{id}"
        store = self._sessions.view(key)
        session_key = store.key(name)
        payload = {"id": id, "metadata": metadata}
        opened = store.append(session_key, [event(self._clock, _OPENED, payload, _OPENED, surface="gateway")])[0]
        if messages:
            with self._sessions.use(key, name) as session:
                session.append_all(messages, surface=surface_of(format), wire=format.name)
        self._turns.resolver.lineage.record(store, f"conversation/{id}", LineagePoint(session=session_key, seq=0))
        return _conversation(id, opened.ts, metadata)

    def conversation(self, key: Key, id: str) -> dict[str, Any]:
        """Return a conversation. Raises `NotHeld`."""
        store = self._sessions.view(key)
        point = self._find_conversation(key, store, id)
        entry = store.find(point.session, _OPENED)
        if entry is None:
            raise NotHeld(f"Conversation '{id:.80}' not found.")
        return _conversation(id, entry.ts, json.loads(entry.content)["metadata"])

    def items(self, key: Key, id: str, *, after: str = "", limit: int = 20, order: str = "desc") -> dict[str, Any]:
        """Return a page of the items of a conversation."""
        store = self._sessions.view(key)
        point = self._find_conversation(key, store, id)
        limit = min(max(limit, 1), _MAX_PAGE)
        start = store.get(point.session, after) if after else None
        if after and start is None:
            raise NotHeld(f"Item '{after:.80}' not found.")
        head = store.head(point.session).seq
        items: list[dict[str, Any]] = []
        ascending = order == "asc"
        at = start.seq if start else 0 if ascending else head + 1
        while len(items) <= limit and (at < head if ascending else at > 1):
            at += 1 if ascending else -1
            entry = next(iter(store.read(point.session, at, at)), None)
            if entry is not None and entry.kind == MESSAGE and not is_hidden(entry.meta):
                fields = json.loads(entry.content)
                items.append({"type": "message", **fields, "id": entry.id})
        page = items[:limit]
        return {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > limit,
        }

    def _find_conversation(self, key: Key, store: TenantStore, id: str) -> LineagePoint:
        point = self._turns.resolver.find_by_id(key, store, f"conversation/{id}")
        if point is None:
            raise NotHeld(f"Conversation '{id:.80}' not found.")
        return point


def _output_item(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return a message of a request as an item of a response, which has a type, an id, and its content as a list."""
    if fields.get("type") not in (None, "message"):
        return dict(fields)
    content = fields.get("content")
    parts: Json = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    id = fields.get("id") or f"msg_{secrets.token_hex(16)}"
    return {**fields, "id": id, "type": "message", "status": "completed", "content": parts}


def _conversation(id: str, ts: int, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": id, "object": "conversation", "created_at": ts // 1_000_000, "metadata": dict(metadata)}


_RESPONSE_EVENTS: Final = frozenset(
    f"response.{state}" for state in ("created", "queued", "in_progress", "completed", "incomplete", "failed")
)


def history_ids(request: ClientRequest) -> dict[str, Json]:
    """Return the ids of stored histories in a request, which its response must repeat; empty without any."""
    if not request.format.body.stored_history:
        return {}
    ids: dict[str, Json] = {}
    if previous := text_in(request.fields.get("previous_response_id")):
        ids["previous_response_id"] = previous
    if conversation := request.format.request.conversation_id(request.fields):
        ids["conversation"] = {"id": conversation}
    return ids


def with_history_ids(raw: bytes, ids: Mapping[str, Json], inside: str = "") -> bytes:
    """Return a response, or an event with a response in it, with the ids added; anything else unchanged."""
    if not ids:
        return raw
    try:
        text = text_of(raw)
        for key, value in ids.items():
            at = 0
            if inside:
                member = member_at(text, 0, inside)
                if member is None or not isinstance(member.value.value, dict):
                    return raw
                at = member.value.start
            text = apply_edits(text, [set_member(text, at, key, json.dumps(value))])
    except InputError:
        return raw
    return text.encode()


class HistoryIdStream:
    """Adds the ids to the events of a stream that carry the response; passes all others on unchanged."""

    def __init__(self, ids: Mapping[str, Json]) -> None:
        self._ids = ids

    def feed(self, event: SseEvent) -> list[bytes]:
        """Convert an event."""
        if event.name not in _RESPONSE_EVENTS:
            return [event.raw]
        return [sse(event.name, with_history_ids(event.data.encode(), self._ids, "response"))]

    def finish(self) -> list[bytes]:
        """Return nothing: an incomplete stream stays incomplete."""
        return []
