"""What may be told about an event: numbers and words of ours, never a word that somebody wrote in a session.

Every field that goes out stands in a table here, for each kind of event; text passes only where it is one of the words
that the table knows. Events of other kinds, and fields that are not named, are not told.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any, TypeAlias, get_args

from recto.context.policies.scorers import SCORERS
from recto.context.window.budget import Component
from recto.context.window.pressure import Zone
from recto.transcript.entries import Entry

Fact: TypeAlias = int | float | bool | str

OTHER = "other"
"""What stands for every name that is not known, so that the number of names is bounded."""
POLICIES = frozenset({f"evict.{name}" for name in SCORERS}) | {
    "clamp",
    "compact",
    "delegate",
    "judge",
    "new_window",
    "progressive",
    "prune",
    "summarise_results",
    "trim",
}
ZONES = frozenset(get_args(Zone))
COMPONENTS = frozenset(get_args(Component))
_WORDS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "policy": POLICIES,
        "before": ZONES,
        "after": ZONES,
        "component": COMPONENTS,
        "indexed": frozenset({"words and vectors", "off"}),
    }
)
"""Fields that hold text, and all that they may say."""

_DECISION = ("policy", "tokens_before", "tokens_after", "frees", "indexed")
DECISIONS = frozenset(
    {
        "context_window_pruned",
        "units_evicted",
        "units_merged",
        "tool_results_trimmed",
        "content_compressed",
        "compaction",
        "window_opened",
    }
)
"""Events by which something left the prompt or became shorter."""
FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(DECISIONS, _DECISION)
    | {
        "zone_changed": ("before", "after", "utilization"),
        "velocity_spike": ("gain", "baseline"),
        "window_overflow": ("tokens", "room"),
        "budget_warning": ("component", "used"),
        "budget_violation": ("component", "used"),
        "auto_compact_warning": ("tokens", "room", "utilization"),
        "auto_compact_required": ("tokens", "room", "utilization"),
        "recall_injected": ("question", "searched", "tokens"),
        "recall_miss": ("question", "searched", "best", "threshold"),
        "recall_used": ("question",),
        "index_failed": ("words", "vectors", "first", "last", "entries"),
        "fidelity_low": ("score", "alarm", "policy"),
        "fidelity_judged": ("score", "questions"),
        "usage_reported": ("counted", "reported", "output", "cache_read", "cache_write"),
        "restored": ("decision",),
        "pinned": (),
        "unpinned": (),
        "checkpoint_saved": ("version", "window"),
        "checkpoint_unsaved": (),
        "handoff_written": ("checkpoint",),
        "handoff_replayed": ("handoff", "question"),
        "host_compacted": (),
        "branch": ("at",),
    }
)
"""What is told of each kind of event."""
_LARGEST = 2**63
_READ_MOST = 16 * 1024 * 1024
"""Bytes of an event that are read at most."""


def facts_of(entry: Entry) -> dict[str, Fact]:
    """What may be told about an event. Never raises, whatever the event holds."""
    named = FIELDS.get(entry.kind)
    if not named or entry.role != "event" or len(entry.content) > _READ_MOST:
        return {}
    try:
        about = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(about, dict):
        return {}
    facts = {name: fact for name in named if (fact := _told(name, about.get(name))) is not None}
    return facts | (_decided(about) if entry.kind in DECISIONS else {})


def _told(name: str, value: object) -> Fact | None:
    if isinstance(value, str):
        known = _WORDS.get(name)
        return None if known is None else value if value in known else OTHER
    return _number(value)


def _number(value: object) -> int | float | bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _LARGEST else None
    return value if isinstance(value, float) and isfinite(value) else None


def _decided(about: Mapping[str, Any]) -> dict[str, Fact]:
    """How much left or shrank by a decision, and how well what was written for it stands up."""
    facts: dict[str, Fact] = {"messages": _messages(about.get("left"))}
    shrunk = about.get("shrunk")
    facts["results"] = len(shrunk) if isinstance(shrunk, dict) else 0
    written = about.get("compression")
    if isinstance(written, dict):
        fidelity = written.get("fidelity")
        score = fidelity.get("score") if isinstance(fidelity, dict) else None
        found = {"tokens_from": written.get("tokens_from"), "tokens_to": written.get("tokens_to"), "fidelity": score}
        facts |= {name: fact for name, value in found.items() if (fact := _number(value)) is not None}
    return facts


def _messages(left: object) -> int:
    """How many entries lie in ranges such as [[3, 7], [9, 17]]."""
    total = 0
    for one in left if isinstance(left, list) else []:
        if isinstance(one, list) and len(one) == 2 and all(isinstance(end, int) for end in one):
            total += max(one[1] - one[0] + 1, 0)
    return total if total < _LARGEST else 0
