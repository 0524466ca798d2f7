"""Units leave by score, the lowest first. What a score is made of is the scorer's business; every part is recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from recto.context.policies.features import REPEATS, TOTAL, PolicyFeatures, Scorer
from recto.context.policies.prune import told, until_met
from recto.context.policies.scorers.fifo import Fifo
from recto.context.window.plan import Plan, PolicyView
from recto.context.window.units import Unit

_NAMED = 8
"""Merged units that the reason names; the scores have them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """The lowest score leaves first until enough is free; among equals, the older."""

    scorer: Scorer = field(default_factory=Fifo)
    """What a unit is worth."""

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return f"evict.{self.scorer.name}"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Frees `need` tokens, or all that may leave; no unit more than it takes."""
        if need <= 0 or not view.eligible:
            return Plan(policy=self.name)
        weighed = self.scorer.weigh(PolicyFeatures(view))
        leaves, frees = until_met(view, _order(view.eligible, [parts[TOTAL] for parts in weighed]), need)
        scores = {unit.first: parts for unit, parts in zip(view.eligible, weighed, strict=True)}
        reason = f"lowest {self.scorer.name} score first: {told(leaves)}{_merges(leaves, scores)}" if leaves else ""
        return Plan(policy=self.name, leaves=leaves, frees=frees, reason=reason, scores=scores)


def _order(units: Sequence[Unit], totals: Sequence[float]) -> list[Unit]:
    """By score, then by age; but what opened a long exchange leaves after everything that answers it."""
    ranks: list[tuple[float, int, bool]] = [(total, place, False) for place, total in enumerate(totals)]
    exchanges: dict[int, list[int]] = defaultdict(list)
    for place, unit in enumerate(units):
        exchanges[unit.exchange].append(place)
    own = list(ranks)
    for places in exchanges.values():
        opener = next((place for place in places if units[place].opens), None)
        if opener is not None and len(places) > 1:
            total, place, _ = max(own[place] for place in places)
            ranks[opener] = (total, place, True)
    return [units[place] for place in sorted(range(len(units)), key=ranks.__getitem__)]


def _merges(leaves: Sequence[Unit], scores: Mapping[int, Mapping[str, float]]) -> str:
    """Which of the units leave because another says the same, and which that is."""
    left = {unit.first for unit in leaves}
    repeats = ((unit.first, scores[unit.first].get(REPEATS)) for unit in leaves)
    pairs = [(first, int(kept)) for first, kept in repeats if kept is not None and int(kept) not in left]
    if not pairs:
        return ""
    named = ", ".join(f"{first} repeats {kept}" for first, kept in pairs[:_NAMED])
    more = f" and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    return f"; {named}{more}"
