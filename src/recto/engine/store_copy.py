"""Copies transcripts from one store to another, entry by entry and unchanged: numbers, times, ids and hashes stay.

An interrupted copy is resumed, and one history is never appended to another. The hash chain proves the copy: every
entry's hash covers all before it and is computed again, and both heads are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from recto.errors import AppendConflict, StoreCorrupt
from recto.transcript.entries import ChainBreak, Entry, Head, verify_chain
from recto.transcript.protocols import TranscriptStore

_BATCH_ENTRIES = 500
_BATCH_BYTES = 8 * 1024 * 1024
_PAGE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedSession:
    """The result of copying one session."""

    session: str
    entries: int
    """How many entries it has now in both stores."""
    new: int
    """How many of them were copied this time."""


def copy_store(
    source: TranscriptStore, target: TranscriptStore, *, advance: Callable[[int], None] = lambda count: None
) -> Iterator[CopiedSession]:
    """Copy every session that is not complete in the target. `advance` is called with the number of entries done.

    Entries that were copied before are not copied again. A session whose entries are not as they were stored
    (`StoreCorrupt`), or of which the target has another history (`AppendConflict`), keeps no other session from being
    copied: the first such error is raised at the end.
    """
    after, problem = "", None
    while page := source.sessions(after, _PAGE):
        after = page[-1].session
        for summary in page:
            try:
                copied = _copy_session(source, target, summary.session, advance)
            except (AppendConflict, StoreCorrupt) as error:
                problem = problem or error
            else:
                yield copied
    if problem is not None:
        raise problem


def count_entries(source: TranscriptStore) -> int:
    """Return the number of entries to copy."""
    count, after = 0, ""
    while page := source.sessions(after, _PAGE):
        after = page[-1].session
        count += sum(summary.entries for summary in page)
    return count


def _copy_session(
    source: TranscriptStore, target: TranscriptStore, session: str, advance: Callable[[int], None]
) -> CopiedSession:
    target_head, source_head = target.head(session), source.head(session)
    _refuse_other_history(source, session, target_head, source_head)
    advance(target_head.seq)
    last = target_head
    for batch in _batches(source.read(session, target_head.seq + 1, source_head.seq)):
        broken = verify_chain(session, last, batch)
        whole = [entry for entry in batch if not isinstance(broken, ChainBreak) or entry.seq < broken.seq]
        if whole:
            rows = source.pick_terms(session, [entry.seq for entry in whole])
            drafts = [replace(entry, terms=rows.get(entry.seq, b"")) for entry in whole]
            stored = target.append(session, drafts, expect=last.seq)
            last = Head(stored[-1].seq, stored[-1].hash)
            advance(len(whole))
        if isinstance(broken, ChainBreak):  # the copy of this entry would get a right hash
            raise StoreCorrupt(source.location, f"session '{session}': {broken.reason}; the rest is not copied")
    if last != source_head:
        detail = f"session '{session}': the copy of entry {last.seq} is not the original; see 'recto verify' on both"
        raise StoreCorrupt(target.location, detail)
    return CopiedSession(session=session, entries=source_head.seq, new=source_head.seq - target_head.seq)


def _refuse_other_history(source: TranscriptStore, session: str, target_head: Head, source_head: Head) -> None:
    if not target_head.seq:
        return
    same = next(iter(source.read(session, target_head.seq, target_head.seq)), None)
    if same is None or same.hash != target_head.hash:
        reason = f"the target has another history of it, or a longer one: entry {target_head.seq} is not the one here"
        raise AppendConflict(session, source_head.seq, target_head.seq, reason)


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += len(entry.content) + len(entry.meta)
        if len(batch) == _BATCH_ENTRIES or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
