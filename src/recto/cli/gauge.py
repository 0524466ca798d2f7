"""How full the prompt of a conversation is, in one line. It knows no terminal: it gives texts and their styles."""

from __future__ import annotations

from typing import TypeAlias

from rich.cells import cell_len

from recto.cli.screen import one_line
from recto.gateway.inspection.values import SessionNow

Styled: TypeAlias = list[tuple[str, str]]
"""Pieces of a line: the class of a style, and a text that cannot act on a terminal."""

_CELLS = 10
_BETWEEN = " · "


def gauge(now: SessionNow | None, *, recalled: int, model: str, session: str, width: int) -> Styled:
    """What there is room for, the most important first; the zone is a word and not only a colour."""
    parts = [*(_pressure(now, recalled) if now else [[("", "nothing was said yet")]])]
    parts += [[("", one_line(model, 40))], [("class:dim", one_line(session, 60))]]
    line: Styled = [("", " ")]
    for part in parts:
        longer = [*line, *([("class:dim", _BETWEEN)] if len(line) > 1 else []), *part]
        if sum(cell_len(text) for _, text in longer) > width:
            break
        line = longer
    return line


def _pressure(now: SessionNow, recalled: int) -> list[Styled]:
    reading = now.reading
    filled = min(round(_CELLS * reading.utilization), _CELLS)
    zone = f"class:{reading.zone}"
    full = f" {reading.tokens:,} of {reading.room:,} tokens ({reading.utilization:.0%}) "
    parts: list[Styled] = [
        [(zone, "█" * filled), ("class:dim", "░" * (_CELLS - filled)), ("", full), (zone, reading.zone)]
    ]
    if reading.turns_until_red:
        turns = "1 turn" if reading.turns_until_red == 1 else f"{reading.turns_until_red:,} turns"
        parts.append([("", f"red in {turns}")])
    if now.left_messages:
        parts.append([("", f"{now.left_messages:,} left")])
    if recalled:
        parts.append([("", f"{recalled:,} recalled")])
    return parts
