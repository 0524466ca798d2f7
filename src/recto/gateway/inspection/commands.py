"""What can be changed through the inspection API. Every change is an event that says which key asked for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recto.engine.pagination import LOOKED_AT
from recto.engine.projection import DECISIONS, RESTORED
from recto.engine.report import compressions, decided_in
from recto.engine.session import Session
from recto.engine.views.models import ApprovalResult, CompactionResult, SavedCheckpoint, StoredEvent, stored_event
from recto.errors import RequestRefused
from recto.gateway.inspection.params import ParsedCall
from recto.gateway.inspection.queries import Inspection, not_there
from recto.transcript.entries import MESSAGE
from recto.transcript.events import requested_by
from recto.transcript.session_keys import is_memory_session

SURFACE = "gateway api"
"""The way in that changes are told to have come by."""


@contextmanager
def _changing(on: Inspection, call: ParsedCall) -> Iterator[Session]:
    with on.opened(call) as found, requested_by(call.who, SURFACE):
        if is_memory_session(found.key):
            says = (
                "this session holds decisions about memory; POST /api/v1/memory/proposals/approve and reject make them"
            )
            raise RequestRefused(409, "reserved", says)
        yield found


def pin(on: Inspection, call: ParsedCall) -> StoredEvent:
    """Keeps entries in the prompt; those that left come back."""
    with _changing(on, call) as found:
        for seq in call.body["entries"]:
            if on.entry(found, seq).kind != MESSAGE:
                raise RequestRefused(422, "not_possible", f"entry {seq} is an event; only messages can be pinned")
        return stored_event(found.pin(*call.body["entries"]))


def unpin(on: Inspection, call: ParsedCall) -> StoredEvent:
    """Lets an entry leave again."""
    with _changing(on, call) as found:
        if call.query["seq"] not in found.window.state.pins:
            raise not_there("pin", "GET /api/v1/session/pins")
        return stored_event(found.unpin(call.query["seq"]))


def restore(on: Inspection, call: ParsedCall) -> StoredEvent:
    """Undoes a decision."""
    with _changing(on, call) as found:
        if on.entry(found, call.body["decision"]).kind not in DECISIONS:
            raise not_there("decision", "GET /api/v1/session/decisions")
        return stored_event(found.restore(call.body["decision"]))


def redo(on: Inspection, call: ParsedCall) -> StoredEvent:
    """Does again what a restore undid."""
    with _changing(on, call) as found:
        if on.entry(found, call.body["restored"]).kind != RESTORED:
            raise not_there("restore", "GET /api/v1/session/transcript")
        return stored_event(found.redo(call.body["restored"]))


def compact(on: Inspection, call: ParsedCall) -> CompactionResult:
    """Makes the prompt smaller now."""
    with _changing(on, call) as found:
        made = found.compact(call.body["focus"])
        seqs = {one.seq for one in made}
        written = tuple(one for one in compressions(found.window, LOOKED_AT) if one.seq in seqs)
        tokens = found.report().tokens
    return CompactionResult(
        decisions=tuple(decided_in(one, undone=False) for one in made), compressions=written, tokens=tokens
    )


def save(on: Inspection, call: ParsedCall) -> SavedCheckpoint:
    """Writes down where the work stands."""
    changes = {name: value for name, value in call.body.items() if name != "expect" and value}
    with _changing(on, call) as found:
        made = found.checkpoint(expect=call.body["expect"], **changes)
    version = int((made.key or "/0").rpartition("/")[2])
    return SavedCheckpoint(version=version, seq=made.seq, id=made.id)


def note(on: Inspection, call: ParsedCall) -> StoredEvent:
    """Writes a note."""
    asked = call.body
    with _changing(on, call) as found:
        return stored_event(found.note(asked["kind"], asked["text"], critical=asked["critical"]))


def approve(on: Inspection, call: ParsedCall) -> ApprovalResult:
    """Approves a proposal: exactly the bytes whose digest is given."""
    memories, asked = on.memories(call), call.body
    if asked["proposal"] not in memories.decisions.noted:
        raise not_there("proposal", "GET /api/v1/memory/proposals")
    with requested_by(call.who, SURFACE):
        made = memories.approve(asked["proposal"], asked["digest"], by=call.who)
    return ApprovalResult(memory=made.memory.id, proposal=made.proposal, digest=made.digest, by=made.by)


def reject(on: Inspection, call: ParsedCall) -> StoredEvent:
    """Rejects a proposal for good."""
    memories, asked = on.memories(call), call.body
    if asked["proposal"] not in memories.decisions.noted:
        raise not_there("proposal", "GET /api/v1/memory/proposals")
    with requested_by(call.who, SURFACE):
        return stored_event(memories.reject(asked["proposal"], by=call.who, why=asked["reason"]))
