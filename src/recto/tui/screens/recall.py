"""The recall inspector: what a question would find, and what each score is made of."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, VerticalScroll
from textual.content import Content
from textual.widgets import DataTable, Input, Static

from recto.engine.views.models import RecallHit, RecallResult
from recto.text.unicode import safe
from recto.tui.formatting import counted, right, shown, when, whole
from recto.tui.screens.base import BaseView
from recto.tui.state import ShowEntry
from recto.tui.widgets.table import Rows, TableRow

_SCOPES = ("session", "agent", "tenant")
_BAR = 20
_MOST = 30


class RecallView(BaseView):
    """Ask what was said."""

    PLACE = "recall"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask", "Ask", key_display="/"),
        Binding("s", "scope", "Scope"),
    ]
    AUTO_FOCUS = "Input"
    _scope = "session"
    _query = ""
    _session = ""
    _found: RecallResult | None = None

    def body(self) -> ComposeResult:
        """A question, what it finds, and why."""
        yield Input(placeholder="What was said about …? Enter asks", id="query", max_length=4_000)
        yield Static(id="summary", markup=False)
        with Container(classes="split"):
            yield Rows("entry", right("score"), right("chance"), "where", "role", "text", id="hits")
            with VerticalScroll(classes="detail", can_focus=False):
                yield Static(id="hit", markup=False)

    def on_mount(self) -> None:
        """How far it is searched."""
        self._say_scope()

    def main(self) -> str:
        """What was found."""
        return "#hits"

    async def look(self) -> None:
        """Asks again; another session has other answers."""
        if self._session != self.here.session:
            self._session, self._query = self.here.session, ""
            self._show(None)
        if self._query:
            await self._ask()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """A question."""
        self._query = event.value.strip()
        if self._query:
            self.query_one(Rows).focus()
            self.change(self._ask, "look")

    def action_ask(self) -> None:
        """Back to the field."""
        self.query_one(Input).focus()

    def action_scope(self) -> None:
        """How far is searched."""
        self._scope = _SCOPES[(_SCOPES.index(self._scope) + 1) % len(_SCOPES)]
        self._say_scope()
        if self._query:
            self.change(self._ask, "look")

    async def _ask(self) -> None:
        body = {"query": self._query, "most": _MOST, "scope": self._scope}
        self._show(await self.here.do(RecallResult, "recall", body))

    def _say_scope(self, more: str = "") -> None:
        words = {"session": "this session", "agent": "all sessions of its agent", "tenant": "all sessions"}
        self.query_one("#summary", Static).update(shown(f"Searches {words[self._scope]} (s changes it){more}"))

    def _show(self, found: RecallResult | None) -> None:
        self._found = found
        hits = found.hits if found else ()
        rows = self.query_one(Rows)
        rows.clear()
        rows.show(_row(one) for one in hits)
        self._detail(hits[0].pointer if hits else "")
        if found is not None:
            says = [f": {counted(len(hits), 'hit')} among {counted(found.searched, 'message')}"]
            says += [f"{whole(found.behind)} not indexed yet"] if found.behind else []
            says += [f"{whole(found.without_vectors)} by words alone"] if found.without_vectors else []
            self._say_scope("; ".join([*says, *found.notes]))

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Another hit is looked at."""
        self._detail(str(event.row_key.value))

    def _detail(self, pointer: str) -> None:
        hits = self._found.hits if self._found else ()
        hit = next((one for one in hits if one.pointer == pointer), None)
        self.query_one("#hit", Static).update(_told(hit) if hit else "")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """All of an entry, where it is of this session."""
        hits = self._found.hits if self._found else ()
        hit = next((one for one in hits if one.pointer == str(event.row_key.value)), None)
        if hit is not None and hit.session == self.here.session:
            self.app.post_message(ShowEntry(hit.seq))
        elif hit is not None:
            self.trouble(f"It stands in {hit.session}; open that session first.", bad=False)


def _row(hit: RecallHit) -> TableRow:
    numbers = right(f"{hit.score:.3f}"), right(f"{hit.chance:.2f}")
    where = "● in" if hit.in_prompt else "○ out"
    return TableRow(key=hit.pointer, cells=(f"{hit.seq:,}", *numbers, where, hit.role, hit.text[:200]))


def _told(hit: RecallHit) -> Content:
    most = max((abs(value) for value in hit.parts.values()), default=0.0) or 1.0
    lines = [Content.assemble((safe(hit.pointer), "bold"), f"  {when(hit.ts)} UTC  {', '.join(hit.marks)}")]
    for name, value in sorted(hit.parts.items(), key=lambda part: -abs(part[1])):
        filled = round(_BAR * abs(value) / most)
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
        lines.append(shown(hit.note))
    lines.append(shown(hit.text + ("…" if hit.cut else "")))
    return Content("\n").join(lines)
