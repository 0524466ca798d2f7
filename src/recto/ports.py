"""What Recto asks of things it does not own: a store, an index, models, an embedder, a token counter, a clock."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

from recto.core.chat import Reply, Request
from recto.core.delegation import Delegation
from recto.core.entries import Draft, Entry, Head, SessionSummary
from recto.core.health import Alert, TurnHealth
from recto.core.lanes import Covered, Glance, LaneSize, Linking, Row, Sealed, Unlinked
from recto.errors import StoreError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Matrix: TypeAlias = NDArray[np.float32]


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
        that it was done (`recto.engine.erasing`); the name may be used again. Doing it again changes nothing.
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


class RecallIndex(Protocol):
    """Keeps what recall searches, session by session and lane by lane. All of it can be made anew from transcripts.

    A lane is one kind of index: the words, or the vectors of one embedder. It has fresh rows, one for an entry, and
    sealed rows, in which many entries are packed together. What the bytes mean is not known here.
    """

    @property
    def location(self) -> str:
        """Where it is, as a person would write it."""
        ...

    def covered(self, session: str, lane: str) -> list[Covered]:
        """Which entries the lane has taken in, as ranges in order; neighbours are joined."""
        ...

    def put(self, session: str, lane: str, rows: Sequence[Row], covers: Covered) -> None:
        """Adds fresh rows and what they cover, all or none; returns when both are confirmed.

        Rows of entries that were covered already are left out: two processes may do the same work at once. Not every
        covered entry has a row.
        """
        ...

    def glance(self, session: str, lane: str, parts: Sequence[int] = ()) -> Glance:
        """The fresh rows and the sealed rows of these parts, as they are at one moment."""
        ...

    def seal(
        self,
        session: str,
        lane: str,
        taken: Sequence[int],
        rows: Sequence[Sealed],
        merged: Sequence[tuple[int, int]] = (),
    ) -> bool:
        """Puts sealed rows in the place of the fresh rows of these entries, all or none.

        They also take the place of the sealed rows at `merged`, each named by its part and its first entry. False,
        and nothing done, where somebody else has taken one of them meanwhile.
        """
        ...

    def sessions(self, prefix: str = "") -> list[str]:
        """The sessions it holds anything of, by key, whose key begins so."""
        ...

    def forget(self, session: str, lane: str | None = None) -> None:
        """Lets go of a session, or of one of its lanes, to be made anew."""
        ...

    def scrub(self, sessions: Sequence[str]) -> None:
        """Leaves nothing of these forgotten sessions in the gaps of its files."""
        ...

    def lanes(self) -> list[LaneSize]:
        """What there is, for people: every lane with how much it holds."""
        ...

    def damage(self) -> list[str]:
        """What the engine itself finds wrong with its files, in words; empty when nothing."""
        ...

    def start_over(self) -> None:
        """Sets a damaged index aside and begins an empty one in its place."""
        ...

    def close(self) -> None:
        """Finishes what was begun; no other call may follow."""
        ...


class VectorGraphs(Protocol):
    """What an index of recall may offer as its `graphs`: it finds the nearest of many vectors without reading all.

    A graph is made of sealed rows, and goes with them. It may lack some of them, and can be absent altogether.
    """

    def lacking(self) -> str:
        """Why there are none, in words; nothing where there are."""
        ...

    def takes(self, dims: int) -> bool:
        """Whether vectors of this length can be found so."""
        ...

    def unlinked(self, session: str, lane: str, low: int, high: int) -> Unlinked:
        """Which blocks are not in a graph yet; every block has one row in the parts from `low` to `high`."""
        ...

    def link(self, session: str, lane: str, generation: int, dims: int, vectors: Sequence[Linking]) -> None:
        """Takes all vectors of some blocks into a graph; none where the lane is of another generation by now."""
        ...

    def nearest(self, session: str, lane: str, query: Sequence[float], most: int) -> list[tuple[int, float]]:
        """Entries by the vectors that are most likely nearest to one of length 1, with how near they are, unordered."""
        ...

    def among(self, session: str, lane: str, query: Sequence[float], seqs: Collection[int]) -> list[tuple[int, float]]:
        """How near each vector of these entries is, as far as they are in the graph."""
        ...


class Lexicon(Protocol):
    """Turns text into terms: what a word, a name or a path is found by, whatever its form, script or case."""

    @property
    def name(self) -> str:
        """Names the lane its terms are kept in; terms of two names are never compared."""
        ...

    def terms(self, text: str) -> Mapping[int, int]:
        """How often each term occurs, by the term's 32-bit hash. Never raises, whatever the text."""
        ...

    def sequence(self, text: str) -> Sequence[int]:
        """The terms in the order in which they stand."""
        ...


class Cancelled(Protocol):
    """Tells whether an answer is still wanted; a `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it is not."""
        ...


class ChatModel(Protocol):
    """Writes text: a model on this machine or behind an endpoint."""

    @property
    def name(self) -> str:
        """As it is recorded, and as prices are known under."""
        ...

    @property
    def window(self) -> int:
        """Tokens of a question and its answer together; 0 where nobody knows."""
        ...

    def complete(self, request: Request, cancelled: Cancelled | None = None) -> Reply:
        """The answer to a request. Raises `ModelFailed`: late, refused, unreachable, empty, or no longer wanted."""
        ...

    def close(self) -> None:
        """Lets go of what it holds; the next use takes it up again."""
        ...


class HealthSink(Protocol):
    """Is told how turns went, while they happen. It must be quick, and nothing it does can fail a turn."""

    def turn(self, session: str, turn: TurnHealth) -> None:
        """A turn is over."""
        ...

    def alert(self, alert: Alert) -> None:
        """Something should be looked at, or is over."""
        ...

    def event(self, entry: Entry) -> None:
        """Something happened to a session: a decision, a zone, an overflow, a failure of the index."""
        ...


class Dispatcher(Protocol):
    """Carries a task out with a sub-agent, however the caller runs one."""

    def __call__(self, task: Delegation) -> str:
        """The sub-agent's answer. It may raise what it likes: then the task has failed, and nothing else."""
        ...


class Embedder(Protocol):
    """Turns texts into vectors that are near where the texts mean the same."""

    @property
    def name(self) -> str:
        """Stored beside its vectors; vectors of two names are never compared."""
        ...

    @property
    def dims(self) -> int:
        """How long its vectors are."""
        ...

    @property
    def weight(self) -> float:
        """How much its likeness counts beside words, from 0 to 1: a weak embedder must not drown them."""
        ...

    def documents(self, texts: Sequence[str]) -> Matrix:
        """One row of length 1 for each text, of zeros for one with nothing in it. The same text gives the same row.

        Raises `EmbedderFailed`.
        """
        ...

    def query(self, text: str) -> Matrix:
        """The vector of a question, as one row. Raises `EmbedderFailed`."""
        ...
