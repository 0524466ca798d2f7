"""The MCP clients that Recto can be added to: where each keeps its servers, and how it writes one down.

Each line was held against the client's own documentation in November 2026. A key of the gateway is never written into
a file: the client is told which variable of the environment holds it, or asks for it itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from recto.core.own_tools import SERVER
from recto.errors import InputError

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
class Client:
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


CLIENTS: tuple[Client, ...] = (
    Client(
        name="claude-code",
        title="Claude Code",
        file=".claude.json",
        local={"type": "stdio"},
        remote=lambda one: {"type": "http", "url": one.url, **_headers(f"${{{one.key_variable}}}")},
    ),
    Client(
        name="claude-desktop",
        title="Claude Desktop",
        file=".config/Claude/claude_desktop_config.json",
        mac_file="Library/Application Support/Claude/claude_desktop_config.json",
    ),
    Client(
        name="codex",
        title="Codex",
        file=".codex/config.toml",
        within="mcp_servers",
        form="toml",
        remote=lambda one: {"url": one.url, "bearer_token_env_var": one.key_variable},
    ),
    Client(
        name="cursor",
        title="Cursor",
        file=".cursor/mcp.json",
        remote=lambda one: {"url": one.url, **_headers(f"${{env:{one.key_variable}}}")},
    ),
    Client(
        name="gemini-cli",
        title="Gemini CLI",
        file=".gemini/settings.json",
        remote=lambda one: {"httpUrl": one.url, **_headers(f"${{{one.key_variable}}}")},
    ),
    Client(
        name="vscode",
        title="VS Code",
        file=".config/Code/User/mcp.json",
        mac_file="Library/Application Support/Code/User/mcp.json",
        within="servers",
        local={"type": "stdio"},
        remote=lambda one: {"type": "http", "url": one.url, **_headers("${input:recto-key}")},
        asks=True,
    ),
    Client(
        name="windsurf",
        title="Windsurf",
        file=".codeium/windsurf/mcp_config.json",
        remote=lambda one: {"serverUrl": one.url, **_headers(f"${{env:{one.key_variable}}}")},
    ),
    Client(
        name="zed",
        title="Zed",
        file=".config/zed/settings.json",
        within="context_servers",
        local={"source": "custom"},
    ),
)
BY_NAME = {client.name: client for client in CLIENTS}


def whole(client: Client, server: Server) -> dict[str, Any]:
    """A file that holds nothing but Recto, as the client would read it."""
    inputs = {"inputs": [dict(ASKED)]} if client.asks and isinstance(server, Remote) else {}
    return {**inputs, client.within: {SERVER: client.entry(server)}}
