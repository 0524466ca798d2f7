"""Which session a history belongs to, when nobody says: each message is hashed onto the hash of those before it.

An answer that was given is noted under the hash of everything up to it. When the client sends its history again, the
hash up to its last answer is looked up, once, however long the history is. Notes are entries of sessions of their own,
which nobody can name; they are spread by hash, so that no two conversations wait for each other.

What an assistant said is compared by what it says: clients drop thinking, ids and vendors' fields when they send it
again. What others said is compared in its canonical form.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from recto.core.messages import Message, Part
from recto.engine.drafts import event
from recto.errors import AppendConflict, KeyReused
from recto.ports import Clock, TranscriptStore
from recto.wire import canonical, read

_NOTED = "lineage"
_REMEMBERED = 50_000
"""Messages whose hash is remembered: a history comes again with each request."""
_TRIES = 4
_TOGETHER = 8
"""Notes that are handed in at once, beside those of the threads that turns run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A point of a session: everything up to and including an entry."""

    session: str
    """As it is stored."""
    seq: int


@dataclass(slots=True)
class Prints:
    """The hashes of messages, remembered."""

    most: int = _REMEMBERED
    _known: OrderedDict[bytes, bytes] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, raw: bytes, wire: str) -> bytes:
        """The hash of a message; empty for one that says nothing, which makes no difference to a history."""
        return self._all([raw], wire)[0]

    def chain(self, seed: bytes, messages: Sequence[bytes], wire: str) -> list[bytes]:
        """For each message the hash of the history up to and including it."""
        found: list[bytes] = []
        last = seed
        for one in self._all(messages, wire):
            last = hashlib.sha256(last + one).digest() if one else last
            found.append(last)
        return found

    def _all(self, messages: Sequence[bytes], wire: str) -> list[bytes]:
        """The hashes of messages; nearly all of them are known, and looked up together."""
        person = wire.encode()[:16]
        names = [hashlib.blake2b(raw, digest_size=16, person=person).digest() for raw in messages]
        known = self._known
        with self._lock:
            found = [known.get(name) for name in names]
            for name, one in zip(names, found, strict=True):
                if one is not None:
                    known.move_to_end(name)
        made = [_print(raw, wire) if one is None else one for raw, one in zip(messages, found, strict=True)]
        with self._lock:
            for name, one, before in zip(names, made, found, strict=True):
                if before is None:
                    known[name] = one
            while len(known) > self.most:
                known.popitem(last=False)
        return made


def seed_of(tenant: str, agent: str, named: str, wire: str) -> bytes:
    """Where the hashes of a conversation begin: those of two tenants, agents, names or formats never meet."""
    return hashlib.sha256(json.dumps(["recto lineage 1", tenant, agent, named, wire]).encode()).digest()


class Lineage:
    """What is noted of which history is where."""

    def __init__(self, store: TranscriptStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._together = ThreadPoolExecutor(max_workers=_TOGETHER, thread_name_prefix="recto-lineage")

    def find(self, tenant: str, name: bytes | str) -> Place | None:
        """Where a history is, by its hash, or by the id under which a client was told of it."""
        key = _key(name)
        entry = self._store.find(_shelf(tenant, key), key)
        if entry is None:
            return None
        about: dict[str, Any] = json.loads(entry.content)
        place = Place(session=about["session"], seq=about["seq"])
        # A session that was erased on purpose is nobody's past any more, though the note of it is still there.
        return place if place.seq <= self._store.head(place.session).seq else None

    def note(self, tenant: str, name: bytes | str, place: Place) -> None:
        """Notes where a history is. The first word stands: the same history is not noted twice."""
        key = _key(name)
        draft = event(self._clock, _NOTED, {"session": place.session, "seq": place.seq}, key, surface="gateway")
        for _ in range(_TRIES):
            try:
                self._store.append(_shelf(tenant, key), [draft])
            except KeyReused:
                return
            except AppendConflict:
                continue
            return

    def note_all(self, tenant: str, names: Sequence[bytes | str], place: Place) -> None:
        """Notes one place under several names. Given to the store at once they need one commit, not one each."""
        others = [self._together.submit(self.note, tenant, name, place) for name in names[1:]]
        for name in names[:1]:
            self.note(tenant, name, place)
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


def _shelf(tenant: str, key: str) -> str:
    return f"recto:lineage/{tenant}/{key.removeprefix('id/')[:2]}"


def _print(raw: bytes, wire: str) -> bytes:
    message = read(raw, wire)
    if message.role != "assistant":
        return hashlib.sha256(canonical(raw, wire)).digest()
    said = _said(message)
    if not said:
        return b""
    return hashlib.sha256(json.dumps(said).encode()).digest()


def _said(message: Message) -> list[list[str]]:
    words = " ".join(" ".join(part.text.split()) for part in message.parts if part.kind == "text").strip()
    found = [["text", words]] if words else []
    found += [["call", part.name, _arguments(part), part.call_id] for part in message.calls]
    found += [[part.kind, part.text, str(part.weight)] for part in message.parts if part.kind in ("image", "media")]
    # Without a text it is members that the format does not know, and clients put in and leave out their own.
    found += [["other", part.text, str(part.weight)] for part in message.parts if part.kind == "other" and part.text]
    return found


def _arguments(call: Part) -> str:
    try:
        return json.dumps(json.loads(call.text), sort_keys=True)
    except (ValueError, RecursionError):
        return call.text
