"""Puts Recto into the file in which an MCP client keeps its servers, and takes it out again.

Everything else in the file stays, and a file that cannot be read for certain is left as it is.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from recto.config.client_files import parse_json, read_text, refusal, render_json, replace_file
from recto.errors import InputError
from recto.formats.recto_tools import SERVER

ASKED = {"type": "promptString", "id": "recto-key", "description": "Key of the Recto gateway", "password": True}
"""What VS Code asks its user for, and keeps safe itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A server that the client starts."""

    command: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """A server that runs already."""

    url: str
    key_variable: str
    """The variable of the client's environment that holds the key."""


Server = Local | Remote


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """One client."""

    name: str
    title: str
    file: str
    """Below the home directory."""
    mac_file: str = ""
    """The same on macOS, where it is another."""
    within: str = "mcpServers"
    """What holds the servers in it."""
    form: Literal["json", "toml"] = "json"
    local: Mapping[str, Any] | None = None
    """What stands in an entry beside command and arguments."""
    remote: Callable[[Remote], dict[str, Any]] | None = None
    """An entry for a server that runs already; None where the client takes none from a file."""
    asks: bool = False
    """Whether it asks its user for the key."""

    @property
    def path(self) -> PurePosixPath:
        """Where it keeps its servers on this system, below the home directory."""
        return PurePosixPath(self.mac_file if self.mac_file and sys.platform == "darwin" else self.file)

    def entry(self, server: Server) -> dict[str, Any]:
        """How it writes a server down. Raises `InputError` for one that it does not take."""
        if isinstance(server, Local):
            return {**(self.local or {}), "command": server.command, "args": list(server.arguments)}
        if self.remote is None:
            says = f"{self.title} takes no gateway from its file: leave --url out, and it starts Recto itself"
            raise InputError(f"{says}. Nothing was changed.")
        return self.remote(server)


def _headers(value: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {value}"}}


CLIENTS: tuple[McpClient, ...] = (
    McpClient(
        name="claude-code",
        title="Claude Code",
        file=".claude.json",
        local={"type": "stdio"},
        remote=lambda one: {"type": "http", "url": one.url, **_headers(f"${{{one.key_variable}}}")},
    ),
    McpClient(
        name="claude-desktop",
        title="Claude Desktop",
        file=".config/Claude/claude_desktop_config.json",
        mac_file="Library/Application Support/Claude/claude_desktop_config.json",
    ),
    McpClient(
        name="codex",
        title="Codex",
        file=".codex/config.toml",
        within="mcp_servers",
        form="toml",
        remote=lambda one: {"url": one.url, "bearer_token_env_var": one.key_variable},
    ),
    McpClient(
        name="cursor",
        title="Cursor",
        file=".cursor/mcp.json",
        remote=lambda one: {"url": one.url, **_headers(f"${{env:{one.key_variable}}}")},
    ),
    McpClient(
        name="gemini-cli",
        title="Gemini CLI",
        file=".gemini/settings.json",
        remote=lambda one: {"httpUrl": one.url, **_headers(f"${{{one.key_variable}}}")},
    ),
    McpClient(
        name="vscode",
        title="VS Code",
        file=".config/Code/User/mcp.json",
        mac_file="Library/Application Support/Code/User/mcp.json",
        within="servers",
        local={"type": "stdio"},
        remote=lambda one: {"type": "http", "url": one.url, **_headers("${input:recto-key}")},
        asks=True,
    ),
    McpClient(
        name="windsurf",
        title="Windsurf",
        file=".codeium/windsurf/mcp_config.json",
        remote=lambda one: {"serverUrl": one.url, **_headers(f"${{env:{one.key_variable}}}")},
    ),
    McpClient(
        name="zed",
        title="Zed",
        file=".config/zed/settings.json",
        within="context_servers",
        local={"source": "custom"},
    ),
)
BY_NAME = {client.name: client for client in CLIENTS}


def whole(client: McpClient, server: Server) -> dict[str, Any]:
    """A file that holds nothing but Recto, as the client would read it."""
    inputs = {"inputs": [dict(ASKED)]} if client.asks and isinstance(server, Remote) else {}
    return {**inputs, client.within: {SERVER: client.entry(server)}}


def text_for(client: McpClient, server: Server) -> str:
    """What `add` would write into a file that is empty."""
    if client.form == "toml":
        return _table(client.within, client.entry(server))
    return json.dumps(whole(client, server), indent=2, ensure_ascii=False) + "\n"


def add(client: McpClient, server: Server, path: Path) -> Path | None:
    """Adds or replaces Recto in a file. Returns where the file as it was is kept; None where nothing had to be done."""
    before = read_text(path)
    if client.form == "toml":
        known = _toml(before, path)
        held = _servers(known, client, path)
        if held.get(SERVER) == client.entry(server):
            return None
        others = _without_table(before, client.within, known, path) if SERVER in held else before
        return replace_file(path, before, _with_table(others, client, server, path))
    known = parse_json(before, path)
    made = _merged(known, whole(client, server), client, path)
    return None if made == known else replace_file(path, before, render_json(made, before))


def remove(client: McpClient, path: Path) -> Path | None:
    """Takes Recto out of a file. Returns where the file as it was is kept; None where it was not in it."""
    before = read_text(path)
    if client.form == "toml":
        known = _toml(before, path)
        if SERVER not in _servers(known, client, path):
            return None
        return replace_file(path, before, _without_table(before, client.within, known, path))
    known = parse_json(before, path)
    if SERVER not in _servers(known, client, path):
        return None
    servers = {name: one for name, one in known[client.within].items() if name != SERVER}
    made = {**known, client.within: servers}
    if client.asks and isinstance(inputs := known.get("inputs"), list):
        made["inputs"] = [one for one in inputs if one != ASKED]
    return replace_file(path, before, render_json(made, before))


def _merged(known: Mapping[str, Any], given: Mapping[str, Any], client: McpClient, path: Path) -> dict[str, Any]:
    servers = {**_servers(known, client, path), **given[client.within]}
    made = {**known, client.within: servers}
    if asks := given.get("inputs"):
        inputs = known.get("inputs", [])
        if not isinstance(inputs, list):
            raise refusal(path, "'inputs' in it is no list")
        made["inputs"] = [*(one for one in inputs if one not in asks), *asks]
    return made


def _servers(known: Mapping[str, Any], client: McpClient, path: Path) -> dict[str, Any]:
    held = known.get(client.within, {})
    if not isinstance(held, dict):
        raise refusal(path, f"'{client.within}' in it is no object")
    return held


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refusal(path, f"it is not TOML ({error})") from None


def _table(within: str, entry: Mapping[str, Any]) -> str:
    """An entry as a table; what JSON writes for texts and lists of them is TOML too."""
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in entry.items()]
    return "\n".join((f"[{within}.{SERVER}]", *lines, ""))


def _with_table(text: str, client: McpClient, server: Server, path: Path) -> str:
    """The text with Recto's table behind all that is there."""
    table = _table(client.within, client.entry(server))
    after = f"{text.rstrip()}\n\n{table}" if text.strip() else table
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        raise refusal(path, f"'{client.within}' in it is written in a way that nothing can be added to") from None
    return after


def _without_table(text: str, within: str, known: Mapping[str, Any], path: Path) -> str:
    """The text without Recto's table and those below it; everything else is as it was, to the letter."""
    own = re.compile(rf"\s*\[\s*{re.escape(within)}\s*\.\s*\"?{SERVER}\"?\s*(?:\.[^\]]*)?\]\s*(?:#.*)?")
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = own.fullmatch(line.rstrip("\r\n")) is not None
        if not inside:
            kept.append(line)
    after = "".join(kept)
    others = {name: one for name, one in known[within].items() if name != SERVER}
    left = {**known, within: others} if others else {name: one for name, one in known.items() if name != within}
    if _toml(after, path) != left:
        raise refusal(path, f"'{within}.{SERVER}' in it is written in a way that cannot be taken out safely")
    return after
