"""Reads the sessions that an experiment is given: files, or sessions of the store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from recto.cli.sessions import resolve_session
from recto.config import Settings
from recto.config.factory import open_store
from recto.lab.isolation import isolated
from recto.lab.recordings import iter_sessions
from recto.transcript.entries import Entry
from recto.transcript.session_keys import operator_key


def stored_session(settings: Settings, name: str) -> tuple[str, tuple[Entry, ...]]:
    """A session of the store, by the name that an operator gives it: its key and its entries."""
    with closing(open_store(settings, create=False)) as store:
        key = resolve_session(store, operator_key(name, settings.tenant))
        return key, tuple(store.read(key))


def load_sessions(settings: Settings, names: Sequence[str]) -> Iterator[tuple[str, tuple[Entry, ...]]]:
    """Yields each session with a name: of a file its name, numbered where it holds several; of the store its key."""
    for name in names:
        file = Path(name)
        if not file.is_file():
            yield stored_session(settings, name)
            continue
        sessions = list(iter_sessions(isolated(settings), file))
        for number, entries in enumerate(sessions, 1):
            yield file.name if len(sessions) == 1 else f"{file.name} {number}", tuple(entries)
