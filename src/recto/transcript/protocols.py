"""Protocols of the transcript: its store, and a read replica."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias

from recto.errors import StoreError
from recto.transcript.entries import Draft, Entry, Head, SessionSummary

Records: TypeAlias = Callable[[Sequence[Entry]], Sequence[tuple[str, Draft]]]
"""Makes records about entries that are being stored: the session and the draft of each. It must not use the store."""


class TranscriptStore(Protocol):
    """Stores transcripts. No operation changes an entry, and only `erase` removes any."""

    @property
    def location(self) -> str:
        """Location, as a person would write it."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether reading takes microseconds, because nothing is sent to another machine or process."""
        ...

    def append(
        self, session: str, drafts: Sequence[Draft], *, expect: int | None = None, also: Records | None = None
    ) -> list[Entry]:
        """Store the drafts after the last entry, all or none; return when they are durable.

        Drafts whose key is already stored are returned as stored and not stored again (they must come first). With
        `expect`, write only if that is the number of the last entry. The list has one entry for each draft. The records
        that `also` makes of it are durable then, too; one whose key is taken is skipped. They share the commit where
        the store can do that; else they follow it.
        """
        ...

    def turn(self, session: str, *, patience: float | None = None) -> AbstractContextManager[None]:
        """Hold the session exclusively: no other process on any machine writes to it meanwhile.

        Waits while another owner holds it, for `patience` seconds or the store's default, then raises `TurnTaken`.
        Taking it stores no entry. The owner writes as usual; if ownership was lost because the owner was silent for too
        long, writing raises `AppendConflict`. A store for a single machine may grant it to every caller: the threads of
        one process must order themselves.
        """
        ...

    def head(self, session: str) -> Head:
        """The end of a session; `EMPTY_HEAD` if it does not exist."""
        ...

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Entries from `start` up to and including `stop`, in order, loaded page by page."""
        ...

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """The existing entries with these numbers, in order. For few entries: all are held in memory."""
        ...

    def tail(self, session: str, count: int) -> list[Entry]:
        """The last entries, oldest first."""
        ...

    def terms(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[tuple[int, bytes]]:
        """Rows of the word index from entry `start` up to and including `stop`, in order, loaded page by page.

        Each is an entry's number and its `Draft.terms`; entries without a row are skipped.
        """
        ...

    def pick_terms(self, session: str, seqs: Collection[int]) -> dict[int, bytes]:
        """The rows of the word index of these entries, by number, in order; without entries that have none."""
        ...

    def add_terms(self, session: str, entries: Sequence[Entry]) -> None:
        """Store the `terms` of entries that were stored without, or with others; return when they are durable.

        An entry that is no longer stored with this hash is skipped, so that nothing is added to an erased session.
        """
        ...

    def lacking_terms(
        self, session: str, version: bytes, start: int = 1, stop: int | None = None, limit: int | None = None
    ) -> list[int]:
        """The first messages of a range, at most `limit`, without a row of the word index of this `version`."""
        ...

    def get(self, session: str, id: str) -> Entry | None:
        """The entry with an id."""
        ...

    def find(self, session: str, key: str) -> Entry | None:
        """The entry stored under an idempotency key: shows whether a write of unknown outcome succeeded."""
        ...

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """Sessions by key, from the first after `after`."""
        ...

    def title_entries(self, sessions: Sequence[str]) -> list[Entry]:
        """The entries that these sessions are titled by, of each session together.

        Of a renamed session that is the newest event whose key begins with `titles.TITLE_KEY`. Of any other session it
        is the first user messages, oldest first, within the bounds of `titles`. Nothing else is read.
        """
        ...

    def kept_heads(self) -> Mapping[str, Head]:
        """The heads stored outside the transcript. They may lag behind it after a crash, never lead."""
        ...

    def accept_heads(self) -> None:
        """Accept the current transcript as correct: rewrite the heads stored outside."""
        ...

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Remove a session permanently, including its outside head; returns its last head, or `EMPTY_HEAD`.

        With `expect`, only if that is the number of the last entry; else raises `AppendConflict`. The caller has
        recorded the erasure (`recto.engine.erasure`); the name may be reused. Repeating it changes nothing.
        """
        ...

    def scrub(self, sessions: Sequence[str]) -> None:
        """Remove all traces of erased sessions from unused space in its files. May take long and block other calls."""
        ...

    def damage(self) -> list[str]:
        """Problems the storage engine finds in its files, in words; empty if none."""
        ...

    def close(self) -> None:
        """Finish pending work; no other call may follow."""
        ...


class Replica(Protocol):
    """A read-only copy of a store that may lag behind it."""

    @property
    def store(self) -> TranscriptStore:
        """The copy. It rejects writes."""
        ...

    @property
    def location(self) -> str:
        """Location, as a person would write it."""
        ...

    @property
    def fault(self) -> str:
        """Why it cannot be read, in words; empty if it can, provided it is not too far behind."""
        ...

    @property
    def behind(self) -> float | None:
        """Upper bound of its lag in seconds; None if unknown."""
        ...

    def age(self, session: str = "") -> float | None:
        """Upper bound in seconds of how old its data is; None if the store must be read instead.

        That is also the case while this process has written to the session and the copy does not have it yet.
        """
        ...

    def failed(self, error: StoreError) -> None:
        """Report a failed read: the copy is not used for a while."""
        ...

    def look(self) -> None:
        """Measure its lag now."""
        ...

    def watch(self) -> None:
        """Measure its lag periodically, until closed."""
        ...

    def close(self) -> None:
        """Close the copy; the store stays open."""
        ...
