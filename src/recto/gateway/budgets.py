"""Budgets of API keys: tokens and dollars for each day, in UTC.

What a response used is stored with it, as a record of its key and day, so that budgets hold over restarts and over all
gateways on one store. A record also has the total up to the last record that its writer had read: who reads a day for
the first time reads few of them. Keys without a budget have no records. What other gateways have stored is read at most
once a second; a request is refused once the budget is used up, and requests that are running then are finished.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from recto.context.window.budget import rates_for
from recto.engine.async_session import on_a_thread
from recto.errors import RequestRefused
from recto.formats import Usage
from recto.formats.errors import BUDGET_SPENT
from recto.gateway.api_keys import Key
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import Clock, Draft, Entry, event
from recto.transcript.session_keys import TenantStore

_log = logging.getLogger("recto.gateway")
_AREA: Final = "usage"
_KIND: Final = "key_usage"
_REFRESH_SECONDS: Final = 1.0
_PICO: Final = 10**12
"""Picodollars in a dollar."""
_MAX_WARNED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Spending:
    """What was used."""

    tokens: int = 0
    picodollars: int = 0
    unpriced: int = 0
    """The tokens among them of models that have no price: their dollars are not counted."""

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            self.tokens + other.tokens, self.picodollars + other.picodollars, self.unpriced + other.unpriced
        )

    @property
    def dollars(self) -> float:
        """The price, as far as it is known."""
        return self.picodollars / _PICO


@dataclass(slots=True)
class _Day:
    """What a key has used in a day, as far as this process knows."""

    date: str
    seq: int = 0
    """The last record that was read."""
    stored: Spending = field(default_factory=Spending)
    own: dict[str, Spending] = field(default_factory=dict)
    """What this process has stored and not read yet, by the id of the record."""
    read_at: float = 0.0

    @property
    def spent(self) -> Spending:
        return sum(self.own.values(), self.stored)


class Budgets:
    """What the keys of one store use. Thread-safe."""

    def __init__(
        self,
        view: Callable[[Key], TenantStore],
        clock: Clock,
        card: Callable[[str], ModelCard],
        *,
        refresh_seconds: float = _REFRESH_SECONDS,
    ) -> None:
        """`view` returns the store as a key sees it, `card` the card of a model, for its prices."""
        self._view = view
        self._clock = clock
        self._card = card
        self._refresh_seconds = refresh_seconds
        self._days: dict[str, _Day] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    async def admit(self, key: Key) -> None:
        """Raise `RequestRefused` for a key whose budget of today is used up."""
        if not key.has_budget:
            return
        day = self._day(key)
        if not day.read_at or time.monotonic() - day.read_at >= self._refresh_seconds:
            if self._view(key).is_local:
                self._read(key, day)
            else:
                await on_a_thread(self._read, key, day)
        self._refuse_spent(key, day.spent)

    def today(self, key: Key) -> Spending:
        """Return what a key has used today. Blocks."""
        day = self._day(key)
        self._read(key, day)
        return day.spent

    def record(self, key: Key, model: str, usage: Usage) -> tuple[str, Draft] | None:
        """Return the record of a response, and where to store it; None for a key without a budget."""
        if not key.has_budget:
            return None
        delta, day = self._priced(model, usage), self._day(key)
        with self._lock:
            payload = {**_fields(delta), "through": day.seq, "total": _fields(day.stored)}
            draft = event(self._clock, _KIND, payload, surface="gateway")
            day.own[draft.id] = delta
        return self._view(key).record_session(_AREA, f"{day.date}/{key.id}"), draft

    def forget(self, key: Key, draft: Draft) -> None:
        """Take back a record that could not be stored."""
        day = self._day(key)
        with self._lock:
            day.own.pop(draft.id, None)

    def _day(self, key: Key) -> _Day:
        date = self._now().date().isoformat()
        with self._lock:
            day = self._days.get(key.id)
            if day is None or day.date != date:
                day = self._days[key.id] = _Day(date)
            return day

    def _read(self, key: Key, day: _Day) -> None:
        """Read the records that were stored since the last time."""
        view, shard = self._view(key), f"{day.date}/{key.id}"
        head = view.record_head(_AREA, shard).seq
        started = time.monotonic()
        with self._lock:
            seq, stored = day.seq, day.stored
            # A total of another gateway may contain own records, which would count twice: then all are read.
            from_total = not seq and not day.own
        if head > seq and from_total:
            last = json.loads(next(iter(view.read_records(_AREA, shard, head, head))).content)
            seq, stored = last["through"], _spending(last["total"])
        entries = list(view.read_records(_AREA, shard, seq + 1, head)) if head > seq else []
        with self._lock:
            day.read_at = started
            if head > day.seq:
                day.seq, day.stored = head, sum((_spending(_payload(entry)) for entry in entries), stored)
                for entry in entries:
                    day.own.pop(entry.id, None)

    def _refuse_spent(self, key: Key, spent: Spending) -> None:
        used: list[str] = []
        if key.tokens_per_day and spent.tokens >= key.tokens_per_day:
            used.append(f"{spent.tokens:,} of {key.tokens_per_day:,} tokens")
        if key.dollars_per_day and spent.dollars >= key.dollars_per_day:
            used.append(f"{spent.dollars:.2f} of {key.dollars_per_day:.2f} dollars")
        if not used:
            return
        now = self._now()
        again = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        text = f"this key has used {' and '.join(used)} of today; its budget starts again at {again:%Y-%m-%dT%H:%MZ}"
        raise RequestRefused(429, BUDGET_SPENT, text, int((again - now).total_seconds()) + 1)

    def _priced(self, model: str, usage: Usage) -> Spending:
        tokens, card = usage.prompt + usage.output, self._card(model)
        if card.input_price is None:
            if model not in self._warned and len(self._warned) < _MAX_WARNED:
                self._warned.add(model)
                _log.warning("model %r has no price: budgets in dollars do not count it, only those in tokens", model)
            return Spending(tokens, 0, tokens)
        rates = rates_for(card, usage.prompt)
        fresh = max(usage.prompt - usage.cache_read - usage.cache_write, 0)
        cached = usage.cache_read * rates.read + usage.cache_write * rates.write
        return Spending(tokens, fresh * rates.fresh + cached + usage.output * rates.output)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now() / 1_000_000, UTC)


def _fields(spending: Spending) -> dict[str, int]:
    return {"tokens": spending.tokens, "picodollars": spending.picodollars, "unpriced": spending.unpriced}


def _spending(payload: dict[str, int]) -> Spending:
    return Spending(payload["tokens"], payload["picodollars"], payload["unpriced"])


def _payload(entry: Entry) -> dict[str, int]:
    found: dict[str, int] = json.loads(entry.content)
    return found
