"""What to try next, from what was tried before: the search is optuna's, by tree-structured Parzen estimators.

It is asked and told one candidate after the other, so that the same seed gives the same candidates however many
processes measure them. What a candidate means is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recto.lab.objective import Candidate, Dimension, Value, one_at_a_time

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

_AS_GOOD = 1.0
"""The score of the settings as they are."""


class Suggestions:
    """Candidates: at first each setting by itself, then whatever looks promising."""

    def __init__(self, space: Sequence[Dimension], seed: int) -> None:
        import optuna  # noqa: PLC0415  # an extra, and only for who tunes

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=len(one_at_a_time(space)) // 2)
        self._study = optuna.create_study(sampler=sampler, direction="minimize")
        self._begin()
        self._trial: Trial

    def _begin(self) -> None:
        """Tells of the settings as they are, and lines up what changes one of them each."""
        from optuna.trial import create_trial  # noqa: PLC0415

        usual: dict[str, Value] = {}
        for one in self._space:
            if one.applies(usual):
                usual[one.name] = one.given
        kinds = {one.name: _distribution(one) for one in self._space if one.name in usual}
        self._study.add_trial(create_trial(params=usual, distributions=kinds, value=_AS_GOOD))
        for values in one_at_a_time(self._space):
            self._study.enqueue_trial(values)

    def ask(self) -> Candidate:
        """The next candidate; what came of it must be told before another is asked for."""
        self._trial = self._study.ask()
        values: dict[str, Value] = {}
        for one in self._space:
            if one.applies(values):
                values[one.name] = _suggested(self._trial, one)
        return values

    def tell(self, score: float, seen: int) -> None:
        """What came of the last candidate, on all sessions or, where it was dropped, on the first `seen`."""
        from optuna.trial import TrialState  # noqa: PLC0415

        if seen:
            self._trial.report(score, seen)
            self._study.tell(self._trial, state=TrialState.PRUNED)
        else:
            self._study.tell(self._trial, score)

    def refused(self) -> None:
        """The last candidate cannot be: the settings do not allow it."""
        from optuna.trial import TrialState  # noqa: PLC0415

        self._study.tell(self._trial, state=TrialState.FAIL)


def _distribution(one: Dimension) -> BaseDistribution:
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if one.options:
        return CategoricalDistribution(one.options)
    if one.is_whole:
        return IntDistribution(int(one.low), int(one.high), log=not one.step)
    return FloatDistribution(one.low, one.high, log=not one.step)


def _suggested(trial: Trial, one: Dimension) -> Value:
    if one.options:
        return str(trial.suggest_categorical(one.name, one.options))
    if one.is_whole:
        return one.nearest(trial.suggest_int(one.name, int(one.low), int(one.high), log=not one.step))
    return one.nearest(trial.suggest_float(one.name, one.low, one.high, log=not one.step))
