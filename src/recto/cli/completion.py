"""`recto completion`: shell completion of commands, options, sessions, models and settings."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import fields, is_dataclass
from difflib import get_close_matches

import click
from click.shell_completion import get_completion_class

from recto.config import Settings, load
from recto.errors import RectoError

_MAX_CHOICES = 200


def complete_sessions(context: click.Context, parameter: click.Parameter, prefix: str) -> list[str]:
    """Returns the sessions of the store that start with a prefix."""
    from recto.config.factory import open_store  # noqa: PLC0415
    from recto.transcript.session_keys import list_sessions  # noqa: PLC0415

    try:
        with closing(open_store(_settings(context), create=False)) as store:
            return [
                summary.session for summary in list_sessions(store, limit=10_000) if summary.session.startswith(prefix)
            ][:_MAX_CHOICES]
    except (RectoError, OSError):
        return []


def complete_models(context: click.Context, parameter: click.Parameter, prefix: str) -> list[str]:
    """Returns known models and those of the settings."""
    from recto.tokens.model_registry import packaged_cards  # noqa: PLC0415

    try:
        configured: Iterable[str] = _settings(context).models
    except RectoError:
        configured = ()
    return sorted(name for name in {*configured, *packaged_cards()} if name.startswith(prefix))[:_MAX_CHOICES]


def complete_keys(context: click.Context, parameter: click.Parameter, prefix: str) -> list[str]:
    """Returns the keys of settings."""
    return [name for name in known_keys() if name.startswith(prefix)]


def known_keys() -> list[str]:
    """Returns every key of the settings, groups too."""
    return list(_keys_of(Settings(), ""))


def nearest_key(key: str) -> str | None:
    """Returns the known key that is most similar to another."""
    return next(iter(get_close_matches(key, known_keys(), n=1, cutoff=0.5)), None)


def _keys_of(tree: object, path: str) -> Iterable[str]:
    if is_dataclass(tree):
        for field in fields(tree):
            yield f"{path}{field.name}"
            yield from _keys_of(getattr(tree, field.name), f"{path}{field.name}.")


def _settings(context: click.Context) -> Settings:
    """Loads the settings for the line that is being completed, whose options were not yet evaluated."""
    options = context.find_root().params
    return load(path=options.get("config"), arguments={"store": options.get("store")})


_VARIABLE = "_RECTO_COMPLETE"
_COLONS = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}  # names of sessions hold colons\n"
"""Bash would split `agent:default:main` into five words."""


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
    shell_class = get_completion_class(shell)
    assert shell_class is not None  # noqa: S101  # click has all three
    script = shell_class(context.find_root().command, {}, "recto", _VARIABLE).source()
    click.echo((_COLONS if shell == "bash" else "") + script)
