"""A table of untrusted text that reports when its end is near."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.text import Text
from textual.message import Message
from textual.widgets import DataTable

from recto.tui.display_text import cell

_NEAR = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRow:
    """A row: its key and cells."""

    key: str
    cells: Sequence[str | Text]


class Rows(DataTable[Text]):
    """A table with a row cursor."""

    class NearEnd(Message):
        """The last rows are visible: more can be loaded."""

        def __init__(self, rows: Rows) -> None:
            super().__init__()
            self.rows = rows

        @property
        def control(self) -> Rows:
            """The table."""
            return self.rows

    def __init__(self, *titles: str | Text, **kwargs: Any) -> None:  # noqa: ANN401  # as every widget takes it
        super().__init__(cursor_type="row", zebra_stripes=False, **kwargs)
        for title in titles:
            self.add_column(title if isinstance(title, Text) else Text(title))

    def show(self, rows: Iterable[TableRow]) -> None:
        """Shows other rows; the cursor stays on its row."""
        before, place = self.chosen, self.cursor_row
        self.clear()
        self.append_rows(rows)
        if before in self.rows:
            self.move_cursor(row=self.get_row_index(before))
        elif place:
            self.move_cursor(row=min(place, self.row_count - 1))

    def append_rows(self, rows: Iterable[TableRow]) -> None:
        """Appends rows."""
        for row in rows:
            if row.key not in self.rows:
                cells = [item if isinstance(item, Text) else cell(item) for item in row.cells]
                for column, item in zip(self.ordered_columns, cells, strict=True):
                    column.content_width = max(column.content_width, item.cell_len)  # before it is drawn, not after
                self.add_row(*cells, key=row.key)

    @property
    def chosen(self) -> str:
        """The key of the row under the cursor; empty if there is none."""
        if not self.is_valid_row_index(self.cursor_row):
            return ""
        return str(self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Posts `NearEnd` close to the end."""
        if event.cursor_row >= self.row_count - _NEAR:
            self.post_message(self.NearEnd(self))
