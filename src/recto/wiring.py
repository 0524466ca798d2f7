"""Puts the parts together. The only place that names concrete stores, tokenizers and clocks."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto.core.cards import ModelCard
from recto.core.tokens import Meter
from recto.engine.importing import Importer
from recto.engine.session import Session
from recto.models.registry import Registry
from recto.models.tokenizers import Tokenizers
from recto.ports import TranscriptStore
from recto.settings import Settings, load
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from recto.engine.async_session import AsyncSession

MEMORY = "memory:"
"""The location of a store that goes with the process."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000


def open_store(settings: Settings, *, create: bool = True) -> TranscriptStore:
    """The store that the settings name. With `create=False` a store that is not there is an error, not a new file."""
    if settings.store == MEMORY:
        return MemoryStore()
    path = Path(settings.store).expanduser()
    if create and settings.store == Settings().store:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    return SqliteStore(path, create=create, lock_timeout=settings.limits.lock_seconds)


def card_for(settings: Settings) -> ModelCard:
    """What is known about the settings' model."""
    return Registry(overrides=settings.models).card(settings.model)


def meter_for(settings: Settings) -> Meter:
    """What counts tokens as the settings' model does."""
    return Tokenizers(settings.tokenizers).meter_for(card_for(settings))


def importer_for(settings: Settings, store: TranscriptStore, model: str | None = None) -> Importer:
    """What takes session files into a store: counted as `model` does, else as the model the file names."""

    def meter_of(named: str) -> Meter:
        return meter_for(replace(settings, model=model or settings.model or named))

    return Importer(store=store, clock=SystemClock(), meter_for=meter_of)


def open_session(settings: Settings, store: TranscriptStore | None = None) -> Session:
    """The session that the settings name, in a store that is open already or in the one they name."""
    return Session(
        open_store(settings) if store is None else store,
        settings.session,
        meter=meter_for(settings),
        clock=SystemClock(),
        max_message_bytes=settings.limits.message_bytes,
        owns_store=store is None,
    )


def open(
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    session: str | None = None,
    model: str | None = None,
    config: str | os.PathLike[str] | None = None,
    **more: Mapping[str, Any],
) -> Session:
    """Opens a session, creating the store if there is none.

    `store` is a path, `"memory:"`, or a store that is open already (then closing the session leaves it open). What is
    not given comes from the environment, then from the settings file, then from the defaults. Other groups of
    settings can be given by name: `recto.open("a.db", limits={"message_bytes": 1_000_000})`.
    """
    named, opened = (store, None) if store is None or isinstance(store, str | os.PathLike) else (None, store)
    arguments = {"store": named, "session": session, "model": model, **more}
    return open_session(load(path=None if config is None else Path(config), arguments=arguments), opened)


async def open_async(
    store: str | os.PathLike[str] | TranscriptStore | None = None,
    *,
    session: str | None = None,
    model: str | None = None,
    config: str | os.PathLike[str] | None = None,
    **more: Mapping[str, Any],
) -> AsyncSession:
    """`open` for programs that await: `async with await recto.open_async("a.db") as session: …`."""
    from recto.engine.async_session import AsyncSession, on_a_thread  # noqa: PLC0415  # asyncio only for who awaits

    return AsyncSession(await on_a_thread(open, store, session=session, model=model, config=config, **more))
