"""System messages inside a conversation: which of them are new, and where they are stored.

They do not identify a conversation, so the resolver does not compare them. One is stored under a key made of its text
and the number of equal ones before it, together with the messages around it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from recto.engine.session import Session
from recto.gateway.request import ClientRequest
from recto.gateway.session_resolver import ResolvedSession, SessionResolver
from recto.transcript.session_keys import TenantStore

_KEY = "middle/"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSystemMessage:
    """A system message that is not stored yet."""

    raw: bytes
    place: int
    """How many of the new messages come before it."""
    key: str


@dataclass(slots=True, kw_only=True)
class SystemMessages:
    """The system messages inside one request's conversation."""

    new: list[NewSystemMessage] = field(default_factory=list)
    stored: list[bytes] = field(default_factory=list)
    returned: list[int] = field(default_factory=list)
    """Stored ones that the client had not sent again, and sends now."""

    def among(self, messages: Sequence[bytes]) -> tuple[list[bytes], list[str | None]]:
        """Return the new messages with the system messages at their places, and the key of each."""
        batch: list[bytes] = []
        keys: list[str | None] = []
        done = 0
        for system in self.new:
            between = messages[done : system.place]
            batch += [*between, system.raw]
            keys += [*(None for _ in between), system.key]
            done += len(between)
        rest = messages[done:]
        return [*batch, *rest], [*keys, *(None for _ in rest)]


def system_messages(
    session: Session, store: TenantStore, resolver: SessionResolver, request: ClientRequest, resolved: ResolvedSession
) -> SystemMessages:
    """Sort the system messages inside a conversation into new and stored ones.

    Those before a stored message are looked up. Those behind all stored messages are new, except where an earlier
    attempt of the request stored them.
    """
    found = SystemMessages()
    if not request.middle:
        return found
    known = len(request.messages) - len(resolved.new_messages)
    waiting = _waiting(session, store, resolver, resolved) if known in request.places else []
    counts: Counter[str] = Counter()
    for raw, place in zip(request.middle, request.places, strict=True):
        digest = hashlib.sha256(raw).hexdigest()[:32]
        key = f"{_KEY}{digest}/{counts[digest]}"
        entry = store.find(resolved.key, key) if place < known else None
        if entry is not None and entry.seq in session.window.state.refused:
            found.returned.append(entry.seq)
        is_stored = entry is not None or (
            place < known and session.find(f"amid/{digest}") is not None  # an earlier version stored each text once
        )
        if place == known and raw in waiting:
            waiting.remove(raw)
            is_stored = True
        if is_stored:
            found.stored.append(raw)
        else:
            while store.find(resolved.key, key) is not None:  # the client has dropped an equal one
                counts[digest] += 1
                key = f"{_KEY}{digest}/{counts[digest]}"
            found.new.append(NewSystemMessage(raw=raw, place=max(place - known, 0), key=key))
        counts[digest] += 1
    return found


def no_longer_sent(session: Session, store: TenantStore, stored: Collection[bytes]) -> list[int]:
    """Return the system messages of the last turn that the client does not send again.

    Where one followed a response it was taken for part of the conversation, but the client has moved it along.
    """
    places: list[int] = []
    is_answered = False
    for line in reversed(session.window.state.messages.values()):
        if line.role == "system":
            places.append(line.seq)
        elif line.role == "assistant":
            if is_answered:
                break
            is_answered = True
    entries = [entry for seq in places for entry in store.read(session.key, seq, seq)]
    return [entry.seq for entry in entries if (entry.key or "").startswith(_KEY) and entry.content not in stored]


def _waiting(session: Session, store: TenantStore, resolver: SessionResolver, resolved: ResolvedSession) -> list[bytes]:
    """Return the system messages that are stored behind the last message of the conversation and not answered."""
    refused = session.window.state.refused
    waiting: list[bytes] = []
    for entry in reversed(resolver.unanswered(store, resolved.key)):
        if entry.role == "system":
            waiting.append(entry.content)
        elif entry.seq not in refused:
            break
    return waiting
