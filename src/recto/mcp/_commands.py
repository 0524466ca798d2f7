"""Tools that change a session. Every change is stored as an event that names the caller; nothing is deleted."""

from __future__ import annotations

from collections.abc import Iterable

from recto.engine.views.models import SavedCheckpoint, StoredEvent, saved_checkpoint, stored_event
from recto.errors import InputError
from recto.mcp import params
from recto.mcp.context import McpContext


def note(context: McpContext, request: params.NoteParams) -> StoredEvent:
    """Write a note."""
    with context.change_session(request.session) as session:
        entry = session.note(request.kind, request.text, level=request.level, critical=request.critical)
    return stored_event(entry, "The note is written down.")


def judge(context: McpContext, request: params.JudgeParams) -> StoredEvent:
    """Store whether a recalled message was helpful.

    A judgement does not begin the default session: while that is empty, it goes to the session of the message.
    """
    name = request.session
    if context.newest_instead(name):
        name = context.store.name(context.read_pointer(request.pointer)[0])
    with context.change_session(name) as session:
        entry = session.window.judge_recall(request.pointer, request.verdict)
    return stored_event(entry, f"Judged: {request.verdict.replace('_', ' ')}.")


def pin(context: McpContext, request: params.PinParams) -> StoredEvent:
    """Keep messages in the prompt."""
    with context.change_session(request.session) as session:
        entry = session.pin(*request.entries)
    return stored_event(entry, f"Pinned: {_numbers(request.entries)}.")


def unpin(context: McpContext, request: params.PinParams) -> StoredEvent:
    """Allow pinned messages to be evicted again."""
    with context.change_session(request.session) as session:
        pins = session.window.state.pins
        if unpinned := [seq for seq in request.entries if seq not in pins]:
            listed = _numbers(sorted(pins)[:20]) or "none"
            raise InputError(f"entry {unpinned[0]} is not pinned; pinned are: {listed}. Nothing was changed.")
        entry = session.unpin(*request.entries)
    return stored_event(entry, f"Unpinned: {_numbers(request.entries)}.")


def checkpoint(context: McpContext, request: params.CheckpointParams) -> SavedCheckpoint:
    """Store the state of the work."""
    changes = request.model_dump(exclude={"session", "expect"}, exclude_defaults=True)
    with context.change_session(request.session) as session:
        return saved_checkpoint(session.checkpoint(expect=request.expect, **changes))


def restore(context: McpContext, request: params.RestoreParams) -> StoredEvent:
    """Undo a decision."""
    with context.change_session(request.session) as session:
        entry = session.restore(request.decision)
    return stored_event(
        entry, f"Decision {request.decision} is undone: what was evicted is in the prompt again and stays."
    )


def _numbers(seqs: Iterable[int]) -> str:
    return ", ".join(map(str, seqs))
