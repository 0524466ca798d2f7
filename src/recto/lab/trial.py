"""The equivalence trial: what each arm's prompts hold of the next action, and how likely they make it.

Action support needs no model. Likelihood is compared with the whole history at the same moment, in nats per token of
the recorded response, and is judged by a test of equivalence. Likelihood of a recorded action is no task success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recto.config import Settings
from recto.errors import ModelFailed
from recto.lab.bootstrap import MARGIN, Equivalence, Interval, PairedDifference, judge_equivalence, ratio_interval
from recto.lab.likelihood import MAX_TARGET, ActionScorer, KeptScores, Score, score_key
from recto.lab.moments import EQUAL, WHOLE, ArmPrompt, Choice, Moment, RecordedRun, moments_of
from recto.transcript.entries import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Support:
    """What one prompt holds of what the next action uses. Two of the same arm can be added."""

    needed: int = 0
    found: int = 0
    old_needed: int = 0
    """Of what is needed, what plain trimming to the window has lost, and below what the prompt holds of that."""
    old_found: int = 0
    moments: int = 0
    tokens: int = 0
    refused: int = 0
    """Moments without a prompt: nothing counts as found."""

    def __add__(self, other: Support) -> Support:
        return Support(**{name: getattr(self, name) + getattr(other, name) for name in self.__slots__})

    @property
    def all(self) -> float | None:
        """Share of the referents that the prompt holds; None if there were none."""
        return self.found / self.needed if self.needed else None

    @property
    def old(self) -> float | None:
        """The same of the old ones."""
        return self.old_found / self.old_needed if self.old_needed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTask:
    """A run to try: picklable."""

    name: str
    entries: tuple[Entry, ...]
    settings: Settings
    choice: Choice
    model: str | None = None
    with_prompts: bool = False
    """Whether the moments are returned, which a model scores."""

    @property
    def size(self) -> int:
        """How much there is to do."""
        return len(self.entries) * len(self.choice.windows) * len(self.choice.modes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRun:
    """What came of a run."""

    name: str
    support: Mapping[tuple[int, str], Support]
    """By window and arm."""
    moments: tuple[Moment, ...] = ()


def try_run(task: TrialTask, advance: Callable[[int], object]) -> TriedRun:
    """Takes a run through all arms and counts what their prompts hold."""
    run = RecordedRun(task.name, task.entries)
    support: dict[tuple[int, str], Support] = {}
    kept: list[Moment] = []
    for moment in moments_of(run, task.settings, task.choice, model=task.model, advance=advance):
        for prompt in moment.arms:
            key = moment.window, prompt.arm
            support[key] = support.get(key, Support()) + support_of(moment, prompt)
        kept += [moment] if task.with_prompts else []
    return TriedRun(name=task.name, support=support, moments=tuple(kept))


def support_of(moment: Moment, prompt: ArmPrompt) -> Support:
    """Counts what a prompt holds of what the action uses."""
    text = prompt.text
    return Support(
        needed=len(moment.referents),
        found=sum(name in text for name in moment.referents),
        old_needed=len(moment.old),
        old_found=sum(name in text for name in moment.old),
        moments=1,
        tokens=prompt.tokens,
        refused=int(prompt.refused),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """One arm in one window, over all runs."""

    window: int
    arm: str
    support: Support
    gain: Interval | None
    """Support above trimming at equal tokens, paired, with its 95 % interval by run."""
    likelihood: Equivalence | None = None
    """Loss against the whole history; None without a model and for the whole history itself."""


def summarize_trial(
    runs: Sequence[TriedRun], scores: Iterable[Score] = (), *, margin: float = MARGIN, seed: int = 0
) -> list[ArmResult]:
    """Sums up all runs, by window and arm, in order of first appearance."""
    losses = loss_differences(scores)
    results = []
    for window, arm in dict.fromkeys(key for run in runs for key in run.support):
        total = sum((run.support.get((window, arm), Support()) for run in runs), Support())
        results.append(
            ArmResult(
                window=window,
                arm=arm,
                support=total,
                gain=None if arm == EQUAL else _gain(runs, window, arm, seed),
                likelihood=judge_equivalence(losses.get((window, arm), {}), margin=margin, seed=seed),
            )
        )
    return results


def _gain(runs: Sequence[TriedRun], window: int, arm: str, seed: int) -> Interval | None:
    pairs = [(run.support.get((window, arm)), run.support.get((window, EQUAL))) for run in runs]
    both = [(mine, theirs) for mine, theirs in pairs if mine is not None and theirs is not None and mine.needed]
    if not both:
        return None
    gains = [mine.found - theirs.found for mine, theirs in both]
    return ratio_interval(gains, [mine.needed for mine, _ in both], seed=seed)


def loss_differences(scores: Iterable[Score]) -> dict[tuple[int, str], dict[str, list[PairedDifference]]]:
    """Returns the loss of each arm against the whole history at the same moment, by window, arm and run."""
    known = list(scores)
    whole = {(score.run, score.call, score.window): score for score in known if score.arm == WHOLE}
    found: dict[tuple[int, str], dict[str, list[PairedDifference]]] = {}
    for score in known:
        best = whole.get((score.run, score.call, score.window))
        if score.arm != WHOLE and best is not None:
            loss = PairedDifference(score.mean - best.mean, score.tokens)
            found.setdefault((score.window, score.arm), {}).setdefault(score.run, []).append(loss)
    return found


def score_moments(
    scorer: ActionScorer,
    moments: Sequence[Moment],
    kept: KeptScores,
    *,
    advance: Callable[[int], object] = lambda by: None,
    on_failure: Callable[[ModelFailed], object] = lambda error: None,
) -> list[Score]:
    """Scores every prompt of every moment that is not kept yet, and returns the scores of all.

    Where the whole history cannot be scored, for example because it is too long for the model, the other prompts of
    the moment are left out: there is nothing to compare them with. Failures are not kept, so a later trial tries again.
    """
    scores: list[Score] = []
    for moment in moments:
        target = moment.target[:MAX_TARGET]
        prompts = [prompt for prompt in moment.arms if not prompt.refused] if target.strip() else []
        for prompt in sorted(prompts, key=lambda prompt: prompt.arm != WHOLE):
            try:
                scores.append(_scored(scorer, moment, prompt, target, kept))
            except ModelFailed as error:
                on_failure(error)
                if prompt.arm == WHOLE:
                    break
        advance(len(moment.arms))
    return scores


def _scored(scorer: ActionScorer, moment: Moment, prompt: ArmPrompt, target: str, kept: KeptScores) -> Score:
    key = score_key(scorer.name, prompt.messages, target)
    place: dict[str, Any] = {"run": moment.run, "call": moment.call, "window": moment.window, "arm": prompt.arm}
    if key in kept:
        found = kept[key]
        return Score(**place, key=key, model=scorer.name, tokens=found.tokens, nats=found.nats)
    losses = scorer.losses(prompt.messages, target)
    score = Score(**place, key=key, model=scorer.name, tokens=len(losses), nats=round(sum(losses), 5))
    kept.add(score)
    return score
