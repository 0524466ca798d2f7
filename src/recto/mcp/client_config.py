"""Adds Recto to the configuration file of an MCP client, and removes it again.

Everything else in the file is preserved, and a file that cannot be parsed reliably is not touched.
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
from recto.formats.tools import MCP_SERVER

KEY_PROMPT = {"type": "promptString", "id": "recto-key", "description": "Key of the Recto gateway", "password": True}
"""The input with which VS Code prompts its user for the key; VS Code stores it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalServer:
    """A server that the client starts."""

    command: str
    arguments: tuple[str, ...]
    name: str = MCP_SERVER
    """The name that the client has for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteServer:
    """A server that is already running."""

    url: str
    key_variable: str
    """The variable of the client's environment that holds the key."""
    name: str = MCP_SERVER


ServerSpec = LocalServer | RemoteServer


@dataclass(frozen=True, slots=True, kw_only=True)
class McpClient:
    """An MCP client and the format of its configuration file."""

    name: str
    title: str
    file: str
    """Below the home directory."""
    mac_file: str = ""
    """The path on macOS, if it differs."""
    within: str = "mcpServers"
    """The member that holds the servers."""
    form: Literal["json", "toml"] = "json"
    local: Mapping[str, Any] | None = None
    """Further members of an entry for a local server."""
    remote: Callable[[RemoteServer], dict[str, Any]] | None = None
    """Makes an entry for a running server; None if the client does not support one in its file."""
    prompts_for_key: bool = False
    """Whether it prompts its user for the key."""

    @property
    def path(self) -> PurePosixPath:
        """Its configuration file on this system, below the home directory."""
        return PurePosixPath(self.mac_file if self.mac_file and sys.platform == "darwin" else self.file)

    def entry(self, server: ServerSpec) -> dict[str, Any]:
        """The entry for a server. Raises `InputError` if the client does not support it."""
        if isinstance(server, LocalServer):
            return {**(self.local or {}), "command": server.command, "args": list(server.arguments)}
        if self.remote is None:
            problem = f"{self.title} takes no gateway from its file: leave --url out, and it starts Recto itself"
            raise InputError(f"{problem}. Nothing was changed.")
        return self.remote(server)


def _headers(value: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {value}"}}


CLIENTS: tuple[McpClient, ...] = (
    McpClient(
        name="claude-code",
        title="Claude Code",
        file=".claude.json",
        local={"type": "stdio"},
        remote=lambda server: {"type": "http", "url": server.url, **_headers(f"${{{server.key_variable}}}")},
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
        remote=lambda server: {"url": server.url, "bearer_token_env_var": server.key_variable},
    ),
    McpClient(
        name="cursor",
        title="Cursor",
        file=".cursor/mcp.json",
        remote=lambda server: {"url": server.url, **_headers(f"${{env:{server.key_variable}}}")},
    ),
    McpClient(
        name="gemini-cli",
        title="Gemini CLI",
        file=".gemini/settings.json",
        remote=lambda server: {"httpUrl": server.url, **_headers(f"${{{server.key_variable}}}")},
    ),
    McpClient(
        name="vscode",
        title="VS Code",
        file=".config/Code/User/mcp.json",
        mac_file="Library/Application Support/Code/User/mcp.json",
        within="servers",
        local={"type": "stdio"},
        remote=lambda server: {"type": "http", "url": server.url, **_headers("${input:recto-key}")},
        prompts_for_key=True,
    ),
    McpClient(
        name="windsurf",
        title="Windsurf",
        file=".codeium/windsurf/mcp_config.json",
        remote=lambda server: {"serverUrl": server.url, **_headers(f"${{env:{server.key_variable}}}")},
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


def full_config(client: McpClient, server: ServerSpec) -> dict[str, Any]:
    """A complete configuration with only Recto in it."""
    inputs = {"inputs": [dict(KEY_PROMPT)]} if client.prompts_for_key and isinstance(server, RemoteServer) else {}
    return {**inputs, client.within: {server.name: client.entry(server)}}


def config_text(client: McpClient, server: ServerSpec) -> str:
    """The text that `add` would write into an empty file."""
    if client.form == "toml":
        return _table(client.within, server.name, client.entry(server))
    return json.dumps(full_config(client, server), indent=2, ensure_ascii=False) + "\n"


def add(client: McpClient, server: ServerSpec, path: Path) -> Path | None:
    """Add or replace Recto in a file. Returns the path of the backup; None if nothing had to be changed."""
    before = read_text(path)
    after = with_server(before, client, server, path)
    return None if after == before else replace_file(path, before, after)


def remove(client: McpClient, path: Path, name: str = MCP_SERVER) -> Path | None:
    """Remove Recto, or the server with another name, from a file. Returns the path of the backup; None without one."""
    before = read_text(path)
    after = without_server(before, client, path, name)
    return None if after == before else replace_file(path, before, after)


def with_server(before: str, client: McpClient, server: ServerSpec, path: Path) -> str:
    """The text of a file with a server added or replaced; the same text where it is there already."""
    if client.form == "toml":
        known = _toml(before, path)
        servers = _servers(known, client, path)
        if servers.get(server.name) == client.entry(server):
            return before
        others = _without_table(before, client.within, server.name, known, path) if server.name in servers else before
        return _with_table(others, client, server, path)
    known = parse_json(before, path)
    merged = _merged(known, full_config(client, server), client, path)
    return before if merged == known else render_json(merged, before)


def without_server(before: str, client: McpClient, path: Path, name: str = MCP_SERVER) -> str:
    """The text of a file without a server; the same text where it is not there."""
    known = _toml(before, path) if client.form == "toml" else parse_json(before, path)
    if name not in _servers(known, client, path):
        return before
    if client.form == "toml":
        return _without_table(before, client.within, name, known, path)
    servers = {other: entry for other, entry in known[client.within].items() if other != name}
    remaining = {**known, client.within: servers}
    if client.prompts_for_key and isinstance(inputs := known.get("inputs"), list):
        remaining["inputs"] = [item for item in inputs if item != KEY_PROMPT]
    return render_json(remaining, before)


def _merged(known: Mapping[str, Any], added: Mapping[str, Any], client: McpClient, path: Path) -> dict[str, Any]:
    servers = {**_servers(known, client, path), **added[client.within]}
    merged = {**known, client.within: servers}
    if prompts := added.get("inputs"):
        inputs = known.get("inputs", [])
        if not isinstance(inputs, list):
            raise refusal(path, "'inputs' in it is not a list")
        merged["inputs"] = [*(item for item in inputs if item not in prompts), *prompts]
    return merged


def _servers(known: Mapping[str, Any], client: McpClient, path: Path) -> dict[str, Any]:
    servers = known.get(client.within, {})
    if not isinstance(servers, dict):
        raise refusal(path, f"'{client.within}' in it is not an object")
    return servers


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise refusal(path, f"it is not TOML ({error})") from None


def _table(within: str, name: str, entry: Mapping[str, Any]) -> str:
    """An entry as a TOML table; JSON strings and lists of strings are valid TOML."""
    lines = [f"{member} = {json.dumps(value, ensure_ascii=False)}" for member, value in entry.items()]
    return "\n".join((f"[{within}.{name}]", *lines, ""))


def _with_table(text: str, client: McpClient, server: ServerSpec, path: Path) -> str:
    """The text with Recto's table appended."""
    table = _table(client.within, server.name, client.entry(server))
    after = f"{text.rstrip()}\n\n{table}" if text.strip() else table
    try:
        tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        raise refusal(path, f"'{client.within}' in it is written in a way that nothing can be added to") from None
    return after


def _without_table(text: str, within: str, name: str, known: Mapping[str, Any], path: Path) -> str:
    """The text without a server's table and its subtables; everything else stays byte for byte."""
    own = re.compile(rf"\s*\[\s*{re.escape(within)}\s*\.\s*\"?{re.escape(name)}\"?\s*(?:\.[^\]]*)?\]\s*(?:#.*)?")
    lines: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            inside = own.fullmatch(line.rstrip("\r\n")) is not None
        if not inside:
            lines.append(line)
    after = "".join(lines)
    others = {other: entry for other, entry in known[within].items() if other != name}
    expected = (
        {**known, within: others} if others else {other: value for other, value in known.items() if other != within}
    )
    if _toml(after, path) != expected:
        raise refusal(path, f"'{within}.{name}' in it is written in a way that cannot be taken out safely")
    return after
