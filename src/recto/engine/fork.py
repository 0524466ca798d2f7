"""Forks a session: a copy up to an entry, which then continues on its own.

Entries are copied unchanged, decisions included, so the window of the copy equals that of the original at that entry.
Both sessions record the fork; the original does not while another process holds its turn. An interrupted fork is
resumed. Nothing else in the original changes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from itertools import islice

from recto.errors import InputError, TurnTaken
from recto.transcript.entries import Clock, Draft, Entry, event, session_key
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_internal, tenant_of

BRANCH = "branch"
"""The event that records where a session was forked from another."""
_BATCH = 500
_FIELDS = tuple(field.name for field in fields(Draft))


def fork(
    store: TranscriptStore,
    source: str,
    target: str,
    *,
    clock: Clock,
    at: int | None = None,
    advance: Callable[[int], None] = lambda copied: None,
) -> Entry:
    """Make `target` a copy of `source` up to entry `at`, or up to its end. Returns the event in the copy."""
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
    copied_count = _copied_so_far(store, source, target, stop)
    entries = store.read(source, copied_count + 1, stop)
    while batch := list(islice(entries, _BATCH)):
        rows = store.pick_terms(source, [entry.seq for entry in batch])
        store.append(target, [_copy(entry, rows.get(entry.seq, b"")) for entry in batch], expect=copied_count)
        copied_count += len(batch)
        advance(len(batch))
    payload = {"from": source, "at": stop}
    branch = store.append(target, [event(clock, BRANCH, payload, f"branch/{source}/{stop}")], expect=stop)[0]
    with suppress(TurnTaken), store.turn(source, patience=0):
        store.append(source, [event(clock, BRANCH, {"to": target, "at": stop}, f"branch/{target}/{stop}")])
    return branch


def _copied_so_far(store: TranscriptStore, source: str, target: str, stop: int) -> int:
    """Return how far an earlier attempt came. Raises `InputError` if the target is a different session."""
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


def _copy(entry: Entry, terms: bytes) -> Draft:
    return Draft(**{name: getattr(entry, name) for name in _FIELDS} | {"terms": terms})
