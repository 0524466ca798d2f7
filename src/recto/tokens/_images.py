"""Token costs of images, by the vendors' published formulas.

Each vendor scales an image down to its own limits and charges by tiles or patches. Results are the formulas' values or
an upper bound; an image of unknown size costs the formula's maximum. Nothing here opens an image: the part provides
width and height.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TypeAlias

ImageSize: TypeAlias = "tuple[int, int] | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """OpenAI, models up to GPT-5: fit into 2,048 px, short side to 768 px, then 512 px tiles plus a base."""

    base: int
    tile: int

    def cost(self, size: ImageSize, detail: str) -> int:
        """Tokens of one image."""
        if detail == "low":
            return self.base
        if size is None:
            return self.base + 8 * self.tile  # 2,048 x 768, the largest size after scaling: 4 x 2 tiles
        width, height = _fit_long_side(size, 2048)
        width, height = _fit_short_side(width, height, 768)
        return self.base + self.tile * ceil(width / 512) * ceil(height / 512)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patches:
    """OpenAI, small and later models: 32 px patches up to a limit, times the model's multiplier."""

    limit: int
    percent: int
    """The multiplier in hundredths."""
    original: int = 0
    """The limit with detail `original`, if the model supports it."""

    def cost(self, size: ImageSize, detail: str) -> int:
        """Tokens of one image. Low detail saves nothing here, according to third-party measurements."""
        limit = max(self.limit, self.original) if detail == "original" else self.limit
        patches = limit if size is None else min(limit, ceil(size[0] / 32) * ceil(size[1] / 32))
        return ceil(patches * self.percent / 100)


@dataclass(frozen=True, slots=True, kw_only=True)
class Squares:
    """Anthropic: long edge to a limit, then 28 px squares up to a limit."""

    edge: int
    limit: int

    def cost(self, size: ImageSize, detail: str) -> int:
        """Tokens of one image."""
        if size is None:
            return self.limit
        width, height = _fit_long_side(size, self.edge)
        return min(self.limit, ceil(width / 28) * ceil(height / 28))


@dataclass(frozen=True, slots=True, kw_only=True)
class Crops:
    """Gemini up to 2.5: 258 for a small image, else 258 per crop; the crop size follows the short side."""

    def cost(self, size: ImageSize, detail: str) -> int:
        """Tokens of one image."""
        if size is None:
            return 258 * 16  # 3,072 x 3,072, the largest size after scaling
        if max(size) <= 384:
            return 258
        unit = min(768, max(256, min(size) * 2 // 3))
        return 258 * ceil(size[0] / unit) * ceil(size[1] / unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolutions:
    """Gemini 3 and later: a fixed price per media resolution, whatever the size."""

    def cost(self, size: ImageSize, detail: str) -> int:
        """Tokens of one image."""
        prices = {"low": 280, "medium": 560, "high": 1120, "ultra_high": 2240, "original": 2240}
        return prices.get(detail.lower().removeprefix("media_resolution_"), 1120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbounded:
    """A model with an unknown formula: the finest squares, without a limit."""

    def cost(self, size: ImageSize, detail: str) -> int:
        """Tokens of one image."""
        return 4784 if size is None else max(85, ceil(size[0] / 28) * ceil(size[1] / 28))


Formula: TypeAlias = Tiles | Patches | Squares | Crops | Resolutions | Unbounded

FORMULAS: dict[str, Formula] = {
    "openai-tiles": Tiles(base=85, tile=170),
    "openai-tiles-mini": Tiles(base=2833, tile=5667),
    "openai-tiles-o": Tiles(base=75, tile=150),
    "openai-tiles-5": Tiles(base=70, tile=140),
    "openai-patches-162": Patches(limit=1536, percent=162),
    "openai-patches-172": Patches(limit=1536, percent=172),
    "openai-patches-246": Patches(limit=1536, percent=246),
    "openai-patches-large": Patches(limit=2500, percent=120, original=10000),
    "openai-patches-small": Patches(limit=2500, percent=246, original=10000),
    "claude": Squares(edge=1568, limit=1600),
    "claude-4.7": Squares(edge=2576, limit=4784),
    "gemini": Crops(),
    "gemini-3": Resolutions(),
    "unknown": Unbounded(),
}
"""By the name used in model cards."""


def image_tokens(formula: str, size: ImageSize, detail: str = "") -> int:
    """Tokens of one image; an unknown formula name counts as `unknown`."""
    if size is not None and min(size) < 1:
        size = None
    return FORMULAS.get(formula, FORMULAS["unknown"]).cost(size, detail)


def _fit_long_side(size: tuple[int, int], edge: int) -> tuple[int, int]:
    longest = max(size)
    if longest <= edge:
        return size
    return ceil(size[0] * edge / longest), ceil(size[1] * edge / longest)


def _fit_short_side(width: int, height: int, side: int) -> tuple[int, int]:
    shortest = min(width, height)
    if shortest <= side:
        return width, height
    return ceil(width * side / shortest), ceil(height * side / shortest)
