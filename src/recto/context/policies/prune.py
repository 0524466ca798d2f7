"""The sliding window: whole units leave, oldest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recto.context.window.plan import Plan, PolicyView
from recto.context.window.units import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Prune:
    """Units leave in the order of the view until enough is free."""

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        return "prune"

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Frees `need` tokens, or all that may leave; no unit more than it takes."""
        leaves, frees = until_met(view, view.eligible, need)
        if not leaves:
            return Plan(policy=self.name)
        return Plan(policy=self.name, leaves=leaves, frees=frees, reason=f"oldest first: {told(leaves)}")


def until_met(view: PolicyView, order: Iterable[Unit], need: int) -> tuple[tuple[Unit, ...], int]:
    """The first units of an order that free `need` tokens together, and what they free."""
    leaves: list[Unit] = []
    frees = 0
    for unit in order:
        if frees >= need:
            break
        leaves.append(unit)
        frees += view.cost(unit)
    # Units that cost nothing free nothing: a plan of such units alone would be no relief.
    return (tuple(leaves), frees) if frees > 0 else ((), 0)


def told(leaves: tuple[Unit, ...]) -> str:
    """How many units leave, and between which entries, in words."""
    first, last = min(unit.first for unit in leaves), max(unit.last for unit in leaves)
    units = "1 unit" if len(leaves) == 1 else f"{len(leaves)} units"
    return f"{units} of entries {first} to {last}"
