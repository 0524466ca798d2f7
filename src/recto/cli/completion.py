"""`recto completion`: what a shell needs to complete commands, options, sessions, models and settings."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import fields, is_dataclass
from difflib import get_close_matches

import click
from click.shell_completion import get_completion_class

from recto.config import Settings, load
from recto.errors import RectoError

_MOST = 200


def sessions(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Sessions of the store whose names begin like this."""
    from recto.config.factory import open_store  # noqa: PLC0415
    from recto.formats.entry_text import list_sessions  # noqa: PLC0415

    try:
        with closing(open_store(_settings(context), create=False)) as store:
            return [one.session for one in list_sessions(store, limit=10_000) if one.session.startswith(begun)][:_MOST]
    except (RectoError, OSError):
        return []


def models(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Models that are known, and those of the settings."""
    from recto.tokens.model_registry import packaged_cards  # noqa: PLC0415

    try:
        own: Iterable[str] = _settings(context).models
    except RectoError:
        own = ()
    return sorted(name for name in {*own, *packaged_cards()} if name.startswith(begun))[:_MOST]


def keys(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Keys of settings."""
    return [name for name in known_keys() if name.startswith(begun)]


def known_keys() -> list[str]:
    """Every key that can be set, groups too."""
    return list(_keys_of(Settings(), ""))


def nearest_key(key: str) -> str | None:
    """The known key that is most like another."""
    return next(iter(get_close_matches(key, known_keys(), n=1, cutoff=0.5)), None)


def _keys_of(tree: object, path: str) -> Iterable[str]:
    if is_dataclass(tree):
        for one in fields(tree):
            yield f"{path}{one.name}"
            yield from _keys_of(getattr(tree, one.name), f"{path}{one.name}.")


def _settings(context: click.Context) -> Settings:
    """The settings of the line that is being completed: nothing of it was carried out."""
    given = context.find_root().params
    return load(path=given.get("config"), arguments={"store": given.get("store")})


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
