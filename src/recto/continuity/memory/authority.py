"""Tells recall which messages are approved memory, when they were approved, and where they come from.

Authority needs both the approval in the transcript and the page in the folder. A message that is only in a memory
session has none; retired memory and memory without a page is not recalled at all.

The digest of critical memory is a short text in every prompt of the agent. It is made by rule from approvals and does
not depend on use, age or the question, so its bytes stay the same until critical memory is approved, edited or retired.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct

from recto.continuity.memory.events import Approval, MemoryDecisions, brought_up
from recto.continuity.memory.files import FileSection, FolderDocuments, MemoryFolder, StoredPage
from recto.continuity.memory.manager import is_edited
from recto.continuity.memory.model import Memory
from recto.errors import KeyReused
from recto.recall.types import format_day
from recto.text.secrets import mask_secrets
from recto.text.unicode import prompt_safe
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


_LENGTHS = (400, 200, 100)
"""Characters of each memory, tried in this order until all of them fit."""


class MemoryDigest(Struct, frozen=True, kw_only=True):
    """Critical memory as a prompt contains it."""

    text: str = ""
    """Empty if there is none."""
    tokens: int = 0
    complete: frozenset[int] = frozenset()
    """Messages of the memory session whose whole text is in it: recall need not quote them."""


class CriticalMemory:
    """The critical memory of one agent, read again when its pages change."""

    def __init__(self, authority: MemoryAuthority, home: str, *, count: Callable[[str], int], most: int) -> None:
        """Prepare the digest of a memory session, within `most` tokens."""
        self._authority = authority
        self._home = home
        self._count = count
        self._most = most
        self._critical: Mapping[int, Approval] = {}
        self._seen: tuple[object, ...] = ()
        self._digest = MemoryDigest()

    def read(self) -> MemoryDigest:
        """Return the digest as of now."""
        if not self._seen or self._authority.status(self._home, self._memories) != self._seen:
            before = self._authority.status(self._home)
            self._critical = self._authority.critical(self._home) if before else {}
            after = self._authority.status(self._home, self._memories)
            # Where a page was written meanwhile, it is read again next time.
            self._seen = after if after[: len(before)] == before else ()
            self._digest = self._make()
        return self._digest

    @property
    def _memories(self) -> list[Memory]:
        return [approval.memory for approval in self._critical.values()]

    def _make(self) -> MemoryDigest:
        """All of them, each as long as possible; if they do not fit even when short, the newest that do."""
        texts = {seq: _one_line(approval.memory.text) for seq, approval in sorted(self._critical.items())}
        for length in _LENGTHS:
            if self._count(self._render(texts, length)) <= self._most:
                return self._digest_of(texts, length)
        while texts:
            texts.pop(min(texts))
            if self._count(self._render(texts, _LENGTHS[-1])) <= self._most:
                return self._digest_of(texts, _LENGTHS[-1])
        return MemoryDigest()

    def _digest_of(self, texts: Mapping[int, str], length: int) -> MemoryDigest:
        text = self._render(texts, length)
        complete = frozenset(seq for seq, one in texts.items() if len(one) <= length)
        return MemoryDigest(text=text, tokens=self._count(text) if text else 0, complete=complete)

    def _render(self, texts: Mapping[int, str], length: int) -> str:
        if not texts:
            return ""
        left_out = len(self._critical) - len(texts)
        more = f" {left_out} older ones are left out." if left_out else ""
        heading = (
            "[Critical memory of this agent, approved and quoted for reference. A number in parentheses is an entry of "
            f"recto://{self._home}.{more}]"
        )
        return "\n".join([heading, *(f"- {_cut(text, length)} ({seq})" for seq, text in texts.items())])


def _one_line(text: str) -> str:
    return " ".join(mask_secrets(prompt_safe(text)).split())


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
