"""Protocols of the transcript: its store, a read replica of it, and a clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from recto.errors import StoreError
from recto.transcript.entries import Draft, Entry, Head, SessionSummary


class Clock(Protocol):
    """Tells the time. It may lie: nothing is ordered by it."""

    def now(self) -> int:
        """Microseconds since 1970."""
        ...


class TranscriptStore(Protocol):
    """Keeps transcripts. Nothing in it can change an entry, and nothing but `erase` removes one."""

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        ...

    def append(self, session: str, drafts: Sequence[Draft], *, expect: int | None = None) -> list[Entry]:
        """Stores the drafts after the last entry, all or none; returns when they are durable.

        Drafts whose key is stored already are returned as they were stored and not stored again (they must come
        first). With `expect`, writes only if the last entry is that one. The list has one entry for each draft.
        """
        ...

    def turn(self, session: str, *, patience: float | None = None) -> AbstractContextManager[None]:
        """Nobody else writes to the session until its end: no other process, on no other machine.

        Waits while somebody else has it, for `patience` seconds or for as long as the store waits for anything, and
        then raises `TurnTaken`. Taking it stores no entry. Who has it writes as ever; if it was lost, because nothing
        was heard of its owner for too long, that is an `AppendConflict`. A store that one machine uses may let
        everybody have it at once: the threads of a process have to order themselves.
        """
        ...

    def head(self, session: str) -> Head:
        """The end of a session; `EMPTY` where there is none."""
        ...

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Entries from `start` up to and including `stop`, in order, a page at a time."""
        ...

    def pick(self, session: str, seqs: Collection[int]) -> list[Entry]:
        """The entries of these numbers that there are, in order. For few of them: all are held at once."""
        ...

    def tail(self, session: str, count: int) -> list[Entry]:
        """The last entries, oldest first."""
        ...

    def get(self, session: str, id: str) -> Entry | None:
        """The entry with an id."""
        ...

    def find(self, session: str, key: str) -> Entry | None:
        """The entry stored under an idempotency key: whether a write of unknown outcome went through."""
        ...

    def sessions(self, after: str = "", limit: int | None = None) -> list[SessionSummary]:
        """Sessions by key, from the first after `after`."""
        ...

    def kept_heads(self) -> Mapping[str, Head]:
        """The heads that were kept outside the transcript itself. Behind it after a crash, never ahead of it."""
        ...

    def accept_heads(self) -> None:
        """Takes the transcript as it stands for true: the heads kept outside are written anew."""
        ...

    def erase(self, session: str, *, expect: int | None = None) -> Head:
        """Removes a whole session for good, with its head outside; gives back where it ended, `EMPTY` where nowhere.

        With `expect`, only if the last entry is that one; raises `AppendConflict`. Whoever calls it has written down
        that it was done (`recto.engine.erasure`); the name may be used again. Doing it again changes nothing.
        """
        ...

    def scrub(self, sessions: Sequence[str]) -> None:
        """Leaves nothing of these erased sessions in the gaps of its files. May take long and keep others waiting."""
        ...

    def damage(self) -> list[str]:
        """What the engine itself finds wrong with its files, in words; empty when nothing."""
        ...

    def close(self) -> None:
        """Finishes what was begun; no other call may follow."""
        ...


class Replica(Protocol):
    """A copy of a store that is read in its place, and may be a little behind."""

    @property
    def store(self) -> TranscriptStore:
        """The copy. It refuses to be written."""
        ...

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        ...

    @property
    def fault(self) -> str:
        """Why it cannot be read, in words; empty where it can, if it is not too far behind."""
        ...

    @property
    def behind(self) -> float | None:
        """Seconds by which it is behind, at most; None where that is not known."""
        ...

    def age(self, session: str = "") -> float | None:
        """Seconds by which what is read there may be old, at most; None where the store has to be read instead.

        The store has to be read also while this process has written to the session what is not there yet.
        """
        ...

    def failed(self, error: StoreError) -> None:
        """Something that was asked of it went wrong: it is left alone for a while."""
        ...

    def look(self) -> None:
        """Finds out how far it is behind now."""
        ...

    def watch(self) -> None:
        """Looks again and again, until it is closed."""
        ...

    def close(self) -> None:
        """Lets go of it; the store stays open."""
        ...
