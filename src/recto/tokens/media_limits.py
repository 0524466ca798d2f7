"""What providers accept of images, documents and audio in one request, and which of them have to go.

The figures are those of the providers' documentation; `docs/window.md` names the pages. A limit that is not known is
absent. The newest media stay. Older ones are replaced in steps, so that the prompt's prefix changes seldom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from recto.formats.message import Media
from recto.formats.registry import format_named

_MB = 1024 * 1024
_FRAME_BYTES = _MB
"""Bytes of a request that are left for tool schemas, system text and parameters."""


def _in_base64(size: int) -> int:
    """The bytes of a file of this size in base64."""
    return -(-size // 3) * 4


class MediaLimits(Struct, frozen=True, kw_only=True):
    """The limits of one provider for one request."""

    body: float = inf
    """Bytes of the whole request."""
    items: float = inf
    """Images and documents together."""
    item_bytes: Mapping[str, float]
    """Bytes of one item as it is sent (base64), by kind."""
    side: float = inf
    """Pixels of the longer side of an image."""
    crowd: float = inf
    """With more images than this, `crowd_side` is the limit for each."""
    crowd_side: float = inf
    pages: float = inf
    """Pages of all documents together."""
    item_pages: float = inf
    """Pages of one document."""
    long_window: float = inf
    """Models with a window of so many tokens take `long_items` items and `long_pages` pages."""
    long_items: float = inf
    long_pages: float = inf

    def for_window(self, window: int) -> MediaLimits:
        """The limits for a model with this window."""
        return self if window < self.long_window else replace(self, items=self.long_items, pages=self.long_pages)

    def accepts(self, media: Media) -> bool:
        """Whether the provider takes this item in any request."""
        return (
            media.weight <= self.item_bytes.get(media.kind, inf)
            and max(media.size or (0,)) <= self.side
            and media.pages <= min(self.pages, self.item_pages)
        )


LIMITS: Mapping[str, MediaLimits] = {
    "anthropic": MediaLimits(
        body=32 * _MB,
        items=100,
        item_bytes={"image": 5 * _MB, "document": 32 * _MB},
        side=8_000,
        crowd=20,
        crowd_side=2_000,
        pages=100,
        long_window=1_000_000,
        long_items=600,
        long_pages=600,
    ),
    "openai": MediaLimits(
        body=50 * _MB,
        items=500,
        item_bytes={"image": _in_base64(20 * _MB), "document": 50 * _MB, "audio": _in_base64(20 * _MB)},
    ),
    "google": MediaLimits(body=100 * _MB, items=3_000, item_bytes={"document": _in_base64(50 * _MB)}, item_pages=1_000),
}
"""By the provider of a model card."""
_DEFAULT = "openai"
"""Other providers are asked in its formats, and state no more."""


def media_limits(provider: str, wire: str, window: int = 0) -> MediaLimits:
    """The limits of a provider; where nothing is known of it, those of the provider whose format it is.

    `window` is the window of the model in tokens; 0 if unknown.
    """
    known = (name for name in (provider, *sorted(format_named(wire).providers), _DEFAULT) if name in LIMITS)
    return LIMITS[next(known)].for_window(window)


def refusal_of(media: Sequence[Media], text_bytes: int, limits: MediaLimits) -> str:
    """Why no request with all of these media is accepted, whatever else it contains; empty if one may be."""
    for item in media:
        if not limits.accepts(item):
            return f"{_named(item)} is more than the provider accepts"
    if _kept(media, limits, limits.body - _FRAME_BYTES - text_bytes) == len(media):
        return ""
    sizes = f"{len(media)} items of {sum(item.weight for item in media) / 1e6:.1f} MB"
    pages = sum(item.pages for item in media)
    return f"{sizes}{f' with {pages} pages' if pages else ''} are more than the provider accepts in one request"


def _named(item: Media) -> str:
    size = [f"{item.size[0]}×{item.size[1]} pixels"] if item.size else []
    pages = [f"{item.pages} pages"] if item.pages else []
    return f"one {item.kind} of {', '.join([*size, *pages, f'{item.weight / 1e6:.1f} MB'])}"


def surplus_media(
    media: Mapping[int, Sequence[Media]], text_bytes: int, limits: MediaLimits
) -> dict[int, tuple[int, ...]]:
    """Which media have to be replaced for a request to be accepted, by entry: their places in the message.

    Args:
        media: The media of each entry, oldest entry first.
        text_bytes: The bytes of the request without media.
        limits: What the provider accepts.
    """
    places = [(seq, at) for seq, items in media.items() for at in range(len(items))]
    refused = [place for place in places if not limits.accepts(media[place[0]][place[1]])]
    rest = [place for place in places if place not in set(refused)] if refused else places
    kept = _kept(
        [media[seq][at] for seq, at in rest],
        limits,
        limits.body - _FRAME_BYTES - text_bytes,
    )
    dropped = len(rest) - kept
    if dropped:
        # In steps: otherwise each new image would replace one old one, and no prefix would ever be cached.
        step = 1 << max((kept // 4).bit_length() - 1, 0)
        newest = sum(seq == rest[-1][0] for seq, _ in rest)
        dropped = max(dropped, min(-(-dropped // step) * step, len(rest) - newest))
    surplus: dict[int, tuple[int, ...]] = {}
    for seq, at in (*refused, *rest[:dropped]):
        surplus[seq] = (*surplus.get(seq, ()), at)
    return surplus


def _kept(items: Sequence[Media], limits: MediaLimits, room: float) -> int:
    """How many of these, counted from the newest, one request may hold."""
    images, largest, pages = 0, 0, 0
    for kept, item in enumerate(reversed(items)):
        room -= item.weight
        pages += item.pages
        if item.kind == "image":
            images += 1
            largest = max(largest, *(item.size or (0,)))
        crowded = images > limits.crowd and largest > limits.crowd_side
        if room < 0 or kept >= limits.items or pages > limits.pages or crowded:
            return kept
    return len(items)
