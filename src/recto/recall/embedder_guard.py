"""An embedder as the engine calls it: it answers in time and with sound numbers, or it has failed.

Embedders are not ours. They may hang, break in ways of their own, or answer with anything. It is not known here what
is embedded, nor why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from recto.concurrency import BackgroundCall
from recto.errors import EmbedderFailed, RectoError
from recto.recall.protocols import Embedder

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

_T = TypeVar("_T")
DEFAULT_TIMEOUT = 30.0
"""Seconds that a call may take where nobody says otherwise."""
_MAX_DIMS = 65_536
_MAX_NORM = 1.01
"""How long a vector of length 1 may be, for who rounds."""


class GuardedEmbedder:
    """One embedder, behind a time limit and a check. Any number of threads may use it."""

    def __init__(self, embedder: Embedder) -> None:
        self.name = embedder.name
        self.weight = embedder.weight
        self._embedder = embedder
        self._dims = 0
        self._late: list[threading.Event] = []
        """The ends of calls that were given up. While one has not come no other call is made: it would hang too."""
        self._lock = threading.Lock()

    @property
    def dims(self) -> int:
        """How long its vectors are. To know that it may have to be asked."""
        return self.dims_within(DEFAULT_TIMEOUT)

    def dims_within(self, seconds: float) -> int:
        """How long its vectors are, where it says so in time."""
        if not self._dims:
            dims = self._answer(lambda: int(self._embedder.dims), seconds)
            if not 1 <= dims <= _MAX_DIMS:
                raise EmbedderFailed(self.name, f"it says that its vectors have {dims} numbers")
            self._dims = dims
        return self._dims

    def documents(self, texts: Sequence[str], seconds: float = DEFAULT_TIMEOUT) -> Matrix:
        """One row for each text."""
        return self._vectors(lambda: self._embedder.documents(texts), len(texts), seconds)

    def each(self, several: Sequence[Sequence[str]], seconds: float = DEFAULT_TIMEOUT) -> Iterator[Matrix]:
        """The vectors of one text or several after the other. Those that came in time are given before it fails.

        They are asked for on one thread, which costs more than a short text does. No single one may take longer than
        is usual.
        """
        dims = self.dims_within(min(seconds, DEFAULT_TIMEOUT))
        found: list[Matrix] = []

        def ask() -> None:
            asked = (self._embedder.documents(texts) for texts in several)
            found.extend(np.atleast_2d(np.asarray(one, np.float32)) for one in asked)  # each as soon as it is there

        failure: RectoError | None = None
        try:
            self._answer(ask, min(seconds, DEFAULT_TIMEOUT), until=time.monotonic() + seconds, done=lambda: len(found))
        except RectoError as error:
            failure = error
        for texts, one in zip(several, tuple(found), strict=False):
            yield self._checked(one, (len(texts), dims))
        if failure is not None:
            raise failure

    def query(self, text: str, seconds: float = DEFAULT_TIMEOUT) -> Matrix:
        """The vector of a question, as one row."""
        return self._vectors(lambda: self._embedder.query(text), 1, seconds)

    def _vectors(self, ask: Callable[[], Matrix], count: int, seconds: float) -> Matrix:
        dims = self.dims_within(seconds)
        return self._checked(self._answer(lambda: np.atleast_2d(np.asarray(ask(), np.float32)), seconds), (count, dims))

    def _checked(self, found: Matrix, shape: tuple[int, int]) -> Matrix:
        if found.shape != shape:
            raise EmbedderFailed(self.name, f"its answer has the shape {found.shape}, expected {shape}")
        lengths = np.linalg.norm(found, axis=1)
        if not np.isfinite(lengths).all() or (lengths > _MAX_NORM).any():
            raise EmbedderFailed(self.name, "its answer holds vectors that are not of length 1")
        return found

    def _answer(
        self, ask: Callable[[], _T], seconds: float, *, until: float = 0.0, done: Callable[[], int] = lambda: 0
    ) -> _T:
        """What comes of a call, in time. Up to `until` it has the same time again for as long as more is done."""
        with self._lock:
            self._late = [one for one in self._late if not one.is_set()]
            if self._late:
                raise EmbedderFailed(self.name, "it has not answered a call before this one yet")
        call = BackgroundCall(ask, "recto embedder")
        seen, answered = 0, call.run_within(seconds)
        while not answered and seen < (now := done()) and (left := until - time.monotonic()) > 0:
            seen, answered = now, call.done.wait(min(seconds, left))
        if not answered:
            with self._lock:
                self._late.append(call.done)
            raise EmbedderFailed(self.name, f"it has not answered within {seconds:.3g} s")
        if isinstance(call.error, RectoError):
            raise call.error
        if call.error is not None:
            raise EmbedderFailed(self.name, f"it broke: {call.error!r:.200}") from call.error
        return call.results[0]
