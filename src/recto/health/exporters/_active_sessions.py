"""Active sessions and their alerts, aggregated in memory.

Prometheus must not have a series per session. Alerting rules use the worst session and the number of sessions with an
alert instead; a session without recent turns counts for neither.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from recto.health.metrics import Alert, TurnHealth

ACTIVE_SECONDS = 900.0
"""A session without a turn for this long is inactive."""
MAX_SESSIONS = 10_000


@dataclass(slots=True)
class _SessionState:
    seen: float
    utilization: float = 0.0
    protected: float = 0.0
    lag: int = 0
    alerts: dict[str, str] = field(default_factory=dict)
    """The grade of each active alert."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSessionStats:
    """Aggregates over all active sessions."""

    sessions: int
    utilization: float
    """Of the fullest session."""
    protected: float
    lag: int
    """Of the session furthest behind."""
    alerts: dict[tuple[str, str], int]
    """Number of sessions with an alert, by its name and grade."""


class ActiveSessions:
    """The last known state of each session. Thread-safe."""

    def __init__(
        self,
        *,
        seconds: float = ACTIVE_SECONDS,
        max_sessions: int = MAX_SESSIONS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._max_sessions = max_sessions
        self._now = now
        self._sessions: OrderedDict[str, _SessionState] = OrderedDict()
        """In order of last activity."""
        self._lock = threading.Lock()

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Record a finished turn."""
        with self._lock:
            state = self._touch(session)
            state.utilization, state.protected, state.lag = turn.utilization, turn.protected, turn.index_lag

    def alert(self, alert: Alert) -> None:
        """Record an alert that was raised or has ended."""
        with self._lock:
            alerts = self._touch(alert.session).alerts
            if alert.ended:
                alerts.pop(alert.name, None)
            else:
                alerts[alert.name] = alert.grade

    def stats(self) -> ActiveSessionStats:
        """Return the current aggregates."""
        with self._lock:
            self._drop_inactive()
            active = list(self._sessions.values())
            alerts = Counter(alert for state in active for alert in state.alerts.items())
        return ActiveSessionStats(
            sessions=len(active),
            utilization=max((state.utilization for state in active), default=0.0),
            protected=max((state.protected for state in active), default=0.0),
            lag=max((state.lag for state in active), default=0),
            alerts=dict(alerts),
        )

    def _touch(self, session: str) -> _SessionState:
        state = self._sessions.get(session)
        if state is None:
            self._drop_inactive()  # bounds memory even if `stats` is never called
            state = self._sessions[session] = _SessionState(seen=0.0)
            if len(self._sessions) > self._max_sessions:
                self._sessions.popitem(last=False)
        state.seen = self._now()
        self._sessions.move_to_end(session)
        return state

    def _drop_inactive(self) -> None:
        cutoff = self._now() - self._seconds
        while self._sessions and next(iter(self._sessions.values())).seen < cutoff:
            self._sessions.popitem(last=False)
