"""Eviction by score: the lowest-scored units are evicted first. Every part of each score is recorded in the plan."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, Scorer
from recto.context.policies.prune import describe_units, take_until
from recto.context.policies.scorers.fifo import Fifo
from recto.context.window.plan import Plan, PolicyView
from recto.context.window.units import Unit

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
        part_lists = self.scorer.score(PolicyFeatures(view))
        evicted, frees = take_until(view, _eviction_order(view.eligible, [parts[TOTAL] for parts in part_lists]), need)
        scores = {unit.first: parts for unit, parts in zip(view.eligible, part_lists, strict=True)}
        reason = (
            f"lowest {self.scorer.name} score first: {describe_units(evicted)}{_describe_merges(evicted, scores)}"
            if evicted
            else ""
        )
        return Plan(policy=self.name, evicts=evicted, frees=frees, reason=reason, scores=scores)


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


def _describe_merges(evicted: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]) -> str:
    """Describe which units are evicted because another repeats them, and which one that is."""
    evicted_firsts = {unit.first for unit in evicted}
    repeats = ((unit.first, scores[unit.first].get(REPEATS)) for unit in evicted)
    pairs = [
        (first, int(repeat)) for first, repeat in repeats if repeat is not None and int(repeat) not in evicted_firsts
    ]
    if not pairs:
        return ""
    named = ", ".join(f"{first} repeats {repeat}" for first, repeat in pairs[:_MAX_NAMED_MERGES])
    more = f" and {len(pairs) - _MAX_NAMED_MERGES} more" if len(pairs) > _MAX_NAMED_MERGES else ""
    return f"; {named}{more}"
