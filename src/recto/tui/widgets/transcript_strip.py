"""The whole transcript as one line of cells: where its entries are, up to the shown moment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from rich.segment import Segment
from textual.strip import Strip
from textual.widget import Widget

from recto.engine.window_view import SpanPlace, WindowView

SIGNS: Mapping[SpanPlace, tuple[str, str]] = {
    "event": ("·", "event"),
    "evicted": ("○", "evicted"),
    "summarized": ("◌", "summarised"),
    "in": ("●", "in"),
    "protected": ("◆", "protected"),
    "trimmed": ("◐", "trimmed"),
    "pinned": ("⚑", "pinned"),
    "recalled": ("↺", "recalled"),
}
"""Sign and word of each place. A cell of several entries shows the last of these places that is among them."""
_ORDER = {place: rank for rank, place in enumerate(SIGNS)}


class TranscriptStrip(Widget, can_focus=False):
    """The transcript, oldest entry first; cells behind the shown moment are empty."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*(f"strip--{place}" for place in SIGNS), "strip--cursor"}

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(**kwargs)
        self._view: WindowView | None = None

    def show(self, view: WindowView | None) -> None:
        """Shows another moment."""
        self._view = view
        words = "  ".join(f"{sign} {word}" for sign, word in SIGNS.values())
        self.tooltip = f"The transcript, entry 1 to {view.last:,}: {words}" if view else None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Renders the cells."""
        width, view = self.size.width, self._view
        if view is None or not width or y:
            return Strip.blank(width, self.rich_style)
        places = cells(view, width)
        parts = [Segment(SIGNS[place][0], self._style(place)) for place in places]
        if len(places) < width:
            parts.append(Segment("▏", self._style("cursor")))
        return Strip(parts).adjust_cell_length(width, self.rich_style)

    def _style(self, name: str) -> Any:  # noqa: ANN401  # a style of Rich
        return self.rich_style + self.get_component_rich_style(f"strip--{name}")


def cells(view: WindowView, width: int) -> list[SpanPlace]:
    """The place of each cell: of a transcript as wide as the line, the cells up to the shown moment."""
    entries = max(view.last, 1)
    places: list[SpanPlace] = ["event"] * max(round(view.at * width / entries), 1)
    for span in view.spans:
        first = (span.first - 1) * width // entries
        last = max((span.last * width - 1) // entries, first)
        for cell in range(first, min(last + 1, len(places))):
            if _ORDER[span.place] > _ORDER[places[cell]]:
                places[cell] = span.place
    return places
