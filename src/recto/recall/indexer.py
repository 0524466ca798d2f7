"""Takes messages into the recall index: words and vectors, each message once, before it may leave the prompt.

The index follows the transcript. Which entries a lane has taken in is kept beside its rows, so work that was cut off
goes on where it ended, and several processes may do it at once. It never writes to a transcript.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from recto.concurrency import Deadline, FifoLock
from recto.errors import IndexCorrupt, RectoError
from recto.recall.documents import build_document, is_original_message, passages_to_embed, recall_uses
from recto.recall.embedder_guard import DEFAULT_TIMEOUT, GuardedEmbedder
from recto.recall.index.bm25 import WordIndex
from recto.recall.index.cache import BoundedCache
from recto.recall.index.rows import CoveredRange, gaps, is_covered
from recto.recall.index.usage import UsageIndex
from recto.recall.index.vectors import VectorIndex
from recto.recall.protocols import Embedder, Lexicon, RecallIndex
from recto.recall.types import Confirmation
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

_T = TypeVar("_T")
_LaneWork: TypeAlias = tuple[Callable[[str], list[CoveredRange]], Callable[[str, int, int, Deadline], bool], int]
"""What a lane has taken in, how it takes more, and how many entries at a time."""
_PAGE = 256
_VECTOR_PAGE = 16
"""Entries embedded between two looks at the clock, and lost at most when the process ends."""
_EMBEDDING_LOCKS = 16
"""Sessions that are embedded at once, at most."""
_CLOSING_SECONDS = 5.0
"""How long the end waits for the batch in work; an embedder that hangs is left alone."""
_MAX_SESSIONS = 4_096
"""Sessions of which something is remembered here; what is forgotten is looked up again, or is not told."""


@dataclass(slots=True)
class _WorkQueue:
    """Sessions the background thread has been told about."""

    waiting: dict[str, None] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False


class Indexer:
    """The one way into the index of a store."""

    def __init__(
        self,
        store: TranscriptStore,
        index: RecallIndex,
        *,
        lexicon: Lexicon,
        embedder: Embedder | None = None,
        before: Sequence[Embedder] = (),
        in_background: bool = True,
        owns_index: bool = True,
    ) -> None:
        self.store = store
        self.index = index
        self.lexicon = lexicon
        self.embedder = GuardedEmbedder(embedder) if embedder is not None else None
        self.words = WordIndex(index, f"words/{lexicon.name}")
        self.uses = UsageIndex(index)
        self.embedders = [*([self.embedder] if self.embedder else []), *map(GuardedEmbedder, before)]
        """The one in use, then those used before, whose vectors serve until the new ones are there."""
        self._vectors: dict[str, VectorIndex] = {}
        self._troubles: BoundedCache[str] = BoundedCache(_MAX_SESSIONS)
        self._reached: BoundedCache[int] = BoundedCache(_MAX_SESSIONS)
        """How far the words of each session are in without a gap, as far as this process knows."""
        self._known: BoundedCache[bool] = BoundedCache(_MAX_SESSIONS)
        """Sessions whose index was found to be of this transcript."""
        self._mending = threading.Lock()
        self._confirming = FifoLock()
        self._words_turn = threading.Lock()
        self._vectors_turns = [threading.Lock() for _ in range(_EMBEDDING_LOCKS)]
        """By session: one that waits for its embedder does not hold up all others."""
        self._in_background = in_background
        self._owns_index = owns_index
        self._wishes = _WorkQueue()
        self._thread: threading.Thread | None = None

    def lane_of(self, embedder: GuardedEmbedder, seconds: float = DEFAULT_TIMEOUT) -> VectorIndex:
        """The vectors of an embedder. To know how long they are it may have to be asked, and may fail."""
        if embedder.name not in self._vectors:
            self._vectors[embedder.name] = VectorIndex(
                self.index, _vector_lane(embedder), embedder.dims_within(seconds)
            )
        return self._vectors[embedder.name]

    def has_vectors(self, session: str, embedder: Embedder) -> bool:
        """Whether anything of a session was embedded so."""
        return bool(self.index.covered(session, _vector_lane(embedder)))

    def confirm(self, session: str, seqs: Iterable[int], seconds: float) -> Confirmation:
        """Indexes these entries now if they are not in yet, within a time limit, and says whether they are.

        An index that is damaged is set aside and begun anew. Whatever else goes wrong is told and never raised.
        """
        wanted = sorted(set(seqs))
        if not wanted:
            return Confirmation(words=True, vectors=True)
        ranges = _close_ranges(wanted)

        def words() -> bool:
            self.recognise(session)
            return all(self._take_words(session, first, last, deadline) for first, last in ranges)

        def vectors() -> bool:
            return words() and all(self._take_vectors(session, first, last, deadline) for first, last in ranges)

        with self._confirming.turn(seconds):
            deadline = Deadline.extending(seconds)
            lacking = self._lacking(words, "the words index was not ready in time")
        if lacking:
            return Confirmation(words=False, vectors=False, reason=lacking)
        lacking = self._lacking(vectors, "the vectors were not ready in time")
        if lacking and (lost := self._lacking(words, "the words index was not ready in time")):
            return Confirmation(words=False, vectors=False, reason=lost)  # it was begun anew meanwhile
        return Confirmation(words=True, vectors=not lacking, reason=lacking)

    def _lacking(self, work: Callable[[], bool], late: str) -> str:
        """Why some work was not done; nothing where it was."""
        try:
            return "" if self.mended(work) else late
        except Exception as error:  # noqa: BLE001  # relief never fails the turn: what is not in the index stays
            return str(error) or repr(error)

    def mended(self, work: Callable[[], _T], after: Callable[[], object] = lambda: None) -> _T:
        """Does some work with the index. One that is damaged is set aside first; `after` is done with the new one."""
        try:
            return work()
        except IndexCorrupt:
            with self._mending:
                try:
                    return work()  # somebody else may have mended it meanwhile
                except IndexCorrupt:
                    self.index.start_over()
                after()
                return work()

    def catch_up(
        self, session: str, *, seconds: float = float("inf"), advance: Callable[[int], None] = lambda by: None
    ) -> bool:
        """Takes in everything that is not in yet, words first, in small steps. Whether all of it is in now.

        `advance` hears of every entry that was done, once for its words and once for its vectors.
        """
        deadline = Deadline.after(seconds)
        return self.mended(lambda: self._catch_up(session, deadline, advance))

    def _catch_up(self, session: str, deadline: Deadline, advance: Callable[[int], None]) -> bool:
        self.recognise(session)
        head = self.store.head(session).seq
        for covered, take, step in self._lanes():
            for first, last in gaps(covered(session), 1, head):
                for start in range(first, last + 1, step):
                    stop = min(start + step - 1, last)
                    self._confirming.wait_until_free(min(deadline.remaining, _CLOSING_SECONDS))
                    if self._wishes.closed or not take(session, start, stop, deadline):
                        return False
                    advance(stop - start + 1)
        self._drop_older(session, head)
        self._link(session, deadline)
        return True

    def _link(self, session: str, deadline: Deadline) -> None:
        """Takes the vectors of a long session into the graph that the index has, if it has one."""
        if self.embedder is None or getattr(self.index, "graphs", None) is None:
            return

        def goes_on() -> bool:
            self._confirming.wait_until_free(min(deadline.remaining, _CLOSING_SECONDS))
            return not self._wishes.closed and not deadline.passed

        with suppress(RectoError):  # everything is in the index; without the graph it is only slower to search
            self.lane_of(self.embedder, min(deadline.remaining, DEFAULT_TIMEOUT)).graph.link(session, goes_on)

    def _lanes(self) -> list[_LaneWork]:
        lanes: list[_LaneWork] = [(self.words.covered, self._take_words, _PAGE)]
        if self.embedder is not None:
            lane = _vector_lane(self.embedder)
            lanes.append((lambda session: self.index.covered(session, lane), self._take_vectors, _VECTOR_PAGE))
        return lanes

    def take_words(self, session: str, last: int, seconds: float) -> bool:
        """Takes in the words of everything up to an entry, within a time limit; quick where that was done before."""
        deadline = Deadline.after(seconds)

        def take() -> bool:
            self.recognise(session)
            return self._take_words(session, 1, last, deadline)

        return not self._lacking(take, "late")

    def behind(self, session: str) -> tuple[int, int]:
        """How many entries are not in the words index yet, and how many have no vectors yet."""
        head = self.store.head(session).seq
        missing = _count(gaps(self.words.covered(session), 1, head))
        if self.embedder is None:
            return missing, 0
        return missing, _count(gaps(self.index.covered(session, _vector_lane(self.embedder)), 1, head))

    def reached(self, session: str) -> int:
        """The last entry up to which the words of a session are in, as far as this process knows; reads nothing."""
        return self._reached.get(session) or 0

    def covered(self, session: str) -> list[CoveredRange]:
        """What any lane of a session says it has taken in."""
        lanes = [self.words.lane, *map(_vector_lane, self.embedders)]
        return [one for lane in lanes for one in self.index.covered(session, lane)]

    def agrees_on(self, entry: Entry) -> bool:
        """Whether what the words index holds of a message is what the message says; true where it holds nothing yet."""
        if not is_covered(self.words.covered(entry.session), entry.seq):
            return True
        held, said = self.words.facts(entry.session).of(entry.seq), build_document(entry, self.lexicon)
        if held is None:
            return not said.terms
        return (held.role, held.marks, held.length) == (said.role, said.marks, sum(said.terms.values()))

    def nudge(self, session: str) -> None:
        """Has a session brought up to date in the background, while the model is thinking."""
        if not self._in_background:
            return
        with self._wishes.changed:
            if self._wishes.closed:
                return
            self._wishes.waiting[session] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="recto indexer", daemon=True)
                self._thread.start()
            self._wishes.changed.notify()

    def close(self) -> None:
        """Stops the background work after the batch it is at; the rest is done next time."""
        with self._wishes.changed:
            self._wishes.closed = True
            self._wishes.changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSING_SECONDS)
        if self._owns_index:
            self.index.close()

    def _work(self) -> None:
        while (session := self._next_wish()) is not None:
            self.keep_up(session)

    def keep_up(self, session: str, seconds: float = float("inf")) -> None:
        """Catches up as far as that goes. What stands in the way is kept, for who asks."""
        try:
            self.catch_up(session, seconds=seconds)
            self._troubles.drop(session)
        except Exception as error:  # noqa: BLE001  # whatever it is, the next session must have its turn
            self._troubles.keep(session, str(error) or repr(error))

    def trouble(self, session: str) -> str:
        """What went wrong last when a session was to be brought up to date; empty once it works again."""
        return self._troubles.get(session) or ""

    def recognise(self, session: str) -> None:
        """Forgets what the index has of a session if that is of another transcript: one that was there before."""
        if self._known.get(session):
            return
        for one in self.covered(session):
            entry = next(iter(self.store.read(session, one.last, one.last)), None)
            if entry is None or entry.hash != one.hash:
                self.index.forget(session)
                break
        self._known.keep(session, True)

    def _next_wish(self) -> str | None:
        with self._wishes.changed:
            while not self._wishes.waiting and not self._wishes.closed:
                self._wishes.changed.wait()
            if self._wishes.closed:
                return None
            return self._wishes.waiting.popitem()[0]

    def _take_words(self, session: str, first: int, last: int, deadline: Deadline) -> bool:
        if gaps(self.words.covered(session), first, last):
            if not deadline.acquire(self._words_turn):
                return False
            try:
                for start, stop in gaps(self.words.covered(session), first, last):
                    for page in _pages(self.store.read(session, start, stop), _PAGE):
                        if deadline.passed:
                            return False
                        self._add_words(session, page)
                        self._confirming.report_progress()
                        deadline.extend()
            finally:
                self._words_turn.release()
        if first <= self.reached(session) + 1 <= last:
            self._reached.keep(session, last)
        return True

    def _add_words(self, session: str, page: Sequence[Entry]) -> None:
        covers = CoveredRange(page[0].seq, page[-1].seq, page[-1].hash)
        self.uses.add(session, list(recall_uses(page)), covers)
        self.words.add(session, [build_document(one, self.lexicon) for one in page if is_original_message(one)], covers)

    def _take_vectors(self, session: str, first: int, last: int, deadline: Deadline) -> bool:
        embedder = self.embedder
        if embedder is None:
            return True
        lane = self.lane_of(embedder, min(deadline.remaining, DEFAULT_TIMEOUT))
        turn = self._vectors_turns[hash(session) % _EMBEDDING_LOCKS]
        if not deadline.acquire(turn):
            return False
        try:
            for start, stop in gaps(lane.covered(session), first, last):
                for page in _pages(self.store.read(session, start, stop), _VECTOR_PAGE):
                    if deadline.passed:
                        return False
                    self._embed(session, page, embedder, deadline)
        finally:
            turn.release()
        return True

    def _embed(self, session: str, page: Sequence[Entry], embedder: GuardedEmbedder, deadline: Deadline) -> None:
        """Embeds a few entries. Where it breaks off, what was done by then is kept."""
        passages = [(entry, pieces) for entry in page if (pieces := passages_to_embed(entry))]
        vectors: list[Matrix] = []
        try:
            vectors.extend(embedder.each([pieces for _, pieces in passages], deadline.remaining))
        finally:
            done = page[-1] if len(vectors) == len(passages) else _before(page, passages[len(vectors)][0])
            if done is not None:
                rows = [(entry.seq, one) for (entry, _), one in zip(passages, vectors, strict=False)]
                self.lane_of(embedder).add(session, rows, CoveredRange(page[0].seq, done.seq, done.hash))

    def _drop_older(self, session: str, head: int) -> None:
        """Vectors of an embedder used before are let go once the new ones cover everything."""
        if self.embedder is None or len(self.embedders) == 1:
            return
        if not gaps(self.index.covered(session, _vector_lane(self.embedder)), 1, head):
            for older in self.embedders[1:]:
                if self.has_vectors(session, older):
                    self.index.forget(session, _vector_lane(older))


def _before(page: Sequence[Entry], entry: Entry) -> Entry | None:
    """The entry of a page that stands before another; None where that is the first."""
    place = page.index(entry)
    return page[place - 1] if place else None


def _vector_lane(embedder: Embedder) -> str:
    return f"vectors/{embedder.name}"


def _pages(entries: Iterable[Entry], size: int) -> Iterator[list[Entry]]:
    page: list[Entry] = []
    for entry in entries:
        page.append(entry)
        if len(page) == size:
            yield page
            page = []
    if page:
        yield page


def _close_ranges(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges; the few events between two of them are taken along."""
    ranges = [(seqs[0], seqs[0])]
    for seq in seqs[1:]:
        first, last = ranges[-1]
        if seq - last <= _VECTOR_PAGE:
            ranges[-1] = (first, seq)
        else:
            ranges.append((seq, seq))
    return ranges


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)
