"""The recall inspector: what a question finds, and what each score is made of."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Input, Static

from recto.engine.views.models import RecallHit, RecallResult
from recto.text.unicode import safe
from recto.tui.display_text import PLACES, format_time, full_number, plural, right_aligned, safe_content
from recto.tui.screens.base import BaseView
from recto.tui.state import ShowEntry
from recto.tui.widgets.table import Rows, TableRow

_SCOPES = ("session", "agent", "tenant")
_BAR = 20
_MAX_HITS = 30


class RecallView(BaseView):
    """Search what was stored."""

    PLACE = "recall"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask", "Ask", key_display="/"),
        Binding("s", "scope", "Scope"),
    ]
    AUTO_FOCUS = "Input"
    _scope = "session"
    _query = ""
    _session = ""
    _result: RecallResult | None = None

    def compose_body(self) -> ComposeResult:
        """Yields a question, its hits, and their scores."""
        yield Input(placeholder="What was said about …? Enter asks", id="query", max_length=4_000)
        yield Static(id="summary", markup=False)
        with Container(classes="split"):
            yield Rows("entry", right_aligned("score"), right_aligned("chance"), "where", "role", "text", id="hits")
            with VerticalScroll(classes="detail", can_focus=False):
                yield Static(id="hit", markup=False)

    def on_mount(self) -> None:
        """Shows the scope."""
        self._show_scope()

    def main_selector(self) -> str:
        """The hits."""
        return "#hits"

    async def load_content(self) -> None:
        """Searches again; another session starts empty."""
        if self._session != self.state.session:
            self._session, self._query = self.state.session, ""
            self._show(None)
        if self._query:
            await self._search()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Searches."""
        self._query = event.value.strip()
        if self._query:
            self.query_one(Rows).focus()
            self.change(self._search, "look")

    def action_ask(self) -> None:
        """Focuses the field."""
        self.query_one(Input).focus()

    def action_scope(self) -> None:
        """Changes the scope."""
        self._scope = _SCOPES[(_SCOPES.index(self._scope) + 1) % len(_SCOPES)]
        self._show_scope()
        if self._query:
            self.change(self._search, "look")

    async def _search(self) -> None:
        body = {"query": self._query, "most": _MAX_HITS, "scope": self._scope}
        self._show(await self.state.post_to_session(RecallResult, "recall", body))

    def _show_scope(self, more: str = "") -> None:
        words = {"session": "this session", "agent": "all sessions of its agent", "tenant": "all sessions"}
        self.query_one("#summary", Static).update(safe_content(f"Searches {words[self._scope]} (s changes it){more}"))

    def _show(self, result: RecallResult | None) -> None:
        self._result = result
        hits = result.hits if result else ()
        rows = self.query_one(Rows)
        rows.clear()
        rows.show(_row(hit) for hit in hits)
        self._detail(hits[0].pointer if hits else "")
        if result is not None:
            parts = [f": {plural(len(hits), 'hit')} among {plural(result.searched, 'message')}"]
            parts += [f"{full_number(result.behind)} not indexed yet"] if result.behind else []
            parts += [f"{full_number(result.without_vectors)} by words alone"] if result.without_vectors else []
            self._show_scope("; ".join([*parts, *result.notes]))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Shows another hit."""
        self._detail(str(event.row_key.value))

    def _detail(self, pointer: str) -> None:
        hits = self._result.hits if self._result else ()
        hit = next((hit for hit in hits if hit.pointer == pointer), None)
        self.query_one("#hit", Static).update(_describe(hit) if hit else "")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Shows the full entry if it is in this session."""
        hits = self._result.hits if self._result else ()
        hit = next((hit for hit in hits if hit.pointer == str(event.row_key.value)), None)
        if hit is not None and hit.session == self.state.session:
            self.app.post_message(ShowEntry(hit.seq))
        elif hit is not None:
            self.show_message(f"It is in {hit.session}; open that session first.", bad=False)


def _row(hit: RecallHit) -> TableRow:
    numbers = right_aligned(f"{hit.score:.3f}"), right_aligned(f"{hit.chance:.2f}")
    where = PLACES["in" if hit.in_prompt else "out"]
    return TableRow(key=hit.pointer, cells=(f"{hit.seq:,}", *numbers, where, hit.role, hit.text[:200]))


def _describe(hit: RecallHit) -> Content:
    largest = max((abs(value) for value in hit.parts.values()), default=0.0) or 1.0
    lines = [Content.assemble((safe(hit.pointer), "bold"), f"  {format_time(hit.ts)} UTC  {', '.join(hit.marks)}")]
    for name, value in sorted(hit.parts.items(), key=lambda part: -abs(part[1])):
        filled = round(_BAR * abs(value) / largest)
        lines.append(
            Content.assemble(
                f"{safe(name):<14}{value:>9.3f} ", ("█" * filled, "$zone-green" if value >= 0 else "$zone-red")
            )
        )
    if hit.superseded_by is not None:
        lines.append(Content(f"▲ superseded by entry {hit.superseded_by:,}"))
    if hit.supersedes:
        lines.append(Content(f"supersedes entries {', '.join(map(str, hit.supersedes))}"))
    if hit.note:
        lines.append(safe_content(hit.note))
    lines.append(safe_content(hit.text + ("…" if hit.cut else "")))
    return Content("\n").join(lines)
