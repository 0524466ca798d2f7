"""One recorded file gone through in one way, in whichever process: the same file and way come to the same.

Time is the recording's own: neither when the replay runs nor how fast the machine is has a say in what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from recto.cli.console import Advance
from recto.config import Settings
from recto.config.factory import make_importer, make_indexer, make_meter, model_card, open_session
from recto.context.window.budget import Budget
from recto.lab.backtest import Backtest, ReplayedTurn, backtest
from recto.lab.baselines import backtest_baseline
from recto.lab.results import Curve, PromptSizes, VariantOutcome, Way
from recto.lab.variants import Variant
from recto.stores.memory import MemoryStore
from recto.transcript.entries import Entry

_BEGINS = 1_700_000_000_000_000
"""When a conversation began that does not say when it did; its messages are a second apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """A file to go through in a way."""

    place: int
    """Which of the files it is."""
    file: Path
    variant: Variant
    with_curve: bool = False
    """Whether the sizes of its prompts are kept, turn by turn."""

    @property
    def size(self) -> int:
        """How much there is to go through, in bytes."""
        return self.file.stat().st_size


class RecordedTime:
    """The time of the conversation that is gone through. It never goes back."""

    def __init__(self) -> None:
        self._now = 0

    def now(self) -> int:
        """When the last message came."""
        return self._now

    def reach(self, ts: int) -> None:
        """It is as late as this message now."""
        self._now = max(self._now, ts)


class _Seconds:
    """The time of a conversation that does not tell it: each question for it is a second later."""

    def __init__(self) -> None:
        self._now = _BEGINS

    def now(self) -> int:
        self._now += 1_000_000
        return self._now


def replayed(task: ReplayTask, advance: Advance) -> VariantOutcome:
    """All sessions of a file in one way, each in a window of its own. `advance` is told of bytes, up to its size."""
    settings, left = task.variant.settings, task.size
    curve: Curve | None = None
    total = Backtest()

    def passed(entries: Sequence[Entry], time: RecordedTime) -> Iterator[Entry]:
        nonlocal left
        for entry in entries:
            size = min(len(entry.content), left)
            left -= size
            advance(size)
            yield entry
            time.reach(entry.ts)

    for entries in sessions_of(settings, task.file):
        time, sizes = RecordedTime(), PromptSizes()
        keep = sizes.take if task.with_curve else _keep_nothing
        total += _result(settings, task.variant.way, passed(entries, time), time, keep)
        if curve is None or len(sizes) > curve.turns:
            curve = sizes.curve()
    advance(left)
    return VariantOutcome(place=task.place, file=task.file.name, way=task.variant.way, result=total, curve=curve)


def _keep_nothing(turn: ReplayedTurn) -> None:
    pass


def sessions_of(settings: Settings, file: Path) -> Iterator[list[Entry]]:
    """What was said in a file, session by session."""
    with closing(MemoryStore()) as store:
        importer = replace(make_importer(settings, store), clock=_Seconds())
        for name in importer.import_file(file).sessions:
            yield list(store.read(name))


def _result(
    settings: Settings, way: Way, entries: Iterator[Entry], time: RecordedTime, turned: Callable[[ReplayedTurn], None]
) -> Backtest:
    if way.mode is None:
        given, card = settings.window, model_card(settings)
        budget = Budget.for_model(card, given.profile, reserve=given.reserve or None, enforced=given.enforced)
        return backtest_baseline(
            way.name, entries, card=card, room=budget.input_budget, meter=make_meter(settings), turned=turned
        )
    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(settings, store)) as indexer,
        closing(open_session(settings, store, indexer, clock=time)) as session,
    ):
        return backtest(session, entries, turned=turned)
