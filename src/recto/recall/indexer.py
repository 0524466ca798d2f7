"""Keeps the recall index up to date: words and vectors of every message, before the message may be evicted.

Words are stored with their messages, as rows of the transcript; here only the rows that are missing are made, such as
those of messages from before. Vectors are made by a background thread within a share of one core. They follow the
words: they have their own coverage, stored next to their rows, so nothing waits for them, interrupted work continues
where it stopped, and several processes may index the same session at once. An embedder is called with a time limit, and
its answer is checked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from recto.concurrency import BackgroundCall, CpuBudget, Deadline, FifoLock, start_thread, stop_at_exit
from recto.errors import EmbedderFailed, IndexCorrupt, RectoError, StoreError
from recto.recall.documents import is_original_message, passages, recall_text
from recto.recall.index.bm25 import WordIndex
from recto.recall.index.rows import BoundedCache, CoveredRange, gaps
from recto.recall.index.vectors import VectorIndex
from recto.recall.protocols import Embedder, Lexicon, RecallIndex
from recto.recall.term_rows import entry_row, is_document, is_row_of, row_version
from recto.recall.types import Confirmation
from recto.transcript.entries import MESSAGE, Entry, Head
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix


_T = TypeVar("_T")
DEFAULT_TIMEOUT = 30.0
"""Time limit of a call in seconds, unless the caller sets another."""
_KEPT_QUERIES = 64
_MAX_DIMS = 65_536
_MAX_NORM = 1.01
"""Largest norm accepted for a unit vector, to allow for rounding."""


class GuardedEmbedder:
    """An embedder behind a time limit and a check of its results. Thread-safe."""

    def __init__(self, embedder: Embedder, budget: CpuBudget | None = None) -> None:
        """`budget`: charged with the CPU time of every call."""
        self._budget = budget or CpuBudget()
        self.name = embedder.name
        self.weight = embedder.weight
        self._embedder = embedder
        self._dims = 0
        self._late: dict[str, threading.Event] = {}
        """Completion of calls that timed out, by kind. While one is pending no other of its kind is started: it would
        hang too."""
        self._queries: BoundedCache[Matrix] = BoundedCache(_KEPT_QUERIES)
        self._lock = threading.Lock()

    @property
    def dims(self) -> int:
        """Length of its vectors. The first access may call the embedder."""
        return self.dims_within(DEFAULT_TIMEOUT)

    def dims_within(self, seconds: float) -> int:
        """Return the length of its vectors; fails if the embedder does not answer in time."""
        if not self._dims:
            dims = self._call(lambda: int(self._embedder.dims), seconds)
            if not 1 <= dims <= _MAX_DIMS:
                raise EmbedderFailed(self.name, f"it says that its vectors have {dims} numbers")
            self._dims = dims
        return self._dims

    def documents(self, texts: Sequence[str], seconds: float = DEFAULT_TIMEOUT) -> Matrix:
        """Embed texts, one row each."""
        dims = self.dims_within(seconds)
        vectors = self._call(lambda: np.atleast_2d(np.asarray(self._embedder.documents(texts), np.float32)), seconds)
        return self._check(vectors, (len(texts), dims))

    def each(
        self,
        batches: Sequence[Sequence[str]],
        seconds: float = DEFAULT_TIMEOUT,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> Iterator[Matrix]:
        """Embed batches one after the other. Results that arrived in time are yielded before a failure is raised.

        Ends early, without a failure, once `is_stopped`: a batch is the longest time that the caller has to wait.

        All batches run on one thread, because starting a thread costs more than embedding a short text. No single batch
        may take longer than the default time limit.
        """
        dims = self.dims_within(min(seconds, DEFAULT_TIMEOUT))
        results: list[Matrix] = []

        def embed_all() -> None:
            # `extend` consumes the generator lazily: each result is visible to the waiting thread as soon as it exists.
            wanted = takewhile(lambda _: not is_stopped(), batches)
            answers = (self._embedder.documents(texts) for texts in wanted)
            results.extend(np.atleast_2d(np.asarray(answer, np.float32)) for answer in answers)

        failure: RectoError | None = None
        try:
            timeout, until = min(seconds, DEFAULT_TIMEOUT), time.monotonic() + seconds
            self._call(embed_all, timeout, until=until, progress=lambda: len(results))
        except RectoError as error:
            failure = error
        for texts, vectors in zip(batches, tuple(results), strict=False):
            yield self._check(vectors, (len(texts), dims))
        if failure is not None:
            raise failure

    def query(self, text: str, seconds: float = DEFAULT_TIMEOUT) -> Matrix:
        """Embed a question, as one row. A vector that comes too late is kept for the next time."""
        dims = self.dims_within(seconds)

        def embed() -> Matrix:
            vector = self._check(np.atleast_2d(np.asarray(self._embedder.query(text), np.float32)), (1, dims))
            self._queries.put(text, vector)
            return vector

        kept = self._queries.get(text)
        return kept if kept is not None else self._call(embed, seconds, kind="query")

    def _check(self, vectors: Matrix, shape: tuple[int, int]) -> Matrix:
        if vectors.shape != shape:
            raise EmbedderFailed(self.name, f"its answer has the shape {vectors.shape}, expected {shape}")
        lengths = np.linalg.norm(vectors, axis=1)
        if not np.isfinite(lengths).all() or (lengths > _MAX_NORM).any():
            raise EmbedderFailed(self.name, "its answer holds vectors that are not of length 1")
        return vectors

    def _call(
        self,
        call: Callable[[], _T],
        seconds: float,
        *,
        kind: str = "documents",
        until: float = 0.0,
        progress: Callable[[], int] = lambda: 0,
    ) -> _T:
        """Run a call with a time limit. Until `until` the limit starts again whenever `progress` has grown."""
        with self._lock:
            pending = self._late.get(kind)
            if pending is not None and not pending.is_set():
                raise EmbedderFailed(self.name, "it has not answered a call before this one yet")

        def charged() -> _T:
            before = time.thread_time()
            try:
                return call()
            finally:
                self._budget.charge(time.thread_time() - before)

        running = BackgroundCall(charged, "recto embedder")
        seen, is_done = 0, running.run_within(seconds)
        while not is_done and seen < (now := progress()) and (remaining := until - time.monotonic()) > 0:
            seen, is_done = now, running.done.wait(min(seconds, remaining))
        if not is_done:
            with self._lock:
                self._late[kind] = running.done
            raise EmbedderFailed(self.name, f"it has not answered within {seconds:.3g} s")
        if isinstance(running.error, RectoError):
            raise running.error
        if running.error is not None:
            raise EmbedderFailed(self.name, f"it broke: {running.error!r:.200}") from running.error
        return running.results[0]


_PAGE_ENTRIES = 256
_PAGE_MESSAGES = 16
"""Messages embedded between two checks of the deadline; at most these are lost when the process ends."""
STATEMENT_CHARACTERS = 200
"""Size of the pieces of a user message that get a vector each, after that of the whole: a sentence or two.

People mention things in passing ("…; by the way, I moved to Oslo in May"), and one vector of the whole message is near
to its main subject only.
"""
_LOCKS = 16
"""Sessions that are embedded at the same time at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingRules:
    """Which passages of a message get vectors, and how fast. `bench embedding` measures what others cost and find."""

    passages: int = 1
    """Passages per message: the first ones and, of two or more, the last."""
    characters: int = 512
    """Characters of a passage that are embedded: about 128 tokens."""
    tool_results: bool = False
    """Whether tool results get vectors. They are long, and are found by their words."""
    cpu_share: float = 1.0
    """Share of one core that background embedding may use on average; 1: no limit."""

    def passages_of(self, entry: Entry) -> list[str]:
        """Return the passages to embed, then the pieces of those a user said; none for events and recaps."""
        if (entry.role == "tool" and not self.tool_results) or not is_original_message(entry):
            return []
        found = passages(recall_text(entry), limit=max(self.passages, 2))
        chosen = [passage[: self.characters] for passage in found[: self.passages]]
        if entry.role != "user":
            return chosen
        pieces = [piece for passage in chosen for piece in passages(passage, STATEMENT_CHARACTERS) if piece.strip()]
        return [*chosen, *pieces] if len(pieces) > len(chosen) else chosen


class VectorWriter:
    """Embeds messages and writes to the vector lanes of an index."""

    def __init__(
        self,
        store: TranscriptStore,
        index: RecallIndex,
        embedder: Embedder | None,
        previous: Sequence[Embedder],
        budget: CpuBudget,
        rules: EmbeddingRules,
    ) -> None:
        self.rules = rules
        self.store = store
        self.index = index
        self.embedder = GuardedEmbedder(embedder, budget) if embedder is not None else None
        self.embedders = [
            *([self.embedder] if self.embedder else []),
            *(GuardedEmbedder(earlier, budget) for earlier in previous),
        ]
        """The current embedder, then earlier ones, whose vectors are searched until the new ones are complete."""
        self._indexes: dict[str, VectorIndex] = {}
        # Locks are chosen by session, so that one session that waits for its embedder does not block all others.
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    @property
    def lanes(self) -> list[str]:
        """The lanes of all embedders."""
        return [_lane(embedder) for embedder in self.embedders]

    def index_of(self, embedder: GuardedEmbedder, seconds: float = DEFAULT_TIMEOUT) -> VectorIndex:
        """Return the vector index of an embedder. The first call may ask the embedder for its dimensions and fail."""
        if embedder.name not in self._indexes:
            self._indexes[embedder.name] = VectorIndex(self.index, _lane(embedder), embedder.dims_within(seconds))
        return self._indexes[embedder.name]

    def has_vectors(self, session: str, embedder: Embedder) -> bool:
        """Whether any entry of a session has vectors of this embedder."""
        return bool(self.index.covered(session, _lane(embedder)))

    def missing(self, session: str, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges between two entries that have no vectors yet; none without an embedder."""
        return [] if self.embedder is None else gaps(self.index.covered(session, _lane(self.embedder)), first, last)

    def embed(
        self,
        session: str,
        first: int,
        last: int,
        deadline: Deadline,
        *,
        size: int = _PAGE_MESSAGES,
        may_continue: Callable[[], bool] = lambda: True,
        is_stopped: Callable[[], bool] = lambda: False,
        advance: Callable[[int], None] = lambda by: None,
    ) -> bool:
        """Embed what is missing between two entries, in pages of `size` messages. Returns whether nothing is missing.

        Args:
            session: the session.
            first: the first entry.
            last: the last entry.
            deadline: no page is begun after it.
            size: messages of a page; after each page the vectors are stored.
            may_continue: called before each page; may wait.
            is_stopped: called before each message; does not wait.
            advance: called with the number of entries done.
        """
        embedder = self.embedder
        if embedder is None:
            return True
        lock = self._locks[hash(session) % _LOCKS]
        while self.missing(session, first, last):
            if deadline.passed or not may_continue() or not deadline.acquire(lock):
                return False
            try:
                missing = self.missing(session, first, last)  # another thread may have embedded them in the meantime
                page = self._page(self.store.read(session, *missing[0]), size) if missing else []
                done = self._embed_page(session, page, embedder, deadline, is_stopped)
            finally:
                lock.release()
            advance(done)
            if not done:
                return not missing
        return True

    def _page(self, entries: Iterable[Entry], size: int) -> list[tuple[Entry, Sequence[str]]]:
        """Return the next entries with their passages, as few as hold `size` messages to embed."""
        page: list[tuple[Entry, Sequence[str]]] = []
        messages = 0
        for entry in entries:
            pieces = self.rules.passages_of(entry)
            page.append((entry, pieces))
            messages += bool(pieces)
            if messages == size or len(page) == _PAGE_ENTRIES:
                break
        return page

    def _embed_page(
        self,
        session: str,
        page: Sequence[tuple[Entry, Sequence[str]]],
        embedder: GuardedEmbedder,
        deadline: Deadline,
        is_stopped: Callable[[], bool],
    ) -> int:
        """Embed a page and return how many entries are done. If it fails part way, the vectors so far are stored."""
        messages = [(entry, pieces) for entry, pieces in page if pieces]
        vectors: list[Matrix] = []
        done = 0
        try:
            vectors.extend(embedder.each([pieces for _, pieces in messages], deadline.remaining, is_stopped))
        finally:
            is_whole = len(vectors) == len(messages)
            done = len(page) if is_whole else page.index(messages[len(vectors)])
            if done:
                rows = [(entry.seq, matrix) for (entry, _), matrix in zip(messages, vectors, strict=False)]
                first, last = page[0][0], page[done - 1][0]
                self.index_of(embedder).add(session, rows, CoveredRange(first.seq, last.seq, last.hash))
        return done

    def drop_previous(self, session: str, head: int) -> None:
        """Delete the vectors of previous embedders once the current ones cover the whole session."""
        if self.embedder is None or len(self.embedders) == 1 or self.missing(session, 1, head):
            return
        for embedder in self.embedders[1:]:
            if self.has_vectors(session, embedder):
                self.index.forget(session, _lane(embedder))

    def link(self, session: str, deadline: Deadline, may_continue: Callable[[], bool]) -> None:
        """Add the vectors of a long session to the vector graph, if the index has one."""
        if self.embedder is None or getattr(self.index, "graphs", None) is None:
            return
        with suppress(RectoError):  # everything is indexed; without the graph search is only slower
            index = self.index_of(self.embedder, min(deadline.remaining, DEFAULT_TIMEOUT))
            index.graph.link(session, may_continue)


class BackgroundWorker:
    """A thread that works on sessions one after the other, a slice of time each. It is joined at exit."""

    def __init__(self, work: Callable[[str], bool]) -> None:
        """`work`: works on a session for a short time and returns whether it is to be continued."""
        self._work = work
        self._waiting: dict[str, None] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.is_stopped = False
        stop_at_exit(self.stop)

    def schedule(self, session: str) -> None:
        """Queue a session. The thread starts with the first one."""
        with self._changed:
            if self.is_stopped:
                return
            self._waiting.setdefault(session)
            if self._thread is None:
                with suppress(RuntimeError):  # the process is ending
                    self._thread = start_thread(self._run, "recto indexer")
            self._changed.notify_all()

    def pause(self, seconds: float) -> bool:
        """Wait on the thread's behalf. Returns whether it may continue."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_stopped, min(seconds, threading.TIMEOUT_MAX))
            return not self.is_stopped

    def stop(self) -> None:
        """Let the thread end after the current text."""
        with self._changed:
            self.is_stopped = True
            self._changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _run(self) -> None:
        while (session := self._next()) is not None:
            if self._work(session):
                with self._changed:
                    self._waiting.setdefault(session)

    def _next(self) -> str | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.is_stopped)
            if self.is_stopped:
                return None
            session = next(iter(self._waiting))
            del self._waiting[session]
            return session


def _lane(embedder: Embedder) -> str:
    return f"vectors/{embedder.name}"


_PAGE = 256
_WORDS_PAGE = 64
"""Messages whose rows are stored together."""
_SESSIONS_PAGE = 500
_MAX_SKIPPED = 16
"""Entries between two requested ones that are indexed with them."""
_PACED_MESSAGES = 4
"""Messages that the background thread embeds between two checks of its CPU budget."""
_MAX_LAG = 10_000
"""Entries without vectors above which relief raises an alert."""
_SLICE_SECONDS = 5.0
"""Time that the background thread spends on one session while others are waiting."""
_CLOSING_SECONDS = 5.0
"""How long `close` waits for the current batch. An embedder that hangs is abandoned."""
OLD_LANES = ("words/porter/1", "terms/porter/1")
"""Lanes of words that earlier versions wrote: one kept all rows in the index, one knew English stems only."""
_MAX_SESSIONS = 4_096
"""Sessions whose state is cached here. What is dropped from the cache is read again."""


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
        embedding: EmbeddingRules | None = None,
    ) -> None:
        self.store = store
        self.index = index
        self.lexicon = lexicon
        self.words = WordIndex(store, index, f"terms/{lexicon.name}", row_version(lexicon))
        embedding = embedding or EmbeddingRules()
        self._budget = CpuBudget(embedding.cpu_share)
        self.vectors = VectorWriter(store, index, embedder, previous, self._budget, embedding)
        self._errors: BoundedCache[str] = BoundedCache(_MAX_SESSIONS)
        self._indexed: BoundedCache[int] = BoundedCache(_MAX_SESSIONS)
        """The entry up to which the words of a session are indexed without a gap, as far as this process knows."""
        self._complete: BoundedCache[Head] = BoundedCache(_MAX_SESSIONS)
        """The head up to which a session is indexed with its words and vectors, as far as this process knows."""
        self._verified: BoundedCache[bool] = BoundedCache(_MAX_SESSIONS)
        """Sessions whose index rows are known to belong to the stored transcript."""
        self._repair_lock = threading.Lock()
        # Confirmation blocks a turn, so the background work lets it go first: see `FifoLock`.
        self._confirming = FifoLock()
        self._words_lock = threading.Lock()
        self._in_background = in_background
        self._owns_index = owns_index
        self._worker = BackgroundWorker(self._work)

    @property
    def embedder(self) -> GuardedEmbedder | None:
        """The current embedder."""
        return self.vectors.embedder

    @property
    def embedders(self) -> Sequence[GuardedEmbedder]:
        """The current embedder, then earlier ones whose vectors are still searched."""
        return self.vectors.embedders

    def vector_index(self, embedder: GuardedEmbedder, seconds: float = DEFAULT_TIMEOUT) -> VectorIndex:
        """Return the vector index of an embedder. The first call may ask the embedder for its dimensions and fail."""
        return self.vectors.index_of(embedder, seconds)

    def has_vectors(self, session: str, embedder: Embedder) -> bool:
        """Whether any entry of a session has vectors of this embedder."""
        return self.vectors.has_vectors(session, embedder)

    def confirm(self, session: str, seqs: Iterable[int], seconds: float) -> Confirmation:
        """Index the words of these entries if they are missing, within a time limit, and report whether they are there.

        Vectors are not waited for: the background thread makes them, later if the CPU budget says so. Without a
        background thread they are made here, within the same time limit. A damaged index is replaced by an empty one
        first. Other failures are returned as the reason and never raised.
        """
        requested = sorted(set(seqs))
        if not requested:
            return Confirmation(words=True, vectors=True)
        ranges = _close_ranges(requested)

        def words() -> bool:
            self.words.sealed(session)  # what cannot be searched for must not leave, although it is stored
            return all(self._index_words(session, first, last, deadline) for first, last in ranges)

        def vectors() -> bool:
            if self.embedder is None:
                return True
            self.discard_foreign_rows(session)
            return all(self.vectors.embed(session, first, last, deadline) for first, last in ranges)

        with self._confirming.turn(seconds):
            deadline = Deadline.extending(seconds)
            error = self._error_of(words, "the words index was not ready in time")
        if error:
            return Confirmation(words=False, vectors=False, reason=error)
        if self._in_background:
            return self._confirm_in_background(session, ranges)
        error = self._error_of(vectors, "the vectors were not ready in time")
        return Confirmation(words=True, vectors=not error, reason=error)

    def _confirm_in_background(self, session: str, ranges: Sequence[tuple[int, int]]) -> Confirmation:
        """Report on vectors without making any: a failure of the embedder, and a backlog that is too long."""

        def read_missing() -> bool:
            missing.extend(self.vectors.missing(session, 1, ranges[-1][1]))
            return True

        missing: list[tuple[int, int]] = []
        if error := self._error_of(read_missing, ""):
            return Confirmation(words=False, vectors=False, reason=error)
        self.schedule(session)
        has_vectors = not any(first <= stop and start <= last for first, last in ranges for start, stop in missing)
        reason = self.last_error(session) if missing else ""
        if not reason and (count := _count(missing)) > _MAX_LAG:
            reason = f"{count:,} entries wait for their vectors; 'recto index' makes them at once"
        return Confirmation(words=True, vectors=has_vectors, reason=reason)

    def embed(self, session: str, first: int, last: int, seconds: float) -> str:
        """Make the missing vectors between two entries now; returns why it did not succeed, or nothing."""
        deadline = Deadline.after(seconds)
        return self._error_of(
            lambda: self.vectors.embed(session, first, last, deadline), "the vectors were not ready in time"
        )

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
                    self._complete = BoundedCache(_MAX_SESSIONS)
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

    def _catch_up(
        self,
        session: str,
        deadline: Deadline,
        advance: Callable[[int], None] = lambda by: None,
        *,
        may_embed: Callable[[], bool] | None = None,
    ) -> bool:
        """Index words, then vectors. `may_embed` is asked before every few messages; None: no limit."""

        def may_continue() -> bool:
            self._confirming.wait_until_free(min(deadline.remaining, _CLOSING_SECONDS))
            return not self._worker.is_stopped and not deadline.passed

        def may_continue_embedding() -> bool:
            return (may_embed is None or may_embed()) and may_continue()

        self.discard_foreign_rows(session)
        stored = self.store.head(session)
        head = stored.seq
        missing = self.words.backlog(session, head)
        for page in (missing[at : at + _PAGE] for at in range(0, len(missing), _PAGE)):
            if not may_continue() or not self._index_words(session, page[0], page[-1], deadline):
                return False
            advance(len(page))
        if not head <= self.indexed_through(session) <= self.store.head(session).seq:  # messages are added meanwhile
            self._indexed.put(session, head)
        self._seal_words(session)
        size = {} if may_embed is None else {"size": _PACED_MESSAGES}
        if not self.vectors.embed(
            session,
            1,
            head,
            deadline,
            may_continue=may_continue_embedding,
            is_stopped=lambda: self._worker.is_stopped,
            advance=advance,
            **size,
        ):
            return False
        self.vectors.drop_previous(session, head)
        self.vectors.link(session, deadline, may_continue)
        self._complete.put(session, stored)
        return True

    def _seal_words(self, session: str) -> None:
        """Seal the rows of words that fill blocks; drop the lanes of earlier versions."""
        try:
            self.words.maintain(session)
            for old in OLD_LANES:
                if self.index.covered(session, old):
                    self.index.forget(session, old)
        except IndexCorrupt:
            raise
        except StoreError:
            pass  # everything is indexed; it is sealed another time

    def index_words(self, session: str, last: int, seconds: float) -> bool:
        """Index the words of all entries up to `last` within a time limit. Cheap if they are indexed already."""
        deadline = Deadline.after(seconds)
        return not self._error_of(lambda: self._index_words(session, 1, last, deadline), "late")

    def backlog(self, session: str, head: int | None = None) -> tuple[int, int]:
        """Return how many entries up to the head are missing in the word index, and how many have no vectors."""
        head = self.store.head(session).seq if head is None else head
        return len(self.words.backlog(session, head)), _count(self.vectors.missing(session, 1, head))

    def sessions(self, prefix: str) -> Iterator[str]:
        """Iterate over the keys of all sessions that start with a prefix."""
        after = prefix
        while page := self.store.sessions(after, _SESSIONS_PAGE):
            for summary in page:
                if not summary.session.startswith(prefix):
                    return
                yield summary.session
            after = page[-1].session

    def indexed_through(self, session: str) -> int:
        """Return the entry up to which words are indexed, as far as this process knows. Reads nothing."""
        return max(self.words.indexed_through(session), self._indexed.get(session) or 0)

    def note_stored(self, session: str, entries: Sequence[Entry]) -> None:
        """Take entries that this process has just stored: messages with their rows are indexed already."""
        version = self.words.version
        if not all(entry.kind != MESSAGE or entry.terms.startswith(version) for entry in entries):
            return
        self.words.note_stored(session, entries)
        known = self.indexed_through(session)
        if entries[0].seq <= known + 1:
            self._indexed.put(session, max(entries[-1].seq, known))

    def rebuild(self, session: str) -> None:
        """Forget what is indexed of a session, and make the rows of its words again."""
        self._complete.discard(session)
        self.index.forget(session)
        self.words.forget(session)
        for page in _pages((entry for entry in self.store.read(session) if entry.kind == MESSAGE), _PAGE):
            self._add_words(session, page)

    def covered(self, session: str) -> list[CoveredRange]:
        """Return the ranges that the lanes of a session cover, lane by lane."""
        lanes = [self.words.lane, *self.vectors.lanes]
        return [covered for lane in lanes for covered in self.index.covered(session, lane)]

    def matches(self, entry: Entry) -> bool:
        """Whether the word index agrees with a message; true if the message is not indexed yet."""
        row = self.store.pick_terms(entry.session, [entry.seq]).get(entry.seq, b"")
        if not row.startswith(self.words.version):
            return True
        indexed = self.words.attributes(entry.session).of(entry.seq)
        if not is_row_of(row, entry, self.lexicon):
            return False
        return (indexed is not None) == is_document(row, self.words.version)

    def schedule(self, session: str) -> None:
        """Queue a session for the background thread, which indexes it while the model is generating."""
        if self._in_background:
            self._worker.schedule(session)

    def close(self) -> None:
        """Stop the background thread after the current text. The rest is indexed next time."""
        self._worker.stop()
        self._worker.join(_CLOSING_SECONDS)
        if self._owns_index:
            self.index.close()

    def _work(self, session: str) -> bool:
        """Catch up on the background thread for a slice of time; returns whether something is left to do."""
        deadline = Deadline.after(_SLICE_SECONDS)

        def may_embed() -> bool:
            delay = self._budget.delay()
            return delay < deadline.remaining and self._worker.pause(delay)

        try:
            done = self.with_repair(lambda: self._catch_up(session, deadline, may_embed=may_embed))
        except Exception as error:  # noqa: BLE001  # whatever it is, the next session must be served
            self._errors.put(session, str(error) or repr(error))
            return False
        self._errors.discard(session)
        if not done:
            self._worker.pause(min(self._budget.delay(), _SLICE_SECONDS))
        return not done

    def try_catch_up(self, session: str, seconds: float = float("inf")) -> None:
        """Catch up as far as the time limit and the CPU budget allow; the background thread does the rest.

        A failure is recorded instead of raised; see `last_error`.
        """
        deadline = Deadline.after(seconds)
        try:
            if self._complete.get(session) == self.store.head(session):
                return
            done = self.with_repair(
                lambda: self._catch_up(session, deadline, may_embed=lambda: not self._budget.delay())
            )
        except Exception as error:  # noqa: BLE001  # recall goes on with what is indexed
            self._errors.put(session, str(error) or repr(error))
            return
        self._errors.discard(session)
        if not done:
            self.schedule(session)

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
                self._complete.discard(session)
                self.index.forget(session)
                break
        self._verified.put(session, True)

    def _index_words(self, session: str, first: int, last: int, deadline: Deadline) -> bool:
        """Make the rows of words that are missing in a range. Most often none is: they are stored with the messages."""
        if self.words.missing(session, first, last, 1):
            if not deadline.acquire(self._words_lock):
                return False
            try:
                missing = set(self.words.missing(session, first, last))
                start, stop = min(missing, default=1), max(missing, default=0)
                entries = (entry for entry in self.store.read(session, start, stop) if entry.seq in missing)
                for page in _pages(entries, _WORDS_PAGE):
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
        self.store.add_terms(session, [replace(entry, terms=entry_row(entry, self.lexicon)) for entry in page])


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
        if seq - last <= _MAX_SKIPPED:
            ranges[-1] = (first, seq)
        else:
            ranges.append((seq, seq))
    return ranges


def _count(ranges: Iterable[tuple[int, int]]) -> int:
    return sum(last - first + 1 for first, last in ranges)
