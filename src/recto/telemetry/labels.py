"""Names of models as labels: few of them, and none that somebody made up to fill a table."""

from __future__ import annotations

import threading
from collections.abc import Callable

from recto.telemetry.facts import OTHER

MODELS_MOST = 50
"""Names that one process tells apart; all others are told as `other`."""
_LENGTH = 64


class ModelLabels:
    """Gives each model its label, from any thread."""

    def __init__(self, known: Callable[[str], bool] | None = None, most: int = MODELS_MOST) -> None:
        self._known = known
        self._most = most
        self._labels: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, model: str) -> str:
        """The name itself where it is a known one and there are few so far, else `other`."""
        label = self._labels.get(model)
        return self._first(model) if label is None else label

    def _first(self, model: str) -> str:
        usable = bool(model) and len(model) <= _LENGTH and model.isascii() and model.isprintable()
        if not usable or not (self._known is None or self._known(model)):
            return OTHER  # not remembered: of strange names there is no end
        with self._lock:
            if model in self._labels or len(self._labels) < self._most:
                return self._labels.setdefault(model, model)
            return OTHER
