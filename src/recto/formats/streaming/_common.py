"""What the three captures share: an event is read, weighed, and given to the one who knows the format."""

from __future__ import annotations

from recto.errors import InputError
from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in, value_in
from recto.formats.sse import SseEvent


def event_object(event: SseEvent) -> dict[str, Json] | None:
    """What an event says; nothing where that is no JSON object."""
    try:
        value = value_in(event.data)
    except InputError:
        return None
    return value if isinstance(value, dict) else None


def error_in(value: Json) -> str:
    """The words of an error, whichever provider's; empty where there is none."""
    if isinstance(value, str):
        return value
    found = object_in(value)
    return text_in(found.get("message")) or text_in(found.get("code")) or text_in(found.get("type"))


def index_of(value: Json) -> int | None:
    """A place in a list; nothing where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


class TextBuffer:
    """Text that comes in pieces, and is joined once."""

    __slots__ = ("_pieces",)

    def __init__(self, first: str = "") -> None:
        self._pieces = [first]

    def add(self, piece: str) -> None:
        """Takes the next piece."""
        self._pieces.append(piece)

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0]
