"""The header of every screen: the menu, and how full the session's prompt is."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.widget import Widget

from recto.engine.views.models import SessionOverview
from recto.text.unicode import one_line
from recto.tui.display_text import percent, plural, red_forecast, short_number
from recto.tui.state import TuiState


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuItem:
    """A screen in the menu."""

    key: str
    name: str
    title: str
    brief: str
    """A shorter title for narrow terminals."""
    description: str


PLACES = (
    MenuItem(key="1", name="chat", title="Chat", brief="Chat", description="Talk with the model"),
    MenuItem(key="2", name="sessions", title="Sessions", brief="Sessions", description="Open a session, or begin one"),
    MenuItem(
        key="3", name="timeline", title="Timeline", brief="Time", description="Tokens over time, zones, decisions"
    ),
    MenuItem(
        key="4", name="window", title="Window", brief="Window", description="The prompt at any turn, block by block"
    ),
    MenuItem(
        key="5", name="transcript", title="Transcript", brief="Entries", description="Every entry, and where it is now"
    ),
    MenuItem(
        key="6",
        name="recall",
        title="Recall",
        brief="Recall",
        description="Search what was said, and see why it is found",
    ),
    MenuItem(
        key="7",
        name="decisions",
        title="Decisions",
        brief="Decisions",
        description="What was evicted and why; undo and redo",
    ),
    MenuItem(key="8", name="health", title="Health", brief="Health", description="Alerts, trends, forecast"),
    MenuItem(
        key="9", name="memory", title="Memory", brief="Memory", description="Approve or reject what may be remembered"
    ),
    MenuItem(key="0", name="notes", title="Notes", brief="Notes", description="Notes and checkpoints"),
)


_MIN_BAR = 8
"""Minimum cells of the gauge's bar."""


class Menu(Widget, can_focus=False):
    """The screens by their keys; the current one is highlighted."""

    def __init__(self, current: str) -> None:
        super().__init__()
        self._current = current

    def render(self) -> Content:
        """Renders the longest form that fits."""
        forms = [
            "  ".join(f"{item.key} {item.title}" for item in PLACES),
            " ".join(f"{item.key}{item.brief}" for item in PLACES),
        ]
        width = self.size.width
        if len(forms[0]) <= width:
            return Content("  ").join(self._part(item, f"{item.key} {item.title}", 2) for item in PLACES)
        if len(forms[1]) <= width:
            return Content(" ").join(self._part(item, f"{item.key}{item.brief}", 1) for item in PLACES)
        labels = (f"{item.key} {item.title}" if item.name == self._current else item.key for item in PLACES)
        return Content(" ").join(self._part(item, text, 1) for item, text in zip(PLACES, labels, strict=True))

    def _part(self, item: MenuItem, text: str, key: int) -> Content:
        if item.name == self._current:
            return Content.styled(text, "bold reverse")
        return Content.assemble((text[:key], "bold $text-accent"), text[key:])


class WindowGauge(Widget, can_focus=False):
    """The session and how full its prompt is: a bar, the zone as word and colour, and the forecast."""

    def __init__(self, state: TuiState) -> None:
        super().__init__()
        self._state = state

    def render(self) -> Content:
        """Renders one line; the least important parts are dropped first."""
        width, now = self.size.width, self._state.now
        name = one_line(self._state.session, max(width // 3, 12))
        if now is None:
            what = "nothing was said in it yet" if self._state.is_loaded else "loading …"
            return Content.assemble((name, "bold"), f"  {what}")
        parts = _parts(now)
        while len(parts) > 1 and len(name) + 4 + _MIN_BAR + _width(parts) > width:
            parts.pop()
        name = one_line(name, max(width - 2 - _width(parts), 1))
        free = width - len(name) - 4 - _width(parts)
        bar = _bar(now, min(free, 4 * _MIN_BAR)) if free >= _MIN_BAR else Content("")
        return Content("  ").join(part for part in (Content.styled(name, "bold"), bar, *parts) if part)


def _parts(now: SessionOverview) -> list[Content]:
    reading = now.reading
    return [
        Content.assemble((f"{percent(reading.utilization)} {reading.zone}", f"bold $zone-{reading.zone}")),
        Content(f"{short_number(reading.tokens)}/{short_number(reading.room)}"),
        Content(red_forecast(reading.turns_until_red)),
        Content(f"{plural(now.left_messages, 'message')} evicted" if now.left_messages else "nothing evicted"),
    ]


def _width(parts: list[Content]) -> int:
    return sum(part.cell_length for part in parts) + 2 * (len(parts) - 1)


def _bar(now: SessionOverview, width: int) -> Content:
    filled = min(round(now.reading.utilization * width), width)
    return Content.assemble(("█" * filled, f"$zone-{now.reading.zone}"), ("░" * (width - filled), "$text-muted"))
