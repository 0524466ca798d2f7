"""What can be changed through the MCP server. Every change is an event that says who asked for it; nothing is lost."""

from __future__ import annotations

from recto.engine.session import Session
from recto.errors import InputError
from recto.mcp import params, results
from recto.mcp.context import McpContext
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import pointer_to, session_in


def note(desk: McpContext, given: params.NoteParams) -> results.Stored:
    """Writes something down."""
    with desk.changing(given.session) as session:
        made = session.note(given.kind, given.text, critical=given.critical)
    return _stored(made, "The note is written down.")


def pin(desk: McpContext, given: params.PinParams) -> results.Stored:
    """Keeps messages in the prompt."""
    with desk.changing(given.session) as session:
        for seq in given.entries:
            _refuse_others(session, seq)
        made = session.pin(*given.entries)
    return _stored(made, f"Pinned: {_numbers(given.entries)}.")


def unpin(desk: McpContext, given: params.PinParams) -> results.Stored:
    """Lets messages leave again."""
    with desk.changing(given.session) as session:
        pinned = session.window.state.pins
        if strangers := [seq for seq in given.entries if seq not in pinned]:
            listed = _numbers(sorted(pinned)[:20]) or "none"
            raise InputError(f"entry {strangers[0]} is not pinned; pinned are: {listed}. Nothing was changed.")
        made = session.unpin(*given.entries)
    return _stored(made, f"Unpinned: {_numbers(given.entries)}.")


def checkpoint(desk: McpContext, given: params.CheckpointParams) -> results.CheckpointSaved:
    """Writes down where the work stands."""
    changes = given.model_dump(exclude={"session", "expect"}, exclude_defaults=True)
    with desk.changing(given.session) as session:
        made = session.checkpoint(expect=given.expect, **changes)
    version = int((made.key or "/0").rpartition("/")[2])
    return results.CheckpointSaved(
        session=session_in(made.session), version=version, seq=made.seq, pointer=pointer_to(made.session, made.seq)
    )


def restore(desk: McpContext, given: params.RestoreParams) -> results.Stored:
    """Undoes a decision."""
    with desk.changing(given.session) as session:
        made = session.restore(given.decision)
    return _stored(made, f"Decision {given.decision} is undone: what left is in the prompt again and stays.")


def _refuse_others(session: Session, seq: int) -> None:
    entry = next(iter(session.read(seq, seq)), None)
    if entry is None or entry.kind != MESSAGE:
        what = "there is no such entry" if entry is None else "it is an event, and only messages can be pinned"
        raise InputError(f"entry {seq}: {what}. Nothing was changed.")


def _stored(made: Entry, done: str) -> results.Stored:
    return results.Stored(
        done=done, session=session_in(made.session), seq=made.seq, pointer=pointer_to(made.session, made.seq)
    )


def _numbers(seqs: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, seqs))
