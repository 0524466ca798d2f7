"""What stands above every screen: which screens there are, and how full the prompt of the session is now."""

from __future__ import annotations

from dataclasses import dataclass

from textual.content import Content
from textual.widget import Widget

from recto.engine.views.models import SessionOverview
from recto.text.unicode import one_line
from recto.tui.formatting import counted, share, short, until
from recto.tui.state import TuiState


@dataclass(frozen=True, slots=True, kw_only=True)
class MenuItem:
    """One of the screens."""

    key: str
    name: str
    title: str
    brief: str
    """Its title where there is little room."""
    about: str


PLACES = (
    MenuItem(key="1", name="chat", title="Chat", brief="Chat", about="Talk with the model"),
    MenuItem(key="2", name="sessions", title="Sessions", brief="Sessions", about="Open a session, or begin one"),
    MenuItem(key="3", name="timeline", title="Timeline", brief="Time", about="Tokens over time, zones, decisions"),
    MenuItem(key="4", name="window", title="Window", brief="Window", about="What the prompt is made of"),
    MenuItem(key="5", name="transcript", title="Transcript", brief="Entries", about="Every entry, and where it is now"),
    MenuItem(
        key="6", name="recall", title="Recall", brief="Recall", about="Search what was said, and see why it is found"
    ),
    MenuItem(key="7", name="decisions", title="Decisions", brief="Decisions", about="What left and why; undo and redo"),
    MenuItem(key="8", name="health", title="Health", brief="Health", about="Alerts, trends, forecast"),
    MenuItem(key="9", name="memory", title="Memory", brief="Memory", about="Approve or reject what may be remembered"),
    MenuItem(key="0", name="notes", title="Notes", brief="Notes", about="Notes and checkpoints"),
)


_LEAST = 8
"""Cells of the gauge's bar."""


class Menu(Widget, can_focus=False):
    """The screens by their keys; the one that is shown stands out."""

    def __init__(self, here: str) -> None:
        super().__init__()
        self._here = here

    def render(self) -> Content:
        """The longest form that fits."""
        forms = [
            "  ".join(f"{one.key} {one.title}" for one in PLACES),
            " ".join(f"{one.key}{one.brief}" for one in PLACES),
        ]
        width = self.size.width
        if len(forms[0]) <= width:
            return Content("  ").join(self._part(one, f"{one.key} {one.title}", 2) for one in PLACES)
        if len(forms[1]) <= width:
            return Content(" ").join(self._part(one, f"{one.key}{one.brief}", 1) for one in PLACES)
        named = (f"{one.key} {one.title}" if one.name == self._here else one.key for one in PLACES)
        return Content(" ").join(self._part(one, text, 1) for one, text in zip(PLACES, named, strict=True))

    def _part(self, one: MenuItem, text: str, key: int) -> Content:
        if one.name == self._here:
            return Content.styled(text, "bold reverse")
        return Content.assemble((text[:key], "bold $text-accent"), text[key:])


class WindowGauge(Widget, can_focus=False):
    """The session, and how full its prompt is: a bar, the zone as a word and a colour, and where it is heading."""

    def __init__(self, here: TuiState) -> None:
        super().__init__()
        self._here = here

    def render(self) -> Content:
        """One line; what matters least is left out first."""
        width, now = self.size.width, self._here.now
        name = one_line(self._here.session, max(width // 3, 12))
        if now is None:
            return Content.assemble((name, "bold"), "  nothing was said in it yet")
        parts = _parts(now)
        while len(parts) > 1 and len(name) + 4 + _LEAST + _width(parts) > width:
            parts.pop()
        free = width - len(name) - 4 - _width(parts)
        bar = _bar(now, min(free, 4 * _LEAST)) if free >= _LEAST else Content("")
        return Content("  ").join(part for part in (Content.styled(name, "bold"), bar, *parts) if part)


def _parts(now: SessionOverview) -> list[Content]:
    reading = now.reading
    return [
        Content.assemble((f"{share(reading.utilization)} {reading.zone}", f"bold $zone-{reading.zone}")),
        Content(f"{short(reading.tokens)}/{short(reading.room)}"),
        Content(until(reading.turns_until_red)),
        Content(f"{counted(now.left_messages, 'message')} left" if now.left_messages else "all in"),
    ]


def _width(parts: list[Content]) -> int:
    return sum(part.cell_length for part in parts) + 2 * (len(parts) - 1)


def _bar(now: SessionOverview, width: int) -> Content:
    filled = min(round(now.reading.utilization * width), width)
    return Content.assemble(("█" * filled, f"$zone-{now.reading.zone}"), ("░" * (width - filled), "$text-muted"))
