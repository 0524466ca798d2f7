"""The in-memory store: the reference implementation that the contract tests compare every other store with.

Implements the complete contract of `recto.transcript.protocols.TranscriptStore` except durability.
"""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import islice

from msgspec import Struct, field

from recto.errors import AppendConflict, IndexUnavailable, KeyReused, StoreUnavailable
from recto.recall.index.rows import (
    CoveredRange,
    IndexRow,
    LaneSize,
    LaneSnapshot,
    SealedRow,
    join_ranges,
    overlaps,
    uncovered_rows,
)
from recto.transcript.entries import (
    EMPTY_HEAD,
    MESSAGE,
    OPENING_BYTES,
    OPENING_ENTRIES,
    OPENING_MESSAGES,
    PAST_TITLE_KEYS,
    TITLE_KEY,
    Draft,
    Entry,
    Head,
    SessionSummary,
    already_stored,
    link_entries,
    refuse_unstorable,
    session_key,
)
from recto.transcript.protocols import Records


class _Transcript(Struct):
    entries: list[Entry] = field(default_factory=list)
    by_id: dict[str, Entry] = field(default_factory=dict)
    by_key: dict[str, Entry] = field(default_factory=dict)
    terms: dict[int, bytes] = field(default_factory=dict)

    @property
    def head(self) -> Head:
        return Head(self.entries[-1].seq, self.entries[-1].hash) if self.entries else EMPTY_HEAD

    def extend(self, entries: list[Entry]) -> None:
        self.entries += entries
        self.by_id |= {entry.id: entry for entry in entries}
        self.by_key |= {entry.key: entry for entry in entries if entry.key is not None}
        self.terms |= {entry.seq: entry.terms for entry in entries if entry.terms}


def _title_entries(transcript: _Transcript) -> list[Entry]:
    renames = [entry for key, entry in transcript.by_key.items() if TITLE_KEY <= key < PAST_TITLE_KEYS]
    if renames:
        return [max(renames, key=lambda entry: entry.seq)]
    messages = (
        entry
        for entry in transcript.entries[:OPENING_ENTRIES]
        if entry.role == "user" and entry.kind == MESSAGE and len(entry.content) <= OPENING_BYTES
    )
    return list(islice(messages, OPENING_MESSAGES))


class MemoryStore:
    """Stores transcripts in memory until the process ends."""

    def __init__(self) -> None:
        self._transcripts: dict[str, _Transcript] = {}
        self._heads: dict[str, Head] = {}
        self._lock = threading.RLock()
        self._closed = False

    is_local = True

    @property
    def location(self) -> str:
        """Where the store is, for messages: a path or a URL without the password."""
        return "memory"

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, also: Records | None = None
    ) -> list[Entry]:
        """Append the drafts to the session, atomically."""
        refuse_unstorable(session, drafts)
        with self._lock:
            transcript = self._transcript(session)
            stored = {key: transcript.by_key[key] for draft in drafts if (key := draft.key) in transcript.by_key}
            found = already_stored(session, drafts, stored, transcript.head, expect)
            new = drafts[len(found) :]
            for draft in new:
                if draft.id in transcript.by_id:
                    reason = f"id '{draft.id}' is already entry {transcript.by_id[draft.id].seq}"
                    raise AppendConflict(session, expect, transcript.head.seq, reason)
            entries = link_entries(session, transcript.head, new)
            if entries:
                transcript.extend(entries)
                self._transcripts[session] = transcript
                self._heads[session] = transcript.head
            stored_all = [*found, *entries]
            for where, record in also(stored_all) if also is not None else ():
                with suppress(KeyReused):
                    self.append(where, [record])
            return stored_all

    def turn(self, session: str, *, patience: float | None = None) -> AbstractContextManager[None]:
        """Do nothing: there is one process, and the gateway orders its threads by session."""
        refuse_unstorable(session, ())
        return nullcontext()

    def head(self, session: str) -> Head:
        """Return the head of a session."""
        with self._lock:
            return self._transcript(session).head

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Iterate over the entries from `start` to `stop` inclusive."""
        with self._lock:
            entries = self._transcript(session).entries
        place = max(start, 1) - 1
        while place < len(entries) and (stop is None or place < stop):
            yield entries[place]
            place += 1

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """Return the entries with these numbers, in order; missing ones are skipped."""
        return [entry for seq in sorted(set(seqs)) if seq > 0 for entry in self.read(session, seq, seq)]

    def tail(self, session: str, count: int) -> list[Entry]:
        """Return the last `count` entries, oldest first."""
        with self._lock:
            return self._transcript(session).entries[-count:] if count > 0 else []

    def terms(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Iterate over the rows of the word index from `start` to `stop` inclusive."""
        last = min(stop, self.head(session).seq) if stop is not None else self.head(session).seq
        yield from self.pick_terms(session, range(max(start, 1), last + 1)).items()

    def pick_terms(self, session: str, seqs: Collection[int]) -> dict[int, bytes]:
        """Return the rows of the word index of these entries."""
        with self._lock:
            rows = self._transcript(session).terms
            return {seq: rows[seq] for seq in sorted(set(seqs)) if seq in rows}

    def add_terms(self, session: str, entries: Sequence[Entry]) -> None:
        """Store rows of the word index for entries that are stored already."""
        with self._lock:
            transcript = self._transcript(session)
            for entry in entries:
                stored = transcript.entries[entry.seq - 1] if 0 < entry.seq <= len(transcript.entries) else None
                if entry.terms and stored is not None and stored.hash == entry.hash:
                    transcript.terms[entry.seq] = entry.terms

    def lacking_terms(
        self, session: str, version: bytes, start: int = 1, stop: int | None = None, limit: int | None = None
    ) -> list[int]:
        """Return the first messages of a range without a row of the word index that begins with `version`."""
        with self._lock:
            transcript = self._transcript(session)
            lacking = [
                entry.seq
                for entry in transcript.entries[max(start, 1) - 1 : None if stop is None else max(stop, 0)]
                if entry.kind == MESSAGE and not transcript.terms.get(entry.seq, b"").startswith(version)
            ]
            return lacking[:limit]

    def get(self, session: str, id: str) -> Entry | None:
        """Return the entry with an id, if it exists."""
        with self._lock:
            return self._transcript(session).by_id.get(id)

    def find(self, session: str, key: str) -> Entry | None:
        """Return the entry stored under an idempotency key, if it exists."""
        with self._lock:
            return self._transcript(session).by_key.get(key)

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """List sessions by key, starting after `after`."""
        with self._lock:
            self._refuse_closed()
            names = sorted(name for name in self._transcripts if name > after)
            return [self._summary(name) for name in names[: None if limit is None else max(limit, 0)]]

    def title_entries(self, sessions: Sequence[str]) -> list[Entry]:
        """Return the entries that these sessions are titled by."""
        with self._lock:
            self._refuse_closed()
            return [entry for session in dict.fromkeys(sessions) for entry in _title_entries(self._transcript(session))]

    def kept_heads(self) -> Mapping[str, Head]:
        """Return the heads that are stored separately from the transcripts."""
        with self._lock:
            self._refuse_closed()
            return dict(self._heads)

    def accept_heads(self) -> None:
        """Accept the transcripts as they are: rewrite the stored heads from them."""
        with self._lock:
            self._refuse_closed()
            self._heads = {name: transcript.head for name, transcript in self._transcripts.items()}

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Delete a session permanently and return its last head."""
        with self._lock:
            head = self._transcript(session).head
            if expect is not None and expect != head.seq:
                raise AppendConflict(session, expect, head.seq)
            self._transcripts.pop(session, None)
            self._heads.pop(session, None)
            return head

    def scrub(self, sessions: Sequence[str]) -> None:
        """Nothing to do: there is no file."""

    def damage(self) -> list[str]:
        """Nothing: there is no file."""
        with self._lock:
            self._refuse_closed()
        return []

    def copied(self) -> MemoryStore:
        """Return an independent copy."""
        made = MemoryStore()
        with self._lock:
            self._refuse_closed()
            for name, transcript in self._transcripts.items():
                made._transcripts[name] = _Transcript()
                made._transcripts[name].extend(list(transcript.entries))
                made._transcripts[name].terms = dict(transcript.terms)
            made._heads = dict(self._heads)
        return made

    def close(self) -> None:
        """No other call may follow."""
        self._closed = True

    def _transcript(self, session: str) -> _Transcript:
        self._refuse_closed()
        return self._transcripts.get(session) or _Transcript()

    def _summary(self, name: str) -> SessionSummary:
        entries = self._transcripts[name].entries
        return SessionSummary(session=name, entries=len(entries), first_ts=entries[0].ts, last_ts=entries[-1].ts)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable(self.location, "the store is closed already")


class _Shelf(Struct):
    """One lane of one session."""

    generation: int = 0
    covered: list[CoveredRange] = field(default_factory=list)
    fresh: dict[int, bytes] = field(default_factory=dict)
    sealed: dict[tuple[int, int], bytes] = field(default_factory=dict)


class MemoryIndex:
    """Stores the recall index in memory until the process ends."""

    def __init__(self) -> None:
        self._shelves: dict[tuple[str, str], _Shelf] = {}
        self._lock = threading.Lock()
        self._closed = False

    @property
    def location(self) -> str:
        """Where the store is, for messages: a path or a URL without the password."""
        return "memory"

    def covered(self, session: str, lane: str) -> list[CoveredRange]:
        """Return the entries the lane has indexed."""
        with self._lock:
            return list(self._shelf(session, lane).covered)

    def put(self, session: str, lane: str, rows: Sequence[IndexRow], covers: CoveredRange) -> None:
        """Add fresh rows and mark `covers` as indexed, atomically."""
        session_key(session)
        with self._lock:
            shelf = self._shelf(session, lane)
            shelf.fresh |= dict(uncovered_rows(rows, covers, shelf.covered))
            shelf.covered = join_ranges([*shelf.covered, covers])
            self._shelves[session, lane] = shelf

    def snapshot(self, session: str, lane: str, parts: Sequence[int] = ()) -> LaneSnapshot:
        """Read the fresh rows and the sealed rows of these parts, consistently."""
        with self._lock:
            shelf = self._shelf(session, lane)
            requested = set(parts)
            sealed = [SealedRow(*place, data) for place, data in sorted(shelf.sealed.items()) if place[0] in requested]
            fresh = [IndexRow(*row) for row in sorted(shelf.fresh.items())]
            return LaneSnapshot(shelf.generation, fresh, sealed, list(shelf.covered))

    def seal(
        self,
        session: str,
        lane: str,
        seqs: Sequence[int],
        rows: Sequence[SealedRow],
        merged: Sequence[tuple[int, int]] = (),
        covers: CoveredRange | None = None,
    ) -> bool:
        """Replace fresh and sealed rows by new sealed rows, atomically; False if another writer was faster."""
        with self._lock:
            shelf = self._shelf(session, lane)
            there = shelf.fresh.keys() >= set(seqs) and shelf.sealed.keys() >= set(merged)
            if not there or ((session, lane) not in self._shelves and covers is None):
                return False
            if covers is not None:
                session_key(session)
                if overlaps(shelf.covered, covers):
                    return False
                shelf.covered = join_ranges([*shelf.covered, covers])
                self._shelves[session, lane] = shelf
            for seq in seqs:
                del shelf.fresh[seq]
            for place in merged:
                del shelf.sealed[place]
            shelf.sealed |= {(row.part, row.first): row.data for row in rows}
            shelf.generation = 1 + secrets.randbits(61)
            return True

    def sessions(self, prefix: str = "") -> list[str]:
        """Return the keys of all sessions with rows whose key starts with `prefix`."""
        with self._lock:
            self._refuse_closed()
            return sorted({session for session, _ in self._shelves if session.startswith(prefix)})

    def forget(self, session: str, lane: str | None = None) -> None:
        """Delete a session, or one of its lanes."""
        with self._lock:
            self._refuse_closed()
            for name in [name for name in self._shelves if name[0] == session and lane in (None, name[1])]:
                del self._shelves[name]

    def scrub(self, sessions: Sequence[str]) -> None:
        """Nothing to do: there is no file."""

    def lane_names(self) -> list[str]:
        """Return the names of all lanes, in order."""
        with self._lock:
            self._refuse_closed()
            return sorted({lane for _, lane in self._shelves})

    def lanes(self) -> list[LaneSize]:
        """Return the size of every lane."""
        with self._lock:
            self._refuse_closed()
            by_lane: dict[str, list[_Shelf]] = defaultdict(list)
            for (_, lane), shelf in sorted(self._shelves.items(), key=lambda named: named[0][::-1]):
                by_lane[lane].append(shelf)
            return [_size(lane, shelves) for lane, shelves in by_lane.items()]

    def damage(self) -> list[str]:
        """Nothing: there is no file."""
        with self._lock:
            self._refuse_closed()
        return []

    def reset(self) -> None:
        """Delete everything."""
        with self._lock:
            self._refuse_closed()
            self._shelves.clear()

    def copied(self) -> MemoryIndex:
        """Return an independent copy."""
        made = MemoryIndex()
        with self._lock:
            self._refuse_closed()
            for name, shelf in self._shelves.items():
                kept = list(shelf.covered), dict(shelf.fresh), dict(shelf.sealed)
                made._shelves[name] = _Shelf(shelf.generation, *kept)
        return made

    def close(self) -> None:
        """No other call may follow."""
        self._closed = True

    def _shelf(self, session: str, lane: str) -> _Shelf:
        self._refuse_closed()
        return self._shelves.get((session, lane)) or _Shelf()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise IndexUnavailable(self.location, "it is closed already")


def _size(lane: str, shelves: list[_Shelf]) -> LaneSize:
    return LaneSize(
        lane=lane,
        sessions=len(shelves),
        entries=sum(one.last - one.first + 1 for shelf in shelves for one in shelf.covered),
        bytes=sum(len(data) for shelf in shelves for data in (*shelf.fresh.values(), *shelf.sealed.values())),
    )
