"""What is known about models, in layers: each one is trusted more than the one before.

    package data             `model_registry.json`, dated, with its provenance
    configuration            what the user knows better
    the provider's list      what the provider says the model can do
    learned limits           what the provider did when a prompt was too long

A name is looked up as it is, then without what only says where or when it is served: a provider's prefix, a date, a
cloud's decoration. It is never taken for another model that looks like it: a model that is not known gets a small
window and a warning.
"""

from __future__ import annotations

import json
import re
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from recto.errors import SettingsError
from recto.tokens.limits import ModelLimits, limits_in_error, models_in_list
from recto.tokens.model_card import SETTABLE, TEXTS, UNKNOWN_OUTPUT, UNKNOWN_WINDOW, ModelCard

_LIMITS = ("window", "max_input", "max_output")

_FAMILY_OF_NAME = (
    (re.compile(r"claude"), "claude-4.7", "claude-4.7"),
    (re.compile(r"gemini"), "gemini-next", "gemini-3"),
    (re.compile(r"gemma"), "gemini-next", "unknown"),
    (re.compile(r"gpt-oss"), "gpt-oss", "unknown"),
    (re.compile(r"(^|[/.:-])(gpt-[4-9]|o[1-9](-|$)|chatgpt)"), "openai-next", "unknown"),
    (re.compile(r"llama-?3"), "llama3", "unknown"),
    (re.compile(r"deepseek"), "deepseek-next", "unknown"),
    (re.compile(r"qwen|qwq"), "qwen-next", "unknown"),
    (re.compile(r"mistral|mixtral|codestral|devstral|ministral|magistral"), "mistral-next", "unknown"),
    (re.compile(r"(^|[/.:-])glm-"), "glm-next", "unknown"),
    (re.compile(r"kimi"), "kimi-next", "unknown"),
)
"""Names that tell the tokenizer family, and no more: the newest of the family, on the high side."""

_PREFIX = re.compile(r"^(?:ft:|[a-z0-9_-]+[/.](?=[a-z]))")
_SUFFIXES = tuple(
    re.compile(shape)
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
    """A model is not in the registry: its window is assumed to be small until someone says otherwise."""


class Registry:
    """Gives a card for every model name. Safe to use from many threads."""

    def __init__(self, overrides: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._overrides = {name.lower(): _checked(name, given) for name, given in (overrides or {}).items()}
        self._listed: dict[str, ModelLimits] = {}
        self._learned: dict[str, ModelLimits] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()

    def card(self, name: str, *, warn: bool = True) -> ModelCard:
        """The card of a model: package data, with every other layer laid over it. Says once where it is not known."""
        card = self._packaged(name)
        with self._lock:
            given = self._found(self._overrides, name)
            listed = self._found(self._listed, name)
            learned = self._learned.get(name.lower())
        if given:
            card = _over(card, given, "configuration")
        if listed:
            card = _over(card, _stated(listed), "provider's list")
        if learned:
            card = _over(card, _lowering(card, learned), "overflow error")
        if warn and not card.known:
            self._warn(name)
        return card

    def list_models(self, body: Mapping[str, object]) -> int:
        """Takes in a provider's model list; returns how many models it gave limits for.

        This is newer evidence than what was learned from errors before: learned limits of these models are dropped.
        """
        found = {name.lower(): limits for name, limits in models_in_list(body)}
        with self._lock:
            self._listed.update(found)
            for name in list(self._learned):
                if any(shorter in found for shorter in _shorter(name)):
                    del self._learned[name]
        return len(found)

    def learn(self, name: str, error: Mapping[str, object] | str) -> ModelLimits | None:
        """Takes in an error of a provider. None where it is no overflow; else what it said, if it said a number.

        A learned limit can only lower what is known: errors are sometimes wrong, and too low is safe.
        """
        limits = limits_in_error(error)
        if limits:
            with self._lock:
                before = self._learned.get(name.lower(), ModelLimits())
                self._learned[name.lower()] = ModelLimits(
                    window=_lower(before.window, limits.window), max_input=_lower(before.max_input, limits.max_input)
                )
        return limits

    def _packaged(self, name: str) -> ModelCard:
        cards = packaged_cards()
        for shorter in _shorter(name):
            card = cards.get(shorter)
            if card is not None:
                return card if card.name == name else replace(card, name=name)
        return _unknown(name)

    def _warn(self, name: str) -> None:
        with self._lock:
            if not name or name in self._warned:
                return
            self._warned.add(name)
        warnings.warn(
            # A client may have named it: no line of its own, and not as long as it likes.
            f"model {name!r:.80} is not known: its window is taken to be {UNKNOWN_WINDOW:,} tokens. "
            f"Set 'models: {{{ascii(name)[1:-1]:.80}: {{window: …, max_output: …, tokenizer: …}}}}' to what it is.",
            UnknownModelWarning,
            stacklevel=3,
        )

    @staticmethod
    def _found(layer: Mapping[str, Any], name: str) -> Any:  # noqa: ANN401  whatever the layer holds
        return next((layer[shorter] for shorter in _shorter(name) if shorter in layer), None)


@cache
def packaged_cards() -> Mapping[str, ModelCard]:
    """Every card of the package's data, by lower-case name."""
    data = json.loads(resources.files("recto.tokens").joinpath("model_registry.json").read_text(encoding="utf-8"))
    source = f"registry {data['date']}"
    return MappingProxyType({name.lower(): _card(name, given, source) for name, given in data["models"].items()})


def _card(name: str, given: Mapping[str, Any], source: str) -> ModelCard:
    blank = ModelCard(name=name, window=UNKNOWN_WINDOW, max_input=UNKNOWN_WINDOW, max_output=UNKNOWN_OUTPUT)
    return _over(blank, dict(given), source)


def _unknown(name: str) -> ModelCard:
    """The careful default. A window of 8,192 is the least that chat models now in use have."""
    tokenizer, images = "unknown", "unknown"
    for shape, family, formula in _FAMILY_OF_NAME:
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


def _over(card: ModelCard, given: Mapping[str, Any], source: str) -> ModelCard:
    """The card with a layer laid over it, and its limits made to agree."""
    if not given:
        return card
    window, most_in = _agreed(card, given.get("window"), given.get("max_input"))
    changes = {**given, "window": window, "max_input": most_in}
    changes["max_output"] = min(given.get("max_output", card.max_output), window)
    return replace(
        card,
        **changes,
        known=card.known or "window" in given or "max_input" in given,
        source=MappingProxyType({**card.source, **dict.fromkeys(given, source)}),
    )


def _agreed(card: ModelCard, window: int | None, most_in: int | None) -> tuple[int, int]:
    """Window and input limit when one or both of them are given anew."""
    kept_back = card.window - card.max_input if card.known else 0  # OpenAI keeps the answer's share of the window
    if window is None and most_in is None:
        return card.window, card.max_input
    if window is None:
        assert most_in is not None  # noqa: S101  for the type checker
        return (max(card.window, most_in), most_in) if kept_back else (most_in, most_in)
    if most_in is None:
        return window, window - kept_back if kept_back < window else window
    return max(window, most_in), most_in


def _stated(limits: ModelLimits) -> dict[str, int]:
    return {name: limit for name in _LIMITS if (limit := getattr(limits, name)) is not None}


def _lowering(card: ModelCard, learned: ModelLimits) -> dict[str, int]:
    return {name: limit for name, limit in _stated(learned).items() if limit < getattr(card, name) or not card.known}


def _lower(before: int | None, now: int | None) -> int | None:
    return min((limit for limit in (before, now) if limit is not None), default=None)


def _checked(name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    where = f"models.{name}"
    if not isinstance(given, Mapping):
        raise SettingsError(where, "expects names and their values")
    for key, value in given.items():
        if key not in SETTABLE:
            nearest = get_close_matches(str(key), SETTABLE, n=1, cutoff=0.5)
            raise SettingsError(f"{where}.{key}", "there is no such setting", nearest[0] if nearest else None)
        if key in TEXTS:
            if not isinstance(value, str):
                raise SettingsError(f"{where}.{key}", "expects a text")
        elif not isinstance(value, int) or isinstance(value, bool):
            raise SettingsError(f"{where}.{key}", "expects a whole number")
        elif value < (1 if key in _LIMITS else 0):
            raise SettingsError(f"{where}.{key}", "is too small")
    if {"window", "max_input"} <= given.keys() and given["max_input"] > given["window"]:
        raise SettingsError(f"{where}.max_input", "must not be more than the window")
    return given


def _shorter(name: str) -> Iterator[str]:
    """The name, then what is left when prefixes go, then when suffixes go, one at a time."""
    seen: set[str] = set()
    for start in _without_prefixes(name.lower()):
        for left in _without_suffixes(start):
            # OpenRouter writes Claude's versions with a dot.
            for candidate in (left, left.replace(".", "-")) if left.startswith("claude") else (left,):
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
