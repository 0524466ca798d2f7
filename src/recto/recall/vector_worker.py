"""Makes the vectors of messages, and the background thread that does so within a share of one core.

Vectors follow the words: they have their own coverage, nothing waits for them, and interrupted work continues where it
stopped.

An embedder is called with a time limit, and its answer is checked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recto.concurrency import CpuBudget, Deadline, start_thread, stop_at_exit
from recto.errors import RectoError
from recto.formats import entry_text
from recto.recall.documents import is_original_message, passages
from recto.recall.index.rows import CoveredRange, gaps
from recto.recall.index.vectors import VectorIndex
from recto.recall.protocols import Embedder, RecallIndex
from recto.transcript.entries import Entry
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix
import time
from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from recto.concurrency import BackgroundCall
from recto.errors import EmbedderFailed
from recto.recall.index.cache import BoundedCache

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
        found = passages(entry_text(entry), limit=max(self.passages, 2))
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
