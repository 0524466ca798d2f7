"""Runs of a session: prompts that were answered, as they were sent. Each is named by the entry of its answer."""

from __future__ import annotations

import json
from typing import NamedTuple

from recto.context.window.report import PromptRun
from recto.engine.monitor import composition_in
from recto.errors import InputError
from recto.health.metrics import PromptComposition
from recto.transcript.entries import IMPORTED, Entry
from recto.transcript.protocols import TranscriptStore

_REACHES = 64, 1024
"""Entries back in which a run is searched: first a few, then more."""


class StoredRun(NamedTuple):
    """An answer, and the composition of its prompt."""

    entry: Entry
    composition: PromptComposition


def last_run(store: TranscriptStore, session: str, before: int | None = None) -> StoredRun | None:
    """The newest run of a session, or the newest one before an entry; None if there is none near."""
    end = store.head(session).seq if before is None else before - 1
    stop = end
    for reach in _REACHES:
        start = max(end - reach, 0)
        for entry in reversed(list(store.read(session, start + 1, stop)) if start < stop else []):
            composition = PromptComposition.from_json(composition_in(entry))
            if composition is not None:
                return StoredRun(entry, composition)
        stop = start
    return None


def last_model(store: TranscriptStore, session: str) -> str:
    """The model that a session was last used with or, before any run, imported for; empty where that is unknown."""
    run = last_run(store, session)
    if run is not None:
        return run.composition.model
    ends = (entry for entry in reversed(store.tail(session, _REACHES[0])) if entry.kind == IMPORTED)
    return next((str(json.loads(end.content).get("model", "")) for end in ends), "")


def requested_model(store: TranscriptStore, session: str) -> str:
    """The model that the client named in its last request, which another one may answer; empty where it is unknown."""
    run = last_run(store, session)
    name = json.loads(run.entry.meta).get("model") if run is not None else ""
    return name if isinstance(name, str) else ""


def prompt_run(store: TranscriptStore, session: str, seq: int | None = None) -> PromptRun | None:
    """A run as it was sent: the last one, or the one that an entry answers.

    Raises:
        InputError: That entry answers no prompt of Recto's.
    """
    if seq is None:
        found = last_run(store, session)
    else:
        entry = next(iter(store.read(session, seq, seq)), None) if seq > 0 else None
        composition = PromptComposition.from_json(composition_in(entry)) if entry is not None else None
        found = StoredRun(entry, composition) if entry is not None and composition is not None else None
        if found is None:
            near = last_run(store, session, before=max(seq, 1))
            hint = f"; the one before it is entry {near.entry.seq}" if near else ""
            raise InputError(
                f"entry {seq} answers no prompt of Recto's: a run is named by the entry of its answer{hint}"
            )
    if found is None:
        return None
    entry, composition = found
    previous = last_run(store, session, before=entry.seq)
    return PromptRun(
        seq=entry.seq,
        ts=entry.ts,
        model=composition.model,
        window=composition.window,
        room=composition.room,
        reserve=composition.reserve,
        tokens=composition.tokens,
        pieces=tuple(sorted(composition.pieces, key=lambda piece: -piece.tokens)),
        previous=previous.entry.seq if previous is not None else None,
    )
