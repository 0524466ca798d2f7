"""Restrict another policy to tool work, leaving user messages, decisions and failures to later policies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recto.context.policies.features import PolicyFeatures
from recto.context.window.plan import Plan, Policy, PolicyView


@dataclass(frozen=True, slots=True)
class ToolUnitsOnly:
    """Shows a policy only the units that consist of nothing but calls and their results."""

    policy: Policy

    @property
    def name(self) -> str:
        """Name of the wrapped policy."""
        return self.policy.name

    def plan(self, view: PolicyView, need: int) -> Plan:
        """The wrapped policy's plan for these units."""
        features = PolicyFeatures(view)
        tool_units = [unit for unit in view.eligible if features.kind(unit) == "tool"]
        other_units = [unit for unit in view.eligible if features.kind(unit) != "tool"]
        return self.policy.plan(replace(view, eligible=tool_units, protected=(*view.protected, *other_units)), need)
