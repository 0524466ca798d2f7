"""Keeps the recall index up to date: words and vectors of every message, before the message may be evicted.

The index follows the transcript and never writes to it. Each lane stores which entries it covers next to its rows, so
interrupted work continues where it stopped, and several processes may index the same session at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from recto.concurrency import Deadline, FifoLock
from recto.errors import IndexCorrupt, RectoError
from recto.recall._embedder_guard import DEFAULT_TIMEOUT, GuardedEmbedder
from recto.recall.documents import build_document, is_original_message, passages_to_embed
from recto.recall.index.bm25 import WordIndex
from recto.recall.index.cache import BoundedCache
from recto.recall.index.rows import CoveredRange, gaps, is_covered
from recto.recall.index.vectors import VectorIndex
from recto.recall.protocols import Embedder, Lexicon, RecallIndex
from recto.recall.types import Confirmation
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

_T = TypeVar("_T")
_LaneWork: TypeAlias = tuple[Callable[[str], list[CoveredRange]], Callable[[str, int, int, Deadline], bool], int]
"""The coverage of a lane, how it indexes a range, and how many entries at a time."""
_PAGE = 256
_VECTOR_PAGE = 16
"""Entries embedded between two checks of the deadline; at most these are lost when the process ends."""
_EMBEDDING_LOCKS = 16
"""Sessions that are embedded at the same time at most."""
_CLOSING_SECONDS = 5.0
"""How long `close` waits for the current batch. An embedder that hangs is abandoned."""
_MAX_SESSIONS = 4_096
"""Sessions whose state is cached here. What is dropped from the cache is read again."""


@dataclass(slots=True)
class _WorkQueue:
    """Sessions waiting for the background thread."""

    waiting: dict[str, None] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False


class Indexer:
    """Writes to the index of a store. All other parts of recall only read it."""

    def __init__(
        self,
        store: TranscriptStore,
        index: RecallIndex,
        *,
        lexicon: Lexicon,
        embedder: Embedder | None = None,
        previous: Sequence[Embedder] = (),
        in_background: bool = True,
        owns_index: bool = True,
    ) -> None:
        self.store = store
        self.index = index
        self.lexicon = lexicon
        self.embedder = GuardedEmbedder(embedder) if embedder is not None else None
        self.words = WordIndex(index, f"words/{lexicon.name}")
        self.embedders = [*([self.embedder] if self.embedder else []), *map(GuardedEmbedder, previous)]
        """The current embedder, then earlier ones, whose vectors are searched until the new ones are complete."""
        self._vectors: dict[str, VectorIndex] = {}
        self._errors: BoundedCache[str] = BoundedCache(_MAX_SESSIONS)
        self._indexed: BoundedCache[int] = BoundedCache(_MAX_SESSIONS)
        """The entry up to which the words of a session are indexed without a gap, as far as this process knows."""
        self._verified: BoundedCache[bool] = BoundedCache(_MAX_SESSIONS)
        """Sessions whose index rows are known to belong to the stored transcript."""
        self._repair_lock = threading.Lock()
        # Confirmation blocks a turn, so the background work lets it go first: see `FifoLock`.
        self._confirming = FifoLock()
        self._words_lock = threading.Lock()
        # Locks are chosen by session, so that one session that waits for its embedder does not block all others.
        self._vector_locks = [threading.Lock() for _ in range(_EMBEDDING_LOCKS)]
        self._in_background = in_background
        self._owns_index = owns_index
        self._queue = _WorkQueue()
        self._thread: threading.Thread | None = None

    def vector_index(self, embedder: GuardedEmbedder, seconds: float = DEFAULT_TIMEOUT) -> VectorIndex:
        """Return the vector index of an embedder. The first call may ask the embedder for its dimensions and fail."""
        if embedder.name not in self._vectors:
            self._vectors[embedder.name] = VectorIndex(
                self.index, _vector_lane(embedder), embedder.dims_within(seconds)
            )
        return self._vectors[embedder.name]

    def has_vectors(self, session: str, embedder: Embedder) -> bool:
        """Whether any entry of a session has vectors of this embedder."""
        return bool(self.index.covered(session, _vector_lane(embedder)))

    def confirm(self, session: str, seqs: Iterable[int], seconds: float) -> Confirmation:
        """Index these entries if they are not indexed yet, within a time limit, and report whether they are.

        A damaged index is replaced by an empty one first. Other failures are returned as the reason and never raised.
        """
        requested = sorted(set(seqs))
        if not requested:
            return Confirmation(words=True, vectors=True)
        ranges = _close_ranges(requested)

        def words() -> bool:
            self.discard_foreign_rows(session)
            return all(self._index_words(session, first, last, deadline) for first, last in ranges)

        def vectors() -> bool:
            return words() and all(self._index_vectors(session, first, last, deadline) for first, last in ranges)

        with self._confirming.turn(seconds):
            deadline = Deadline.extending(seconds)
            error = self._error_of(words, "the words index was not ready in time")
        if error:
            return Confirmation(words=False, vectors=False, reason=error)
        error = self._error_of(vectors, "the vectors were not ready in time")
        if error and (lost := self._error_of(words, "the words index was not ready in time")):
            return Confirmation(words=False, vectors=False, reason=lost)  # the index was reset in the meantime
        return Confirmation(words=True, vectors=not error, reason=error)

    def _error_of(self, work: Callable[[], bool], late: str) -> str:
        """Run some work and return why it did not finish; empty if it did."""
        try:
            return "" if self.with_repair(work) else late
        except Exception as error:  # noqa: BLE001  # relief never fails the turn: what is not indexed is not evicted
            return str(error) or repr(error)

    def with_repair(self, work: Callable[[], _T], after: Callable[[], object] = lambda: None) -> _T:
        """Run some work. If the index is corrupt, reset it, run `after` on the new one, and run the work again."""
        try:
            return work()
        except IndexCorrupt:
            with self._repair_lock:
                try:
                    return work()  # another thread may have reset it in the meantime
                except IndexCorrupt:
                    self.index.reset()
                after()
                return work()

    def catch_up(
        self, session: str, *, seconds: float = float("inf"), advance: Callable[[int], None] = lambda by: None
    ) -> bool:
        """Index everything that is missing, words first, in small steps. Returns whether all of it is indexed now.

        `advance` is called with the number of entries done, once for their words and once for their vectors.
        """
        deadline = Deadline.after(seconds)
        return self.with_repair(lambda: self._catch_up(session, deadline, advance))

    def _catch_up(self, session: str, deadline: Deadline, advance: Callable[[int], None]) -> bool:
        self.discard_foreign_rows(session)
        head = self.store.head(session).seq
        for covered, index_range, step in self._lanes():
            for first, last in gaps(covered(session), 1, head):
                for start in range(first, last + 1, step):
                    stop = min(start + step - 1, last)
                    self._confirming.wait_until_free(min(deadline.remaining, _CLOSING_SECONDS))
                    if self._queue.closed or not index_range(session, start, stop, deadline):
                        return False
                    advance(stop - start + 1)
        self._drop_previous(session, head)
        self._link(session, deadline)
        return True

    def _link(self, session: str, deadline: Deadline) -> None:
        """Add the vectors of a long session to the vector graph, if the index has one."""
        if self.embedder is None or getattr(self.index, "graphs", None) is None:
            return

        def may_continue() -> bool:
            self._confirming.wait_until_free(min(deadline.remaining, _CLOSING_SECONDS))
            return not self._queue.closed and not deadline.passed

        with suppress(RectoError):  # everything is indexed; without the graph search is only slower
            index = self.vector_index(self.embedder, min(deadline.remaining, DEFAULT_TIMEOUT))
            index.graph.link(session, may_continue)

    def _lanes(self) -> list[_LaneWork]:
        lanes: list[_LaneWork] = [(self.words.covered, self._index_words, _PAGE)]
        if self.embedder is not None:
            lane = _vector_lane(self.embedder)
            lanes.append((lambda session: self.index.covered(session, lane), self._index_vectors, _VECTOR_PAGE))
        return lanes

    def index_words(self, session: str, last: int, seconds: float) -> bool:
        """Index the words of all entries up to `last` within a time limit. Cheap if they are indexed already."""
        deadline = Deadline.after(seconds)

        def work() -> bool:
            self.discard_foreign_rows(session)
            return self._index_words(session, 1, last, deadline)

        return not self._error_of(work, "late")

    def backlog(self, session: str) -> tuple[int, int]:
        """Return how many entries are missing in the word index, and how many have no vectors."""
        head = self.store.head(session).seq
        missing = _count(gaps(self.words.covered(session), 1, head))
        if self.embedder is None:
            return missing, 0
        return missing, _count(gaps(self.index.covered(session, _vector_lane(self.embedder)), 1, head))

    def indexed_through(self, session: str) -> int:
        """Return the entry up to which words are indexed, as far as this process knows. Reads nothing."""
        return self._indexed.get(session) or 0

    def covered(self, session: str) -> list[CoveredRange]:
        """Return the ranges that the lanes of a session cover, lane by lane."""
        lanes = [self.words.lane, *map(_vector_lane, self.embedders)]
        return [covered for lane in lanes for covered in self.index.covered(session, lane)]

    def matches(self, entry: Entry) -> bool:
        """Whether the word index agrees with a message; true if the message is not indexed yet."""
        if not is_covered(self.words.covered(entry.session), entry.seq):
            return True
        indexed, expected = self.words.attributes(entry.session).of(entry.seq), build_document(entry, self.lexicon)
        if indexed is None:
            return not expected.terms
        length = sum(expected.terms.values())
        return (indexed.role, indexed.marks, indexed.length) == (expected.role, expected.marks, length)

    def schedule(self, session: str) -> None:
        """Queue a session for the background thread, which indexes it while the model is generating."""
        if not self._in_background:
            return
        with self._queue.changed:
            if self._queue.closed:
                return
            self._queue.waiting[session] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="recto indexer", daemon=True)
                self._thread.start()
            self._queue.changed.notify()

    def close(self) -> None:
        """Stop the background thread after its current batch. The rest is indexed next time."""
        with self._queue.changed:
            self._queue.closed = True
            self._queue.changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSING_SECONDS)
        if self._owns_index:
            self.index.close()

    def _work(self) -> None:
        while (session := self._next_session()) is not None:
            self.try_catch_up(session)

    def try_catch_up(self, session: str, seconds: float = float("inf")) -> None:
        """Catch up and record a failure instead of raising it; see `last_error`."""
        try:
            self.catch_up(session, seconds=seconds)
            self._errors.discard(session)
        except Exception as error:  # noqa: BLE001  # whatever it is, the next session must be served
            self._errors.put(session, str(error) or repr(error))

    def last_error(self, session: str) -> str:
        """Return why the last attempt to catch up failed; empty once one succeeds."""
        return self._errors.get(session) or ""

    def discard_foreign_rows(self, session: str) -> None:
        """Delete the rows of a session if they belong to another transcript that had the same key before."""
        if self._verified.get(session):
            return
        for covered in self.covered(session):
            entry = next(iter(self.store.read(session, covered.last, covered.last)), None)
            if entry is None or entry.hash != covered.hash:
                self.index.forget(session)
                break
        self._verified.put(session, True)

    def _next_session(self) -> str | None:
        with self._queue.changed:
            while not self._queue.waiting and not self._queue.closed:
                self._queue.changed.wait()
            if self._queue.closed:
                return None
            return self._queue.waiting.popitem()[0]

    def _index_words(self, session: str, first: int, last: int, deadline: Deadline) -> bool:
        if gaps(self.words.covered(session), first, last):
            if not deadline.acquire(self._words_lock):
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
                self._words_lock.release()
        if first <= self.indexed_through(session) + 1 <= last:
            self._indexed.put(session, last)
        return True

    def _add_words(self, session: str, page: Sequence[Entry]) -> None:
        covers = CoveredRange(page[0].seq, page[-1].seq, page[-1].hash)
        documents = [build_document(entry, self.lexicon) for entry in page if is_original_message(entry)]
        self.words.add(session, documents, covers)

    def _index_vectors(self, session: str, first: int, last: int, deadline: Deadline) -> bool:
        embedder = self.embedder
        if embedder is None:
            return True
        index = self.vector_index(embedder, min(deadline.remaining, DEFAULT_TIMEOUT))
        lock = self._vector_locks[hash(session) % _EMBEDDING_LOCKS]
        if not deadline.acquire(lock):
            return False
        try:
            for start, stop in gaps(index.covered(session), first, last):
                for page in _pages(self.store.read(session, start, stop), _VECTOR_PAGE):
                    if deadline.passed:
                        return False
                    self._embed(session, page, embedder, deadline)
        finally:
            lock.release()
        return True

    def _embed(self, session: str, page: Sequence[Entry], embedder: GuardedEmbedder, deadline: Deadline) -> None:
        """Embed a page of entries. If it fails part way, the vectors made so far are stored."""
        passages = [(entry, pieces) for entry in page if (pieces := passages_to_embed(entry))]
        vectors: list[Matrix] = []
        try:
            vectors.extend(embedder.each([pieces for _, pieces in passages], deadline.remaining))
        finally:
            done = page[-1] if len(vectors) == len(passages) else _before(page, passages[len(vectors)][0])
            if done is not None:
                rows = [(entry.seq, matrix) for (entry, _), matrix in zip(passages, vectors, strict=False)]
                self.vector_index(embedder).add(session, rows, CoveredRange(page[0].seq, done.seq, done.hash))

    def _drop_previous(self, session: str, head: int) -> None:
        """Delete the vectors of previous embedders once the current ones cover the whole session."""
        if self.embedder is None or len(self.embedders) == 1:
            return
        if not gaps(self.index.covered(session, _vector_lane(self.embedder)), 1, head):
            for embedder in self.embedders[1:]:
                if self.has_vectors(session, embedder):
                    self.index.forget(session, _vector_lane(embedder))


def _before(page: Sequence[Entry], entry: Entry) -> Entry | None:
    """Return the entry before another one in a page; None if that is the first."""
    position = page.index(entry)
    return page[position - 1] if position else None


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
    """Join ascending numbers to ranges, including the few events between two of them."""
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
