"""The sliding window: whole units are evicted, oldest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recto.context.window.plan import Plan, PolicyView
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """Evict units in the view's order until enough is free."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        return "prune"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Free `need` tokens, or all that may be evicted, with no unit more than necessary."""
        evicted, frees = take_until(view, view.eligible, need)
        if not evicted:
            return Plan(policy=self.name)
        return Plan(policy=self.name, evicts=evicted, frees=frees, reason=f"oldest first: {describe_units(evicted)}")


def take_until(view: PolicyView, order: Iterable[Unit], need: int) -> tuple[tuple[Unit, ...], int]:
    """The first units of an order that together free `need` tokens, and the tokens they free."""
    evicted: list[Unit] = []
    frees = 0
    for unit in order:
        if frees >= need:
            break
        evicted.append(unit)
        frees += view.cost(unit)
    # Units without cost free nothing: a plan of such units alone would be no relief.
    return (tuple(evicted), frees) if frees > 0 else ((), 0)


def describe_units(evicted: tuple[Unit, ...]) -> str:
    """Describe in words how many units are evicted, and between which entries."""
    first, last = min(unit.first for unit in evicted), max(unit.last for unit in evicted)
    units = "1 unit" if len(evicted) == 1 else f"{len(evicted)} units"
    return f"{units} of entries {first} to {last}"
