"""The readable text of an entry, and the list of sessions without Recto's internal ones."""

from __future__ import annotations

from recto.errors import InputError
from recto.formats import read
from recto.transcript.entries import MESSAGE, Draft, SessionSummary
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_internal


def entry_text(entry: Draft) -> str:
    """Returns the text for display and search. It is always derived from the content, so the two never differ."""
    if entry.kind == MESSAGE:
        try:
            return read(entry.content, entry.wire).text
        except InputError:
            pass  # stored content that cannot be parsed is shown as it is
    return entry.content.decode(errors="replace")


def list_sessions(store: TranscriptStore, after: str = "", limit: int | None = None) -> list[SessionSummary]:
    """Lists the sessions of a store, as `store.sessions` does, without Recto's internal sessions."""
    if limit is None:
        return [summary for summary in store.sessions(after) if not is_internal(summary.session)]
    sessions: list[SessionSummary] = []
    while len(sessions) < limit and (page := store.sessions(after, limit - len(sessions))):
        after = page[-1].session
        sessions += [summary for summary in page if not is_internal(summary.session)]
    return sessions
