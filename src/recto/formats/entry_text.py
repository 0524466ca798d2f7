"""What an entry says, read from its exact bytes, and which sessions there are for people."""

from __future__ import annotations

from recto.errors import InputError
from recto.formats import read
from recto.transcript.entries import MESSAGE, Entry, SessionSummary
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_internal


def text_of(entry: Entry) -> str:
    """What a person or a search would read. It is derived each time, so that it can never differ from the content."""
    if entry.kind == MESSAGE:
        try:
            return read(entry.content, entry.wire).text
        except InputError:
            pass  # a faithful record of something unreadable is shown as what it is
    return entry.content.decode(errors="replace")


def listed(store: TranscriptStore, after: str = "", limit: int | None = None) -> list[SessionSummary]:
    """The sessions of a store as `store.sessions` gives them, without what Recto keeps for itself."""
    if limit is None:
        return [one for one in store.sessions(after) if not is_internal(one.session)]
    found: list[SessionSummary] = []
    while len(found) < limit and (page := store.sessions(after, limit - len(found))):
        after = page[-1].session
        found += [one for one in page if not is_internal(one.session)]
    return found
