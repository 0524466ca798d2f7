"""The sessions that are at work now, and what stands open about each. Kept in memory, told only as sums.

Prometheus must not have a series for each session. What one can alert on without them is the worst of them and how many
of them have an alert; a session that has been silent for a while counts for neither.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from recto.health.metrics import Alert, TurnHealth

LIVE_SECONDS = 900.0
"""A session without a turn for so long is not at work."""
SESSIONS_MOST = 10_000


@dataclass(slots=True)
class _One:
    seen: float
    utilization: float = 0.0
    protected: float = 0.0
    lag: int = 0
    alerts: dict[str, str] = field(default_factory=dict)
    """The grade of each alert that has begun and not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveSessionStats:
    """How things stand over all sessions at work."""

    sessions: int
    utilization: float
    """Of the fullest of them."""
    protected: float
    lag: int
    """Of the one that is furthest behind."""
    alerts: dict[tuple[str, str], int]
    """Sessions with an alert, by its name and grade."""


class Live:
    """What was last told of each session. Any thread may tell and ask."""

    def __init__(
        self,
        *,
        seconds: float = LIVE_SECONDS,
        most: int = SESSIONS_MOST,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seconds = seconds
        self._most = most
        self._now = now
        self._sessions: OrderedDict[str, _One] = OrderedDict()
        """The one that was heard of last stands last."""
        self._lock = threading.Lock()

    def turn(self, session: str, turn: TurnHealth) -> None:
        """A turn is over."""
        with self._lock:
            one = self._of(session)
            one.utilization, one.protected, one.lag = turn.utilization, turn.protected, turn.index_lag

    def alert(self, alert: Alert) -> None:
        """An alert has begun or ended."""
        with self._lock:
            alerts = self._of(alert.session).alerts
            if alert.ended:
                alerts.pop(alert.name, None)
            else:
                alerts[alert.name] = alert.grade

    def standing(self) -> ActiveSessionStats:
        """How things stand now."""
        with self._lock:
            self._forget_the_silent()
            live = list(self._sessions.values())
            counted = Counter(told for one in live for told in one.alerts.items())
        return ActiveSessionStats(
            sessions=len(live),
            utilization=max((one.utilization for one in live), default=0.0),
            protected=max((one.protected for one in live), default=0.0),
            lag=max((one.lag for one in live), default=0),
            alerts=dict(counted),
        )

    def _of(self, session: str) -> _One:
        one = self._sessions.get(session)
        if one is None:
            self._forget_the_silent()  # also where nobody ever asks how things stand
            one = self._sessions[session] = _One(seen=0.0)
            if len(self._sessions) > self._most:
                self._sessions.popitem(last=False)
        one.seen = self._now()
        self._sessions.move_to_end(session)
        return one

    def _forget_the_silent(self) -> None:
        since = self._now() - self._seconds
        while self._sessions and next(iter(self._sessions.values())).seen < since:
            self._sessions.popitem(last=False)
