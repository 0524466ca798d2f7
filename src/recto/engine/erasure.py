"""Erases whole sessions on purpose, and writes down that it was done: which, where its chain ended, by whom and why.

The record comes first, in a session of Recto's own that no list shows. Then the index forgets the session, then the
store erases it, then its end is noted. So an erasure that was cut off anywhere is found by its record, and is finished
when it is asked for again. Nothing else in Recto removes anything from a transcript.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from recto.errors import AppendConflict, IndexCorrupt, InputError, StoreUnavailable, TailCut, UnknownSession
from recto.recall.protocols import RecallIndex
from recto.transcript.entries import Entry, Head
from recto.transcript.events import event
from recto.transcript.hash_chain import EMPTY_HEAD
from recto.transcript.protocols import Clock, TranscriptStore
from recto.transcript.session_keys import ERASURES, record_key, tenant_prefix
from recto.transcript.tenancy import TenantStore

SESSION: Final = ERASURES
ERASED: Final = "session_erased"
FINISHED: Final = "erasure_finished"
_LINEAGE = "lineage"
"""The records by which a gateway finds the conversations of a tenant."""
_PAGE = 500
_TRIES = 8
"""How often a session may grow between its record and its end."""
_LONGEST = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """That a session was erased, as it was recorded."""

    session: str
    entries: int
    hash: str
    """Of its last entry."""
    by: str
    reason: str
    ts: int
    seq: int
    """Where the record stands."""
    is_finished: bool = False

    @property
    def end(self) -> Head:
        """Where its chain ended."""
        return Head(self.entries, bytes.fromhex(self.hash))

    def explains(self, head: Head) -> bool:
        """Whether a head kept elsewhere may be one of this session: its end, or something before that."""
        return head.seq < self.entries or head == self.end


def erasures(store: TranscriptStore) -> dict[str, list[Erasure]]:
    """Everything that was ever erased from a store, or begun to be, by session, oldest first."""
    found: dict[str, list[Erasure]] = {}
    for entry in store.erasure_log() if isinstance(store, TenantStore) else store.read(SESSION):
        try:
            if entry.kind == ERASED:
                one = _erasure(entry)
                found.setdefault(one.session, []).append(one)
            elif entry.kind == FINISHED:
                before = found.get(json.loads(entry.content)["session"], [])
                before[:] = [replace(one, is_finished=True) for one in before]
        except (ValueError, TypeError, KeyError):
            continue  # somebody else wrote it, and the chain shows that
    return found


def sessions_of(store: TranscriptStore, tenant: str) -> list[str]:
    """Every session of a tenant and the notes about them, and those whose erasure was begun. Raises `InputError`."""
    begins = tenant_prefix(tenant), record_key(_LINEAGE, tenant)
    gone = {name: all(one.is_finished for one in of) for name, of in erasures(store).items() if name.startswith(begins)}
    found = {name for start in begins for name in _beginning(store, start)}
    if not found and not gone:
        raise InputError(f"nothing is stored of tenant '{tenant}'. Nothing was erased.")
    return sorted(found | {name for name, is_finished in gone.items() if not is_finished or not found})


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """Erases for somebody who says why."""

    store: TranscriptStore
    index: RecallIndex
    clock: Clock
    by: str
    reason: str
    surface: str = "cli"

    def __post_init__(self) -> None:
        """An erasure without a reason is none."""
        if not self.reason.strip() or not self.by.strip():
            raise InputError("an erasure names who wants it and why: it is all that stays. Nothing was erased.")

    def erase(self, sessions: Iterable[str]) -> Iterator[Erasure]:
        """Erases sessions, one after the other. Raises `UnknownSession` for one that never was."""
        for session in sessions:
            yield self._erased(session)

    def clean_up(self, sessions: Sequence[str], folders: Iterable[Path], *, scrub: bool) -> None:
        """Takes away files that were made of erased sessions; with `scrub` nothing stays in the store's own either."""
        for folder in folders:
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                detail = f"it was made of erased sessions and could not be removed: {error.strerror}"
                raise StoreUnavailable(str(folder), detail) from error
        if scrub:
            self.index.scrub(sessions)
            self.store.scrub(sessions)

    def _erased(self, session: str) -> Erasure:
        for _ in range(_TRIES):
            head = self.store.head(session)
            if head == EMPTY_HEAD:
                return self._finished(session)
            recorded = self._recorded(session, head)
            self._forget(session)
            try:
                self.store.erase(session, expect=head.seq)
            except AppendConflict:
                continue  # it grew meanwhile, and that is another end
            return self._noted(recorded)
        raise AppendConflict(session, head.seq, head.seq, "it is written to all the time; let that end first")

    def _finished(self, session: str) -> Erasure:
        """What was begun before and cut off, or is over already."""
        before = erasures(self.store).get(session)
        if not before:
            raise UnknownSession(session)
        kept = self.store.kept_heads().get(session)
        if kept is not None and not any(one.explains(kept) for one in before if not one.is_finished):
            raise TailCut(session, kept.seq, 0)
        self._forget(session)
        self.store.erase(session, expect=0)
        return self._noted(before[-1])

    def _recorded(self, session: str, head: Head) -> Erasure:
        key = f"erased/{head.hash.hex()}"
        found = self.store.find(SESSION, key)
        if found is None:
            about = {
                "session": session,
                "entries": head.seq,
                "hash": head.hash.hex(),
                "by": self.by[:_LONGEST],
                "reason": self.reason[:_LONGEST],
            }
            [found] = self.store.append(SESSION, [event(self.clock, ERASED, about, key, self.surface)])
        return _erasure(found)

    def _noted(self, recorded: Erasure) -> Erasure:
        """An index that was kept while the store erased is forgotten once more, and then it is over."""
        self._forget(recorded.session)
        key = f"finished/{recorded.hash}"
        if self.store.find(SESSION, key) is None:
            about = {"session": recorded.session, "hash": recorded.hash}
            self.store.append(SESSION, [event(self.clock, FINISHED, about, key, self.surface)])
        return replace(recorded, is_finished=True)

    def _forget(self, session: str) -> None:
        try:
            self.index.forget(session)
        except IndexCorrupt:  # whatever is in it can be made anew from what stays
            self.index.reset()


def _erasure(entry: Entry) -> Erasure:
    about = json.loads(entry.content)
    bytes.fromhex(about["hash"])
    return Erasure(
        session=str(about["session"]),
        entries=int(about["entries"]),
        hash=about["hash"],
        by=str(about["by"]),
        reason=str(about["reason"]),
        ts=entry.ts,
        seq=entry.seq,
    )


def _beginning(store: TranscriptStore, prefix: str) -> Iterator[str]:
    """The stored keys that begin so: they stand together."""
    after = prefix
    while page := store.sessions(after, _PAGE):
        for line in page:
            if not line.session.startswith(prefix):
                return
            yield line.session
        after = page[-1].session
