"""Model limits that upstreams reported, for each upstream and model. They survive a restart and expire.

All tenants share them, so a client must not be able to set one: a limit counts only if the upstream stated it in a
structured error, in answer to a prompt of about that size, and never below what the upstream has accepted.
"""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from recto.errors import RectoError
from recto.recall.index.rows import BoundedCache
from recto.tokens.limits import ModelLimits
from recto.transcript.entries import Clock, event
from recto.transcript.protocols import TranscriptStore

SESSION: Final = "recto:limits"
LEARNED: Final = "limit_learned"
_MAX_MODELS: Final = 1_000
"""Models that are remembered; clients choose their names."""
_MAX_NAME: Final = 200
_NEAR: Final = 0.6
"""Share of a stated limit that the refused prompt must have had, by our own count, which may be an estimate."""
LIFETIME: Final = 7 * 24 * 60 * 60 * 1_000_000
"""How long a learned limit applies, in microseconds: providers raise limits, and errors are sometimes wrong."""
_Name: TypeAlias = tuple[str, str]
"""The upstream and the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Learned:
    limits: dict[str, int]
    at: int


class LearnedLimits:
    """The limits of one gateway. Safe for use from any number of threads."""

    def __init__(self, store: TranscriptStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._listed: BoundedCache[dict[str, int]] = BoundedCache(_MAX_MODELS)
        self._accepted: BoundedCache[int] = BoundedCache(_MAX_MODELS)
        self._learned: BoundedCache[_Learned] = BoundedCache(_MAX_MODELS)
        self._seq = 0
        self._lock = threading.Lock()

    def set_listed(self, upstream: str, model: str, limits: ModelLimits) -> None:
        """Take the limits of a model from an upstream's own list."""
        with self._lock:
            self._listed.put((upstream, model), _stated(limits))

    def accept(self, upstream: str, model: str, tokens: int) -> None:
        """Remember that an upstream accepted a prompt of this size: no limit below it is believed."""
        name = upstream, model
        with self._lock:
            if tokens > (self._accepted.get(name) or 0):
                self._accepted.put(name, tokens)

    def learn(self, upstream: str, model: str, limits: ModelLimits, *, tokens: int) -> bool:
        """Learn from an upstream's refusal of a prompt of this size, answer included. Returns whether it counts."""
        stated = _stated(limits)
        with self._lock:
            accepted = self._accepted.get((upstream, model)) or 0
        if (
            not stated
            or len(model) > _MAX_NAME
            or any(tokens < _NEAR * limit or limit < accepted for limit in stated.values())
        ):
            return False
        with suppress(RectoError):  # it is learned again if it cannot be stored
            payload = {"upstream": upstream, "model": model, **stated}
            self._store.append(SESSION, [event(self._clock, LEARNED, payload, surface="gateway")])
        with self._lock:
            self._lower((upstream, model), stated, self._clock.now())
        return True

    def of(self, upstream: str, model: str) -> dict[str, int]:
        """Return the limits that apply to a model now: an upstream's list is older evidence than its refusals."""
        self._refresh()
        name = upstream, model
        with self._lock:
            found = dict(self._listed.get(name) or {})
            learned = self._learned.get(name)
            accepted = self._accepted.get(name) or 0
        if learned is not None and self._clock.now() - learned.at < LIFETIME:
            for key, limit in learned.limits.items():
                if limit >= accepted:
                    found[key] = min(limit, found.get(key, limit))
        return found

    def _refresh(self) -> None:
        """Read what this gateway learned before a restart, and what others learned since."""
        with suppress(RectoError):
            head = self._store.head(SESSION).seq
            if head <= self._seq:
                return
            entries = list(self._store.read(SESSION, max(self._seq, head - _MAX_MODELS) + 1, head))
            with self._lock:
                for entry in entries:
                    payload = json.loads(entry.content)
                    stated = {key: payload[key] for key in ("window", "max_input") if isinstance(payload.get(key), int)}
                    self._lower((str(payload.get("upstream")), str(payload.get("model"))), stated, entry.ts)
                self._seq = max(self._seq, head)

    def _lower(self, name: _Name, stated: dict[str, int], at: int) -> None:
        before = self._learned.get(name)
        known = before.limits if before is not None and at - before.at < LIFETIME else {}
        lower = {key: min(limit, known.get(key, limit)) for key, limit in stated.items()}
        self._learned.put(name, _Learned(limits={**known, **lower}, at=at))


def _stated(limits: ModelLimits) -> dict[str, int]:
    stated = {"window": limits.window, "max_input": limits.max_input}
    return {name: limit for name, limit in stated.items() if limit is not None}
