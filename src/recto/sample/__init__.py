"""The sample session: a generated week of an agent's work, to look at before you have a session of your own.

The dialogue is in `script.toml`, the files that the agent reads are in `files/`. Everything else is what the engine
does with them under a fake clock: evictions, trims, recalls, summaries, restores, notes and measurements. The session
is generated in memory and stored in one append.
"""

from __future__ import annotations

import random
from contextlib import closing, suppress
from dataclasses import fields, replace

from recto.config import Settings, load
from recto.config.factory import open_memory, open_session
from recto.engine.session import Session
from recto.errors import AppendConflict, SettingsError
from recto.sample._player import DAY, SamplePlayer
from recto.sample.script import load_script
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock
from recto.transcript.entries import MESSAGE, Draft, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import pointer_to

SESSION = "agent:default:sample"
MODEL = "gpt-4"
"""A model with a small context window and a price, so that evictions start early and costs are shown."""
_STEP = 500_000
"""Microseconds that the clock advances on each reading."""
_SEED = 7
_FIELDS = tuple(field.name for field in fields(Draft))


def load_sample(settings: Settings, store: TranscriptStore, *, now: int) -> bool:
    """Stores the sample session, which ends the day before `now`, and its memory proposals, unless they exist.

    Returns:
        Whether the session was added by this call.
    """
    missing = not store.head(SESSION).seq
    if missing:
        with suppress(AppendConflict):  # another process stored it just now
            store.append(SESSION, sample_week(now), expect=0)
    _propose_memory(settings, store)
    return missing


def sample_week(now: int) -> list[Draft]:
    """Generates the entries of the sample session: five days that end the day before `now` (µs since 1970)."""
    arguments = {
        "session": SESSION,
        "model": MODEL,
        "recall": {"embedder": {"use": "none"}, "background": False},
        "compress": {"summary_tokens": 320},
        "continuity": {"environment": False, "milestones": "never"},
    }
    monday = now // DAY * DAY - 5 * DAY
    clock = FakeClock(time=monday, step=_STEP)
    with closing(MemoryStore()) as scratch:

        def open_with_mode(mode: str) -> Session:
            settings = load(
                environ={},
                arguments=arguments
                | {"window": {"mode": mode, "min_recent_messages": 8, "keep_recent_tokens": 600, "record_percent": 4}},
            )
            return open_session(settings, scratch, clock=clock)

        SamplePlayer(open_with_mode, clock, monday, random.Random(_SEED)).play()  # noqa: S311  # reproducible on purpose
        return [_draft(entry) for entry in scratch.read(SESSION)]


def _draft(entry: Entry) -> Draft:
    return Draft(**{name: getattr(entry, name) for name in _FIELDS})


def _propose_memory(settings: Settings, store: TranscriptStore) -> None:
    """Adds the memory proposals; proposing the same memory again changes nothing."""
    requests = [entry for entry in store.read(SESSION) if entry.kind == MESSAGE and entry.role == "user"]
    with suppress(SettingsError):  # an in-memory store has no folder for memory
        memory = open_memory(replace(settings, session=SESSION, tenant=""), store)
        for proposal in load_script().proposals:
            words = proposal.source.encode()
            sources = [pointer_to(SESSION, entry.seq) for entry in requests if words in entry.content][:1]
            memory.propose(
                proposal.kind, proposal.text, sources=sources, by="rule", why="said by the user in so many words"
            )
