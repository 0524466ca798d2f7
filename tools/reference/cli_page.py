"""Every command of `recto`, as its own help tells it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from recto.cli.main import recto
from reference.markdown import cell, code_cell, fence, link, page, prose, slug, table

_ABOUT = """Every command with its arguments, options and examples: what `recto COMMAND --help` prints. What they
are for, what they print and how they end, with examples that are run by the tests: [the command line](../cli.md)."""


def written() -> str:
    """The whole page."""
    root = click.Context(recto, info_name="recto")
    found = list(_commands(recto, root))
    names = ((f"[`{name}`](#{slug(name)})", cell(one.get_short_help_str(200))) for name, one, _ in found)
    parts = [part for name, one, context in found for part in _section(name, one, context)]
    return page(
        "Command line reference",
        _ABOUT,
        *_section("recto", recto, root, linked=False),
        "## Commands",
        table(("command", "does"), names),
        *parts,
    )


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=context)
        yield below.command_path, command, below
        if isinstance(command, click.Group):
            yield from _commands(command, below)


def _section(name: str, command: click.Command, context: click.Context, *, linked: bool = True) -> Iterator[str]:
    yield f"## {name}"
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    yield fence("text", usage)
    yield from _help(command.help or "")
    records = [one for parameter in command.get_params(context) if (one := parameter.get_help_record(context))]
    yield table(
        ("option", "means"), ((code_cell(flags), cell(says)) for flags, says in records if "--help" not in flags)
    )
    if linked:
        yield f"In words: {link('the command line', '../cli.md', name)}."


def _help(text: str) -> Iterator[str]:
    """Paragraphs, and examples as they stand."""
    for part in re.split(r"\n\s*\n", inspect.cleandoc(text.partition("\f")[0])):
        if not part.startswith("\b"):
            yield prose(part)
            continue
        first, *lines = part.removeprefix("\b").strip("\n").splitlines()
        yield prose(first)
        yield fence("sh", inspect.cleandoc("\n" + "\n".join(lines)))
