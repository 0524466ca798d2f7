"""What a coding agent tells Recto by its hooks, and what it is told back. Each agent has a module of its own.

Before the agent compacts its history, all of it is taken in, and a checkpoint and a handoff are written; when it has
begun anew, the handoff is given to it, once. After each turn and at the end of a session, what is new is taken in.
Nothing here blocks the agent or decides anything for it; whoever calls this answers for time and for errors.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Self

from recto.config import Settings
from recto.config.client_files import parse_json, read_text, refusal, render_json, replace_file
from recto.config.factory import make_importer, open_session, open_store
from recto.errors import InputError
from recto.transcript.entries import session_key
from recto.transcript.protocols import TranscriptStore
from recto.transcript.tenancy import TenantStore, plain_name

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
class HookInput:
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
            session=plain_name(said["session_id"]),
            transcript=Path(path).expanduser() if isinstance(path, str) and path else None,
            source=str(said.get("source") or ""),
            agent=str(said.get("agent_id") or ""),
        )


def answered(agent: CodingAgent, told: HookInput, settings: Settings) -> str:
    """Does what belongs to an event, and returns what the hook prints: mostly nothing."""
    if told.agent or told.event not in agent.hooks:
        return ""
    with closing(open_store(settings)) as store:
        if told.event == BEGIN:
            return _said(_waiting(agent, told, settings, store))
        _take_in(told, settings, store)
        view = TenantStore(store, settings.tenant)
        if told.event == BEFORE_COMPACTION and view.head(view.key(told.session)).seq:
            with open_session(replace(settings, session=told.session), store) as session:
                session.checkpoints.host_compacting()
    return ""


def _take_in(told: HookInput, settings: Settings, store: TranscriptStore) -> None:
    """Stores what is new in the transcript; a line that is being written just now is kept as it is."""
    if told.transcript is None or not told.transcript.is_file():
        return
    key = TenantStore(store, settings.tenant).key(told.session)
    make_importer(settings, store).import_file(told.transcript, session=key, keep_going=True)


def _waiting(agent: CodingAgent, told: HookInput, settings: Settings, store: TranscriptStore) -> str:
    """The handoff that waits: of this session, or where it is new, of the one before it in the project."""
    found = _handoff(told.session, settings, store)
    if found or told.source != "startup" or told.transcript is None:
        return found
    before = next(iter(agent.earlier(told.transcript)), None)
    return _handoff(session_key(before.stem), settings, store) if before else ""


def _handoff(session: str, settings: Settings, store: TranscriptStore) -> str:
    view = TenantStore(store, settings.tenant)
    if not view.head(view.key(session)).seq:
        return ""
    with open_session(replace(settings, session=session), store) as found:
        try:
            return found.checkpoints.host_compacted()
        except InputError:  # none was written
            return ""


def _said(handoff: str) -> str:
    if not handoff:
        return ""
    text = handoff if len(handoff) <= _LONGEST else handoff[:_LONGEST].rpartition("\n")[0] + "\n[…]"
    return json.dumps({"hookSpecificOutput": {"hookEventName": BEGIN, "additionalContext": text}})


def _earlier(transcript: Path) -> Iterable[Path]:
    """All sessions of a project have their transcripts in one folder, by their ids."""
    try:
        dated = [(file.stat().st_mtime, file) for file in transcript.parent.glob("*.jsonl") if file != transcript]
    except OSError:
        return ()
    return [file for _, file in sorted(dated, reverse=True)]


CLAUDE_CODE = CodingAgent(
    name="claude-code",
    title="Claude Code",
    home=".claude",
    home_variable="CLAUDE_CONFIG_DIR",
    user_file="settings.json",
    project_file="settings.local.json",  # the other one is shared, and a path to this Recto is not for everybody
    hooks={
        BEFORE_COMPACTION: {"timeout": 60},
        BEGIN: {"matcher": "startup|resume|compact", "timeout": 15},
        TURN_END: {"timeout": 60, "async": True},
        END: {"timeout": 60},
    },
    earlier=_earlier,
)


CODEX = CodingAgent(
    name="codex",
    title="Codex",
    home=".codex",
    home_variable="CODEX_HOME",
    user_file="hooks.json",
    project_file="hooks.json",
    hooks={
        BEFORE_COMPACTION: {"timeout": 60},
        BEGIN: {"matcher": "startup|resume|compact", "timeout": 15},
        TURN_END: {"timeout": 60},
    },
    then="Codex runs a new hook only after you have looked at it: /hooks shows it and asks whether to trust it.",
)


def file_of(agent: CodingAgent, *, project: Path | None = None) -> Path:
    """Where an agent keeps its hooks: those of its user, or those of a project."""
    if project is not None:
        return project / agent.home / agent.project_file
    named = os.environ.get(agent.home_variable)
    return (Path(named) if named else Path.home() / agent.home) / agent.user_file


def hooks_for(agent: CodingAgent, program: Sequence[str]) -> dict[str, Any]:
    """The hooks as they stand in the settings; `program` starts Recto with what it is to be started with."""
    made: dict[str, Any] = {}
    for event, about in agent.hooks.items():
        beside = {name: value for name, value in about.items() if name != "matcher"}
        command = shlex.join([*program, "hook", agent.name, event])
        group = {"hooks": [{"type": "command", "command": command, **beside}]}
        made[event] = [{"matcher": about["matcher"], **group} if "matcher" in about else group]
    return made


def install(agent: CodingAgent, program: Sequence[str], path: Path) -> Path | None:
    """Adds or renews the hooks. Returns where the file as it was is kept; None where nothing had to be done."""
    before = read_text(path)
    known = parse_json(before, path)
    others = _without_ours(agent, _hooks(known, path), path)
    ours = hooks_for(agent, program)
    merged = {event: [*others.get(event, []), *ours.get(event, [])] for event in dict.fromkeys([*others, *ours])}
    made = {**known, "hooks": merged}
    return None if made == known else replace_file(path, before, render_json(made, before))


def remove(agent: CodingAgent, path: Path) -> Path | None:
    """Takes the hooks out. Returns where the file as it was is kept; None where they were not in it."""
    before = read_text(path)
    known = parse_json(before, path)
    held = _hooks(known, path)
    others = _without_ours(agent, held, path)
    if others == held:
        return None
    made = {**known, "hooks": others} if others else {name: one for name, one in known.items() if name != "hooks"}
    return replace_file(path, before, render_json(made, before))


def _hooks(known: dict[str, Any], path: Path) -> dict[str, Any]:
    held = known.get("hooks", {})
    if not isinstance(held, dict):
        raise refusal(path, "'hooks' in it is no object")
    return held


def _without_ours(agent: CodingAgent, held: dict[str, Any], path: Path) -> dict[str, Any]:
    """The hooks of others: groups and events that held ours alone are gone, all else is as it was."""
    left: dict[str, Any] = {}
    for event, groups in held.items():
        if not isinstance(groups, list):
            raise refusal(path, f"'hooks.{event}' in it is no list")
        kept = [one for group in groups for one in _others_in(agent, group)]
        if kept or not groups:
            left[event] = kept
    return left


def _others_in(agent: CodingAgent, group: object) -> list[Any]:
    if not isinstance(group, dict) or not isinstance(handlers := group.get("hooks"), list):
        return [group]
    kept = [one for one in handlers if not _is_ours(agent, one)]
    if len(kept) == len(handlers):
        return [group]
    return [{**group, "hooks": kept}] if kept else []


def _is_ours(agent: CodingAgent, handler: object) -> bool:
    """Whether a hook calls Recto, wherever that is and whatever it is started with."""
    command = handler.get("command") if isinstance(handler, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    return bool(words) and PurePath(words[0]).name == "recto" and words[-3:-1] == ["hook", agent.name]
