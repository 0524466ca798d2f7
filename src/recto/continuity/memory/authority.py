"""Tells recall which messages are approved memory, when they were approved, and where they come from.

Authority needs both the approval in the transcript and the page in the folder. A message that is only in a memory
session has none; retired memory and memory without a page is not recalled at all.
"""

from __future__ import annotations

from collections.abc import Callable

from recto.continuity.memory.events import Approval, MemoryDecisions, brought_up
from recto.continuity.memory.files import MemoryFolder
from recto.continuity.memory.manager import is_edited
from recto.recall.quoting import format_day
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_memory_session

_MAX_SOURCES = 3


class MemoryAuthority:
    """Tells memory from history, for any session of a store."""

    def __init__(self, store: TranscriptStore, folder_of: Callable[[str], MemoryFolder | None]) -> None:
        self._store = store
        self._folder_of = folder_of
        self._known: dict[str, tuple[MemoryDecisions, MemoryFolder | None]] = {}

    def note(self, session: str, seq: int) -> str | None:
        """The note shown with a quoted message: empty for history, None if it must not be quoted."""
        if not is_memory_session(session):
            return ""
        decisions, folder = self._known.get(session) or (MemoryDecisions(), self._folder_of(session))
        decisions = brought_up(decisions, self._store, session)
        self._known[session] = decisions, folder
        if seq not in decisions.messages:
            return ""
        if folder is None or not decisions.is_current(seq):
            return None
        approval = decisions.current[decisions.messages[seq]]
        stored = folder.kept(approval.memory)
        if stored is None or stored.memory.state == "retired":
            return None
        return _describe(approval, edited=is_edited(approval, stored))


def _describe(approval: Approval, *, edited: bool) -> str:
    memory = approval.memory
    text = f"approved memory ({memory.kind}) of {format_day(memory.created)}"
    if memory.sources:
        text += f", from {', '.join(memory.sources[:_MAX_SOURCES])}"
    return f"{text}; its page was changed since" if edited else text
