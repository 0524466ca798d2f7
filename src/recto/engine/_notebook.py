"""A prompt as HTML, for notebooks: one bar for the whole of it, and a row for each message. No scripts, no links."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from recto.formats import read
from recto.text.unicode import one_line

_MAX_ROWS = 200
"""Messages that are listed; of a longer prompt the newest."""
_MAX_TEXT = 160
_COLOURS = {"system": "#44546a", "user": "#2a64c8", "assistant": "#6f8fd0", "tool": "#0e7f77"}
_FREE = "#d9d6cd"


def prompt_html(
    raws: Sequence[bytes], costs: Sequence[int], wire: str, *, tokens: int, room: int, recalled: int
) -> str:
    """A prompt as a table with a bar over it: its messages and what each costs. Texts are escaped, on one line each.

    `tokens` are those of the whole prompt, `room` those that it may have, `recalled` the messages quoted in it.
    """
    messages = [read(raw, wire) for raw in raws]
    whole = max(room, tokens, 1)
    parts: list[tuple[str, int]] = [(message.role, cost) for message, cost in zip(messages, costs, strict=True)]
    rest = tokens - sum(costs)
    parts = [("system", rest), *parts] if rest > 0 else parts
    bar = "".join(
        f'<div style="width:{100 * cost / whole:.3f}%;background:{_COLOURS.get(role, _FREE)}"></div>'
        for role, cost in parts
    )
    rows = "".join(
        f"<tr><td>{escape(message.role)}</td><td style='text-align:right'>{cost:,}</td>"
        f"<td style='text-align:left'>{escape(one_line(message.text, _MAX_TEXT))}</td></tr>"
        for message, cost in list(zip(messages, costs, strict=True))[-_MAX_ROWS:]
    )
    left = len(messages) - _MAX_ROWS
    older = f"<p>{left:,} older messages are not listed.</p>" if left > 0 else ""
    return (
        f"<div><p><b>{tokens:,} of {room:,} tokens</b> ({tokens / max(room, 1):.0%}), "
        f"{len(messages):,} messages, {recalled:,} recalled, {escape(wire)}</p>"
        f'<div style="display:flex;height:14px;background:{_FREE}">{bar}</div>{older}'
        f"<table><thead><tr><th>Role</th><th>Tokens</th><th>Text</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )
