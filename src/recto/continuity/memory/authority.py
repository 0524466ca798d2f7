"""Tells recall which messages are approved memory, when they were approved, and where they come from.

Authority needs both the approval in the transcript and the page in the folder. A message that is only in a memory
session has none; retired memory and memory without a page is not recalled at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from recto.continuity.memory.documents import FileSection, FolderDocuments
from recto.continuity.memory.events import Approval, MemoryDecisions, brought_up
from recto.continuity.memory.files import MemoryFolder, StoredPage
from recto.continuity.memory.manager import is_edited
from recto.continuity.memory.model import Memory
from recto.errors import KeyReused
from recto.recall.quoting import format_day
from recto.transcript.entries import Draft
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_memory_session

_MAX_SOURCES = 3


class MemoryAuthority:
    """Tells memory from history, for any session of a store."""

    def __init__(
        self,
        store: TranscriptStore,
        folder_of: Callable[[str], MemoryFolder | None],
        drafts_of: Callable[[Sequence[FileSection]], list[Draft]] | None = None,
    ) -> None:
        """`drafts_of` makes the entries of sections of files, two of each; None: files are not recalled."""
        self._store = store
        self._folder_of = folder_of
        self._drafts_of = drafts_of
        self._known: dict[str, tuple[MemoryDecisions, MemoryFolder | None]] = {}
        self._documents: dict[str, FolderDocuments] = {}

    def take_in_files(self, session: str) -> None:
        """Store the sections of files in the memory folder that are new, so that recall finds them."""
        if self._drafts_of is None or not is_memory_session(session):
            return
        documents = self._documents_of(session)
        if documents is None:
            return
        documents.refresh()
        stored = set(self._bring_up(session)[0].files.values()) if documents.sections else set()
        new = [section for key, section in documents.sections.items() if key not in stored]
        drafts = self._drafts_of(new) if new else []
        try:
            if drafts:
                self._store.append(session, drafts)
        except KeyReused:  # another process stored some of them just now
            for place in range(0, len(drafts), 2):
                with suppress(KeyReused):
                    self._store.append(session, drafts[place : place + 2])

    def _documents_of(self, session: str) -> FolderDocuments | None:
        folder = self._remembered(session)[1]
        if session not in self._documents and folder is not None:
            self._documents[session] = FolderDocuments(folder)
            self._documents[session].refresh()
        return self._documents.get(session)

    def _file_note(self, session: str, section: str) -> str | None:
        documents = self._documents_of(session) if self._drafts_of is not None else None
        found = documents.sections.get(section) if documents is not None else None
        return found.note if found is not None else None

    def status(self, session: str, memories: Iterable[Memory] = ()) -> tuple[object, ...]:
        """The status of the pages of a memory session; empty if there are none. Reads nothing from the store."""
        folder = self._remembered(session)[1]
        return folder.status(memories) if folder is not None else ()

    def critical(self, session: str) -> dict[int, Approval]:
        """The approvals of a memory session that count and are marked critical, by the message with their text."""
        decisions, folder = self._bring_up(session)
        return {
            seq: decisions.current[id]
            for seq, id in decisions.messages.items()
            if folder is not None
            and decisions.is_current(seq)
            and decisions.current[id].memory.critical
            and _page_counts(folder.kept(decisions.current[id].memory))
        }

    def notes(self, session: str, seqs: Collection[int]) -> dict[int, str]:
        """The notes shown with quoted messages: empty for history. A message that must not be quoted has none."""
        if not is_memory_session(session):
            return dict.fromkeys(seqs, "")
        decisions, folder = self._bring_up(session)
        found = {
            seq: self._file_note(session, decisions.files[seq])
            if seq in decisions.files
            else _note(seq, decisions, folder)
            for seq in seqs
        }
        return {seq: note for seq, note in found.items() if note is not None}

    def _remembered(self, session: str) -> tuple[MemoryDecisions, MemoryFolder | None]:
        if session not in self._known:
            self._known[session] = MemoryDecisions(), self._folder_of(session)
        return self._known[session]

    def _bring_up(self, session: str) -> tuple[MemoryDecisions, MemoryFolder | None]:
        decisions, folder = self._remembered(session)
        self._known[session] = brought_up(decisions, self._store, session), folder
        return self._known[session]


def _note(seq: int, decisions: MemoryDecisions, folder: MemoryFolder | None) -> str | None:
    if seq not in decisions.messages:
        return ""
    if folder is None or not decisions.is_current(seq):
        return None
    approval = decisions.current[decisions.messages[seq]]
    stored = folder.kept(approval.memory)
    if stored is None or not _page_counts(stored):
        return None
    return _describe(approval, edited=is_edited(approval, stored))


def _page_counts(stored: StoredPage | None) -> bool:
    """Whether a memory has a page, and the page does not say that it was retired."""
    return stored is not None and stored.memory.state != "retired"


def _describe(approval: Approval, *, edited: bool) -> str:
    memory = approval.memory
    text = f"approved memory ({memory.kind}) of {format_day(memory.created)}"
    if memory.sources:
        text += f", from {', '.join(memory.sources[:_MAX_SOURCES])}"
    return f"{text}; its page was changed since" if edited else text
