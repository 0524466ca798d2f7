"""Replays one recorded file in one way, in any process, with the same result.

The clock is the recording's own, so neither the time of the replay nor the speed of the machine matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from recto.cli.console import Advance
from recto.config import Settings
from recto.config.factory import make_importer, make_indexer, make_meter, model_card, open_session
from recto.config.modes import make_budget
from recto.lab.backtest import Backtest, ReplayedTurn, backtest
from recto.lab.baselines import backtest_baseline
from recto.lab.results import Curve, PromptSizes, VariantOutcome, Way
from recto.lab.variants import Variant
from recto.stores.memory import MemoryStore
from recto.transcript.entries import Entry

_START_TIME = 1_700_000_000_000_000
"""Start of a conversation without timestamps; its messages are a second apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """A file to replay in one way."""

    place: int
    """The index of the file."""
    file: Path
    variant: Variant
    with_curve: bool = False
    """Whether to collect the prompt sizes."""

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return self.file.stat().st_size


class RecordingClock:
    """A clock that follows the timestamps of a recording and never goes back."""

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        """Returns the time of the last message."""
        return self._now

    def reach(self, ts: int) -> None:
        """Advances to the time of a message."""
        self._now = max(self._now, ts)


class _SecondsClock:
    """A clock for recordings without timestamps: every reading is a second later."""

    def __init__(self) -> None:
        self._now = _START_TIME

    def now(self) -> int:
        self._now += 1_000_000
        return self._now


def run_task(task: ReplayTask, advance: Advance) -> VariantOutcome:
    """Replays all sessions of a file in one way, each in its own window. Calls `advance` with bytes, up to the file's
    size.
    """
    settings, remaining = task.variant.settings, task.size
    curve: Curve | None = None
    total = Backtest()

    def feed(entries: Sequence[Entry], clock: RecordingClock) -> Iterator[Entry]:
        nonlocal remaining
        for entry in entries:
            size = min(len(entry.content), remaining)
            remaining -= size
            advance(size)
            yield entry
            clock.reach(entry.ts)

    for entries in iter_sessions(settings, task.file):
        clock, sizes = RecordingClock(), PromptSizes()
        on_turn = sizes.take if task.with_curve else _ignore_turn
        total += _result(settings, task.variant.way, feed(entries, clock), clock, on_turn)
        if curve is None or len(sizes) > curve.turns:
            curve = sizes.curve()
    advance(remaining)
    return VariantOutcome(place=task.place, file=task.file.name, way=task.variant.way, result=total, curve=curve)


def session_result(variant: Variant, entries: Iterable[Entry]) -> Backtest:
    """Replays one session in one way."""
    clock = RecordingClock()

    def timed() -> Iterator[Entry]:
        for entry in entries:
            yield entry
            clock.reach(entry.ts)

    return _result(variant.settings, variant.way, timed(), clock, _ignore_turn)


def _ignore_turn(turn: ReplayedTurn) -> None:
    pass


def iter_sessions(settings: Settings, file: Path) -> Iterator[list[Entry]]:
    """Yields the entries of each session in a file."""
    with closing(MemoryStore()) as store:
        importer = replace(make_importer(settings, store), clock=_SecondsClock())
        for name in importer.import_file(file).sessions:
            yield list(store.read(name))


def _result(
    settings: Settings,
    way: Way,
    entries: Iterator[Entry],
    clock: RecordingClock,
    on_turn: Callable[[ReplayedTurn], None],
) -> Backtest:
    if way.mode is None:
        card = model_card(settings)
        budget = make_budget(settings.window, card)
        return backtest_baseline(
            way.name, entries, card=card, input_budget=budget.input_budget, meter=make_meter(settings), on_turn=on_turn
        )
    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(settings, store)) as indexer,
        closing(open_session(settings, store, indexer, clock=clock)) as session,
    ):
        return backtest(session, entries, on_turn=on_turn)
