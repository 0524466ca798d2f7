"""Settings and entries for commands that replay recordings without touching the user's data."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from recto.config import Settings
from recto.config.factory import MEMORY_STORE, make_importer
from recto.stores.memory import MemoryStore
from recto.transcript.entries import DEFAULT_SESSION, Entry

_ANY = "any"
"""Name of the model when only a window size is known."""


def isolated(
    settings: Settings, *, model: str | None = None, window: int | None = None, writes: bool = False
) -> Settings:
    """Returns the settings for an in-memory store, with nothing that reaches the user's data.

    Unless `writes` is set, no model is called. Nothing runs in the background, so the same file gives the same result.
    """
    name = model or settings.model or (_ANY if window else "")
    models = dict(settings.models)
    if window:
        models[name] = {**models.get(name, {}), "window": window, "max_input": window}
    writer = settings.compress.model if writes else replace(settings.compress.model, use="none")
    fresh = Settings()
    return replace(
        settings,
        store=MEMORY_STORE,
        session=DEFAULT_SESSION,
        tenant="",
        model=name,
        models=models,
        recall=replace(settings.recall, background=False),
        compress=replace(settings.compress, background=False, model=writer),
        continuity=replace(settings.continuity, folder="", environment=False),
        memory=fresh.memory,
        health=replace(fresh.health, enabled=False),
    )


def read_sessions(settings: Settings, file: Path) -> dict[str, list[Entry]]:
    """Reads the entries of a file, by session."""
    with closing(MemoryStore()) as store:
        return {name: list(store.read(name)) for name in make_importer(settings, store).import_file(file).sessions}
