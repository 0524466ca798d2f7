"""Values of a context window: units, budgets, pressure, plans and the state they act on."""

from __future__ import annotations

from typing import Literal

Enforced = Literal["globally", "per_component"]
"""Whether a component may exceed its own budget while the whole prompt fits."""
MAX_VELOCITY_TURNS = 20
"""Turns whose growth is kept, and over which velocity may be averaged."""
CASCADE = ("summarise_results", "trim", "evict", "progressive", "compact", "delegate")
"""The policies of the full cascade, cheapest and least lossy first."""
PROTECTABLE = ("user", "assistant", "tool")
"""Kinds of messages that can be protected from eviction. System text always is."""
