"""`recto mcp`: the MCP server over standard input and output, and its entry in the settings of clients."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import click

from recto.cli._common import MCP_PACKAGES, program_command, require_packages, session_option
from recto.cli._lazy_group import SpellingGroup
from recto.cli.completion import complete_models
from recto.cli.console import out, safe
from recto.config import Settings
from recto.formats.tools import MCP_SERVER
from recto.mcp.client_config import (
    BY_NAME,
    CLIENTS,
    LocalServer,
    McpClient,
    RemoteServer,
    ServerSpec,
    add,
    config_text,
    remove,
)

_client = click.argument("client", type=click.Choice([known.name for known in CLIENTS]))
_file = click.option(
    "--file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The client's file. [default: its user settings]",
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@click.group("mcp", cls=SpellingGroup, invoke_without_command=True)
@session_option("The session that is meant without a name.")
@click.option("--model", metavar="NAME", shell_complete=complete_models, help="As this model would see it.")
@click.option("--read-only", is_flag=True, help="Offer no tool that changes anything.")
@click.option(
    "--as",
    "namespace",
    type=click.Choice(["notes", "history"]),
    help="Serve Codex's own calls instead, under the server's name that Codex looks for.",
)
@click.pass_context
def mcp_command(
    context: click.Context,
    session: str | None,
    model: str | None,
    read_only: bool,
    namespace: Literal["notes", "history"] | None,
) -> None:
    """Serves recall, notes, checkpoints and reports to an MCP client, over standard input and output.

    Clients start it themselves; `recto mcp add` puts it into their settings. `recto serve` offers the same at /mcp.

    \b
    Examples:
      recto mcp add claude-code
      recto mcp
      recto --store team.db mcp --session agent:research:main --read-only
      recto mcp --as notes add codex
    """
    if context.invoked_subcommand is not None:
        return
    require_packages("mcp", MCP_PACKAGES, "mcp")
    from recto.adapters.coding_agents import codex_rollout  # noqa: PLC0415  # start-up
    from recto.mcp.stdio import serve, serve_threads  # noqa: PLC0415  # the packages are optional

    settings: Settings = context.obj
    server_settings = replace(settings, session=session or settings.session, model=model or settings.model)
    if namespace is not None:
        serve_threads(server_settings, namespace, partial(codex_rollout, environ=os.environ), read_only=read_only)
    else:
        serve(server_settings, read_only=read_only)


@mcp_command.command("add")
@_client
@click.option("--url", metavar="URL", help="Use this running gateway instead of a separate process.")
@click.option(
    "--key-env",
    default="RECTO_KEY",
    show_default=True,
    metavar="NAME",
    help="The variable of the client's environment that holds the key of the gateway.",
)
@_file
@click.option("--print", "only_print", is_flag=True, help="Write nothing; show what would be written.")
@click.pass_context
def add_command(
    context: click.Context, client: str, url: str | None, key_env: str, file: Path | None, only_print: bool
) -> None:
    """Adds Recto to an MCP client: claude-code, claude-desktop, codex, cursor, gemini-cli, vscode, windsurf, zed.

    Whatever else is in the client's file stays, and the file as it was is kept beside it. A file that is not plain JSON
    or TOML is left alone. `--store`, `--config` and the options of `recto mcp` go along.

    \b
    Examples:
      recto mcp add claude-code
      recto --store ~/work.db mcp --session agent:work:main add cursor
      recto mcp add codex --url http://127.0.0.1:8642 --key-env RECTO_KEY
      recto mcp add vscode --print
    """
    target = BY_NAME[client]
    if url and _served_as(context):
        raise click.UsageError("--as works with a separate process only; leave --url out")
    server = _remote(url, key_env) if url else _local(context)
    if only_print:
        click.echo(config_text(target, server), nl=False)
        return
    path = _path(target, file)
    backup = add(target, server, path)
    if backup is None:
        _print_line(f"{target.title} knows Recto already: {path}")
        return
    _print_line(f"{target.title} knows Recto now: {path}")
    _print_backup(backup, path)
    if url:
        asks = "it asks for the key" if target.prompts_for_key else f"put the key into the variable {key_env}"
        _print_line(f"Restart {target.title}; {asks} ('recto keys add NAME --right read' makes one).")
    else:
        _print_line(f"Restart {target.title}.")


@mcp_command.command("remove")
@_client
@_file
@click.pass_context
def remove_command(context: click.Context, client: str, file: Path | None) -> None:
    """Takes Recto out of an MCP client's settings; everything else in them stays.

    \b
    Examples:
      recto mcp remove claude-code
    """
    target = BY_NAME[client]
    path = _path(target, file)
    backup = remove(target, path, _server_name(context))
    if backup is None:
        _print_line(f"{target.title} does not know Recto: {path}")
        return
    _print_line(f"Recto is out of {path}")
    _print_backup(backup, path)


def _local(context: click.Context) -> ServerSpec:
    """Returns the command that starts this installation, with the options of the call."""
    group = context.parent
    program, *arguments = program_command(context)
    arguments.append("mcp")
    for name in ("session", "model"):
        if value := (group.params.get(name) if group else None):
            arguments += [f"--{name}", value]
    if group and group.params.get("read_only"):
        arguments.append("--read-only")
    if name := _served_as(context):
        arguments += ["--as", name]
    return LocalServer(command=program, arguments=tuple(arguments), name=_server_name(context))


def _served_as(context: click.Context) -> str:
    return str(context.parent.params.get("namespace") or "") if context.parent else ""


def _server_name(context: click.Context) -> str:
    """Returns the name that the client has for the server: Codex looks for its own calls by the server's name."""
    return _served_as(context) or MCP_SERVER


def _remote(url: str, key_env: str) -> ServerSpec:
    if not url.startswith(("http://", "https://")):
        raise click.UsageError("--url begins with http:// or https://")
    if not _VARIABLE.fullmatch(key_env):
        raise click.UsageError("--key-env is the name of a variable: letters, digits and _")
    base = url.rstrip("/")
    return RemoteServer(url=base if base.endswith("/mcp") else f"{base}/mcp", key_variable=key_env)


def _path(client: McpClient, file: Path | None) -> Path:
    return file or Path.home() / client.path


def _print_backup(backup: Path, path: Path) -> None:
    if backup != path.resolve():
        _print_line(f"As it was: {backup}")


def _print_line(line: str) -> None:
    out.print(safe(line), markup=False, soft_wrap=True)
