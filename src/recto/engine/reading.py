"""What an entry says, read from its exact bytes."""

from __future__ import annotations

from recto.core.entries import MESSAGE, Entry
from recto.errors import InputError
from recto.wire import read


def text_of(entry: Entry) -> str:
    """What a person or a search would read. It is derived each time, so that it can never differ from the content."""
    if entry.kind == MESSAGE:
        try:
            return read(entry.content, entry.wire).text
        except InputError:
            pass  # a faithful record of something unreadable is shown as what it is
    return entry.content.decode(errors="replace")
