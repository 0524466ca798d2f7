"""The group `recto session`: which module holds each of its commands."""

from __future__ import annotations

import click

from recto.cli._lazy_group import LazyGroup

SESSION_COMMANDS: dict[str, tuple[str, str]] = {
    "ls": ("recto.cli.sessions", "List the sessions of the store."),
    "show": ("recto.cli.sessions", "Show the entries of a session."),
    "export": ("recto.cli.import_export", "Export sessions, losslessly or as messages."),
    "fork": ("recto.cli.sessions", "Copy a session up to an entry, to try something else."),
    "rename": ("recto.cli.sessions", "Give a session a title."),
    "rm": ("recto.cli.store", "Erase sessions for good, and record that."),
}
"""The module of each command and its line of help."""


@click.group(
    "session",
    cls=LazyGroup,
    modules=SESSION_COMMANDS,
    sections={"Commands": tuple(SESSION_COMMANDS)},
    elsewhere={"erase": "rm", "delete": "rm", "copy": "fork", "title": "rename"},
)
def session_command() -> None:
    """Lists, shows, exports, forks, renames and erases sessions.

    A session is named by its key, as `recto session ls` lists it.

    \b
    Examples:
      recto session ls
      recto session show agent:default:main --last 5
      recto session rename agent:default:main "Login bug"
      recto session export agent:default:main -o session.jsonl
    """
