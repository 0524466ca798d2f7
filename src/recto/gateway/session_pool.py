"""Sessions kept open between requests, so that a window is not rebuilt for every request.

Their number and the bytes of the messages that they hold are limited; the least recently used is closed first and
reopened from the transcript when needed.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeAlias

from recto.config import Settings
from recto.config.factory import SystemClock, derived_folders, open_memory, open_session
from recto.config.published_models import registry as model_registry
from recto.continuity.memory.manager import Memories
from recto.engine.erasure import Eraser, Erasure
from recto.engine.session import Session, held_bytes
from recto.errors import RequestRefused
from recto.gateway.api_keys import Key, Keys
from recto.gateway.budgets import Budgets, Spending
from recto.gateway.upstreams.learned_limits import LearnedLimits
from recto.health.protocols import HealthSink
from recto.recall.indexer import Indexer
from recto.transcript.entries import Clock
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import TenantStore

_log = logging.getLogger("recto.gateway")
_MAX_UNKNOWN_LOGGED = 20
"""Unknown models that are logged by name."""
UNLIMITED_WINDOW: Final = 1_000_000
"""Window of an unknown model: its prompts go on whole, as they would without a gateway."""
_MAX_BYTES = 128 * 1024 * 1024
"""Bytes of messages in the windows of all sessions that are kept open: one may hold results of many megabytes."""
_ERASE_PATIENCE = 5.0
"""Seconds that an erasure waits for requests that use its session."""
_API = "gateway api"
_PoolKey: TypeAlias = tuple[str, str, str]
"""The stored key, the model, and the budget's profile."""


@dataclass(slots=True)
class _PooledSession:
    session: Session
    users: int = 0
    size: int = 0
    """Bytes of messages that it held when it was last released."""
    is_evicted: bool = False


class SessionPool:
    """The open sessions of one gateway. Safe for use from any number of threads."""

    def __init__(
        self,
        settings: Settings,
        store: TranscriptStore,
        indexer: Indexer,
        *,
        sinks: Sequence[HealthSink] = (),
        clock: Clock | None = None,
        upstream_of: Callable[[str, Key], str] = lambda model, key: key.upstream,
    ) -> None:
        self._store = store
        self._settings = settings
        self._indexer = indexer
        self._sinks = sinks
        self._open_sessions: OrderedDict[_PoolKey, _PooledSession] = OrderedDict()
        self._size = 0
        """Bytes of messages that they held when they were last released, together."""
        self._unknown: set[str] = set()
        """Unknown models that were logged."""
        self.limits = LearnedLimits(store, clock or SystemClock())
        self.upstream_of = upstream_of
        """Names the upstream that answers for a model and a key."""
        self._lock = threading.Lock()
        self._released = threading.Condition(self._lock)
        """Notified whenever a request is done with a session."""

    def view(self, key: Key) -> TenantStore:
        """The store as the holder of an API key may see it: the one place where the gateway binds a tenant."""
        return TenantStore(self._store, key.tenant)

    def keys_of(self, key: Key) -> list[tuple[Key, Spending]]:
        """The keys of a key's tenant, without their secrets, and what each with a daily limit has used today."""
        clock = SystemClock()
        budgets = Budgets(self.view, clock, partial(model_registry(self._settings.models).card, warn=False))
        keys = [other for other in Keys(self._store, clock).list() if other.tenant == key.tenant]
        return [(other, budgets.today(other) if other.has_budget else Spending()) for other in keys]

    def memories(self, key: Key, agent: str = "") -> Memories:
        """The memory of one of the tenant's agents; without a name, of the key's agent."""
        settings = replace(self._settings, session=f"agent:{agent or key.agent}:main", tenant=key.tenant)
        return open_memory(settings, self._store)

    @contextmanager
    def use(self, key: Key, session: str, model: str = "") -> Iterator[Session]:
        """Open a session by the name that the key's holder uses, for as long as the context lasts.

        Opening stores nothing; `len` tells whether the session has entries. Raises `InputError` for an invalid name.
        """
        name = self.view(key).key(session), model or self._settings.model, key.profile
        pooled = self._acquire(name, session, key)
        try:
            yield pooled.session
        finally:
            self._release(pooled)

    def erase(self, key: Key, session: str, *, by: str, reason: str) -> Erasure:
        """Remove a session of the key's tenant for good, with its index rows and derived files.

        Raises `RequestRefused` while a request uses the session, and where the store is a database: the role of a
        gateway may not remove anything from it.
        """
        if not self._store.is_local:
            message = "a gateway may not remove anything from a database; its owner runs 'recto session rm'"
            raise RequestRefused(409, "refused", message)
        name = self.view(key).key(session)
        for stale in self._close_all(name):
            stale.close()
        eraser = Eraser(
            store=self._store, index=self._indexer.index, clock=SystemClock(), by=by, reason=reason, surface=_API
        )
        [erasure] = eraser.erase([name])
        eraser.clean_up([name], derived_folders(self._settings, self._store, [name], ""), scrub=True)
        return erasure

    def _close_all(self, name: str) -> list[Session]:
        """Take every open form of a session out of the pool, once no request uses it. Raises `RequestRefused`."""
        with self._lock:
            is_free = self._released.wait_for(
                lambda: not any(pooled.users for at, pooled in self._open_sessions.items() if at[0] == name),
                _ERASE_PATIENCE,
            )
            if not is_free:
                message = "a request uses this session; wait for its answer. Nothing was erased."
                raise RequestRefused(409, "in_use", message)
            taken = [self._open_sessions.pop(at) for at in list(self._open_sessions) if at[0] == name]
            self._size -= sum(pooled.size for pooled in taken)
            return [pooled.session for pooled in taken]

    def over(self, store: TranscriptStore) -> SessionPool:
        """Return a pool over another store. It shares the known model limits and reports to no health sinks."""
        pool = SessionPool(self._settings, store, self._indexer, upstream_of=self.upstream_of)
        pool.limits = self.limits
        return pool

    def knows(self, upstream: str, model: str) -> bool:
        """Whether the window of a model is known: from the settings, the registry, its upstream's list or a refusal."""
        limits = _merge_limits(self._settings.models.get(model, {}), self.limits.of(upstream, model))
        models = {**self._settings.models, model: limits} if limits else self._settings.models
        return model_registry(models).card(model, warn=False).known

    def close(self) -> None:
        """Close all sessions; those in use are closed when they are released."""
        with self._lock:
            evicted = self._evict(0)
        for session in evicted:
            session.close()

    def _acquire(self, name: _PoolKey, session: str, key: Key) -> _PooledSession:
        with self._lock:
            pooled = self._open_sessions.get(name)
            evicted: list[Session] = []
            if pooled is None:
                pooled = self._open_sessions[name] = _PooledSession(self._open(name, session, key))
            self._open_sessions.move_to_end(name)
            pooled.users += 1
            evicted = self._evict(self._settings.gateway.sessions)
        for stale in evicted:
            stale.close()
        return pooled

    def _release(self, pooled: _PooledSession) -> None:
        with self._lock:
            pooled.users -= 1
            self._released.notify_all()
            size = held_bytes(pooled.session)
            if not pooled.is_evicted:
                self._size += size - pooled.size
            pooled.size = size
            evicted = [pooled.session] if pooled.is_evicted and not pooled.users else []
            evicted += self._evict(self._settings.gateway.sessions)
        for session in evicted:
            session.close()

    def _evict(self, limit: int) -> list[Session]:
        evicted: list[Session] = []
        while len(self._open_sessions) > limit or self._size > _MAX_BYTES:
            _, pooled = self._open_sessions.popitem(last=False)
            pooled.is_evicted = True
            self._size -= pooled.size
            if not pooled.users:
                evicted.append(pooled.session)
        return evicted

    def _open(self, name: _PoolKey, session: str, key: Key) -> Session:
        settings = self._settings
        window = replace(settings.window, profile=key.profile) if key.profile else settings.window
        model = name[1]
        limits = _merge_limits(settings.models.get(model, {}), self.limits.of(self.upstream_of(model, key), model))
        if model and not window.max_tokens and not self.knows(self.upstream_of(model, key), model):
            self._log_unknown(model)
            limits["window"] = UNLIMITED_WINDOW
        models = {**settings.models, model: limits} if limits else settings.models
        settings = replace(settings, session=session, tenant=key.tenant, model=model, window=window, models=models)
        return open_session(settings, self._store, self._indexer, sinks=self._sinks)

    def _log_unknown(self, model: str) -> None:
        """Log a model that is not known, once. Clients choose the names, so only some are logged."""
        if model in self._unknown or len(self._unknown) >= _MAX_UNKNOWN_LOGGED:
            return
        self._unknown.add(model)
        _log.warning(
            "model %.80r is not known and its upstream lists no limit: its prompts are passed on whole until the "
            "upstream refuses one and names its limit, or 'models' sets it",
            model,
        )


def _merge_limits(configured: Mapping[str, Any], learned: Mapping[str, int]) -> dict[str, Any]:
    """Return the limits of a model: an upstream can lower what is configured, not raise it."""
    merged = {**configured, **{name: min(limit, configured.get(name, limit)) for name, limit in learned.items()}}
    if "window" in merged and "max_input" in merged:
        merged["max_input"] = min(merged["max_input"], merged["window"])
    return merged
