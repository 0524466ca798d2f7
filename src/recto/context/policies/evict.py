"""Eviction by score: the lowest-scored units are evicted first. Every part of each score is recorded in the plan.

A unit that is evicted while a newer one stays that says the same is merged into it: a line in the prompt names its
entries beside the newer one. The line costs tokens, so units that cost less than it are evicted without one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, Scorer
from recto.context.policies.prune import describe_units, take_until
from recto.context.policies.scorers.fifo import Fifo
from recto.context.window.plan import MergedUnit, Plan, PolicyView
from recto.context.window.state import ranges_of
from recto.context.window.units import Unit

_MIN_MERGED_TOKENS = 48
"""Cost of the units merged into one that is worth a line in the prompt."""
_MAX_DIGEST_CHARS = 64
_MAX_NAMED_MERGES = 8
"""Merged units named in the reason; the scores contain them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """Evict the lowest-scored units first until enough is free; among equals, the older."""

    scorer: Scorer = field(default_factory=Fifo)
    """Scores the units."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return f"evict.{self.scorer.name}"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or all that may be evicted, with no unit more than necessary."""
        if need <= 0 or not view.eligible:
            return Plan(policy=self.name)
        features = PolicyFeatures(view)
        part_lists = self.scorer.score(features)
        evicted, frees = take_until(view, _eviction_order(view.eligible, [parts[TOTAL] for parts in part_lists]), need)
        scores = {unit.first: parts for unit, parts in zip(view.eligible, part_lists, strict=True)}
        reason = (
            f"lowest {self.scorer.name} score first: {describe_units(evicted)}{_describe_merges(evicted, scores)}"
            if evicted
            else ""
        )
        merges = _merges(features, evicted, scores)
        return Plan(policy=self.name, evicts=evicted, frees=frees, reason=reason, scores=scores, merges=merges)


def _eviction_order(units: Sequence[Unit], totals: Sequence[float]) -> list[Unit]:
    """Order units by score, then by age; the opener of a long exchange comes after everything that answers it."""
    ranks: list[tuple[float, int, bool]] = [(total, index, False) for index, total in enumerate(totals)]
    exchanges: dict[int, list[int]] = defaultdict(list)
    for index, unit in enumerate(units):
        exchanges[unit.exchange].append(index)
    initial_ranks = list(ranks)
    for indexes in exchanges.values():
        opener = next((index for index in indexes if units[index].opens), None)
        if opener is not None and len(indexes) > 1:
            total, index, _ = max(initial_ranks[index] for index in indexes)
            ranks[opener] = (total, index, True)
    return [units[index] for index in sorted(range(len(units)), key=ranks.__getitem__)]


def _repeated(evicted: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]) -> dict[int, list[Unit]]:
    """The evicted units that another one repeats which stays, by the first entry of that one."""
    evicted_firsts = {unit.first for unit in evicted}
    groups: dict[int, list[Unit]] = defaultdict(list)
    for unit in evicted:
        newer = scores[unit.first].get(REPEATS)
        if newer is not None and int(newer) not in evicted_firsts:
            groups[int(newer)].append(unit)
    return groups


def _merges(
    features: PolicyFeatures, evicted: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]
) -> tuple[MergedUnit, ...]:
    """The evicted units that are merged into a newer one."""
    merges: list[MergedUnit] = []
    for kept, group in _repeated(evicted, scores).items():
        if sum(map(features.view.cost, group)) < _MIN_MERGED_TOKENS:
            continue
        text = " ".join(features.text(features.units[features.index_of[kept]], 4 * _MAX_DIGEST_CHARS).split())
        digest = text if len(text) <= _MAX_DIGEST_CHARS else f"{text[: _MAX_DIGEST_CHARS - 1]}…"
        for unit in group:
            ranges = tuple((first, last) for first, last in ranges_of(unit.seqs))
            merges.append(MergedUnit(first=unit.first, ranges=ranges, kept=kept, digest=digest))
    return tuple(sorted(merges, key=lambda merged: merged.first))


def _describe_merges(evicted: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]) -> str:
    """Describe which units are evicted because another repeats them, and which one that is."""
    groups = _repeated(evicted, scores)
    newer = {unit.first: kept for kept, group in groups.items() for unit in group}
    pairs = [(unit.first, newer[unit.first]) for unit in evicted if unit.first in newer]
    if not pairs:
        return ""
    named = ", ".join(f"{first} repeats {repeat}" for first, repeat in pairs[:_MAX_NAMED_MERGES])
    more = f" and {len(pairs) - _MAX_NAMED_MERGES} more" if len(pairs) > _MAX_NAMED_MERGES else ""
    return f"; {named}{more}"
