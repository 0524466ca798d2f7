"""Settings and entries for commands that go through recorded conversations without touching anything of the user's."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from recto.config import Settings
from recto.config.factory import MEMORY_STORE, make_importer
from recto.stores.memory import MemoryStore
from recto.transcript.entries import DEFAULT_SESSION, Entry

_ANY = "any"
"""What a model is called of which only the window is given."""


def apart(settings: Settings, *, model: str | None = None, window: int | None = None, writes: bool = False) -> Settings:
    """The settings for a store that goes with the process, in which nothing reaches anything of the user's.

    Unless a model `writes`, none is asked, and nothing is done ahead of need: the same file gives the same result.
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


def sessions_in(settings: Settings, file: Path) -> dict[str, list[Entry]]:
    """What was said in a file, by session."""
    with closing(MemoryStore()) as store:
        return {name: list(store.read(name)) for name in make_importer(settings, store).import_file(file).sessions}
