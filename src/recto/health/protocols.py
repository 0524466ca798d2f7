"""Protocols of health sinks: receivers of turn metrics, alerts and events."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry


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


@runtime_checkable
class Dropping(Protocol):
    """A sink that can lose something, and counts what it lost."""

    @property
    def name(self) -> str:
        """A short word: `log`, `webhook`."""
        ...

    @property
    def dropped(self) -> int:
        """How often it told nothing where it should have."""
        ...
