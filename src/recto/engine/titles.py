"""Titles of sessions: as a person named them, else the first words of the first user message.

A rename is an event of the transcript. Titles of a whole list take one call of the store and no replay.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from recto.context.facts.statements import CUT_SIGN, cut_words, user_sentences
from recto.errors import InputError
from recto.formats import read
from recto.transcript.entries import MESSAGE, RENAMED, TITLE_KEY, Clock, Draft, Entry, event, new_id
from recto.transcript.protocols import TranscriptStore

MAX_TITLE_CHARS = 120
"""Longest title that a person may give."""
_DERIVED_CHARS = 60
_READ_CHARS = 20_000
"""Characters of a message that are read for a title."""


def rename_draft(clock: Clock, title: str, surface: str = "library") -> Draft:
    """The event that gives a session a title. Raises `InputError` for a title that cannot be shown in one line."""
    title = title.strip()
    if not title or len(title) > MAX_TITLE_CHARS or not title.isprintable():
        raise InputError(f"a title has 1 to {MAX_TITLE_CHARS} printable characters in one line. Nothing was stored.")
    return event(clock, RENAMED, {"title": title}, TITLE_KEY + new_id(clock), surface)


def titles_of(store: TranscriptStore, sessions: Sequence[str]) -> dict[str, str]:
    """The titles of sessions by stored key; a session without user messages and without a rename has none."""
    by_session: dict[str, list[Entry]] = {}
    for entry in store.title_entries(sessions):
        by_session.setdefault(entry.session, []).append(entry)
    titles = {session: _title(entries) for session, entries in by_session.items()}
    return {session: title for session, title in titles.items() if title}


def _title(entries: Iterable[Entry]) -> str:
    derived = ""
    for entry in entries:
        if entry.kind == RENAMED:
            return _given_title(entry)
        derived = derived or _derived_title(entry)
    return derived


def _given_title(entry: Entry) -> str:
    try:
        title = json.loads(entry.content)["title"]
    except (ValueError, TypeError, KeyError):
        return ""  # not written by Recto
    return title if isinstance(title, str) else ""


def _derived_title(entry: Entry) -> str:
    """The first words that the user wrote; empty for tool results and injected text."""
    if entry.kind != MESSAGE:
        return ""
    try:
        message = read(entry.content, entry.wire)
    except InputError:
        return ""
    if message.results:
        return ""
    words = " ".join(user_sentences(message.text[:_READ_CHARS]))
    title = cut_words(words, _DERIVED_CHARS + len(CUT_SIGN))
    return title if title == words else f"{title.removesuffix(CUT_SIGN).rstrip(' ,;:.')}{CUT_SIGN}"
