"""A second session that begins as a copy of the first, up to an entry, and goes its own way from there.

Entries are copied as they are, decisions among them, so that the window of the copy is that of the original at that
entry. Both sessions record where they parted; the first one does not where somebody has its turn just then. A fork that
was cut off is taken up where it ended; nothing of the first session is ever changed but for the line that says that it
was forked.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from itertools import islice

from recto.errors import InputError, TurnTaken
from recto.transcript.entries import Draft, Entry, session_key
from recto.transcript.events import event
from recto.transcript.protocols import Clock, TranscriptStore
from recto.transcript.session_keys import is_internal, tenant_of

BRANCH = "branch"
"""The event that says where a session parted from another."""
_BATCH = 500
_FIELDS = tuple(field.name for field in fields(Draft))


def fork(
    store: TranscriptStore,
    source: str,
    target: str,
    *,
    clock: Clock,
    at: int | None = None,
    tell: Callable[[int], None] = lambda copied: None,
) -> Entry:
    """Makes `target` a copy of `source` up to entry `at`, or up to its end. Returns the event in the copy."""
    source, target = session_key(source), session_key(target)
    head = store.head(source)
    stop = head.seq if at is None else at
    if not 1 <= stop <= head.seq:
        raise InputError(f"session '{source}' has entries 1 to {head.seq}; it cannot be forked at {stop}")
    if source == target or tenant_of(source) != tenant_of(target) or is_internal(source) or is_internal(target):
        why = "it is the same session, another tenant's, or Recto's own"
        raise InputError(f"'{target}' cannot be a fork of '{source}': {why}")
    done = store.find(target, f"branch/{source}/{stop}")
    if done is not None:
        return done
    begun = _taken_up(store, source, target, stop)
    entries = store.read(source, begun + 1, stop)
    while batch := list(islice(entries, _BATCH)):
        store.append(target, [_copy(entry) for entry in batch], expect=begun)
        begun += len(batch)
        tell(len(batch))
    about = {"from": source, "at": stop}
    made = store.append(target, [event(clock, BRANCH, about, f"branch/{source}/{stop}")], expect=stop)[0]
    with suppress(TurnTaken), store.turn(source, patience=0):
        store.append(source, [event(clock, BRANCH, {"to": target, "at": stop}, f"branch/{target}/{stop}")])
    return made


def _taken_up(store: TranscriptStore, source: str, target: str, stop: int) -> int:
    """How far an earlier try came; refuses a session that is something else."""
    head = store.head(target)
    if not head.seq:
        return 0
    same = head.seq <= stop and all(
        ours.is_retry_of(theirs)
        for ours, theirs in zip(store.read(source, 1, head.seq), store.read(target, 1, head.seq), strict=True)
    )
    if not same:
        raise InputError(f"session '{target}' exists already and is no copy of '{source}'. Nothing was changed.")
    return head.seq


def _copy(entry: Entry) -> Draft:
    return Draft(**{name: getattr(entry, name) for name in _FIELDS})
