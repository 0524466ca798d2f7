"""What the exporters share: the fields that may be exported, bounded labels, and a sink that ignores everything.

The fields are an allow-list: numbers and fixed words only, never text from a session. Each event kind lists its
exported fields here; text is exported only if it is one of the listed words. Other events and fields are not exported.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from math import isfinite
from types import MappingProxyType
from typing import Any, TypeAlias, get_args

from recto.context.policies.scorers import SCORERS
from recto.context.window.budget import Component, Zone
from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry

FieldValue: TypeAlias = int | float | bool | str

OTHER = "other"
"""Replaces unknown names, so that the number of label values is bounded."""
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
_ALLOWED_TEXT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "policy": POLICIES,
        "before": ZONES,
        "after": ZONES,
        "component": COMPONENTS,
        "indexed": frozenset({"words and vectors", "words; vectors to follow", "off"}),
    }
)
"""Text fields and their allowed values."""

_DECISION = ("policy", "tokens_before", "tokens_after", "frees", "indexed")
DECISIONS = frozenset(
    {
        "context_window_pruned",
        "units_evicted",
        "units_merged",
        "tool_results_trimmed",
        "thinking_cleared",
        "content_compressed",
        "compaction",
        "window_opened",
    }
)
"""Events that evict or shorten content."""
FIELDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    dict.fromkeys(DECISIONS, _DECISION)
    | {
        "tools_left_out": ("tools", "tokens_before", "tokens_after", "frees"),
        "zone_changed": ("before", "after", "utilization"),
        "velocity_spike": ("gain", "baseline"),
        "window_overflow": ("tokens", "room"),
        "relief_postponed": ("tokens", "room"),
        "budget_warning": ("component", "used"),
        "budget_violation": ("component", "used"),
        "auto_compact_warning": ("tokens", "room", "utilization"),
        "auto_compact_required": ("tokens", "room", "utilization"),
        "recall_injected": ("question", "searched", "tokens", "hits"),
        "recall_miss": ("question", "searched", "best", "threshold"),
        "recall_used": ("question",),
        "recall_judged": ("entry", "question", "verdict"),
        "index_failed": ("words", "vectors", "first", "last", "entries"),
        "fidelity_low": ("score", "alarm", "policy"),
        "fidelity_judged": ("score", "questions"),
        "usage_reported": ("counted", "reported", "output", "cache_read", "cache_write"),
        "restored": ("decision",),
        "pinned": (),
        "unpinned": (),
        "checkpoint_saved": ("version", "window"),
        "checkpoint_unsaved": (),
        "tools_missing": ("checkpoint",),
        "handoff_written": ("checkpoint",),
        "handoff_replayed": ("handoff", "question"),
        "host_compacted": (),
        "task_completed": ("checkpoint", "turns", "windows", "decisions"),
        "consolidation_due": ("since", "entries", "decision"),
        "branch": ("at",),
        "session_renamed": (),
    }
)
"""Exported fields by event kind."""
_MAX_INT = 2**63
_MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Larger events are not parsed."""
MAX_MODELS = 50
"""Model names that one process uses as labels; all others become `other`."""
MAX_KEYS = 100
"""API keys, and tenants, that one process uses as labels; all others become `other`."""
_MAX_NAME_LENGTH = 64
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def event_fields(entry: Entry) -> dict[str, FieldValue]:
    """Return the exportable fields of an event. Never raises."""
    names = FIELDS.get(entry.kind)
    if not names or entry.role != "event" or len(entry.content) > _MAX_EVENT_BYTES:
        return {}
    try:
        payload = json.loads(entry.content)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(payload, dict):
        return {}
    values = {name: value for name in names if (value := _exported(name, payload.get(name))) is not None}
    return values | (_decision_fields(payload) if entry.kind in DECISIONS else {})


def _exported(name: str, value: object) -> FieldValue | None:
    if name == "hits":
        return len(value) if isinstance(value, list) else None
    if isinstance(value, str):
        known = _ALLOWED_TEXT.get(name)
        return None if known is None else value if value in known else OTHER
    return _number(value)


def _number(value: object) -> int | float | bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < _MAX_INT else None
    return value if isinstance(value, float) and isfinite(value) else None


def _decision_fields(payload: Mapping[str, Any]) -> dict[str, FieldValue]:
    """How much a decision evicted or trimmed, and the fidelity of its summary."""
    values: dict[str, FieldValue] = {"messages": _count_messages(payload.get("left"))}
    shrunk = payload.get("shrunk")
    values["results"] = len(shrunk) if isinstance(shrunk, dict) else 0
    if "kept" in payload:
        values["kept"] = _count_messages(payload["kept"])
    written = payload.get("compression")
    if isinstance(written, dict):
        fidelity = written.get("fidelity")
        score = fidelity.get("score") if isinstance(fidelity, dict) else None
        numbers = {"tokens_from": written.get("tokens_from"), "tokens_to": written.get("tokens_to"), "fidelity": score}
        values |= {name: number for name, value in numbers.items() if (number := _number(value)) is not None}
    return values


def _count_messages(ranges: object) -> int:
    """Count the entries in ranges such as [[3, 7], [9, 17]]."""
    total = 0
    for bounds in ranges if isinstance(ranges, list) else []:
        if isinstance(bounds, list) and len(bounds) == 2 and all(isinstance(end, int) for end in bounds):
            total += max(bounds[1] - bounds[0] + 1, 0)
    return total if total < _MAX_INT else 0


class Exporter:
    """A `HealthSink` that ignores everything; exporters override what they export."""

    name = ""

    def turn(self, session: str, turn: TurnHealth) -> None:
        """Ignore a finished turn."""

    def alert(self, alert: Alert) -> None:
        """Ignore an alert."""

    def event(self, entry: Entry) -> None:
        """Ignore an event."""


class BoundedLabels:
    """Values of a label, at most a number of them: models, API keys or tenants. Thread-safe."""

    def __init__(self, known: Callable[[str], bool] | None = None, most: int = MAX_MODELS) -> None:
        """`known` says which values may be used; without it the first ones may."""
        self._known = known
        self._most = most
        self._labels: dict[str, str] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> str:
        """Return the name itself if it is known and the limit is not reached, else `other`."""
        label = self._labels.get(name)
        return self._assign(name) if label is None else label

    def _assign(self, name: str) -> str:
        usable = bool(name) and len(name) <= _MAX_NAME_LENGTH and name.isascii() and name.isprintable()
        if not usable or not (self._known is None or self._known(name)):
            return OTHER  # not remembered: the number of unknown names is unbounded
        with self._lock:
            if name in self._labels or len(self._labels) < self._most:
                return self._labels.setdefault(name, name)
            return OTHER


def freed_tokens(fields: Mapping[str, FieldValue]) -> tuple[float, str]:
    """Return the tokens that a decision freed, 0 if unknown, and its policy."""
    freed = fields.get("frees", 0)
    return freed if isinstance(freed, int | float) else 0, str(fields.get("policy", OTHER))


def finite(value: object) -> object:
    """Return the value, with non-finite numbers as None: JSON has none."""
    return None if isinstance(value, float) and not isfinite(value) else value


def format_time(ts: int) -> str:
    """Format a timestamp in ISO 8601 with microseconds; one outside the calendar is returned as a number."""
    try:
        return (_EPOCH + timedelta(microseconds=ts)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return str(ts)
