"""The ways that `recto lab replay` compares: modes crossed with policies, and the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from recto.config import Settings, load
from recto.context.policies.scorers import SCORERS
from recto.lab.baselines import BASELINES
from recto.lab.isolation import isolated
from recto.lab.results import Way

MODES = ("sliding_window", "auto_compact", "zones")
POLICIES = ("prune", *SCORERS)
_WITHOUT_POLICY = frozenset({"auto_compact"})
"""Modes that use no policy: they summarise everything but the newest messages at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A way and its settings."""

    way: Way
    settings: Settings


class Against(click.ParamType[str | Path]):
    """A click type: the name of a baseline, or a settings file."""

    name = "none|trim|FILE"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str | Path:
        """Returns the name or the path."""
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
    """Returns the variants to compare, the baseline first. Their settings are isolated from the user's data."""
    base = _quick(isolated(settings, model=model, window=window))
    baseline = []
    if isinstance(against, Path):
        other = _quick(isolated(load(path=against), model=model, window=window))
        baseline.append(Variant(way=_way(other, against.name, is_baseline=True), settings=other))
    elif against is not None:
        baseline.append(Variant(way=Way(name=against, is_baseline=True), settings=base))
    return [*baseline, *_crossed(base, tuple(dict.fromkeys(modes)) or MODES, tuple(dict.fromkeys(policies)))]


def _crossed(base: Settings, modes: Sequence[str], policies: Sequence[str]) -> Iterator[Variant]:
    for mode in modes:
        if mode in _WITHOUT_POLICY or not policies:
            settings = replace(base, window=replace(base.window, mode=mode))
            yield Variant(way=_way(settings, mode), settings=settings)
            continue
        for policy in policies:
            # settings of one scorer mean nothing to another
            scorer = base.window.scorer if policy == base.window.policy else {}
            settings = replace(base, window=replace(base.window, mode=mode, policy=policy, scorer=scorer))
            yield Variant(way=_way(settings, f"{mode}, {policy}"), settings=settings)


def _way(settings: Settings, name: str, *, is_baseline: bool = False) -> Way:
    mode = settings.window.mode
    policy = None if mode in _WITHOUT_POLICY else settings.window.policy
    return Way(name=name, mode=mode, policy=policy, is_baseline=is_baseline)


def _quick(settings: Settings) -> Settings:
    """Searches by words alone unless the settings name an embedder: embedding every session takes hours."""
    recall = settings.recall
    use = "none" if recall.embedder.use == "auto" else recall.embedder.use
    return replace(settings, recall=replace(recall, embedder=replace(recall.embedder, use=use)))
