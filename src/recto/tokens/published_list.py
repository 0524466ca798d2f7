"""Reads published lists of models: limits and prices, in the shapes that are in common use.

Three shapes are known by their keys: models.dev's `api.json` (providers with their models), OpenRouter's `/models`
(`data`, with prices as text), and litellm's price table (`max_input_tokens` and costs per token).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from recto.errors import InputError
from recto.text.unicode import has_half_characters

_MIN_WINDOW: Final = 1_000
_MAX_WINDOW: Final = 100_000_000
_MAX_PRICE: Final = 10_000_000_000
"""Picodollars per token: 10,000 dollars per million."""
_MAX_NAME: Final = 200
_MAX_MODELS: Final = 50_000
_PICO: Final = Decimal(10) ** 12
_MILLION: Final = Decimal(10) ** 6
_PRICES: Final = ("input_price", "output_price", "cache_read_price", "cache_write_price")
_VENDORS: Final = frozenset(
    {
        "alibaba",
        "anthropic",
        "deepseek",
        "google",
        "llama",
        "meta",
        "mistral",
        "mistralai",
        "moonshotai",
        "openai",
        "qwen",
        "x-ai",
        "xai",
        "z-ai",
        "zai",
    }
)
"""Providers whose figures count for a model that others resell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedModels:
    """The models of a list."""

    models: Mapping[str, Mapping[str, int]]
    """Fields of model cards, by lower-case name."""
    refused: Mapping[str, str]
    """Names of entries that make no sense, and why."""


def read_published(body: object) -> PublishedModels:
    """Read a list. Raises `InputError` if its shape is not known, or nothing in it makes sense."""
    if not isinstance(body, dict):
        raise InputError("the list is not a JSON object")
    offers: dict[str, list[tuple[str, Mapping[str, int]]]] = {}
    refused: dict[str, str] = {}
    for provider, name, fields in _entries(body):
        if len(offers) + len(refused) >= _MAX_MODELS:
            raise InputError(f"the list has more than {_MAX_MODELS:,} models")
        key = name.lower()
        why = _nonsense(name, fields)
        if why:
            refused[name[:_MAX_NAME]] = why
            continue
        offers.setdefault(key, []).append((provider, _stated(fields)))
    if not offers:
        raise InputError("no model with a window is in the list; models.dev, OpenRouter and litellm shapes are known")
    models = {name: _agreed(many) for name, many in offers.items()}
    return PublishedModels(models=models, refused=refused)


def _entries(body: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, object]]]:
    """The provider, the name and the fields of each model that states a window; other entries are skipped."""
    data = body.get("data")
    if isinstance(data, list):
        yield from _openrouter(data)
        return
    for name, entry in body.items():
        if not isinstance(entry, dict):
            continue
        if isinstance(entry.get("models"), dict):
            yield from _models_dev(name, entry["models"])
        elif "max_input_tokens" in entry or "litellm_provider" in entry:
            yield from _litellm(name, entry)


def _openrouter(data: Sequence[object]) -> Iterator[tuple[str, str, dict[str, object]]]:
    for entry in data:
        if not isinstance(entry, dict) or not isinstance(entry.get("id"), str) or "context_length" not in entry:
            continue
        top, pricing = _object(entry.get("top_provider")), _object(entry.get("pricing"))
        window = top.get("context_length") or entry["context_length"]
        keys = ("prompt", "completion", "input_cache_read", "input_cache_write")
        prices = {field: _price(pricing.get(key), _PICO) for field, key in zip(_PRICES, keys, strict=True)}
        provider, _, name = entry["id"].rpartition("/")
        yield provider, name, {"window": window, "max_output": top.get("max_completion_tokens"), **prices}


def _models_dev(provider: str, models: Mapping[str, object]) -> Iterator[tuple[str, str, dict[str, object]]]:
    for id, entry in models.items():
        limit, cost = _object(_object(entry).get("limit")), _object(_object(entry).get("cost"))
        if "context" not in limit:
            continue
        keys = ("input", "output", "cache_read", "cache_write")
        prices = {field: _price(cost.get(key), _MILLION) for field, key in zip(_PRICES, keys, strict=True)}
        limits = {"window": limit["context"], "max_input": limit.get("input"), "max_output": limit.get("output")}
        yield provider, id.rpartition("/")[2], {**limits, **prices}


def _litellm(name: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, object]]]:
    if entry.get("mode", "chat") not in ("chat", "responses") or entry.get("max_input_tokens") is None:
        return
    keys = (
        "input_cost_per_token",
        "output_cost_per_token",
        "cache_read_input_token_cost",
        "cache_creation_input_token_cost",
    )
    prices = {field: _price(entry.get(key), _PICO) for field, key in zip(_PRICES, keys, strict=True)}
    provider = str(entry.get("litellm_provider", ""))
    yield (
        provider,
        name.rpartition("/")[2],
        {"window": entry["max_input_tokens"], "max_output": entry.get("max_output_tokens"), **prices},
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _price(value: object, factor: Decimal) -> object:
    """A price in picodollars per token; what is no number is returned as it is, and refused later."""
    if value is None or isinstance(value, bool):
        return value
    try:
        found = Decimal(str(value)) * factor
        return int(found.to_integral_value()) if found.is_finite() else value
    except (InvalidOperation, ValueError):
        return value


def _nonsense(name: str, fields: Mapping[str, object]) -> str:
    """Why an entry makes no sense; empty if it does."""
    if not name or len(name) > _MAX_NAME or not name.isprintable() or has_half_characters(name):
        return "its name cannot be a model's"
    window, output = fields["window"], fields.get("max_output")
    if not _is_number(window) or not _MIN_WINDOW <= window <= _MAX_WINDOW:  # type: ignore[operator]
        return f"a window of {window!r:.40} tokens"
    for key in ("max_input", "max_output"):
        if (limit := fields.get(key)) is not None and (not _is_number(limit) or limit < 0):  # type: ignore[operator]
            return f"{key} of {limit!r:.40} tokens"
    if output is not None and output > 2 * window:  # type: ignore[operator]
        return f"an output of {output:,} tokens in a window of {window:,}"
    for key in _PRICES:
        price = fields.get(key)
        if price is not None and (not _is_number(price) or not 0 <= price <= _MAX_PRICE):  # type: ignore[operator]
            return f"a price of {price!r:.40} ({key})"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _stated(fields: Mapping[str, Any]) -> dict[str, int]:
    """The fields of a card. A limit of 0 says nothing, and no limit exceeds the window."""
    stated: dict[str, int] = {key: value for key, value in fields.items() if value is not None and key in _PRICES}
    window = fields["window"]
    for key in ("max_input", "max_output"):
        if fields.get(key):
            stated[key] = min(fields[key], window)
    return {"window": window, **stated}


def _agreed(offers: Sequence[tuple[str, Mapping[str, int]]]) -> dict[str, int]:
    """One set of fields from those of several providers: the vendor's own, or the lowest limits and common prices."""
    own = [fields for provider, fields in offers if provider.lower() in _VENDORS]
    found = own or [fields for _, fields in offers]
    agreed: dict[str, int] = {}
    for key in dict.fromkeys(key for fields in found for key in fields):
        values = {fields[key] for fields in found if key in fields}
        if key not in _PRICES:
            agreed[key] = min(values)
        elif len(values) == 1:
            agreed[key] = values.pop()
    for key in ("max_input", "max_output"):
        if key in agreed:
            agreed[key] = min(agreed[key], agreed["window"])
    return agreed
