"""What a provider would reject in a list of messages: used by tests, and before messages are stored.

Only the messages are checked, not system text, tools or other request members, and nothing is repaired. Unknown kinds
of items and blocks pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from recto.errors import InputError
from recto.formats.json_spans import Json
from recto.formats.message import fields_of
from recto.formats.registry import format_named


def problems(messages: Sequence[bytes], wire: str) -> list[str]:
    """Describes everything for which a provider would reject these messages; an empty list if it would accept them."""
    format = format_named(wire)
    if not messages:
        return ["there is no message"]
    parsed: list[dict[str, Json]] = []
    for place, raw in enumerate(messages):
        try:
            parsed.append(fields_of(raw))
        except InputError as error:
            return [f"message {place}: {error}"]
    return list(format.validation.problems(parsed))
