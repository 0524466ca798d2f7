"""Calls an embedder with a time limit and checks its answer.

Embedders are third-party code: they may hang, raise anything, or return anything. Every failure becomes
`EmbedderFailed`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from recto.concurrency import BackgroundCall, CpuBudget
from recto.errors import EmbedderFailed, RectoError
from recto.recall.index.cache import BoundedCache
from recto.recall.protocols import Embedder

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
