"""Suggests the next candidate by tree-structured Parzen estimators, with optuna.

Candidates are suggested and scored one after the other, so the same seed gives the same candidates however many
processes measure them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from recto.lab.objective import Candidate, Dimension, Value, single_changes

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import Trial

_CURRENT_SCORE = 1.0
"""The score of the current settings."""


class Suggestions:
    """Suggests candidates: first each setting by itself, then whatever looks promising."""

    def __init__(self, space: Sequence[Dimension], seed: int) -> None:
        import optuna  # noqa: PLC0415  # an optional dependency

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._space = space
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=len(single_changes(space)) // 2)
        self._study = optuna.create_study(sampler=sampler, direction="minimize")
        self._seed_study()
        self._trial: Trial

    def _seed_study(self) -> None:
        """Adds the current settings as a trial, and queues candidates that change one setting each."""
        from optuna.trial import create_trial  # noqa: PLC0415

        current: dict[str, Value] = {}
        for dimension in self._space:
            if dimension.applies(current):
                current[dimension.name] = dimension.current
        distributions = {
            dimension.name: _distribution(dimension) for dimension in self._space if dimension.name in current
        }
        self._study.add_trial(create_trial(params=current, distributions=distributions, value=_CURRENT_SCORE))
        for values in single_changes(self._space):
            self._study.enqueue_trial(values)

    def ask(self) -> Candidate:
        """Returns the next candidate. Report its score before you ask for another."""
        self._trial = self._study.ask()
        values: dict[str, Value] = {}
        for dimension in self._space:
            if dimension.applies(values):
                values[dimension.name] = _suggest(self._trial, dimension)
        return values

    def tell(self, score: float, seen: int) -> None:
        """Reports the score of the last candidate, on all sessions or, if it was dropped, on the first `seen`."""
        from optuna.trial import TrialState  # noqa: PLC0415

        if seen:
            self._trial.report(score, seen)
            self._study.tell(self._trial, state=TrialState.PRUNED)
        else:
            self._study.tell(self._trial, score)

    def refused(self) -> None:
        """Reports that the settings do not allow the last candidate."""
        from optuna.trial import TrialState  # noqa: PLC0415

        self._study.tell(self._trial, state=TrialState.FAIL)


def _distribution(dimension: Dimension) -> BaseDistribution:
    from optuna.distributions import (  # noqa: PLC0415
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if dimension.options:
        return CategoricalDistribution(dimension.options)
    if dimension.is_integer:
        return IntDistribution(int(dimension.low), int(dimension.high), log=not dimension.step)
    return FloatDistribution(dimension.low, dimension.high, log=not dimension.step)


def _suggest(trial: Trial, dimension: Dimension) -> Value:
    if dimension.options:
        return str(trial.suggest_categorical(dimension.name, dimension.options))
    if dimension.is_integer:
        return dimension.nearest(
            trial.suggest_int(dimension.name, int(dimension.low), int(dimension.high), log=not dimension.step)
        )
    return dimension.nearest(trial.suggest_float(dimension.name, dimension.low, dimension.high, log=not dimension.step))
