"""Protocols of health sinks: receivers of turn metrics, alerts and events."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from recto.health.metrics import Alert, SearchHealth, TurnHealth
from recto.transcript.entries import Entry


class HealthSink(Protocol):
    """Receives turn metrics, alerts and events as they happen. It must return quickly; its errors never fail a turn."""

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Receive the metrics of a finished turn."""
        ...

    def alert(self, alert: Alert) -> None:
        """Receive an alert that was raised or has ended."""
        ...

    def event(self, entry: Entry) -> None:
        """Receive an event of a session: a decision, a zone change, an overflow, an index failure."""
        ...


@runtime_checkable
class SearchSink(Protocol):
    """A sink that receives searches of the history, too."""

    def searched(self, session: str, search: SearchHealth) -> None:
        """Receive a search that a program or a model asked for."""
        ...


@runtime_checkable
class LossySink(Protocol):
    """A sink that may drop data and counts what it dropped."""

    @property
    def name(self) -> str:
        """A short name: `log`, `webhook`."""
        ...

    @property
    def dropped(self) -> int:
        """How many items were not delivered."""
        ...
