"""What recall says of a message that is durable memory: that it was approved, when, and where it comes from.

Authority needs both the approval in the transcript and the page in the folder. A message that only stands in a session
of memory has none, and what was retired or whose page is gone is not recalled at all.
"""

from __future__ import annotations

from collections.abc import Callable

from recto.continuity.memory.events import Approval, MemoryDecisions, brought_up
from recto.continuity.memory.files import MemoryFolder
from recto.continuity.memory.manager import is_edited
from recto.recall.quoting import format_day
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_memory_session

_SOURCES = 3


class MemoryAuthority:
    """Tells memory from history, for any session of a store."""

    def __init__(self, store: TranscriptStore, folder_of: Callable[[str], MemoryFolder | None]) -> None:
        self._store = store
        self._folder_of = folder_of
        self._known: dict[str, tuple[MemoryDecisions, MemoryFolder | None]] = {}

    def note(self, session: str, seq: int) -> str | None:
        """What must be said beside a message where it is quoted; nothing for history, None for what is not quoted."""
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
        kept = folder.kept(approval.memory)
        if kept is None or kept.memory.state == "retired":
            return None
        return _said(approval, edited=is_edited(approval, kept))


def _said(approval: Approval, *, edited: bool) -> str:
    memory = approval.memory
    told = f"approved memory ({memory.kind}) of {format_day(memory.created)}"
    if memory.sources:
        told += f", from {', '.join(memory.sources[:_SOURCES])}"
    return f"{told}; its page was changed since" if edited else told
