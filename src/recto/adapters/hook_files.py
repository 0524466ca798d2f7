"""Puts Recto's hooks into an agent's settings and takes them out again. Everything else in the file stays."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

from recto.adapters.coding_agents import CodingAgent
from recto.client_files import as_json, json_in, read_text, refused, write_whole


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
    known = json_in(before, path)
    others = _without_ours(agent, _hooks(known, path), path)
    ours = hooks_for(agent, program)
    merged = {event: [*others.get(event, []), *ours.get(event, [])] for event in dict.fromkeys([*others, *ours])}
    made = {**known, "hooks": merged}
    return None if made == known else write_whole(path, before, as_json(made, before))


def remove(agent: CodingAgent, path: Path) -> Path | None:
    """Takes the hooks out. Returns where the file as it was is kept; None where they were not in it."""
    before = read_text(path)
    known = json_in(before, path)
    held = _hooks(known, path)
    others = _without_ours(agent, held, path)
    if others == held:
        return None
    made = {**known, "hooks": others} if others else {name: one for name, one in known.items() if name != "hooks"}
    return write_whole(path, before, as_json(made, before))


def _hooks(known: dict[str, Any], path: Path) -> dict[str, Any]:
    held = known.get("hooks", {})
    if not isinstance(held, dict):
        raise refused(path, "'hooks' in it is no object")
    return held


def _without_ours(agent: CodingAgent, held: dict[str, Any], path: Path) -> dict[str, Any]:
    """The hooks of others: groups and events that held ours alone are gone, all else is as it was."""
    left: dict[str, Any] = {}
    for event, groups in held.items():
        if not isinstance(groups, list):
            raise refused(path, f"'hooks.{event}' in it is no list")
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
