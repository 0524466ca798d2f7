"""A guessable command line: sections, short help lines, suggestions, and a first screen with the next step."""

from __future__ import annotations

import click
import pytest
from tests.cli.calling import called, called_at

from recto.cli.main import COMMANDS, SECTIONS, recto
from recto.cli.session_group import SESSION_COMMANDS
from recto.lab.commands.group import LAB_COMMANDS

MAX_LINE = 60


def test_every_command_is_in_exactly_one_section():
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(COMMANDS)
    assert list(SECTIONS) == ["Start", "Inspect", "Change", "Serve", "Operate", "Lab"]


@pytest.mark.parametrize(
    "line", [line for _, line in (*COMMANDS.values(), *LAB_COMMANDS.values(), *SESSION_COMMANDS.values())]
)
def test_a_help_line_is_short_and_starts_with_a_verb(line):
    first = line.split()[0]
    assert len(line) < MAX_LINE
    assert first[0].isupper()
    assert not first.endswith("s") or first == "Compress", "the imperative, not the third person"


def test_every_command_names_a_session_with_the_same_option():
    context = click.Context(recto)
    commands = {name: recto.get_command(context, name) for name in COMMANDS if name not in ("session", "lab")}
    for name, group in list(commands.items()):
        if isinstance(group, click.Group):
            commands |= {f"{name} {sub}": group.get_command(context, sub) for sub in group.list_commands(context)}
    named = [(name, parameter) for name, command in commands.items() for parameter in command.params]
    named = [(name, parameter) for name, parameter in named if parameter.name in ("session", "sessions")]
    assert {tuple(parameter.opts) for _, parameter in named} == {("--session",)}, named
    assert len(named) > 20


@pytest.mark.parametrize(
    ("word", "suggestion"),
    [
        ("search", "recto recall"),
        ("replay", "recto lab replay"),
        ("sesions", "recto session ls"),
        ("undo", "recto restore"),
    ],
)
def test_a_wrong_command_is_rejected_with_a_suggestion(tmp_path, word, suggestion):
    assert f"Did you mean '{suggestion}'" in called_at(tmp_path, word, code=2)


@pytest.mark.parametrize("name", LAB_COMMANDS)
def test_an_experiment_is_suggested_by_its_name(tmp_path, name):
    assert f"Did you mean 'recto lab {name}'?" in called_at(tmp_path, name, code=2)


def test_a_word_unlike_any_command_refers_to_the_list_of_commands(tmp_path):
    assert "'recto --help' lists the commands" in called_at(tmp_path, "xyzzyqq", code=2)


def test_without_a_command_an_empty_store_shows_the_next_step(tmp_path):
    output = called_at(tmp_path)
    assert "nothing is stored yet" in output
    assert "recto demo" in output
    assert not (tmp_path / ".recto").exists(), "a read creates no files"


def test_without_a_command_the_stored_sessions_are_shown(tmp_path):
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "The port is 8642."}]')
    called_at(tmp_path, "import", "chat.json", "--session", "agent:me:main", "--model", "gpt-4o")
    output = called_at(tmp_path)
    assert "1 session, the newest agent:me:main" in output
    assert "recto tui" in output


@pytest.mark.parametrize(
    "command",
    [
        (
            "session",
            "ls",
        ),
        ("context", "list"),
        ("recall", "port"),
        ("health",),
        ("verify",),
    ],
)
def test_a_missing_default_store_is_not_an_error_and_a_missing_named_store_is(tmp_path, command):
    assert "Nothing is stored yet" in called_at(tmp_path, *command)
    assert "there is no store here" in called_at(tmp_path, "--store", "other.db", *command, code=4)


def test_the_doctor_examines_an_installation_without_a_store_and_its_embedder(tmp_path):
    output = called_at(tmp_path, "doctor", "--offline")
    assert "nothing is stored yet" in output
    assert "embedder: " in output


@pytest.mark.parametrize(
    ("command", "other"),
    [
        (("session", "ls"), ("session", "list")),
        (("note", "list"), ("note", "ls")),
        (("keys", "list"), ("keys", "ls")),
        (("memory", "list"), ("memory", "ls")),
        (("models", "list"), ("models", "ls")),
        (("context", "list"), ("context", "ls")),
        (("session", "rm"), ("session", "remove")),
        (("mcp", "remove"), ("mcp", "rm")),
    ],
    ids=str,
)
def test_both_spellings_of_a_command_work_and_the_help_lists_only_the_first(command, other):
    first, second = called(*command, "--help"), called(*other, "--help")
    assert (first.returncode, second.returncode) == (0, 0)
    assert second.stdout.split("\n\n", 1)[1] == first.stdout.split("\n\n", 1)[1]
    listed = called(command[0], "--help").stdout
    assert f"\n  {command[1]} " in listed
    assert f"\n  {other[1]} " not in listed
