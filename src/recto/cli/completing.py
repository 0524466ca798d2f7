"""What a shell offers after Tab beside commands and options: sessions, models, keys of settings.

A shell shows nothing of what goes wrong, so whatever does is as if there were nothing to offer.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import fields, is_dataclass
from difflib import get_close_matches

import click

from recto.errors import RectoError
from recto.settings import Settings, load

_MOST = 200


def sessions(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Sessions of the store whose names begin like this."""
    from recto.engine.reading import listed  # noqa: PLC0415
    from recto.storing import open_store  # noqa: PLC0415

    try:
        with closing(open_store(_settings(context), create=False)) as store:
            return [one.session for one in listed(store, limit=10_000) if one.session.startswith(begun)][:_MOST]
    except (RectoError, OSError):
        return []


def models(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """Models that are known, and those of the settings."""
    from recto.models.registry import packaged_cards  # noqa: PLC0415

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
