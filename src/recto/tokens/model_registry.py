"""Model registry: what is known about models, in layers, each overriding the one before.

package data: `model_registry.json`, dated, with its provenance; a published list that the user took over;
configuration: settings of the user; in a session, what the provider's overflow errors said. The gateway puts the limits
of an upstream's model list, and those that it learned, into the configuration of a session.

A name is looked up as it is, then without its provider prefix, date or cloud suffix. It is never matched to another,
similar model: an unknown model gets a small window and a warning.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from recto.errors import SettingsError
from recto.text.lazy_re import lazy_re
from recto.tokens.model_card import SETTABLE, TEXT_FIELDS, UNKNOWN_OUTPUT, UNKNOWN_WINDOW, ModelCard

if TYPE_CHECKING:
    from recto.tokens.limits import ModelLimits

_LIMITS = ("window", "max_input", "max_output")

_FAMILY_BY_NAME = (
    (lazy_re(r"claude"), "claude-4.7", "claude-4.7"),
    (lazy_re(r"gemini"), "gemini-next", "gemini-3"),
    (lazy_re(r"gemma"), "gemini-next", "unknown"),
    (lazy_re(r"gpt-oss"), "gpt-oss", "unknown"),
    (lazy_re(r"(^|[/.:-])(gpt-[4-9]|o[1-9](-|$)|chatgpt)"), "openai-next", "unknown"),
    (lazy_re(r"llama-?3"), "llama3", "unknown"),
    (lazy_re(r"deepseek"), "deepseek-next", "unknown"),
    (lazy_re(r"qwen|qwq"), "qwen-next", "unknown"),
    (lazy_re(r"mistral|mixtral|codestral|devstral|ministral|magistral"), "mistral-next", "unknown"),
    (lazy_re(r"(^|[/.:-])glm-"), "glm-next", "unknown"),
    (lazy_re(r"kimi"), "kimi-next", "unknown"),
)
"""Names that reveal only the tokenizer family: the newest of the family is used, on the high side."""

_PREFIX = lazy_re(r"^(?:ft:|[a-z0-9_-]+[/.](?=[a-z]))")
_SUFFIXES = tuple(
    lazy_re(shape)
    for shape in (
        r"@[a-z0-9-]+$",  # Vertex
        r"-v\d+:\d+(?::\d+k)?$",  # Bedrock
        r":[a-z0-9.:_-]*$",  # OpenRouter and Ollama tags, fine-tunes
        r"-20\d\d-\d\d-\d\d$",
        r"-20\d{6}$",
        r"-latest$",
        r"(?<=[a-z])-v\d$",  # Claude 3.5 on Vertex and Bedrock
    )
)


class UnknownModelWarning(UserWarning):
    """A model is not in the registry: its window is assumed to be small until configured."""


class Registry:
    """Provides a card for every model name. Thread-safe."""

    def __init__(
        self,
        overrides: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        published: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
        published_from: str = "",
    ) -> None:
        """`published` holds the fields of models by lower-case name, `published_from` says where they come from."""
        self._published = published
        self._published_from = published_from
        self._overrides = {
            name.lower(): _check_override(name, override) for name, override in (overrides or {}).items()
        }
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def card(self, name: str, *, warn: bool = True) -> ModelCard:
        """The card of a model, with all layers applied. Warns once if the model is unknown."""
        card = self._packaged(name)
        if self._published and (published := self._look_up(self._published, name)):
            card = _apply_layer(card, published, self._published_from)
        overrides = self._look_up(self._overrides, name)
        if overrides:
            card = _apply_layer(card, overrides, "configuration")
        if warn and not card.known and overrides is None:  # an empty override says that it is meant to be used
            self._warn(name)
        return card

    def _packaged(self, name: str) -> ModelCard:
        for lookup_name in _lookup_names(name):
            card = _packaged_card(lookup_name)
            if card is not None:
                return card if card.name == name else replace(card, name=name)
        return _default_card(name)

    def _warn(self, name: str) -> None:
        with self._lock:
            if not name or name in self._warned:
                return
            self._warned.add(name)
        warnings.warn(
            # The name may come from a client: keep it short and on one line.
            f"model {name!r:.80} is not known: its window is taken to be {UNKNOWN_WINDOW:,} tokens. "
            f"Set 'models: {{{ascii(name)[1:-1]:.80}: {{window: …, max_output: …, tokenizer: …}}}}' to what it is.",
            UnknownModelWarning,
            stacklevel=3,
        )

    @staticmethod
    def _look_up(layer: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401  whatever the layer holds
        return next((layer[lookup_name] for lookup_name in _lookup_names(name) if lookup_name in layer), None)


def lower_limits(card: ModelCard, stated: ModelLimits) -> ModelCard:
    """A card with the limits that an overflow error stated, where they are lower or the model is unknown.

    They can only lower what is known: errors are sometimes wrong, and too low is safe.
    """
    found = {name: limit for name in _LIMITS if (limit := getattr(stated, name)) is not None}
    lower = {name: limit for name, limit in found.items() if limit < getattr(card, name) or not card.known}
    return _apply_layer(card, lower, "overflow error")


def packaged_cards() -> Mapping[str, ModelCard]:
    """Every card in the package data, by lower-case name."""
    cards = {name: _packaged_card(name) for name in _packaged_models()}
    return MappingProxyType({name: card for name, card in cards.items() if card is not None})


@cache
def _packaged_models() -> Mapping[str, tuple[str, Mapping[str, Any], str]]:
    """The name, the fields and the source of each model in the package data, by lower-case name."""
    data = json.loads(Path(__file__).with_name("model_registry.json").read_text(encoding="utf-8"))
    source = f"registry {data['date']}"
    return {name.lower(): (name, fields, source) for name, fields in data["models"].items()}


def _packaged_card(lookup_name: str) -> ModelCard | None:
    found = _packaged_models().get(lookup_name)
    return None if found is None else _card_of(lookup_name)


@cache
def _card_of(packaged_name: str) -> ModelCard:
    """The card of a packaged model, built when it is first looked up: a process uses a few of several hundred."""
    return _card(*_packaged_models()[packaged_name])


def _card(name: str, fields: Mapping[str, Any], source: str) -> ModelCard:
    blank = ModelCard(name=name, window=UNKNOWN_WINDOW, max_input=UNKNOWN_WINDOW, max_output=UNKNOWN_OUTPUT)
    return _apply_layer(blank, dict(fields), source)


def _default_card(name: str) -> ModelCard:
    """The conservative default for unknown models."""
    tokenizer, images = "unknown", "unknown"
    for shape, family, formula in _FAMILY_BY_NAME:
        if shape.search(name.lower()):
            tokenizer, images = family, formula
            break
    return ModelCard(
        name=name,
        window=UNKNOWN_WINDOW,
        max_input=UNKNOWN_WINDOW,
        max_output=UNKNOWN_OUTPUT,
        tokenizer=tokenizer,
        images=images,
        known=False,
        source=MappingProxyType(dict.fromkeys(_LIMITS, "default")),
    )


def _apply_layer(card: ModelCard, layer: Mapping[str, Any], source: str) -> ModelCard:
    """Apply a layer to a card and make its limits consistent."""
    if not layer:
        return card
    window, max_input = _consistent_limits(card, layer.get("window"), layer.get("max_input"))
    changes = {**layer, "window": window, "max_input": max_input}
    changes["max_output"] = min(layer.get("max_output", card.max_output), window)
    return replace(
        card,
        **changes,
        known=card.known or "window" in layer or "max_input" in layer,
        source=MappingProxyType({**card.source, **dict.fromkeys(layer, source)}),
    )


def _consistent_limits(card: ModelCard, window: int | None, max_input: int | None) -> tuple[int, int]:
    """Window and input limit after one or both have changed."""
    reserved = card.window - card.max_input if card.known else 0  # OpenAI reserves part of the window for the output
    if window is None and max_input is None:
        return card.window, card.max_input
    if window is None:
        assert max_input is not None  # noqa: S101  for the type checker
        return (max(card.window, max_input), max_input) if reserved else (max_input, max_input)
    if max_input is None:
        return window, window - reserved if reserved < window else window
    return max(window, max_input), max_input


def _check_override(name: str, override: Mapping[str, Any]) -> Mapping[str, Any]:
    where = f"models.{name}"
    if not isinstance(override, Mapping):
        raise SettingsError(where, "expects names and their values")
    for key, value in override.items():
        if key not in SETTABLE:
            from difflib import get_close_matches  # noqa: PLC0415  # start-up: only for an error

            nearest = get_close_matches(str(key), SETTABLE, n=1, cutoff=0.5)
            raise SettingsError(f"{where}.{key}", "there is no such setting", nearest[0] if nearest else None)
        if key in TEXT_FIELDS:
            if not isinstance(value, str):
                raise SettingsError(f"{where}.{key}", "expects a text")
        elif not isinstance(value, int) or isinstance(value, bool):
            raise SettingsError(f"{where}.{key}", "expects a whole number")
        elif value < (1 if key in _LIMITS else 0):
            raise SettingsError(f"{where}.{key}", "is too small")
    if {"window", "max_input"} <= override.keys() and override["max_input"] > override["window"]:
        raise SettingsError(f"{where}.max_input", "must not be more than the window")
    return override


def _lookup_names(name: str) -> Iterator[str]:
    """The name, then without prefixes, then without suffixes, removed one at a time."""
    seen: set[str] = set()
    for start in _without_prefixes(name.lower()):
        for candidate_base in _without_suffixes(start):
            # OpenRouter writes Claude's versions with a dot.
            for candidate in (
                (candidate_base, candidate_base.replace(".", "-"))
                if candidate_base.startswith("claude")
                else (candidate_base,)
            ):
                if candidate and candidate not in seen:
                    seen.add(candidate)
                    yield candidate


def _without_prefixes(name: str) -> Iterable[str]:
    while True:
        yield name
        shorter = _PREFIX.sub("", name, count=1)
        if shorter == name:
            return
        name = shorter


def _without_suffixes(name: str) -> Iterable[str]:
    while True:
        yield name
        for suffix in _SUFFIXES if name.startswith("claude") else _SUFFIXES[:-1]:
            shorter = suffix.sub("", name)
            if shorter != name:
                break
        else:
            return
        name = shorter
