"""What a smaller window would have cost and lost in recorded sessions, and which mode fits. No model is called.

Cost comes from a replay beside the whole history, loss from the replay and from the measures of `recto.lab.comparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from recto.config import Settings
from recto.lab.backtest import Backtest
from recto.lab.comparison import WayMeasures, compare
from recto.lab.recordings import session_result
from recto.lab.results import Way, dollars
from recto.lab.variants import variants
from recto.transcript.entries import MESSAGE, Entry

SURVIVAL_TOLERANCE = 0.01
FACTS_TOLERANCE = 0.02
"""How much lower a mode's survival and factual retention may be than the best ones, and still be as good."""
FITS = (
    "Of the modes that never refused a prompt and whose survival and factual retention are within 1 and 2 points of "
    "the best, the one whose prompts cost least."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTask:
    """One session in one window: picklable."""

    name: str
    entries: tuple[Entry, ...]
    settings: Settings
    window: int
    modes: tuple[str, ...]
    model: str | None = None

    @property
    def size(self) -> int:
        """How much there is to do."""
        return len(self.entries) * len(self.modes)


@dataclass(frozen=True, slots=True, kw_only=True)
class WayResult:
    """One mode in one window. Two of the same mode can be added."""

    way: Way
    result: Backtest
    measures: WayMeasures

    def __add__(self, other: WayResult) -> WayResult:
        return replace(self, result=self.result + other.result, measures=self.measures + other.measures)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowResult:
    """One session, or all sessions, in one window."""

    window: int
    sessions: int
    fitting: int
    """Sessions whose whole history always fits: nothing changes for them."""
    whole: Backtest
    """The whole history, sent each time."""
    ways: tuple[WayResult, ...]

    def __add__(self, other: WindowResult) -> WindowResult:
        return replace(
            self,
            sessions=self.sessions + other.sessions,
            fitting=self.fitting + other.fitting,
            whole=self.whole + other.whole,
            ways=tuple(mine + theirs for mine, theirs in zip(self.ways, other.ways, strict=True)),
        )

    @property
    def best(self) -> WayResult | None:
        """The mode that fits (`FITS`); None if every mode refused a prompt."""
        allowed = [way for way in self.ways if not way.result.refused]
        for value, tolerance in ((_survival, SURVIVAL_TOLERANCE), (_facts, FACTS_TOLERANCE)):
            highest = max(map(value, allowed), default=0.0)
            allowed = [way for way in allowed if value(way) >= highest - tolerance]
        return min(allowed, key=lambda way: _cost(way.result), default=None)


def _survival(way: WayResult) -> float:
    return way.result.survival


def _facts(way: WayResult) -> float:
    share = way.measures.shares.get("facts")
    return 1.0 if share is None or share.value is None else share.value


def _cost(result: Backtest) -> float:
    cost = dollars(result)
    return result.tokens if cost is None else cost


def try_window(task: OwnTask, advance: Callable[[int], object]) -> WindowResult:
    """Replays a session in each mode, and beside the whole history."""
    whole, *ways = variants(task.settings, model=task.model, window=task.window, modes=task.modes, against="none")
    entries = [entry for entry in task.entries if entry.kind == MESSAGE]
    baseline = session_result(whole, entries)
    measured = compare(entries, ways)
    results = tuple(
        WayResult(way=way.way, result=session_result(way, entries), measures=measures)
        for way, measures in zip(ways, measured, strict=True)
    )
    advance(task.size)
    return WindowResult(window=task.window, sessions=1, fitting=int(not baseline.over), whole=baseline, ways=results)


def sum_windows(results: Sequence[WindowResult]) -> list[WindowResult]:
    """Sums up all sessions, by window."""
    sums: dict[int, WindowResult] = {}
    for result in results:
        sums[result.window] = sums[result.window] + result if result.window in sums else result
    return list(sums.values())
