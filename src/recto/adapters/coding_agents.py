"""What a coding agent tells Recto by its hooks, and what it is told back. Each agent has a module of its own.

Before the agent compacts its history, all of it is taken in, and a checkpoint and a handoff are written; when it has
begun anew, the handoff is given to it, once. After each turn and at the end of a session, what is new is taken in.
Nothing here blocks the agent or decides anything for it; whoever calls this answers for time and for errors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from recto.core.entries import session_key
from recto.core.scopes import stored_key
from recto.errors import InputError
from recto.ports import TranscriptStore
from recto.settings import Settings
from recto.storing import open_store
from recto.wiring import importer_for, open_session

BEFORE_COMPACTION, BEGIN, TURN_END, END = "PreCompact", "SessionStart", "Stop", "SessionEnd"
_LONGEST = 9_500
"""Characters that an agent takes in from a hook; of more it keeps a preview alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingAgent:
    """An agent with hooks: where it keeps them, and which of them Recto wants."""

    name: str
    title: str
    home: str
    """The folder of its settings, below the home directory or the project."""
    home_variable: str
    """The variable of the environment that names another folder for it."""
    user_file: str
    project_file: str
    hooks: Mapping[str, Mapping[str, Any]]
    """By event: what stands beside the command in the settings; `matcher` belongs to the group around it."""
    then: str = ""
    """What its user has to do once the hooks are there."""
    earlier: Callable[[Path], Iterable[Path]] = lambda transcript: ()
    """Transcripts of sessions in the same project, newest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a hook is told on its standard input."""

    event: str
    session: str
    transcript: Path | None
    source: str = ""
    """How a session began: startup, resume, clear, compact."""
    agent: str = ""
    """The sub-agent that it is about; empty for the session itself."""

    @classmethod
    def read(cls, text: str, event: str) -> Self:
        """Reads it; the event is the one of the command line where the text names none."""
        try:
            said = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the hook was told something that is not JSON ({error})") from None
        if not isinstance(said, dict) or not isinstance(said.get("session_id"), str) or not said["session_id"]:
            raise InputError("the hook was not told which session it is about")
        path = said.get("transcript_path")
        return cls(
            event=str(said.get("hook_event_name") or event),
            session=stored_key(said["session_id"]),
            transcript=Path(path).expanduser() if isinstance(path, str) and path else None,
            source=str(said.get("source") or ""),
            agent=str(said.get("agent_id") or ""),
        )


def answered(agent: CodingAgent, told: Told, settings: Settings) -> str:
    """Does what belongs to an event, and returns what the hook prints: mostly nothing."""
    if told.agent or told.event not in agent.hooks:
        return ""
    with closing(open_store(settings)) as store:
        if told.event == BEGIN:
            return _said(_waiting(agent, told, settings, store))
        _take_in(told, settings, store)
        if told.event == BEFORE_COMPACTION and store.head(_key(told.session, settings)).seq:
            with open_session(replace(settings, session=told.session), store) as session:
                session.host_compacting()
    return ""


def _take_in(told: Told, settings: Settings, store: TranscriptStore) -> None:
    """Stores what is new in the transcript; a line that is being written just now is kept as it is."""
    if told.transcript is None or not told.transcript.is_file():
        return
    importer_for(settings, store).take(told.transcript, session=_key(told.session, settings), keep_going=True)


def _waiting(agent: CodingAgent, told: Told, settings: Settings, store: TranscriptStore) -> str:
    """The handoff that waits: of this session, or where it is new, of the one before it in the project."""
    found = _handoff(told.session, settings, store)
    if found or told.source != "startup" or told.transcript is None:
        return found
    before = next(iter(agent.earlier(told.transcript)), None)
    return _handoff(session_key(before.stem), settings, store) if before else ""


def _handoff(session: str, settings: Settings, store: TranscriptStore) -> str:
    if not store.head(_key(session, settings)).seq:
        return ""
    with open_session(replace(settings, session=session), store) as found:
        try:
            return found.host_compacted()
        except InputError:  # none was written
            return ""


def _key(session: str, settings: Settings) -> str:
    return stored_key(session, settings.tenant)


def _said(handoff: str) -> str:
    if not handoff:
        return ""
    text = handoff if len(handoff) <= _LONGEST else handoff[:_LONGEST].rpartition("\n")[0] + "\n[…]"
    return json.dumps({"hookSpecificOutput": {"hookEventName": BEGIN, "additionalContext": text}})
