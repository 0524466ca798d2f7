"""Resolves `item_reference` of the Responses API: a client names an item of an earlier response instead of sending it.

The Vercel AI SDK does so by default. The last item of a response is recorded in the lineage under its id; the other
items are in the same session. A reference to an item that was not handed out here is passed on as it is.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from recto.formats.message import fields_of, text_in
from recto.gateway.api_keys import Key
from recto.gateway.request import ClientRequest
from recto.gateway.session_resolver import SessionResolver
from recto.transcript.entries import client_messages, content_as_sent
from recto.transcript.session_keys import TenantStore

_REFERENCE: Final = b"item_reference"
_MAX_BYTES: Final = 16 * 1024 * 1024
"""Memory for recent items, about."""
_ITEM_BYTES: Final = 400
"""Memory of an item beside its bytes."""
_PAGE: Final = 500
"""Entries of a session that are searched at once."""


def has_references(request: ClientRequest) -> bool:
    """Whether a request may refer to items of earlier responses."""
    return bool(request.format.body.stored_history) and _REFERENCE in request.body.raw


def item_name(raw: bytes) -> str:
    """Return the lineage name of an item that was handed out; empty for one without an id."""
    id = text_in(fields_of(raw).get("id"))
    return f"item/{id}" if id else ""


def keeps_items(request: ClientRequest) -> bool:
    """Whether the client may refer to items of the response: it does not forbid that they are stored."""
    return bool(request.format.body.stored_history) and request.fields.get("store") is not False


class ItemReferences:
    """Recent items by id, and a search for others. Thread-safe."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._recent: OrderedDict[tuple[str, str, str], bytes] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def keep(self, key: Key, messages: Iterable[bytes]) -> None:
        """Keep items that are handed out to the holder of an API key."""
        named = [(text_in(fields_of(raw).get("id")), raw) for raw in messages]
        with self._lock:
            for id, raw in named:
                self._keep((key.tenant, key.agent, id), raw)

    def resolve(self, key: Key, store: TenantStore, resolver: SessionResolver, request: ClientRequest) -> ClientRequest:
        """Return a request with the items that it refers to. Blocks."""
        ids = [_reference(raw) for raw in request.messages]
        wanted = {id for id in ids if id}
        found = self._cached(key, wanted)
        if missing := wanted - found.keys():
            newest_first = [id for id in reversed(ids) if id in missing]
            found |= self._search(key, store, resolver, newest_first)
        messages = [found.get(id, raw) for id, raw in zip(ids, request.messages, strict=True)]
        return replace(request, messages=tuple(messages)) if found else request

    def _cached(self, key: Key, wanted: Iterable[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        with self._lock:
            for id in wanted:
                name = key.tenant, key.agent, id
                if name in self._recent:
                    self._recent.move_to_end(name)
                    found[id] = self._recent[name]
        return found

    def _search(self, key: Key, store: TenantStore, resolver: SessionResolver, ids: Sequence[str]) -> dict[str, bytes]:
        """Find items in the session of the newest one that is recorded."""
        points = (resolver.find_by_id(key, store, f"item/{id}") for id in ids)
        point = next((point for point in points if point is not None), None)
        found: dict[str, bytes] = {}
        at = point.seq if point else 0
        wanted = set(ids)
        while point is not None and at > 0 and wanted - found.keys():
            start = max(at - _PAGE, 0) + 1
            for entry in client_messages(store.read(point.session, start, at)):
                raw = content_as_sent(entry)
                id = text_in(fields_of(raw).get("id")) if entry.role == "assistant" else ""
                if id in wanted:
                    found[id] = raw
            at = start - 1
        with self._lock:
            for id, raw in found.items():
                self._keep((key.tenant, key.agent, id), raw)
        return found

    def _keep(self, name: tuple[str, str, str], raw: bytes) -> None:
        if not name[2] or name in self._recent:
            return
        self._recent[name] = raw
        self._size += len(raw) + _ITEM_BYTES
        while self._size > self._max_bytes:
            _, dropped = self._recent.popitem(last=False)
            self._size -= len(dropped) + _ITEM_BYTES


def _reference(raw: bytes) -> str:
    """Return the id of the item that an item refers to; empty for any other item."""
    if _REFERENCE not in raw:
        return ""
    fields = fields_of(raw)
    return text_in(fields.get("id")) if fields.get("type") == "item_reference" else ""
