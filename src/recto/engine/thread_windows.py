"""The context windows of an agent's thread, and the messages in each.

A thread is a session and the branches that the gateway made of it: a client that begins a window sends its history from
the start again. Codex names its windows in the text that begins each of them; sessions of other clients are one window.
What a tool printed or a user wrote never begins a window.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from recto.continuity.checkpoints.checkpoint import Checkpoint
from recto.continuity.checkpoints.handoff import FOOTER, handoff_of
from recto.engine.composition import INSTRUCTIONS
from recto.engine.fork import BRANCH
from recto.engine.note_files import read_files
from recto.engine.session import Session
from recto.formats.session_files import IMPORTED_LINE
from recto.text.unicode import one_line
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import session_in

MAX_HINT_BYTES = 4_000
"""Bytes of the text that begins a window; Codex drops a longer one."""
_HINT_TOKENS = 900
_NOTES_BYTES = 1_000
_MAX_NOTES = 5
"""Note files that the text names."""
_MAX_BRANCHES = 100
_MAX_ENTRIES = 20_000
"""Newest entries of a session that are read."""
_WINDOW_ID = re.compile(rb"Current context window id: ([0-9A-Za-z-]{8,64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """An agent's thread, as one caller may see it."""

    store: TranscriptStore
    """The sessions of the caller's tenant."""
    key: str
    """The stored key of its session."""
    use: Callable[[str], AbstractContextManager[Session]]
    """Opens a session by its stored key."""
    agent: str = "/root"
    """The agent whose notes a relative path names."""
    may_change: bool = True

    def sessions(self) -> list[str]:
        """The stored keys of its sessions that have entries, in the order in which they began."""
        after = f"{self.key}}}"  # the character before the one that a branch's name begins with
        rows = [row for row in self.store.sessions(after, _MAX_BRANCHES) if row.session.startswith(f"{self.key}~")]
        branches = [row.session for row in sorted(rows, key=lambda row: row.first_ts)]
        return [self.key, *branches] if self.store.head(self.key).seq else branches


@dataclass(slots=True)
class ThreadWindow:
    """One window: its messages in order."""

    id: str
    items: list[Entry] = field(default_factory=list)


def windows_of(thread: Thread) -> list[ThreadWindow]:
    """The windows of a thread, oldest first; windows without messages are left out."""
    found = [window for key in thread.sessions() for window in _windows_in(thread.store, key)]
    return [window for window in found if window.items]


def _windows_in(store: TranscriptStore, key: str) -> list[ThreadWindow]:
    name = session_in(key)
    windows = [ThreadWindow(id="")]
    for entry in store.read(key, max(store.head(key).seq - _MAX_ENTRIES + 1, 1)):
        if entry.kind == BRANCH and b'"from"' in entry.content:
            windows = [ThreadWindow(id="")]  # what was copied belongs to the session it was copied from
        elif id := _window_named(entry):
            if windows[-1].id and windows[-1].id != id:
                windows.append(ThreadWindow(id=id))
            windows[-1].id = id
        if entry.kind == MESSAGE:
            windows[-1].items.append(entry)
    for number, window in enumerate(windows, 1):
        window.id = window.id or (name if number == 1 else f"{name}:{number}")
    return windows


def _window_named(entry: Entry) -> str:
    """The window that an entry begins or belongs to; empty where it names none. Only the client's own text counts."""
    is_clients = entry.kind in (INSTRUCTIONS, IMPORTED_LINE) or (entry.kind == MESSAGE and entry.role == "system")
    match = _WINDOW_ID.search(entry.content) if is_clients else None
    return match[1].decode() if match else ""


def thread_hint(thread: Thread) -> str:
    """The text that begins the next window: the state of the work by a checkpoint of now, and the newest notes.

    Empty for a thread that has neither. Quoted for reference: a client puts it before the user's messages.
    """
    text = _state_of_work(thread, MAX_HINT_BYTES - _NOTES_BYTES)
    _, files = read_files(thread.store, thread.key)
    newest = sorted(files.values(), key=lambda file: (-file.updated, file.path))[:_MAX_NOTES]
    lines = [f"- {one_line(file.path, 160)} ({file.bytes:,} bytes)" for file in newest]
    while len("\n".join(lines).encode()) > _NOTES_BYTES - 50:
        lines.pop()
    notes = "\n".join(("[Notes of this thread, newest first]", *lines)) if lines else ""
    return "\n".join(part for part in (text, notes) if part)


def _state_of_work(thread: Thread, most: int) -> str:
    """The newest checkpoint in at most so many bytes. Each session's checkpoint continues from the one before it."""
    checkpoint: Checkpoint | None = None
    text = ""
    for key in thread.sessions():
        with thread.use(key) as session:
            continuity = session.window.continuity
            checkpoint = continuity.up_to_date(over=checkpoint, reason="a new window", stores=thread.may_change)
            last_words = continuity.checkpoints.last_words(session.window.state)
            text = _fitted(checkpoint, last_words, session.meter.count, most) if checkpoint is not None else ""
    return text


def _fitted(checkpoint: Checkpoint, last_words: str, count: Callable[[str], int], most: int) -> str:
    tokens = _HINT_TOKENS
    while True:
        text = handoff_of(checkpoint, last_words, most=tokens, count=count)
        if len(text.encode("utf-8", "replace")) <= most or tokens < 50:
            break
        tokens = tokens * 4 // 5
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most:
        return text
    cut = encoded[: most - len(FOOTER) - 1].decode("utf-8", "ignore")
    return f"{cut}\n{FOOTER}"
