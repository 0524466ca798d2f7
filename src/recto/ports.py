"""What Recto asks of things it does not own: a store, a token counter, a clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from recto.core.entries import Draft, Entry, Head, SessionSummary


class Clock(Protocol):
    """Tells the time. It may lie: nothing is ordered by it."""

    def now(self) -> int:
        """Microseconds since 1970."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of a text as one model family does."""

    @property
    def name(self) -> str:
        """Stored beside every count it makes."""
        ...

    @property
    def exact(self) -> bool:
        """Whether it is the model's own tokenizer; if not, it errs on the high side."""
        ...

    def count(self, text: str) -> int:
        """Never raises, whatever the text; linear in its length."""
        ...


class TranscriptStore(Protocol):
    """Keeps transcripts. Nothing in it can change or remove an entry."""

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

    def head(self, session: str) -> Head:
        """The end of a session; `EMPTY` where there is none."""
        ...

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        """Entries from `start` up to and including `stop`, in order, a page at a time."""
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

    def damage(self) -> list[str]:
        """What the engine itself finds wrong with its files, in words; empty when nothing."""
        ...

    def close(self) -> None:
        """Finishes what was begun; no other call may follow."""
        ...
