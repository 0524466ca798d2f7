"""Scorers by name: `Evict` accepts any of these, and a setting selects one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final

from recto.context.policies.features import Scorer
from recto.context.policies.scorers.fifo import Fifo
from recto.context.policies.scorers.hybrid import Hybrid
from recto.context.policies.scorers.lru import Lru
from recto.context.policies.scorers.priority import Priority
from recto.context.policies.scorers.semantic_merge import SemanticMerge
from recto.context.policies.scorers.type_ttl import TypeTtl
from recto.errors import SettingsError

__all__ = ["SCORERS", "Fifo", "Hybrid", "Lru", "Priority", "SemanticMerge", "TypeTtl", "scorer_named"]

SCORERS: Final[Mapping[str, Callable[..., Scorer]]] = {
    "fifo": Fifo,
    "lru": Lru,
    "priority": Priority,
    "semantic_merge": SemanticMerge,
    "type_ttl": TypeTtl,
    "hybrid": Hybrid,
}
"""Scorers by their name in settings; their own settings are keyword arguments."""


def scorer_named(name: str, **settings: object) -> Scorer:
    """Create a scorer from its name and settings. Raises `SettingsError` if either is unknown or out of range."""
    make = SCORERS.get(name)
    if make is None:
        nearest = get_close_matches(name, SCORERS, n=1)
        raise SettingsError("scorer", f"'{name}' is none of {', '.join(SCORERS)}", nearest[0] if nearest else None)
    try:
        return make(**settings)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"scorer.{name}", str(error)) from None
