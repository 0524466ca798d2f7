"""Turns, alerts and events as a monitor tells them."""

from __future__ import annotations

import json
from typing import Any

from recto.health.metrics import Alert, TurnHealth
from recto.transcript.entries import Entry

SESSION = "agent:default:main"
TS = 1_790_000_000_123_456
SECRET = "the launch code is 4711"


def turn(**given: Any) -> TurnHealth:
    usual: dict[str, Any] = {
        "turn": 1,
        "seq": 9,
        "ts": TS,
        "model": "gpt-4o",
        "tokens": 5_000,
        "room": 10_000,
        "utilization": 0.5,
        "evicted": 0,
        "freed": 0,
        "burn": 300,
        "burn_usual": None,
        "ratio": None,
        "fidelity": None,
        "bloat": 0.1,
        "loop": 0,
        "prefix": 0.9,
        "recall_hits": 0,
        "recall_misses": 0,
        "regret": 0,
        "index_lag": 0,
        "protected": 0.2,
        "estimate_error": None,
        "cache_read": 0,
        "cache_write": 0,
    }
    return TurnHealth(**usual | given)


def alert(**given: Any) -> Alert:
    usual: dict[str, Any] = {
        "name": "utilization",
        "grade": "critical",
        "session": SESSION,
        "turn": 3,
        "ts": TS,
        "value": 0.97,
        "threshold": 0.9,
        "says": "the last 3 prompts filled at least 97% of their room",
        "action": "let more leave at once",
    }
    return Alert(**usual | given)


def event(kind: str, about: object, **given: Any) -> Entry:
    content = about if isinstance(about, bytes) else json.dumps(about).encode()
    usual: dict[str, Any] = {
        "id": "1",
        "ts": TS,
        "role": "event",
        "kind": kind,
        "content": content,
        "session": SESSION,
        "seq": 12,
        "prev": b"",
        "hash": b"",
    }
    return Entry(**usual | given)


def compaction(**given: Any) -> Entry:
    """A decision for which something was written, with words of the session in every place that has room for them."""
    about = {
        "policy": "compact",
        "reason": f"all but the newest: {SECRET}",
        "left": [[3, 7], [9, 17]],
        "shrunk": {"4": {"text": SECRET, "tokens": 40}},
        "tokens_before": 9008,
        "tokens_after": 3564,
        "frees": 6884,
        "scores": {SECRET: 1.0},
        "indexed": f"words alone: {SECRET}",
        "summary": {"text": SECRET},
        "compression": {
            "engine": SECRET,
            "invented": [SECRET],
            "tokens_from": 7000,
            "tokens_to": 700,
            "fidelity": {"score": 0.91, "lost": SECRET},
        },
    }
    return event("compaction", about, **given)
