"""A transcript as a list with a line for each entry, however many: only what is in sight is ever asked for.

Entries are numbered without gaps, so the place of a line is known before its entry is. Where entries come from is not
known here: what is missing is told, and given when it is there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from recto.engine.views.models import EntryView
from recto.text.unicode import one_line
from recto.transcript.entries import MESSAGE
from recto.tui.formatting import PLACES, short

PAGE = 100
"""Entries that are asked for at once."""
_HELD = 30
"""Pages that are kept."""
_WIDE = 64


class EntryList(ScrollView, can_focus=True):
    """One line for each entry; the cursor is on one of them."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "entry-list--in", "entry-list--trimmed", "entry-list--out", "entry-list--recalled", "entry-list--event",
        "entry-list--cursor", "entry-list--pinned",
    }  # fmt: skip
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "first", show=False),
        Binding("end", "last", show=False),
        Binding("enter", "open", "Detail"),
    ]
    cursor: reactive[int] = reactive(0)

    class Missing(Message):
        """Entries are in sight that nobody has given yet."""

        def __init__(self, first: int) -> None:
            super().__init__()
            self.first = first

    class Opened(Message):
        """An entry was chosen."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.seq = seq

    class NearEnd(Message):
        """The last line of what was found is in sight."""

    def __init__(self, **more: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(**more)
        self._entries = 0
        self._pages: OrderedDict[int, Sequence[EntryView]] = OrderedDict()
        self._stale: dict[int, Sequence[EntryView]] = {}
        self._asked: set[int] = set()
        self._found: list[EntryView] | None = None

    @property
    def count(self) -> int:
        """How many lines there are."""
        return self._entries if self._found is None else len(self._found)

    @property
    def chosen(self) -> EntryView | None:
        """The entry under the cursor, as far as it is known."""
        return self._at(self.cursor)

    def open(self, entries: int, *, anew: bool = False) -> None:
        """A transcript of so many entries; what was known of it is asked for again."""
        at_end = anew or self.cursor >= self._entries - 1
        self._stale = {} if anew else {**self._stale, **self._pages}
        self._pages.clear()
        self._asked.clear()
        self._entries = entries
        if anew:
            self._found = None
        if at_end and self._found is None:
            self.cursor = max(entries - 1, 0)
        self._resized()

    def give(self, first: int, entries: Sequence[EntryView]) -> None:
        """A page that was missing."""
        page = (first - 1) // PAGE
        self._asked.discard(page)
        self._pages[page] = entries
        self._stale.pop(page, None)
        while len(self._pages) > _HELD:
            self._pages.popitem(last=False)
        self.refresh()

    def find(self, found: Sequence[EntryView] | None) -> None:
        """Shows only what was found; with none, everything again."""
        before = self.chosen
        self._found = None if found is None else list(found)
        self.cursor = 0 if found is not None else before.seq - 1 if before else max(self._entries - 1, 0)
        self._resized()

    def more(self, found: Sequence[EntryView]) -> None:
        """More was found."""
        if self._found is not None:
            self._found.extend(found)
            self._resized()

    def jump(self, seq: int) -> None:
        """To an entry, by its number."""
        self._found = None
        self._resized()
        self.cursor = min(max(seq, 1), max(self._entries, 1)) - 1

    def _at(self, line: int) -> EntryView | None:
        if self._found is not None:
            return self._found[line] if line < len(self._found) else None
        page, place = divmod(line, PAGE)
        held = self._pages.get(page) or self._stale.get(page) or ()
        return held[place] if place < len(held) else None

    def _resized(self) -> None:
        self.virtual_size = Size(self.size.width, self.count)
        self.call_after_refresh(self._seek)  # how far it can be scrolled is known then
        self.refresh()

    def _want(self) -> None:
        """Tells what is in sight and missing."""
        if not self.count or not self.size.height:
            return
        top = round(self.scroll_y)
        last = min(top + self.size.height, self.count) - 1
        if self._found is not None:
            if last >= self.count - 1:
                self.post_message(self.NearEnd())
            return
        for page in range(top // PAGE, last // PAGE + 1):
            if page not in self._pages and page not in self._asked:
                self._asked.add(page)
                self.post_message(self.Missing(page * PAGE + 1))

    def forget(self, first: int) -> None:
        """A page that was asked for does not come; it may be asked for again."""
        self._asked.discard((first - 1) // PAGE)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Other lines are in sight."""
        super().watch_scroll_y(old_value, new_value)
        self._want()

    def on_resize(self, event: events.Resize) -> None:
        """More or fewer lines fit."""
        self._resized()

    def watch_cursor(self) -> None:
        """The line with the cursor is in sight."""
        self._seek()
        self.refresh()

    def _seek(self) -> None:
        height, top = self.size.height, round(self.scroll_y)
        if not height:
            return
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True)
        self._want()

    def action_move(self, by: int) -> None:
        """Up or down."""
        self.cursor = min(max(self.cursor + by, 0), max(self.count - 1, 0))

    def action_page(self, by: int) -> None:
        """A screenful up or down."""
        self.action_move(by * max(self.size.height - 1, 1))

    def action_first(self) -> None:
        """To the beginning."""
        self.cursor = 0

    def action_last(self) -> None:
        """To the end."""
        self.cursor = max(self.count - 1, 0)

    def action_open(self) -> None:
        """All of the entry."""
        if (entry := self.chosen) is not None:
            self.post_message(self.Opened(entry.seq))

    def on_click(self, event: events.Click) -> None:
        """The line that is clicked has the cursor."""
        self.cursor = min(round(self.scroll_y) + event.y, max(self.count - 1, 0))

    def render_line(self, y: int) -> Strip:
        """One line."""
        line, width = round(self.scroll_y) + y, self.scrollable_content_region.width
        base = self.rich_style
        if line >= self.count:
            return Strip.blank(width, base)
        cursor = self.get_component_rich_style("entry-list--cursor") if line == self.cursor else None
        entry = self._at(line)
        parts = [Segment(f" {line + 1:>7}  …", base)] if entry is None else self._drawn(entry, width)
        if cursor is not None:
            parts = [Segment(part.text, Style.combine((part.style or base, cursor))) for part in parts]
        return Strip(parts).adjust_cell_length(width, base if cursor is None else cursor)

    def _drawn(self, entry: EntryView, width: int) -> list[Segment]:
        style = self.rich_style + self.get_component_rich_style(f"entry-list--{entry.place}")
        pin = self.rich_style + self.get_component_rich_style("entry-list--pinned")
        wide = width >= _WIDE
        head = f" {entry.seq:>7} {PLACES[entry.place]} " + (f"{entry.place:<9}" if wide else "")
        if entry.kind != MESSAGE:  # an event has no tokens, and a long name
            kind = f"{one_line(entry.kind, 16 if wide else 9):<{17 if wide else 10}}"
        else:
            kind = f"{one_line(entry.role, 9):<10}" + (f"{short(entry.tokens):>6} " if wide else "")
        text = one_line(entry.text, max(width - len(head) - len(kind) - 2, 1))
        return [
            Segment(head, style),
            Segment("⚑ " if entry.pinned else "  ", pin),
            Segment(kind, style),
            Segment(text, style),
        ]
