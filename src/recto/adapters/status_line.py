"""The status line of Claude Code: how full the window is, how long its cache lasts, what the next request costs.

All figures come from what Claude Code passes to a status line, and prices from the model's card. What is not known is
left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recto.config.published_models import registry
from recto.text.unicode import one_line

_PICODOLLARS = 1e12


def status_line(status: Mapping[str, Any], *, now: float, models: Mapping[str, Mapping[str, Any]]) -> str:
    """One line of text; only the name of Recto where nothing is known. `now` is in seconds since 1970."""
    window = _object(status.get("context_window"))
    size, used = _number(window.get("context_window_size")), _number(window.get("used_percentage"))
    tokens = _number(window.get("total_input_tokens"))
    cache = _object(status.get("prompt_cache"))
    expires = _number(cache.get("expires_at"))
    left = max(int(expires - now), 0) if expires is not None else None
    parts = ["recto"]
    if used is not None:
        parts.append(f"{used:.0f} % of {_thousands(size)}" if size else f"{used:.0f} %")
    if left is not None:
        parts.append(f"cache {left // 60}:{left % 60:02} left" if left else "cache cold")
    model = str(_object(status.get("model")).get("id") or "")
    if tokens and model:
        parts += _cost(one_line(model, 100), int(tokens), is_warm=bool(left), models=models)
    return " · ".join(parts)


def _cost(model: str, tokens: int, *, is_warm: bool, models: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What it costs to send the window again: read from the cache while it is warm, written to it when it is cold."""
    card = registry(models).card(model, warn=False)
    cold = card.cache_write_price or card.input_price
    if cold is None:
        return []
    warm = card.cache_read_price
    if is_warm and warm is not None:
        return [f"continue {_dollars(tokens * warm)} (cold {_dollars(tokens * cold)})"]
    return [f"continue {_dollars(tokens * cold)}"]


def _dollars(picodollars: int) -> str:
    dollars = picodollars / _PICODOLLARS
    return f"${dollars:.2f}" if dollars >= 0.1 else f"${dollars:.3f}"


def _thousands(tokens: float) -> str:
    return f"{tokens / 1e6:.3g}M" if tokens >= 1e6 else f"{tokens / 1e3:.0f}K"


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
