"""Sessions held open between requests: a window is folded once, not for every request.

At most so many are held; the one that was used longest ago is let go first. What is let go is opened again from the
transcript, so nothing depends on what is held.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from recto.config import Settings
from recto.config.factory import open_memory, open_session
from recto.continuity.memory.manager import Memories
from recto.engine.session import Session
from recto.gateway.api_keys import Key
from recto.health.protocols import HealthSink
from recto.recall.index.cache import BoundedCache
from recto.recall.indexer import Indexer
from recto.tokens.limits import ModelLimits
from recto.transcript.protocols import TranscriptStore
from recto.transcript.tenancy import TenantStore

_MODELS = 1_000
"""Models of which it is remembered what an upstream said; clients name them."""
_Name: TypeAlias = tuple[str, str, str]
"""The stored key, the model, and the budget's profile."""


@dataclass(slots=True)
class _Held:
    session: Session
    users: int = 0
    let_go: bool = False


class SessionPool:
    """The open sessions of one gateway. Any number of threads may ask."""

    def __init__(
        self,
        settings: Settings,
        store: TranscriptStore,
        indexer: Indexer,
        *,
        sinks: Sequence[HealthSink] = (),
    ) -> None:
        self._store = store
        self._settings = settings
        self._indexer = indexer
        self._sinks = sinks
        self._held: OrderedDict[_Name, _Held] = OrderedDict()
        self._learned: BoundedCache[dict[str, int]] = BoundedCache(_MODELS)
        self._lock = threading.Lock()

    def view(self, key: Key) -> TenantStore:
        """The store as the holder of an API key may see it: the one place where the gateway binds a tenant."""
        return TenantStore(self._store, key.tenant)

    def memories(self, key: Key, agent: str = "") -> Memories:
        """The memory of one of the tenant's agents; without a name, of the key's agent."""
        settings = replace(self._settings, session=f"agent:{agent or key.agent}:main", tenant=key.tenant)
        return open_memory(settings, self._store)

    @contextmanager
    def use(self, key: Key, session: str, model: str = "") -> Iterator[Session]:
        """A session as a key's holder names it, for as long as it is used. Raises `InputError` for no session's name.

        Nothing is stored by opening it; whether there is anything in it tells `len`.
        """
        name = self.view(key).key(session), model or self._settings.model, key.profile
        held = self._taken(name, session, key)
        try:
            yield held.session
        finally:
            self._returned(held)

    def over(self, store: TranscriptStore) -> SessionPool:
        """The same sessions in another store, held apart; of models the same is known. Nobody is told of them."""
        others = SessionPool(self._settings, store, self._indexer)
        others._learned = self._learned
        return others

    def learn(self, model: str, limits: ModelLimits) -> None:
        """Takes in what an upstream said of a model's window: sessions opened from now on keep to it."""
        said = {"window": limits.window, "max_input": limits.max_input}
        with self._lock:
            known = self._learned.get(model) or {}
            lower = {name: min(limit, known.get(name, limit)) for name, limit in said.items() if limit is not None}
            self._learned.put(model, {**known, **lower})

    def close(self) -> None:
        """Lets go of all of them; those in use are closed when they are returned."""
        with self._lock:
            gone = self._let_go(0)
        for session in gone:
            session.close()

    def _taken(self, name: _Name, session: str, key: Key) -> _Held:
        with self._lock:
            held = self._held.get(name)
            gone: list[Session] = []
            if held is None:
                held = self._held[name] = _Held(self._open(name, session, key))
            self._held.move_to_end(name)
            held.users += 1
            gone = self._let_go(self._settings.gateway.sessions)
        for one in gone:
            one.close()
        return held

    def _returned(self, held: _Held) -> None:
        with self._lock:
            held.users -= 1
            last = held.let_go and not held.users
        if last:
            held.session.close()

    def _let_go(self, most: int) -> list[Session]:
        gone: list[Session] = []
        while len(self._held) > most:
            _, held = self._held.popitem(last=False)
            held.let_go = True
            if not held.users:
                gone.append(held.session)
        return gone

    def _open(self, name: _Name, session: str, key: Key) -> Session:
        given = self._settings
        window = replace(given.window, profile=key.profile) if key.profile else given.window
        models = {**given.models, name[1]: _agreed(given.models.get(name[1], {}), self._learned.get(name[1]) or {})}
        settings = replace(given, session=session, tenant=key.tenant, model=name[1], window=window, models=models)
        return open_session(settings, self._store, self._indexer, sinks=self._sinks)


def _agreed(given: Mapping[str, Any], learned: Mapping[str, int]) -> dict[str, Any]:
    """What is known of a model: an upstream may say less than the settings, and never more."""
    found = {**given, **{name: min(limit, given.get(name, limit)) for name, limit in learned.items()}}
    if "window" in found and "max_input" in found:
        found["max_input"] = min(found["max_input"], found["window"])
    return found
