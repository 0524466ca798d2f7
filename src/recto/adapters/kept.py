"""Histories that Recto keeps for a host which has none of its own: read back whole, and begun anew without deleting."""

from __future__ import annotations

import hashlib
import json

from recto.conversations import Conversations
from recto.core.entries import MESSAGE
from recto.core.scopes import session_in
from recto.engine.following import ChatMessage, Following

MOVED = "history_moved"
"""The event after which a history goes on in another session."""


def place_of(conversations: Conversations, session_id: str) -> Following:
    """Where a history is kept now, after all that was taken out of it."""
    found = conversations.of(session_id)
    while moved := found.session.find(MOVED):
        found = conversations.of(json.loads(moved.content)["to"])
    return found


def told_in(following: Following) -> list[tuple[int, ChatMessage]]:
    """Every message, with the number of its entry."""
    entries = following.session.read()
    return [(entry.seq, json.loads(entry.content)) for entry in entries if entry.kind == MESSAGE]


def move(following: Following, at: int = 0) -> None:
    """From here on the history goes on in another session: a copy up to an entry, or an empty one."""
    session = following.session
    parting = hashlib.sha256(f"{session.key}/{at}".encode()).hexdigest()[:12]
    name = f"{session_in(session.key).partition('~')[0]}~{parting}"
    if at:
        session.fork(name, at=at)
    session.record(MOVED, {"to": name, "at": at}, key=f"{MOVED}/0")
