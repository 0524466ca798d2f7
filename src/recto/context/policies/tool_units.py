"""Another policy, for tool work alone: what people said, what was decided and what failed stays for later rungs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recto.context.policies.features import PolicyFeatures
from recto.context.window.plan import Plan, Policy, PolicyView


@dataclass(frozen=True, slots=True)
class ToolWork:
    """Lets a policy see only the units that hold nothing but calls and their results."""

    policy: Policy

    @property
    def name(self) -> str:
        """That of the policy."""
        return self.policy.name

    def plan(self, view: PolicyView, need: int) -> Plan:
        """What the policy plans for them."""
        survey = PolicyFeatures(view)
        own = [unit for unit in view.eligible if survey.kind(unit) == "tool"]
        stays = [unit for unit in view.eligible if survey.kind(unit) != "tool"]
        return self.policy.plan(replace(view, eligible=own, protected=(*view.protected, *stays)), need)
