"""Finds the session of a history that names none: each message is hashed onto the hash of those before it.

Every response is recorded under the hash of the history up to it. When a client sends its history again, the hash up to
its last response is looked up once, however long the history is. The records are entries in sessions of their own that
no caller can name; they are sharded by hash, so that no two conversations wait for each other.

Nearly every history is sent again to the process that stored it, so the newest records are also kept in memory. Such a
record is used once and proves nothing: the append that goes on from it names the entry that it expects to be the last.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from recto.errors import AppendConflict, KeyReused
from recto.transcript.entries import Draft, Entry
from recto.transcript.events import event
from recto.transcript.protocols import Clock, Records
from recto.transcript.tenancy import TenantStore

_AREA = "lineage"
"""The records of a tenant, and the kind of their entries."""
_ATTEMPTS = 4
_MAX_RECENT = 4_096
"""Records kept in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineagePoint:
    """A point of a session: everything up to and including an entry."""

    session: str
    """The stored key."""
    seq: int
    head: int | None = field(default=None, compare=False)
    """The last entry of the session when the point was looked up."""


@lru_cache(maxsize=4_096)
def seed_of(tenant: str, agent: str, name: str, wire: str) -> bytes:
    """Return the start of a hash chain: chains of two tenants, agents, names or formats never meet."""
    return hashlib.sha256(json.dumps(["recto lineage 1", tenant, agent, name, wire]).encode()).digest()


class Lineage:
    """Records where histories are stored."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent: OrderedDict[tuple[str, bytes], LineagePoint] = OrderedDict()
        self._lock = threading.Lock()

    def take_recent(self, store: TenantStore, name: bytes) -> LineagePoint | None:
        """Return where this process has stored a history, once: what follows it there is not known afterwards."""
        with self._lock:
            return self._recent.pop((store.tenant, name), None)

    def keep_recent(self, store: TenantStore, name: bytes, point: LineagePoint) -> None:
        """Keep a point that was just recorded, and behind which nothing is stored."""
        with self._lock:
            self._recent[store.tenant, name] = replace(point, head=point.seq)
            if len(self._recent) > _MAX_RECENT:
                self._recent.popitem(last=False)

    def find(self, store: TenantStore, name: bytes | str) -> LineagePoint | None:
        """Find a history by its hash, or by the id that a client was given for it."""
        key = _key(name)
        entry = store.find_record(_AREA, _shard(key), key)
        if entry is None:
            return None
        payload: dict[str, Any] = json.loads(entry.content)
        head = store.head(payload["session"]).seq
        point = LineagePoint(session=payload["session"], seq=payload["seq"], head=head)
        # The record of a session that was erased on purpose is still there, but leads nowhere.
        return point if point.seq <= head else None

    def record(self, store: TenantStore, name: bytes | str, point: LineagePoint) -> None:
        """Record where a history is. The first record of a history wins."""
        key = _key(name)
        draft = self._draft(key, point)
        for _ in range(_ATTEMPTS):
            try:
                store.append_record(_AREA, _shard(key), [draft])
            except KeyReused:
                return
            except AppendConflict:
                continue
            return

    def records(self, store: TenantStore, names: Sequence[bytes | str]) -> Records:
        """Return records, under several names, of the point at the end of the entries that they are stored with."""

        def made(entries: Sequence[Entry]) -> list[tuple[str, Draft]]:
            point = LineagePoint(session=entries[-1].session, seq=entries[-1].seq)
            return [(store.record_session(_AREA, _shard(key)), self._draft(key, point)) for key in map(_key, names)]

        return made

    def _draft(self, key: str, point: LineagePoint) -> Draft:
        return event(self._clock, _AREA, {"session": point.session, "seq": point.seq}, key, surface="gateway")


def lookup_order(chain: Sequence[bytes], replies: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Yield where a history may be known up to, longest first: after each response, then at growing distances.

    Few are tried: an edit is nearly always near the end.
    """
    places = list(reversed(replies))
    near, far = places[:8], places[8::8]
    for place in (*near, *far[:8]):
        yield place, chain[place]


def _key(name: bytes | str) -> str:
    # An id may be any text of a client, half characters too: it is hashed, and found or not.
    digest = "" if isinstance(name, bytes) else hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return name.hex() if isinstance(name, bytes) else f"id/{digest}"


def _shard(key: str) -> str:
    return key.removeprefix("id/")[:2]
