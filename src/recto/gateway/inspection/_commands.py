"""Changes through the inspection API. Every change is stored as an event that names the API key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from recto.continuity.memory.manager import Memories
from recto.engine.pagination import MAX_SCANNED
from recto.engine.projection import DECISIONS, RESTORED
from recto.engine.report import compressions, current_reading, summarize_decision
from recto.engine.runs import last_model
from recto.engine.session import Session
from recto.engine.views.models import (
    ApprovalResult,
    CompactionResult,
    ErasedSession,
    ForkedSession,
    SavedCheckpoint,
    StoredEvent,
    approval_result,
    saved_checkpoint,
    stored_event,
)
from recto.errors import RequestRefused
from recto.gateway.inspection.params import ParsedCall
from recto.gateway.inspection.queries import Inspection, not_found
from recto.transcript.entries import MESSAGE, requested_by
from recto.transcript.session_keys import is_memory_session, session_in

SURFACE = "gateway api"
"""The surface that changes are stored with."""


@contextmanager
def _change_session(inspection: Inspection, call: ParsedCall) -> Iterator[Session]:
    with inspection.open_session(call) as session, requested_by(call.caller, SURFACE):
        if is_memory_session(session.key):
            message = (
                "this session holds decisions about memory; POST /api/v1/memory/proposals/approve and reject make them"
            )
            raise RequestRefused(409, "reserved", message)
        yield session


def rename(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Gives the session a title."""
    with _change_session(inspection, call) as session:
        return stored_event(session.rename(call.body["title"]), "The session has a new title.")


def fork(inspection: Inspection, call: ParsedCall) -> ForkedSession:
    """Begins a session as a copy of another, up to an entry or to its end."""
    name, title = call.body["name"], call.body["title"]
    with _change_session(inspection, call) as session:
        if is_memory_session(inspection.sessions.view(call.key).key(name)):
            raise RequestRefused(409, "reserved", f"'{name}' is where an agent's memory is kept; choose another name")
        branch = session.fork(name, at=call.body["at"])
        if title:
            with inspection.sessions.use(call.key, name, last_model(session.store, session.key)) as copy:
                copy.rename(title)
        return ForkedSession(session=session_in(branch.session), source=session_in(session.key), entries=branch.seq - 1)


def erase(inspection: Inspection, call: ParsedCall) -> ErasedSession:
    """Removes the session for good: transcript, index and checkpoints. A record of it stays. It cannot be undone."""
    key = inspection.require_session(call)
    if is_memory_session(key):
        raise RequestRefused(409, "reserved", "this session holds decisions about memory; 'recto session rm' erases it")
    if call.body["confirm"] != call.session:
        raise RequestRefused(422, "not_confirmed", "'confirm' is not the name of the session. Nothing was erased.")
    erasure = inspection.sessions.erase(call.key, call.session, by=call.caller, reason=call.body["reason"])
    return ErasedSession(session=session_in(erasure.session), entries=erasure.entries, hash=erasure.hash)


def pin(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Keeps entries in the prompt; those that left come back."""
    seqs = call.body["entries"]
    with _change_session(inspection, call) as session:
        for seq in seqs:
            if inspection.require_entry(session, seq).kind != MESSAGE:
                raise RequestRefused(422, "not_possible", f"entry {seq} is an event; only messages can be pinned")
        return stored_event(session.pin(*seqs), f"Pinned: {', '.join(map(str, seqs))}.")


def unpin(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Lets an entry leave again."""
    seq = call.query["seq"]
    with _change_session(inspection, call) as session:
        if seq not in session.window.state.pins:
            raise not_found("pin", "GET /api/v1/session/pins")
        return stored_event(session.unpin(seq), f"Unpinned: {seq}.")


def judge(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Stores whether a recalled message was helpful."""
    body = call.body
    with _change_session(inspection, call) as session:
        entry = session.window.judge_recall(body["pointer"], body["verdict"], question=body["question"])
    return stored_event(entry, f"Judged: {body['verdict'].replace('_', ' ')}.")


def restore(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Undoes a decision."""
    seq = call.body["decision"]
    with _change_session(inspection, call) as session:
        if inspection.require_entry(session, seq).kind not in DECISIONS:
            raise not_found("decision", "GET /api/v1/session/decisions")
        return stored_event(session.restore(seq), f"Decision {seq} is undone.")


def redo(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Does again what a restore undid."""
    seq = call.body["restored"]
    with _change_session(inspection, call) as session:
        if inspection.require_entry(session, seq).kind != RESTORED:
            raise not_found("restore", "GET /api/v1/session/transcript")
        return stored_event(session.redo(seq), "The decision is done again.")


def compact(inspection: Inspection, call: ParsedCall) -> CompactionResult:
    """Makes the prompt smaller now."""
    with _change_session(inspection, call) as session:
        decisions = session.compact(call.body["focus"])
        seqs = {decision.seq for decision in decisions}
        written = tuple(item for item in compressions(session.window, MAX_SCANNED) if item.seq in seqs)
        tokens = current_reading(session.window).tokens
    return CompactionResult(
        decisions=tuple(summarize_decision(decision, undone=False) for decision in decisions),
        compressions=written,
        tokens=tokens,
    )


def save(inspection: Inspection, call: ParsedCall) -> SavedCheckpoint:
    """Saves the state of the work."""
    changes = {name: value for name, value in call.body.items() if name != "expect" and value}
    with _change_session(inspection, call) as session:
        return saved_checkpoint(session.checkpoint(expect=call.body["expect"], **changes))


def note(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Writes a note."""
    body = call.body
    with _change_session(inspection, call) as session:
        entry = session.note(body["kind"], body["text"], level=body["level"] or "normal", critical=body["critical"])
    return stored_event(entry, "The note is written down.")


def approve(inspection: Inspection, call: ParsedCall) -> ApprovalResult:
    """Approves a proposal: exactly the bytes whose digest is given."""
    memories, proposal = _proposal(inspection, call)
    with requested_by(call.caller, SURFACE):
        return approval_result(memories.approve(proposal, call.body["digest"], by=call.caller))


def reject(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Rejects a proposal for good."""
    memories, proposal = _proposal(inspection, call)
    with requested_by(call.caller, SURFACE):
        entry = memories.reject(proposal, by=call.caller, why=call.body["reason"])
    return stored_event(entry, f"Proposal {proposal} is rejected.")


def undo_approval(inspection: Inspection, call: ParsedCall) -> StoredEvent:
    """Undoes an approval: memory is as it was before it."""
    memories, proposal = _proposal(inspection, call)
    with requested_by(call.caller, SURFACE):
        return stored_event(memories.undo(proposal, by=call.caller), f"The approval of {proposal} is undone.")


def _proposal(inspection: Inspection, call: ParsedCall) -> tuple[Memories, str]:
    """An agent's memory and the id of a proposal that exists there."""
    memories, proposal = inspection.memories(call), call.body["proposal"]
    if proposal not in memories.decisions.noted:
        raise not_found("proposal", "GET /api/v1/memory/proposals")
    return memories, proposal
