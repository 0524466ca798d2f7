"""Which session a history belongs to, when nobody says: each message is hashed onto the hash of those before it.

An answer that was given is noted under the hash of everything up to it. When the client sends its history again, the
hash up to its last answer is looked up, once, however long the history is. Notes are entries of sessions of their own,
which nobody can name; they are spread by hash, so that no two conversations wait for each other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from recto.errors import AppendConflict, KeyReused
from recto.transcript.events import event
from recto.transcript.protocols import Clock
from recto.transcript.tenancy import TenantStore

_NOTED = "lineage"
_AREA = "lineage"
_TRIES = 4
_TOGETHER = 8
"""Notes that are handed in at once, beside those of the threads that turns run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineagePoint:
    """A point of a session: everything up to and including an entry."""

    session: str
    """As it is stored."""
    seq: int


def seed_of(tenant: str, agent: str, named: str, wire: str) -> bytes:
    """Where the hashes of a conversation begin: those of two tenants, agents, names or formats never meet."""
    return hashlib.sha256(json.dumps(["recto lineage 1", tenant, agent, named, wire]).encode()).digest()


class Lineage:
    """What is noted of which history is where."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._together = ThreadPoolExecutor(max_workers=_TOGETHER, thread_name_prefix="recto-lineage")

    def find(self, store: TenantStore, name: bytes | str) -> LineagePoint | None:
        """Where a history is, by its hash, or by the id under which a client was told of it."""
        key = _key(name)
        entry = store.find_record(_AREA, _shard(key), key)
        if entry is None:
            return None
        about: dict[str, Any] = json.loads(entry.content)
        place = LineagePoint(session=about["session"], seq=about["seq"])
        # A session that was erased on purpose is nobody's past any more, though the note of it is still there.
        return place if place.seq <= store.head(place.session).seq else None

    def note(self, store: TenantStore, name: bytes | str, place: LineagePoint) -> None:
        """Notes where a history is. The first word stands: the same history is not noted twice."""
        key = _key(name)
        draft = event(self._clock, _NOTED, {"session": place.session, "seq": place.seq}, key, surface="gateway")
        for _ in range(_TRIES):
            try:
                store.append_record(_AREA, _shard(key), [draft])
            except KeyReused:
                return
            except AppendConflict:
                continue
            return

    def note_all(self, store: TenantStore, names: Sequence[bytes | str], place: LineagePoint) -> None:
        """Notes one place under several names. Given to the store at once they need one commit, not one each."""
        others = [self._together.submit(self.note, store, name, place) for name in names[1:]]
        for name in names[:1]:
            self.note(store, name, place)
        for other in others:
            other.result()


def longest(chain: Sequence[bytes], replies: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Where a history may be known up to, the longest first: the places behind each answer, then ever further back.

    Few are tried: an edit is nearly always near the end.
    """
    places = list(reversed(replies))
    near, far = places[:8], places[8::8]
    for place in (*near, *far[:8]):
        yield place, chain[place]


def _key(name: bytes | str) -> str:
    return name.hex() if isinstance(name, bytes) else f"id/{hashlib.sha256(name.encode()).hexdigest()}"


def _shard(key: str) -> str:
    return key.removeprefix("id/")[:2]
