"""Values of a context window: units, budgets, pressure, plans and the state they act on."""

from __future__ import annotations

from typing import Literal

Enforced = Literal["globally", "per_component"]
"""Whether a component may exceed its own budget while the whole prompt fits."""
