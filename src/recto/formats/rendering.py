"""Puts the messages of a prompt together in a form that the provider accepts.

Whether a message is edited or evicted is decided elsewhere; each format edits its own messages (its `edits` module).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from recto.formats.format import Format
from recto.formats.message import fields_of, text_in
from recto.formats.ordering import ArrangedPiece, Arrangement, Keep, KeepSome, SyntheticResult
from recto.formats.registry import format_named

OPENING: Final = "[The conversation so far continues below.]"
_REASONS: Final[Mapping[str, str]] = {
    "interrupted": "[No result: the call was interrupted.]",
    "not arrived yet": "[No result yet: the call is still running.]",
}


def render_arrangement(
    arrangement: Arrangement,
    contents: Mapping[int, bytes | None],
    wire: str,
    *,
    opening: str = OPENING,
    result_text: Callable[[SyntheticResult], str] = lambda result: _REASONS[result.reason],
) -> list[bytes]:
    """Returns the messages of an arrangement as the provider accepts them. Entries whose content is `None` are skipped.

    Args:
        arrangement: The order of the messages.
        contents: The message of each entry.
        wire: The name of the format.
        opening: The text of a user message that is put first if the format requires one and there is none.
        result_text: Returns the text of a synthetic result.
    """
    format = format_named(wire)
    rendered: list[bytes] = []
    for piece in arrangement.pieces:
        raw = _render(piece, contents[piece.seq], format, result_text)
        if raw is not None:
            rendered.append(raw)
    messages = format.edits.settle(rendered)
    # The first user message may have been empty, and was dropped then.
    needs_opening = arrangement.needs_opening or (format.user_first and bool(messages))
    if needs_opening and not (messages and fields_of(messages[0]).get("role") == "user"):
        messages.insert(0, format.text_message("user", opening))
    return messages


def _render(
    piece: ArrangedPiece, raw: bytes | None, format: Format, result_text: Callable[[SyntheticResult], str]
) -> bytes | None:
    if raw is None:
        return None
    match piece:
        case Keep():
            return raw
        case KeepSome():
            return format.edits.only_answers(raw, piece.answers, rest=piece.rest)
        case SyntheticResult():
            fields = fields_of(raw)
            if piece.call_id not in format.validation.tool_call_ids(fields).calls:
                return None  # the provider runs and answers this call itself
            kind = text_in(fields.get("type"))
            return format.edits.result_message(piece.call_id, piece.tool, result_text(piece), kind)
