"""A week of an agent at work, made by Recto itself: a long session to look at before there is one of one's own.

What is said is written in `story` and `shop`; everything else is what the engine does with it, under a clock that goes
through a week: what leaves, shrinks, comes back, is summed up, undone, noted and measured. It is made in memory, and
stored whole or not at all.
"""

from __future__ import annotations

import random
from contextlib import closing, suppress
from dataclasses import fields, replace

from recto.config import Settings, load
from recto.config.factory import open_memory, open_session
from recto.engine.session import Session
from recto.errors import AppendConflict, SettingsError
from recto.sample.player import DAY, SamplePlayer
from recto.sample.script import PROPOSED
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock
from recto.transcript.entries import MESSAGE, Draft, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import pointer_to

SESSION = "agent:default:sample"
MODEL = "gpt-4"
"""A model with a small window and a price, so that things leave soon and costs can be seen."""
_STEP = 500_000
_SEED = 7
_FIELDS = tuple(field.name for field in fields(Draft))


def load_sample(settings: Settings, store: TranscriptStore, *, now: int) -> bool:
    """Stores the sample session, its last day before today, with proposals for memory; whether it was not there yet."""
    made = not store.head(SESSION).seq
    if made:
        with suppress(AppendConflict):  # another process stored it just now
            store.append(SESSION, sample_week(now), expect=0)
    _propose(settings, store)
    return made


def sample_week(now: int) -> list[Draft]:
    """The entries of the sample session, whose five days end before the one that `now` is on, in µs since 1970."""
    given = {
        "session": SESSION,
        "model": MODEL,
        "recall": {"embedder": {"use": "hashing"}, "background": False},
        "compress": {"summary_tokens": 320},
        "continuity": {"environment": False, "milestones": "never"},
    }
    monday = now // DAY * DAY - 5 * DAY
    clock = FakeClock(time=monday, step=_STEP)
    with closing(MemoryStore()) as scratch:

        def opened(mode: str) -> Session:
            settings = load(
                environ={},
                arguments=given | {"window": {"mode": mode, "min_recent_messages": 8, "keep_recent_tokens": 600}},
            )
            return open_session(settings, scratch, clock=clock)

        SamplePlayer(opened, clock, monday, random.Random(_SEED)).play()  # noqa: S311  # repeatable on purpose
        return [_draft(entry) for entry in scratch.read(SESSION)]


def _draft(entry: Entry) -> Draft:
    return Draft(**{name: getattr(entry, name) for name in _FIELDS})


def _propose(settings: Settings, store: TranscriptStore) -> None:
    """What was learnt waits for a decision; once, however often this is asked for."""
    said = [one for one in store.read(SESSION) if one.kind == MESSAGE and one.role == "user"]
    with suppress(SettingsError):  # a store that goes with the process has nowhere to keep memory
        memory = open_memory(replace(settings, session=SESSION, tenant=""), store)
        for kind, text, words in PROPOSED:
            sources = [pointer_to(SESSION, one.seq) for one in said if words.encode() in one.content][:1]
            memory.propose(kind, text, sources=sources, by="rule", why="said by the user in so many words")
