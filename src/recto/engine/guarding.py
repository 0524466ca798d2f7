"""An embedder as the engine calls it: it answers in time and with sound numbers, or it has failed.

Embedders are not ours. They may hang, break in ways of their own, or answer with anything. It is not known here what
is embedded, nor why.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from recto.engine.waiting import Call
from recto.errors import EmbedderFailed, RectoError
from recto.ports import Embedder

if TYPE_CHECKING:
    from recto.ports import Matrix

_T = TypeVar("_T")
PATIENCE = 30.0
"""Seconds that a call may take where nobody says otherwise."""
_MOST_DIMS = 65_536
_LONGEST = 1.01
"""How long a vector of length 1 may be, for who rounds."""


class Guarded:
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
        return self.dims_within(PATIENCE)

    def dims_within(self, seconds: float) -> int:
        """How long its vectors are, where it says so in time."""
        if not self._dims:
            dims = self._answer(lambda: int(self._embedder.dims), seconds)
            if not 1 <= dims <= _MOST_DIMS:
                raise EmbedderFailed(self.name, f"it says that its vectors have {dims} numbers")
            self._dims = dims
        return self._dims

    def documents(self, texts: Sequence[str], seconds: float = PATIENCE) -> Matrix:
        """One row for each text."""
        return self._vectors(lambda: self._embedder.documents(texts), len(texts), seconds)

    def query(self, text: str, seconds: float = PATIENCE) -> Matrix:
        """The vector of a question, as one row."""
        return self._vectors(lambda: self._embedder.query(text), 1, seconds)

    def _vectors(self, ask: Callable[[], Matrix], count: int, seconds: float) -> Matrix:
        dims = self.dims_within(seconds)
        found = self._answer(lambda: np.atleast_2d(np.asarray(ask(), np.float32)), seconds)
        if found.shape != (count, dims):
            raise EmbedderFailed(self.name, f"its answer has the shape {found.shape}, expected {(count, dims)}")
        lengths = np.linalg.norm(found, axis=1)
        if not np.isfinite(lengths).all() or (lengths > _LONGEST).any():
            raise EmbedderFailed(self.name, "its answer holds vectors that are not of length 1")
        return found

    def _answer(self, ask: Callable[[], _T], seconds: float) -> _T:
        with self._lock:
            self._late = [done for done in self._late if not done.is_set()]
            if self._late:
                raise EmbedderFailed(self.name, "it has not answered a call before this one yet")
        call = Call(ask, "recto embedder")
        if not call.answered_within(seconds):
            with self._lock:
                self._late.append(call.done)
            raise EmbedderFailed(self.name, f"it has not answered within {seconds:.3g} s")
        if isinstance(call.error, RectoError):
            raise call.error
        if call.error is not None:
            raise EmbedderFailed(self.name, f"it broke: {call.error!r:.200}") from call.error
        return call.answers[0]
