"""The ways in which `recto replay` keeps a session: modes crossed with policies, and what they are set against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from recto.config import Settings, load
from recto.context.policies.scorers import SCORERS
from recto.lab.baselines import BASELINES
from recto.lab.isolation import apart
from recto.lab.results import Way

MODES = ("sliding_window", "auto_compact", "zones")
POLICIES = ("prune", *SCORERS)
_WITHOUT_POLICY = frozenset({"auto_compact"})
"""Modes that ask no policy: everything but the newest is summarised at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way, with the settings that make it."""

    way: Way
    settings: Settings


class Against(click.ParamType[str | Path]):
    """A baseline by its name, or a file of other settings."""

    name = "none|trim|FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str | Path:
        """The name, or the file."""
        if value in BASELINES:
            return str(value)
        file = Path(str(value))
        if not file.is_file():
            self.fail(f"{str(value)!r} is neither 'none' nor 'trim', nor a file of settings.", param, ctx)
        return file


def variants(
    settings: Settings,
    *,
    model: str | None,
    window: int | None,
    modes: Sequence[str] = (),
    policies: Sequence[str] = (),
    against: str | Path | None = None,
) -> list[Variant]:
    """What is compared, the baseline first. Nothing of the user's is touched in any of them."""
    own = _quick(apart(settings, model=model, window=window))
    found = []
    if isinstance(against, Path):
        other = _quick(apart(load(path=against), model=model, window=window))
        found.append(Variant(way=_way(other, against.name, is_baseline=True), settings=other))
    elif against is not None:
        found.append(Variant(way=Way(name=against, is_baseline=True), settings=own))
    return [*found, *_crossed(own, tuple(dict.fromkeys(modes)) or MODES, tuple(dict.fromkeys(policies)))]


def _crossed(own: Settings, modes: Sequence[str], policies: Sequence[str]) -> Iterator[Variant]:
    for mode in modes:
        if mode in _WITHOUT_POLICY or not policies:
            one = replace(own, window=replace(own.window, mode=mode))
            yield Variant(way=_way(one, mode), settings=one)
            continue
        for policy in policies:
            # what was set for one scorer means nothing to another
            scorer = own.window.scorer if policy == own.window.policy else {}
            one = replace(own, window=replace(own.window, mode=mode, policy=policy, scorer=scorer))
            yield Variant(way=_way(one, f"{mode}, {policy}"), settings=one)


def _way(settings: Settings, name: str, *, is_baseline: bool = False) -> Way:
    mode = settings.window.mode
    policy = None if mode in _WITHOUT_POLICY else settings.window.policy
    return Way(name=name, mode=mode, policy=policy, is_baseline=is_baseline)


def _quick(settings: Settings) -> Settings:
    """With an embedder that takes no time, unless the settings name one: what a window costs hardly depends on it."""
    given = settings.recall
    use = "hashing" if given.embedder.use == "auto" else given.embedder.use
    return replace(settings, recall=replace(given, embedder=replace(given.embedder, use=use)))
