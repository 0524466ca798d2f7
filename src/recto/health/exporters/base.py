"""What the exporters share: a health sink that ignores everything by default, bounded labels, and value formatting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite

from recto.health.exporters.fields import OTHER, FieldValue
from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry

MAX_MODELS = 50
"""Model names that one process uses as labels; all others become `other`."""
MAX_KEYS = 100
"""API keys, and tenants, that one process uses as labels; all others become `other`."""
_MAX_NAME_LENGTH = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Exporter:
    """A `HealthSink` that ignores everything; exporters override what they export."""

    name = ""

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Ignore a finished turn."""

    def alert(self, alert: Alert) -> None:
        """Ignore an alert."""

    def event(self, entry: Entry) -> None:
        """Ignore an event."""


class BoundedLabels:
    """Values of a label, at most a number of them: models, API keys or tenants. Thread-safe."""

    def __init__(self, known: Callable[[str], bool] | None = None, most: int = MAX_MODELS) -> None:
        """`known` says which values may be used; without it the first ones may."""
        self._known = known
        self._most = most
        self._labels: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> str:
        """Return the name itself if it is known and the limit is not reached, else `other`."""
        label = self._labels.get(name)
        return self._assign(name) if label is None else label

    def _assign(self, name: str) -> str:
        usable = bool(name) and len(name) <= _MAX_NAME_LENGTH and name.isascii() and name.isprintable()
        if not usable or not (self._known is None or self._known(name)):
            return OTHER  # not remembered: the number of unknown names is unbounded
        with self._lock:
            if name in self._labels or len(self._labels) < self._most:
                return self._labels.setdefault(name, name)
            return OTHER


def freed_tokens(fields: Mapping[str, FieldValue]) -> tuple[float, str]:
    """Return the tokens that a decision freed, 0 if unknown, and its policy."""
    freed = fields.get("frees", 0)
    return freed if isinstance(freed, int | float) else 0, str(fields.get("policy", OTHER))


def finite(value: object) -> object:
    """Return the value, with non-finite numbers as None: JSON has none."""
    return None if isinstance(value, float) and not isfinite(value) else value


def format_time(ts: int) -> str:
    """Format a timestamp in ISO 8601 with microseconds; one outside the calendar is returned as a number."""
    try:
        return (_EPOCH + timedelta(microseconds=ts)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ts)
