"""A list of all entries of a transcript that loads only what is visible.

Entries are numbered without gaps, so the position of a line is known before its entry is loaded. Missing pages are
requested by a message and added by the screen.
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
from recto.tui.display_text import PLACES, short_number

PAGE = 100
"""Entries per request."""
_MAX_PAGES = 30
"""Pages in memory."""
_WIDE_COLUMNS = 64


class EntryList(ScrollView, can_focus=True):
    """One line per entry, with a cursor."""

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
        """Entries are visible that are not loaded yet."""

        def __init__(self, first: int) -> None:
            super().__init__()
            self.first = first

    class Opened(Message):
        """An entry was selected."""

        def __init__(self, seq: int) -> None:
            super().__init__()
            self.seq = seq

    class NearEnd(Message):
        """The last line of the search results is visible."""

    def __init__(self, **add_results: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(**add_results)
        self._entries = 0
        self._pages: OrderedDict[int, Sequence[EntryView]] = OrderedDict()
        self._stale: dict[int, Sequence[EntryView]] = {}
        self._requested: set[int] = set()
        self._results: list[EntryView] | None = None

    @property
    def count(self) -> int:
        """The number of lines."""
        return self._entries if self._results is None else len(self._results)

    @property
    def chosen(self) -> EntryView | None:
        """The entry under the cursor, if it is loaded."""
        return self._at(self.cursor)

    def open(self, entries: int, *, reset: bool = False) -> None:
        """Shows a transcript of so many entries; loaded pages are requested again."""
        at_end = reset or self.cursor >= self._entries - 1
        self._stale = {} if reset else {**self._stale, **self._pages}
        self._pages.clear()
        self._requested.clear()
        self._entries = entries
        if reset:
            self._results = None
        if at_end and self._results is None:
            self.cursor = max(entries - 1, 0)
        self._update_size()

    def add_page(self, first: int, entries: Sequence[EntryView]) -> None:
        """Adds a page that was missing."""
        page = (first - 1) // PAGE
        self._requested.discard(page)
        self._pages[page] = entries
        self._stale.pop(page, None)
        while len(self._pages) > _MAX_PAGES:
            self._pages.popitem(last=False)
        self.refresh()

    def show_results(self, results: Sequence[EntryView] | None) -> None:
        """Shows only search results; None shows all entries again."""
        before = self.chosen
        self._results = None if results is None else list(results)
        self.cursor = 0 if results is not None else before.seq - 1 if before else max(self._entries - 1, 0)
        self._update_size()

    def add_results(self, results: Sequence[EntryView]) -> None:
        """Adds search results."""
        if self._results is not None:
            self._results.extend(results)
            self._update_size()

    def jump(self, seq: int) -> None:
        """To an entry, by its number."""
        self._results = None
        self._update_size()
        self.cursor = min(max(seq, 1), max(self._entries, 1)) - 1

    def _at(self, line: int) -> EntryView | None:
        if self._results is not None:
            return self._results[line] if line < len(self._results) else None
        page, place = divmod(line, PAGE)
        loaded = self._pages.get(page) or self._stale.get(page) or ()
        return loaded[place] if place < len(loaded) else None

    def _update_size(self) -> None:
        self.virtual_size = Size(self.size.width, self.count)
        self.call_after_refresh(self._scroll_to_cursor)  # the scroll range is known then
        self.refresh()

    def _request_missing(self) -> None:
        """Requests what is visible and missing."""
        if not self.count or not self.size.height:
            return
        top = round(self.scroll_y)
        last = min(top + self.size.height, self.count) - 1
        if self._results is not None:
            if last >= self.count - 1:
                self.post_message(self.NearEnd())
            return
        for page in range(top // PAGE, last // PAGE + 1):
            if page not in self._pages and page not in self._requested:
                self._requested.add(page)
                self.post_message(self.Missing(page * PAGE + 1))

    def forget(self, first: int) -> None:
        """Allows a failed page to be requested again."""
        self._requested.discard((first - 1) // PAGE)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Requests the lines that came into view."""
        super().watch_scroll_y(old_value, new_value)
        self._request_missing()

    def on_resize(self, event: events.Resize) -> None:
        """Adapts to the new size."""
        self._update_size()

    def watch_cursor(self) -> None:
        """Keeps the cursor visible."""
        self._scroll_to_cursor()
        self.refresh()

    def _scroll_to_cursor(self) -> None:
        height, top = self.size.height, round(self.scroll_y)
        if not height:
            return
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False, immediate=True)
        elif self.cursor >= top + height:
            self.scroll_to(y=self.cursor - height + 1, animate=False, immediate=True)
        self._request_missing()

    def action_move(self, by: int) -> None:
        """Moves the cursor."""
        self.cursor = min(max(self.cursor + by, 0), max(self.count - 1, 0))

    def action_page(self, by: int) -> None:
        """Moves the cursor by a page."""
        self.action_move(by * max(self.size.height - 1, 1))

    def action_first(self) -> None:
        """Moves to the beginning."""
        self.cursor = 0

    def action_last(self) -> None:
        """Moves to the end."""
        self.cursor = max(self.count - 1, 0)

    def action_open(self) -> None:
        """Opens the entry under the cursor."""
        if (entry := self.chosen) is not None:
            self.post_message(self.Opened(entry.seq))

    def on_click(self, event: events.Click) -> None:
        """Moves the cursor to the clicked line."""
        self.cursor = min(round(self.scroll_y) + event.y, max(self.count - 1, 0))

    def render_line(self, y: int) -> Strip:
        """Renders a line."""
        line, width = round(self.scroll_y) + y, self.scrollable_content_region.width
        base = self.rich_style
        if line >= self.count:
            return Strip.blank(width, base)
        cursor = self.get_component_rich_style("entry-list--cursor") if line == self.cursor else None
        entry = self._at(line)
        parts = [Segment(f" {line + 1:>7}  …", base)] if entry is None else self._segments(entry, width)
        if cursor is not None:
            parts = [Segment(part.text, Style.combine((part.style or base, cursor))) for part in parts]
        return Strip(parts).adjust_cell_length(width, base if cursor is None else cursor)

    def _segments(self, entry: EntryView, width: int) -> list[Segment]:
        style = self.rich_style + self.get_component_rich_style(f"entry-list--{entry.place}")
        pin = self.rich_style + self.get_component_rich_style("entry-list--pinned")
        wide = width >= _WIDE_COLUMNS
        where = PLACES[entry.place]
        head = f" {entry.seq:>7} " + (f"{where:<11}" if wide else f"{where[0]} ")
        if entry.kind != MESSAGE:  # an event has no tokens, and a long kind
            kind = f"{one_line(entry.kind, 16 if wide else 9):<{17 if wide else 10}}"
        else:
            kind = f"{one_line(entry.role, 9):<10}" + (f"{short_number(entry.tokens):>6} " if wide else "")
        text = one_line(entry.text, max(width - len(head) - len(kind) - 2, 1))
        return [
            Segment(head, style),
            Segment("⚑ " if entry.pinned else "  ", pin),
            Segment(kind, style),
            Segment(text, style),
        ]
