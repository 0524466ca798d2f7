"""Erases complete sessions deliberately, and records which, where their chain ended, by whom and why.

The record is written first, to an internal session. Then the index forgets the session, the store erases it, and the
end is recorded. An interrupted erasure is found by its record and finished when it is requested again. Nothing else in
Recto removes anything from a transcript.
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
from recto.transcript.entries import EMPTY_HEAD, Clock, Entry, Head, event
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import ERASURES, TenantStore, record_key, tenant_prefix

ERASURE_SESSION: Final = ERASURES
ERASED: Final = "session_erased"
FINISHED: Final = "erasure_finished"
_RECORDS = ("lineage", "usage")
"""Areas of the records of a gateway: by which it finds the conversations of a tenant, and what its keys have used."""
_PAGE = 500
_MAX_ATTEMPTS = 8
"""How often a session may grow between the record and the erasure."""
_MAX_TEXT = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """The record of an erased session."""

    session: str
    entries: int
    hash: str
    """Hash of the last entry."""
    by: str
    reason: str
    ts: int
    seq: int
    """The entry of the record."""
    is_finished: bool = False

    @property
    def end(self) -> Head:
        """The head of the erased chain."""
        return Head(self.entries, bytes.fromhex(self.hash))

    def explains(self, head: Head) -> bool:
        """Whether a head stored elsewhere can belong to this session: its end, or something before it."""
        return head.seq < self.entries or head == self.end


def read_erasures(store: TranscriptStore) -> dict[str, list[Erasure]]:
    """Return every erasure ever begun in a store, by session, oldest first."""
    by_session: dict[str, list[Erasure]] = {}
    for entry in store.erasure_log() if isinstance(store, TenantStore) else store.read(ERASURE_SESSION):
        try:
            if entry.kind == ERASED:
                erasure = _parse_erasure(entry)
                by_session.setdefault(erasure.session, []).append(erasure)
            elif entry.kind == FINISHED:
                earlier = by_session.get(json.loads(entry.content)["session"], [])
                earlier[:] = [replace(erasure, is_finished=True) for erasure in earlier]
        except (ValueError, TypeError, KeyError):
            continue  # not written by Recto; verification of the chain reports it
    return by_session


def erasable_sessions(store: TranscriptStore, tenant: str) -> list[str]:
    """Return every session of a tenant, the notes about them, and unfinished erasures. Raises `InputError`."""
    prefixes = tenant_prefix(tenant), *(record_key(area, tenant) for area in _RECORDS)
    erased = {
        name: all(erasure.is_finished for erasure in records)
        for name, records in read_erasures(store).items()
        if name.startswith(prefixes)
    }
    existing = {name for prefix in prefixes for name in _sessions_with_prefix(store, prefix)}
    if not existing and not erased:
        raise InputError(f"nothing is stored of tenant '{tenant}'. Nothing was erased.")
    return sorted(existing | {name for name, is_finished in erased.items() if not is_finished or not existing})


@dataclass(frozen=True, slots=True, kw_only=True)
class Eraser:
    """Erases sessions, on behalf of a person who gives a reason."""

    store: TranscriptStore
    index: RecallIndex
    clock: Clock
    by: str
    reason: str
    surface: str = "cli"

    def __post_init__(self) -> None:
        """Refuse an erasure without a person or a reason."""
        if not self.reason.strip() or not self.by.strip():
            raise InputError("an erasure needs a name and a reason; they are all that stays. Nothing was erased.")

    def erase(self, sessions: Iterable[str]) -> Iterator[Erasure]:
        """Erase sessions one by one. Raises `UnknownSession` for one that never existed."""
        for session in sessions:
            yield self._erase(session)

    def clean_up(self, sessions: Sequence[str], folders: Iterable[Path], *, scrub: bool) -> None:
        """Remove files derived from erased sessions. With `scrub`, remove all remains from the store's files too."""
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

    def _erase(self, session: str) -> Erasure:
        for _ in range(_MAX_ATTEMPTS):
            head = self.store.head(session)
            if head == EMPTY_HEAD:
                return self._finish_earlier(session)
            record = self._record(session, head)
            self._forget(session)
            try:
                self.store.erase(session, expect=head.seq)
            except AppendConflict:
                continue  # it grew meanwhile, so its end is another
            return self._finish(record)
        raise AppendConflict(session, head.seq, head.seq, "it is written to all the time; let that end first")

    def _finish_earlier(self, session: str) -> Erasure:
        """Finish an interrupted erasure, or return the finished one."""
        earlier = read_erasures(self.store).get(session)
        if not earlier:
            raise UnknownSession(session)
        anchored = self.store.kept_heads().get(session)
        if anchored is not None and not any(
            erasure.explains(anchored) for erasure in earlier if not erasure.is_finished
        ):
            raise TailCut(session, anchored.seq, 0)
        self._forget(session)
        self.store.erase(session, expect=0)
        return self._finish(earlier[-1])

    def _record(self, session: str, head: Head) -> Erasure:
        key = f"erased/{head.hash.hex()}"
        entry = self.store.find(ERASURE_SESSION, key)
        if entry is None:
            payload = {
                "session": session,
                "entries": head.seq,
                "hash": head.hash.hex(),
                "by": self.by[:_MAX_TEXT],
                "reason": self.reason[:_MAX_TEXT],
            }
            [entry] = self.store.append(ERASURE_SESSION, [event(self.clock, ERASED, payload, key, self.surface)])
        return _parse_erasure(entry)

    def _finish(self, record: Erasure) -> Erasure:
        """Forget what was indexed during the erasure, and record its end."""
        self._forget(record.session)
        key = f"finished/{record.hash}"
        if self.store.find(ERASURE_SESSION, key) is None:
            payload = {"session": record.session, "hash": record.hash}
            self.store.append(ERASURE_SESSION, [event(self.clock, FINISHED, payload, key, self.surface)])
        return replace(record, is_finished=True)

    def _forget(self, session: str) -> None:
        try:
            self.index.forget(session)
        except IndexCorrupt:  # it can be rebuilt from the remaining transcripts
            self.index.reset()


def _parse_erasure(entry: Entry) -> Erasure:
    payload = json.loads(entry.content)
    bytes.fromhex(payload["hash"])
    return Erasure(
        session=str(payload["session"]),
        entries=int(payload["entries"]),
        hash=payload["hash"],
        by=str(payload["by"]),
        reason=str(payload["reason"]),
        ts=entry.ts,
        seq=entry.seq,
    )


def _sessions_with_prefix(store: TranscriptStore, prefix: str) -> Iterator[str]:
    """Yield the stored keys with a prefix; they are adjacent."""
    after = prefix
    while page := store.sessions(after, _PAGE):
        for summary in page:
            if not summary.session.startswith(prefix):
                return
            yield summary.session
        after = page[-1].session
