"""A group of commands that imports only the module of the command that is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click


class ReaderGone(Exception):  # named for what happened
    """Standard output was closed by its reader, as after `recto session ls | head -1`."""


_OTHER_SPELLINGS = {"ls": "list", "list": "ls", "rm": "remove", "remove": "rm"}
"""Commands that go by another name elsewhere: every group takes both, and its help lists one."""


class SpellingGroup(click.Group):
    """Commands under both of their usual names: `ls` and `list`, `rm` and `remove`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns a command by its name or by the other spelling of it."""
        named = super().get_command(ctx, cmd_name)
        return named or super().get_command(ctx, _OTHER_SPELLINGS.get(cmd_name, cmd_name))


class LazyGroup(click.Group):
    """Commands by the module that defines them, listed in sections, with a suggestion for a wrong name."""

    def __init__(
        self,
        *args: Any,  # noqa: ANN401  # as click's
        modules: Mapping[str, tuple[str, str]],
        sections: Mapping[str, Sequence[str]] | None = None,
        elsewhere: Mapping[str, str] | None = None,
        **kwargs: Any,  # noqa: ANN401
    ) -> None:
        """`modules` names the module of each command and its line of help; it defines `NAME_command`. `elsewhere` names
        the command that a caller may mean by another word."""
        super().__init__(*args, **kwargs)
        self._modules = modules
        self._sections = sections or {"Commands": sorted(modules)}
        self._elsewhere = elsewhere or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of all commands."""
        return sorted(self._modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns a command, by its name or by the other spelling of it."""
        if cmd_name not in self._modules:
            cmd_name = _OTHER_SPELLINGS.get(cmd_name, "")
        if cmd_name not in self._modules:
            return None
        module = import_module(self._modules[cmd_name][0])
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401  # as click's
    ) -> click.Context:
        """Reads the arguments; `--help` and `--version` print here.

        Raises:
            ReaderGone: Standard output is a pipe that was closed. Click would end the program with the code 1 there.
        """
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401  # as click's
        """Runs a command.

        Raises:
            ReaderGone: Standard output is a pipe that was closed. Click would end the program with the code 1 there.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command of a call; a wrong name is refused with the nearest ones."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            words = [name] if name in self._elsewhere else [*self._modules, *self._elsewhere]
            near = [self._elsewhere.get(word, word) for word in get_close_matches(name, words, n=2, cutoff=0.6)]
            suggestions = " or ".join(f"'{ctx.command_path} {word}'" for word in dict.fromkeys(near))
            hint = f"Did you mean {suggestions}?" if near else f"'{ctx.command_path} --help' lists the commands."
            ctx.fail(f"there is no command '{name:.80}'. {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands by section, without importing them."""
        width = max(map(len, self._modules))
        for title, names in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self._modules[name][1]) for name in names])
