"""Every command and option that a text names exists: errors, alerts, help, the page, the documentation, alert rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from recto.cli.main import recto as program

ROOT = Path(__file__).parent.parent
PLACES = ("src/recto", "web/src", "deploy", "docs", "README.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".ts", ".tsx", ".yml", ".yaml", ".json"}
COMMAND = re.compile(r"(?<=['`])recto((?: [\w./:=<>@{}-]+)+)")
PLACEHOLDER = "COMMAND"


def named_commands() -> Iterator[tuple[str, str]]:
    """Yields each command in quotation marks or backticks, with the file that names it."""
    for place in map(ROOT.joinpath, PLACES):
        for file in [place] if place.is_file() else sorted(place.rglob("*")):
            if file.suffix in SUFFIXES and not file.is_relative_to(ROOT / "src/recto/web"):
                for found in COMMAND.finditer(file.read_text(encoding="utf-8")):
                    yield str(file.relative_to(ROOT)), found[1].strip()


def defect(words: list[str]) -> str:
    """Returns what is wrong with a command; empty if it exists with all of its options."""
    command: click.Command = program
    context, rest = click.Context(program), iter(words)
    for word in rest:
        if word == "--":
            return ""
        if word.startswith("-"):
            name = word.partition("=")[0]
            options = {flag: option for option in command.params for flag in (*option.opts, *option.secondary_opts)}
            if name not in options and name not in ("--help", "--version", "-1"):
                return f"'{command.name}' has no option '{name}'"
            option = options.get(name)
            if isinstance(option, click.Option) and not option.is_flag and "=" not in word:
                next(rest, None)
        elif isinstance(command, click.Group) and word != PLACEHOLDER:
            found = command.get_command(context, word)
            if found is None:
                return f"'{command.name}' has no command '{word}'"
            command = found
    return ""


def test_every_command_that_a_text_names_exists():
    named = sorted(set(named_commands()))
    assert len(named) > 300
    wrong = [f"{file}: recto {command}: {why}" for file, command in named if (why := defect(command.split()))]
    assert wrong == []


@pytest.mark.parametrize(
    "command", ["doctor --mend", "sessions", "session list-all", "recall --where x", "context detail --no-such"]
)
def test_a_command_or_option_that_does_not_exist_is_found(command):
    assert defect(command.split())
