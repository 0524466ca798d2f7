"""Hooks of coding agents (Claude Code, Codex): what each hook does, and installing the hooks in an agent's settings.

Before an agent compacts its history, the history is imported, and a checkpoint and a handoff are written; after the
compaction the handoff is returned to the agent, once. After each turn and at the end of a session, new entries are
imported. When the user submits a prompt, what earlier sessions of the project hold about it is quoted. Nothing here
blocks the agent; the caller handles time-outs and errors.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, Self

from recto.config import Settings
from recto.config.client_files import parse_json, read_text, refusal, render_json, replace_file
from recto.config.factory import (
    SystemClock,
    make_importer,
    make_indexer,
    make_recall,
    open_session,
    open_store,
    session_sources,
)
from recto.errors import InputError
from recto.recall.types import PROJECT_HEADER, Hit, Query
from recto.tokens.meter import plain_estimate
from recto.transcript.entries import HOST_COMPACTED, session_key
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import TenantStore, plain_name
from recto.transcript.sources import SessionSource

BEFORE_COMPACTION, BEGIN, TURN_END, END = "PreCompact", "SessionStart", "Stop", "SessionEnd"
PROMPT = "UserPromptSubmit"
PROMPT_SECONDS = 8.0
"""How long the user waits for the search before a prompt at most."""
_THREAD_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_RECORD_TOKENS = 2_000
"""What the record for a host that compacts may cost."""
_MAX_CONTEXT_CHARS = 9_500
"""Characters that an agent accepts from a hook; of more it only keeps a preview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodingAgent:
    """An agent with hooks: its settings files, and the hooks that Recto uses."""

    name: str
    title: str
    home: str
    """The folder of its settings, below the home directory or the project."""
    home_variable: str
    """The environment variable that names another folder."""
    user_file: str
    project_file: str
    hooks: Mapping[str, Mapping[str, Any]]
    """By event: the fields next to the command in the settings; `matcher` belongs to the enclosing group."""
    then: str = ""
    """What the user has to do after the installation."""
    earlier: Callable[[Path], Iterable[Path]] = lambda transcript: ()
    """Transcripts of sessions in the same project, newest first."""

    def with_recall(self, wanted: bool) -> CodingAgent:
        """Return the agent with all hooks, or without the one that quotes history with a prompt."""
        kept = {event: options for event, options in self.hooks.items() if wanted or event != PROMPT}
        return replace(self, hooks=kept)


def _earlier(transcript: Path) -> Iterable[Path]:
    """All sessions of a project have their transcripts in one folder, by id."""
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
    project_file="settings.local.json",  # settings.json is shared, and a path to this Recto is not
    hooks={
        BEFORE_COMPACTION: {"timeout": 60},
        BEGIN: {"matcher": "startup|resume|compact", "timeout": 15},
        PROMPT: {"timeout": 10},
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
        PROMPT: {"timeout": 10},
        TURN_END: {"timeout": 60},
    },
    then="Codex runs a new hook only after you have looked at it: /hooks shows it and asks whether to trust it.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookInput:
    """The standard input of a hook."""

    event: str
    session: str
    transcript: Path | None
    source: str = ""
    """How the session began: startup, resume, clear, compact."""
    agent: str = ""
    """The sub-agent concerned; empty for the session itself."""
    folder: str = ""
    """The folder that the agent works in."""
    prompt: str = ""
    """What the user has submitted."""

    @classmethod
    def read(cls, text: str, event: str) -> Self:
        """Parse the input; the event of the command line applies if the text names none."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the hook got something that is not JSON ({error})") from None
        if not isinstance(data, dict) or not isinstance(data.get("session_id"), str) or not data["session_id"]:
            raise InputError("the hook's input names no session")
        path = data.get("transcript_path")
        return cls(
            event=str(data.get("hook_event_name") or event),
            session=plain_name(data["session_id"]),
            transcript=Path(path).expanduser() if isinstance(path, str) and path else None,
            source=str(data.get("source") or ""),
            agent=str(data.get("agent_id") or ""),
            folder=str(data.get("cwd") or ""),
            prompt=str(data.get("prompt") or ""),
        )


def answered(agent: CodingAgent, hook: HookInput, settings: Settings) -> str:
    """Handle an event, and return what the hook prints: usually nothing."""
    if hook.agent or hook.event not in agent.hooks:
        return ""
    with closing(open_store(settings)) as store:
        if hook.event == BEGIN:
            return _hook_output(hook.event, _pending_handoff(agent, hook, settings, store))
        if hook.event == PROMPT:
            return _hook_output(hook.event, _recalled(hook, settings, store))
        _import_new(hook, settings, store)
        view = TenantStore(store, settings.tenant)
        if hook.event == BEFORE_COMPACTION and view.head(view.key(hook.session)).seq:
            with open_session(replace(settings, session=hook.session), store) as session:
                session.checkpoints.host_compacting()
    return ""


def _import_new(hook: HookInput, settings: Settings, store: TranscriptStore) -> None:
    """Import new entries of the transcript; an incomplete last line is stored verbatim."""
    if hook.transcript is None or not hook.transcript.is_file():
        return
    key = TenantStore(store, settings.tenant).key(hook.session)
    make_importer(settings, store).import_file(hook.transcript, session=key, keep_going=True)


def _pending_handoff(agent: CodingAgent, hook: HookInput, settings: Settings, store: TranscriptStore) -> str:
    """Return the pending handoff of this session, or for a new one, of the previous session in the project."""
    handoff = _handoff(hook.session, settings, store)
    if handoff or hook.source != "startup" or hook.transcript is None:
        return handoff
    previous = next(iter(agent.earlier(hook.transcript)), None)
    return _handoff(session_key(previous.stem), settings, store) if previous else ""


def _handoff(session: str, settings: Settings, store: TranscriptStore) -> str:
    view = TenantStore(store, settings.tenant)
    if not view.head(view.key(session)).seq:
        return ""
    with open_session(replace(settings, session=session), store) as opened:
        try:
            return opened.checkpoints.host_compacted()
        except InputError:  # none was written
            return ""


def _recalled(hook: HookInput, settings: Settings, store: TranscriptStore) -> str:
    return recall_for_prompt(
        hook.prompt,
        session=hook.session,
        project=hook.folder,
        transcript=hook.transcript,
        settings=settings,
        store=store,
    )


def _hook_output(event: str, text: str) -> str:
    if not text:
        return ""
    if len(text) > _MAX_CONTEXT_CHARS:
        text = text[:_MAX_CONTEXT_CHARS].rpartition("\n")[0] + "\n[…]"
    return json.dumps({"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}})


def compaction_record(session: str, transcript: Path | None, settings: Settings) -> str:
    """Import what is new in a transcript, and return the state of the session's work for a host that compacts.

    Empty where nothing is known of the session. Quoted for reference: a host puts it in the place of its history.
    """
    from recto.continuity.checkpoints.handoff import handoff_of  # noqa: PLC0415  # patterns take a while to load

    with closing(open_store(settings)) as store:
        hook = HookInput(event=BEFORE_COMPACTION, session=plain_name(session), transcript=transcript)
        _import_new(hook, settings, store)
        view = TenantStore(store, settings.tenant)
        if not view.head(view.key(hook.session)).seq:
            return ""
        with open_session(replace(settings, session=hook.session), store) as opened:
            continuity = opened.window.continuity
            checkpoint = continuity.up_to_date(over=None, reason="the host compacts", stores=True)
            if checkpoint is None:
                return ""
            last_words = continuity.checkpoints.last_words(opened.window.state)
            return handoff_of(checkpoint, last_words, most=_RECORD_TOKENS, count=opened.meter.count)


def codex_rollout(thread: str, environ: Mapping[str, str]) -> Path | None:
    """The file in which Codex keeps a thread; None where there is none."""
    if not _THREAD_ID.fullmatch(thread):
        return None
    home = Path(environ.get(CODEX.home_variable) or Path.home() / CODEX.home)
    return next(iter(sorted(home.glob(f"sessions/**/rollout-*-{thread}.jsonl"))), None)


def file_of(agent: CodingAgent, *, project: Path | None = None) -> Path:
    """Return the settings file with an agent's hooks: the user's, or a project's."""
    if project is not None:
        return project / agent.home / agent.project_file
    named = os.environ.get(agent.home_variable)
    return (Path(named) if named else Path.home() / agent.home) / agent.user_file


def hooks_for(agent: CodingAgent, program: Sequence[str]) -> dict[str, Any]:
    """Build the hooks as in the settings; `program` is the command that starts Recto."""
    hooks: dict[str, Any] = {}
    for event, options in agent.hooks.items():
        fields = {name: value for name, value in options.items() if name != "matcher"}
        command = shlex.join([*program, "hook", agent.name, event])
        group = {"hooks": [{"type": "command", "command": command, **fields}]}
        hooks[event] = [{"matcher": options["matcher"], **group} if "matcher" in options else group]
    return hooks


def install(agent: CodingAgent, program: Sequence[str], path: Path) -> Path | None:
    """Add or update the hooks. Returns the path of the backup; None if nothing changed."""
    before = read_text(path)
    after = with_hooks(before, agent, program, path)
    return None if after == before else replace_file(path, before, after)


def remove(agent: CodingAgent, path: Path) -> Path | None:
    """Remove the hooks. Returns the path of the backup; None if they were not installed."""
    before = read_text(path)
    after = without_hooks(before, agent, path)
    return None if after == before else replace_file(path, before, after)


def with_hooks(before: str, agent: CodingAgent, program: Sequence[str], path: Path) -> str:
    """The text of a settings file with the hooks added or updated; the same text where they are there already."""
    settings = parse_json(before, path)
    others = _without_ours(agent, _hooks(settings, path), path)
    ours = hooks_for(agent, program)
    merged = {event: [*others.get(event, []), *ours.get(event, [])] for event in dict.fromkeys([*others, *ours])}
    updated = {**settings, "hooks": merged}
    return before if updated == settings else render_json(updated, before)


def without_hooks(before: str, agent: CodingAgent, path: Path) -> str:
    """The text of a settings file without the hooks; the same text where they are not there."""
    settings = parse_json(before, path)
    installed = _hooks(settings, path)
    others = _without_ours(agent, installed, path)
    if others == installed:
        return before
    updated = {name: value for name, value in settings.items() if name != "hooks"}
    return render_json({**settings, "hooks": others} if others else updated, before)


def _hooks(settings: dict[str, Any], path: Path) -> dict[str, Any]:
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise refusal(path, "'hooks' in it is not an object")
    return hooks


def _without_ours(agent: CodingAgent, hooks: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the hooks of others: groups and events with only Recto's hooks are removed, everything else is
    unchanged."""
    others: dict[str, Any] = {}
    for event, groups in hooks.items():
        if not isinstance(groups, list):
            raise refusal(path, f"'hooks.{event}' in it is not a list")
        remaining = [other for group in groups for other in _others_in(agent, group)]
        if remaining or not groups:
            others[event] = remaining
    return others


def _others_in(agent: CodingAgent, group: object) -> list[Any]:
    if not isinstance(group, dict) or not isinstance(handlers := group.get("hooks"), list):
        return [group]
    others = [handler for handler in handlers if not _is_ours(agent, handler)]
    if len(others) == len(handlers):
        return [group]
    return [{**group, "hooks": others}] if others else []


def _is_ours(agent: CodingAgent, handler: object) -> bool:
    """Whether a hook calls Recto, at any path and with any options."""
    command = handler.get("command") if isinstance(handler, dict) else None
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:
        return False
    return bool(words) and PurePath(words[0]).name == "recto" and words[-3:-1] == ["hook", agent.name]


_RECALL_TOKENS = 800
"""What a quotation may cost: it stays in the agent's window, prompt after prompt."""
_MAX_PROMPT_CHARACTERS = 8_000
"""Characters of a prompt that are searched for."""
_TAIL_ENTRIES = 2_000
"""Entries of a session in which its last compaction is looked for."""
_TAIL_BYTES = 1 << 20
"""Bytes at the end of the agent's own file in which earlier quotations are looked for."""
_COMMAND = re.compile(r"/[\w:-]+(\s|$)", re.ASCII)
"""A prompt that is a command of the agent, such as `/compact`."""


def recall_for_prompt(
    prompt: str, *, session: str, project: str, transcript: Path | None, settings: Settings, store: TranscriptStore
) -> str:
    """Return a quotation of what is relevant to a prompt; empty if nothing is, or recall is switched off.

    Args:
        prompt: what the user has submitted.
        session: the agent's name of the session.
        project: the folder that the agent works in. Sessions of every agent in it, or in a folder below, are searched.
        transcript: the agent's own file of the session.
        settings: the relevance that is needed, and the tenant.
        store: where the sessions are stored.
    """
    wanted = bool(prompt.strip()) and not _COMMAND.match(prompt)
    if not (wanted and project and settings.recall.enabled and settings.recall.inject):
        return ""
    view = TenantStore(store, settings.tenant)
    key, sources = view.key(session), session_sources(settings, store)
    begun = SessionSource(project=sources.of(key).project)
    source = (
        begun if begun.project and begun.contains(SessionSource(project=project)) else SessionSource(project=project)
    )
    compacted = _compacted_through(view, key)
    if not sources.matching(source) - {key} and not compacted:
        return ""  # all there is to search is in the agent's window; the index, and numpy with it, need not be loaded
    with closing(make_indexer(settings, store, words_only=True)) as indexer:
        injection, _ = make_recall(settings, store, key, indexer).build_injection(
            Query(text=prompt[:_MAX_PROMPT_CHARACTERS], now=SystemClock().now(), source=source),
            budget=_RECALL_TOKENS,
            count=plain_estimate,
            hidden=range(compacted + 1, view.head(key).seq + 1),
            skips=_quoted_in(transcript),
        )
    return injection.text if injection else ""


def _compacted_through(store: TenantStore, key: str) -> int:
    """Return the last entry of a session that the agent's compaction has removed from its window; 0 for none."""
    recent = store.tail(key, _TAIL_ENTRIES)
    event = next((entry for entry in reversed(recent) if entry.kind == HOST_COMPACTED), None)
    return int(json.loads(event.content)["handoff"]) if event else 0


def _quoted_in(transcript: Path | None) -> Callable[[Hit], bool]:
    """Return a function that knows the hits an earlier prompt has quoted, and those that are a quotation themselves."""
    recent = ""
    if transcript is not None:
        with suppress(OSError), transcript.open("rb") as file:
            file.seek(max(transcript.stat().st_size - _TAIL_BYTES, 0))
            recent = file.read(_TAIL_BYTES).decode(errors="replace")
    return lambda hit: f"{hit.pointer} " in recent or PROJECT_HEADER in hit.text
