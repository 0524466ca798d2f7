"""Moves transcripts from one store to another, entry by entry as they are: numbers, times, ids and hashes stay.

It goes on where it was cut off, and refuses to put one history behind another. That the copy is the original shows in
the chain: every entry's hash covers all before it, and both ends are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from recto.errors import AppendConflict, StoreCorrupt
from recto.transcript.entries import Draft, Entry, Head
from recto.transcript.protocols import TranscriptStore

_BATCH_ENTRIES = 500
_BATCH_BYTES = 8 * 1024 * 1024
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What became of one session."""

    session: str
    entries: int
    """How many it has now in both."""
    new: int
    """How many of them were copied this time."""


def copy(
    source: TranscriptStore, target: TranscriptStore, *, tell: Callable[[int], None] = lambda count: None
) -> Iterator[Copied]:
    """Copies every session that the target does not have whole. `tell` is called with how many entries are done.

    Raises `AppendConflict` where the target has another history of a session, and `StoreCorrupt` where the copy is not
    the original. What was copied before is kept, and is not copied again.
    """
    after = ""
    while page := source.sessions(after, _PAGE):
        after = page[-1].session
        for line in page:
            yield _copied(source, target, line.session, tell)


def size_of(source: TranscriptStore) -> int:
    """How many entries there are to copy."""
    count, after = 0, ""
    while page := source.sessions(after, _PAGE):
        after = page[-1].session
        count += sum(line.entries for line in page)
    return count


def _copied(source: TranscriptStore, target: TranscriptStore, session: str, tell: Callable[[int], None]) -> Copied:
    there, wanted = target.head(session), source.head(session)
    _refuse_other_history(source, session, there, wanted)
    tell(there.seq)
    last = there
    for batch in _batches(source.read(session, there.seq + 1, wanted.seq)):
        stored = target.append(session, batch, expect=last.seq)
        last = Head(stored[-1].seq, stored[-1].hash)
        tell(len(batch))
    if last != wanted:
        detail = f"session '{session}': the copy of entry {last.seq} is not the original; see 'recto verify' on both"
        raise StoreCorrupt(target.location, detail)
    return Copied(session=session, entries=wanted.seq, new=wanted.seq - there.seq)


def _refuse_other_history(source: TranscriptStore, session: str, there: Head, wanted: Head) -> None:
    if not there.seq:
        return
    same = next(iter(source.read(session, there.seq, there.seq)), None)
    if same is None or same.hash != there.hash:
        reason = f"the target has another history of it, or a longer one: entry {there.seq} is not the one here"
        raise AppendConflict(session, wanted.seq, there.seq, reason)


def _batches(entries: Iterator[Entry]) -> Iterator[list[Draft]]:
    batch: list[Draft] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += len(entry.content) + len(entry.meta)
        if len(batch) == _BATCH_ENTRIES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
