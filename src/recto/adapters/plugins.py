"""Seats in coding agents: what Recto puts into each agent, and how it is taken out without a trace.

A seat is a set of files of Recto's own, and edits of settings files of the agent. What an edited file held before is
kept in Recto's folder. Uninstalling restores those bytes; where the file was changed since, only Recto's part is
removed from it. The texts of skills, commands and plugins are beside this module, in `seats/`.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from recto.adapters.coding_agents import CLAUDE_CODE, CODEX, hooks_for, with_hooks, without_hooks
from recto.config.client_files import parse_json, read_text, refusal, render_json
from recto.config.yaml_edits import replaced_scalar, with_item, with_scalar, without_item
from recto.errors import InputError
from recto.mcp.client_config import BY_NAME, LocalServer, with_server, without_server
from recto.version import __version__

MARKETPLACE = "recto"
_ABOUT = "Keeps everything that was said, and lets the agent reach back: hooks, recall by MCP, commands, a status line."
_TEXTS = files("recto.adapters") / "seats"
Program = Sequence[str]
"""The command that starts Recto, with its options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsEdit:
    """A change to a settings file of an agent, and the way back. Both get and return the text of the file."""

    path: Path
    apply: Callable[[str], str]
    undo: Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What is put into one agent."""

    name: str
    title: str
    files: Mapping[Path, str]
    """Files of Recto's own."""
    edits: tuple[SettingsEdit, ...] = ()
    then: str = ""
    """What the user has to do after the installation."""


def seat_in(name: str, program: Program, home: Path, environ: Mapping[str, str], *, recalls: bool = True) -> Seat:
    """What is put into an agent of a user; with `recalls`, a hook that quotes history with each prompt."""
    if name in _WITH_HOOKS:
        return _WITH_HOOKS[name](program, home, environ, recalls)
    return _WITHOUT_HOOKS[name](program, home, environ)


def _claude_code(program: Program, home: Path, environ: Mapping[str, str], recalls: bool) -> Seat:
    folder = Path(environ.get(CLAUDE_CODE.home_variable) or home / CLAUDE_CODE.home)
    settings = folder / CLAUDE_CODE.user_file
    line = {"type": "command", "command": shlex.join([*program, "plugin", "statusline"])}

    def apply(text: str) -> str:
        known = parse_json(text, settings)
        return text if "statusLine" in known else render_json({**known, "statusLine": line}, text)

    def undo(text: str) -> str:
        known = parse_json(text, settings)
        if known.get("statusLine") != line:
            return text
        return render_json({name: value for name, value in known.items() if name != "statusLine"}, text)

    plugin = folder / "skills" / "recto"
    return Seat(
        name="claude-code",
        title=CLAUDE_CODE.title,
        files={plugin / path: text for path, text in claude_plugin(program, recalls=recalls).items()},
        edits=(SettingsEdit(path=settings, apply=apply, undo=undo),),
        then="New sessions of Claude Code have it: /recto:recall and others, and a status line unless you have one.",
    )


def claude_plugin(program: Program, *, recalls: bool = True) -> dict[str, str]:
    """The files of a plugin for Claude Code, by path."""
    server = {"command": program[0], "args": [*program[1:], "mcp"]}
    manifest = {"name": "recto", "version": __version__, "description": _ABOUT, "author": {"name": "Recto"}}
    made = {
        ".claude-plugin/plugin.json": manifest,
        "hooks/hooks.json": {"hooks": hooks_for(CLAUDE_CODE.with_recall(recalls), program)},
        ".mcp.json": {"mcpServers": {"recto": server}},
    }
    texts = _TEXTS / "claude-code"
    copied = {
        "skills/search-history/SKILL.md": (texts / "skills" / "search-history" / "SKILL.md").read_text(
            encoding="utf-8"
        ),
        **{
            f"commands/{name}.md": (texts / "commands" / f"{name}.md").read_text(encoding="utf-8")
            for name in ("checkpoint", "context", "recall", "resume")
        },
    }
    return {path: _json(content) for path, content in made.items()} | copied


def marketplace(program: Program) -> dict[str, str]:
    """The files of a marketplace with the plugin in it, by path: for `claude plugin marketplace add FOLDER`."""
    listed = {
        "name": MARKETPLACE,
        "owner": {"name": "Recto"},
        "plugins": [{"name": "recto", "source": "./plugins/recto", "description": _ABOUT, "version": __version__}],
    }
    plugin = {f"plugins/recto/{path}": text for path, text in claude_plugin(program).items()}
    return {".claude-plugin/marketplace.json": _json(listed), **plugin}


def _codex(program: Program, home: Path, environ: Mapping[str, str], recalls: bool) -> Seat:
    folder = Path(environ.get(CODEX.home_variable) or home / CODEX.home)
    config, hooks, client = folder / "config.toml", folder / CODEX.user_file, BY_NAME["codex"]
    own = (program[0], [*program[1:], "mcp"])
    servers = [LocalServer(command=own[0], arguments=tuple(own[1]))]
    servers += [
        LocalServer(command=own[0], arguments=(*own[1], "--as", name), name=name) for name in ("notes", "history")
    ]

    def apply(text: str) -> str:
        for server in servers:
            text = with_server(text, client, server, config)
        return text

    def undo(text: str) -> str:
        for server in servers:
            text = without_server(text, client, config, server.name)
        return text

    return Seat(
        name="codex",
        title=CODEX.title,
        files={},
        edits=(
            SettingsEdit(path=config, apply=apply, undo=undo),
            SettingsEdit(
                path=hooks,
                apply=lambda text: with_hooks(text, CODEX.with_recall(recalls), program, hooks),
                undo=lambda text: without_hooks(text, CODEX, hooks),
            ),
        ),
        then=f"{CODEX.then} '[features] token_budget = true' lets it begin new windows (docs/agents.md).",
    )


def _opencode(program: Program, home: Path, environ: Mapping[str, str]) -> Seat:
    configured = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    return Seat(
        name="opencode",
        title="opencode",
        files={configured / "plugins" / "recto.js": _script("opencode.js", program)},
        then="opencode loads it when it starts.",
    )


def _pi(program: Program, home: Path, environ: Mapping[str, str]) -> Seat:
    folder = Path(environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent")
    return Seat(
        name="pi",
        title="pi",
        files={folder / "extensions" / "recto.ts": _script("pi.ts", program)},
        then="pi loads it when it starts; /reload loads it now.",
    )


def _hermes(program: Program, home: Path, environ: Mapping[str, str]) -> Seat:
    folder = Path(environ.get("HERMES_HOME") or home / ".hermes")
    config, plugin = folder / "config.yaml", folder / "plugins" / "recto"

    def apply(text: str) -> str:
        text = with_scalar(text, "context", "engine", "recto", config)
        return with_item(text, "plugins", "enabled", "recto", config)

    def undo(text: str) -> str:
        known = without_item(text, "plugins", "enabled", "recto", config)
        return replaced_scalar(known, "context", "engine", "recto", "compressor", config)

    manifest = {"name": "recto", "version": __version__, "description": _ABOUT}
    return Seat(
        name="hermes",
        title="Hermes",
        files={plugin / "plugin.yaml": _json(manifest), plugin / "__init__.py": _script("hermes.py", program)},
        edits=(SettingsEdit(path=config, apply=apply, undo=undo),),
        then="Hermes loads it when it starts; 'context.engine' is recto.",
    )


def _openclaw(program: Program, home: Path, environ: Mapping[str, str]) -> Seat:
    folder = Path(environ.get("OPENCLAW_STATE_DIR") or home / ".openclaw")
    config = Path(environ.get("OPENCLAW_CONFIG_PATH") or folder / "openclaw.json")
    plugin = folder / "extensions" / "recto"

    def edited(text: str, *, installs: bool) -> str:
        known = parse_json(text, config)
        plugins = dict(_member(known, "plugins", config))
        slots, entries = dict(_member(plugins, "slots", config)), dict(_member(plugins, "entries", config))
        if installs:
            slots["contextEngine"], entries["recto"] = "recto", {"enabled": True}
        else:
            entries.pop("recto", None)
            if slots.get("contextEngine") == "recto":
                del slots["contextEngine"]
        parts = {name: part for name, part in (("slots", slots), ("entries", entries)) if part}
        rest = {name: value for name, value in plugins.items() if name not in ("slots", "entries")}
        updated = {**known, "plugins": {**rest, **parts}}
        return text if updated == known else render_json(updated, text)

    manifest = {
        "id": "recto",
        "name": "Recto",
        "description": _ABOUT,
        "version": __version__,
        "kind": "context-engine",
        "configSchema": {"type": "object", "additionalProperties": False, "properties": {}},
    }
    package = {"name": "recto", "version": __version__, "type": "module", "openclaw": {"extensions": ["./index.js"]}}
    return Seat(
        name="openclaw",
        title="OpenClaw",
        files={
            plugin / "openclaw.plugin.json": _json(manifest),
            plugin / "package.json": _json(package),
            plugin / "index.js": _script("openclaw.js", program),
        },
        edits=(
            SettingsEdit(
                path=config,
                apply=lambda text: edited(text, installs=True),
                undo=lambda text: edited(text, installs=False),
            ),
        ),
        then="Restart OpenClaw's gateway; 'openclaw doctor' shows the context engine.",
    )


def _member(known: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    found = known.get(name, {})
    if not isinstance(found, dict):
        raise refusal(path, f"'{name}' in it is not an object")
    return found


_WITH_HOOKS: Mapping[str, Callable[[Program, Path, Mapping[str, str], bool], Seat]] = {
    "claude-code": _claude_code,
    "codex": _codex,
}
_WITHOUT_HOOKS: Mapping[str, Callable[[Program, Path, Mapping[str, str]], Seat]] = {
    "hermes": _hermes,
    "openclaw": _openclaw,
    "opencode": _opencode,
    "pi": _pi,
}
SEATS = (*_WITH_HOOKS, *_WITHOUT_HOOKS)


def install(seat: Seat, records: Path) -> list[Path]:
    """Put a seat into its agent. Returns the files that were written; a second call updates them.

    Nothing is written if one of the agent's files cannot be understood.
    """
    before = {edit.path: read_text(edit.path) for edit in seat.edits}
    after = {edit.path: edit.apply(before[edit.path]) for edit in seat.edits}
    record = _record(records, seat.name)
    kept: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {"files": [], "edits": {}}
    known = {Path(path) for path in kept["files"]}
    if taken := next((path for path in seat.files if path.exists() and path not in known), None):
        raise InputError(f"'{taken}' exists already and is not Recto's. Nothing was changed; move it away first.")
    made = known | {*seat.files}
    for path in (*seat.files, *after):
        made |= {parent for parent in path.parents if not parent.exists()}
    for path, text in after.items():
        if text != before[path] or str(path) in kept["edits"]:
            original = kept["edits"].get(str(path), {}).get("before", before[path] if path.exists() else None)
            kept["edits"][str(path)] = {"before": original, "after": _digest(text)}
    _write(record, _json({"files": sorted(map(str, made)), "edits": kept["edits"]}))
    written = {**seat.files, **{path: text for path, text in after.items() if text != before[path]}}
    for path, text in written.items():
        _write(path, text)
    return list(written)


def uninstall(seat: Seat, records: Path) -> list[Path]:
    """Take a seat out of its agent. Returns the files that were removed or restored; empty where it was not there."""
    record = _record(records, seat.name)
    if not record.exists():
        return []
    kept: dict[str, Any] = json.loads(record.read_text())
    done: list[Path] = []
    for edit in seat.edits:
        if (row := kept["edits"].get(str(edit.path))) is not None and edit.path.exists():
            _restore(edit, row)
            done.append(edit.path)
    for path in sorted(map(Path, kept["files"]), key=lambda path: -len(path.parts)):
        if path.is_file():
            path.unlink()
            done.append(path)
            _remove_compiled(path)
        elif path.is_dir():
            with suppress(OSError):  # the agent has put something else into it
                path.rmdir()
    record.unlink()
    return done


def _remove_compiled(source: Path) -> None:
    """Remove what Python compiled of a source file."""
    cache = source.parent / "__pycache__"
    if source.suffix == ".py" and cache.is_dir():
        for compiled in cache.glob(f"{source.stem}.*.pyc"):
            compiled.unlink()
        with suppress(OSError):
            cache.rmdir()


def _restore(edit: SettingsEdit, row: Mapping[str, Any]) -> None:
    text = read_text(edit.path)
    if _digest(text) != row["after"]:
        _write(edit.path, edit.undo(text))
    elif row["before"] is None:
        edit.path.unlink()
    else:
        _write(edit.path, row["before"])


def _record(records: Path, name: str) -> Path:
    return records / f"{name}.json"


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        with path.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        path.chmod(mode)
    except OSError as error:
        raise refusal(path, f"it cannot be written ({error.strerror})") from None


def write_folder(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files into a new or empty folder."""
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"'{folder}' is not empty. Nothing was written.")
    for path, text in texts.items():
        _write(folder / path, text)


def _script(name: str, program: Program) -> str:
    text = (_TEXTS / name).read_text(encoding="utf-8")
    return text.replace('["recto"]', json.dumps(list(program)), 1)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _json(content: object) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"
