"""A table whose cells are texts and never markup, and that says when its end is near."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from textual.message import Message
from textual.widgets import DataTable

from recto.tui.formatting import cell

_NEAR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """One line of a table: what it is about, and its cells."""

    key: str
    cells: Sequence[str | Text]


class Rows(DataTable[Text]):
    """A table of lines to choose from."""

    class NearEnd(Message):
        """The last lines are in sight: more can be asked for."""

        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> Rows:
            """The table."""
            return self.rows

    def __init__(self, *titles: str | Text, **more: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(cursor_type="row", zebra_stripes=False, **more)
        for title in titles:
            self.add_column(title if isinstance(title, Text) else Text(title))

    def show(self, rows: Iterable[TableRow]) -> None:
        """Shows other lines; the cursor stays on the one it was on."""
        before, place = self.chosen, self.cursor_row
        self.clear()
        self.more(rows)
        if before in self.rows:
            self.move_cursor(row=self.get_row_index(before))
        elif place:
            self.move_cursor(row=min(place, self.row_count - 1))

    def more(self, rows: Iterable[TableRow]) -> None:
        """Shows further lines below."""
        for row in rows:
            if row.key not in self.rows:
                cells = [one if isinstance(one, Text) else cell(one) for one in row.cells]
                for column, one in zip(self.ordered_columns, cells, strict=True):
                    column.content_width = max(column.content_width, one.cell_len)  # before it is drawn, not after
                self.add_row(*cells, key=row.key)

    @property
    def chosen(self) -> str:
        """The key of the line with the cursor; empty where there is none."""
        if not self.is_valid_row_index(self.cursor_row):
            return ""
        return str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The cursor moved."""
        if event.cursor_row >= self.row_count - _NEAR:
            self.post_message(self.NearEnd(self))
