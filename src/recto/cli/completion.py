"""`recto completion`: what a shell needs to complete commands, options, sessions, models and settings."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_RECTO_COMPLETE"
_COLONS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}  # names of sessions hold colons\n"
"""Bash would take `agent:default:main` for five words."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Prints the script that completes 'recto' in a shell.

    \b
    Examples:
      eval "$(recto completion bash)"
      recto completion zsh > "${fpath[1]}/_recto"
      recto completion fish > ~/.config/fish/completions/recto.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # noqa: S101  # click has all three
    script = made(context.find_root().command, {}, "recto", _VARIABLE).source()
    click.echo((_COLONS if shell == "bash" else "") + script)
