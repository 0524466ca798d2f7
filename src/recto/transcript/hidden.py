"""Messages that the client of a session never sees, and what it got in place of messages that it sees otherwise.

The gateway can answer calls of a tool that it offers itself. Such calls and their results are messages of the
transcript, because the model saw them, but the client never sends them back: comparing its history with the transcript
leaves them out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Final

from recto.transcript.entries import MESSAGE, Entry

HIDDEN: Final = "hidden"
"""Member of the metadata of a message that the client never sees: true."""
PARTIAL: Final = "partial"
"""Member of the metadata of a message that the client has only together with the answer that follows: true."""
AS_SENT: Final = "as_sent"
"""Member of the metadata of a message that the client got in another form: that form."""
_HIDDEN, _PARTIAL, _AS_SENT = (f'"{name}"'.encode() for name in (HIDDEN, PARTIAL, AS_SENT))


def is_hidden(meta: bytes) -> bool:
    """Whether the metadata of a message say that the client never sees it."""
    return _HIDDEN in meta and json.loads(meta).get(HIDDEN) is True


def content_as_sent(entry: Entry) -> bytes:
    """A message as the client got it."""
    sent = json.loads(entry.meta).get(AS_SENT) if _AS_SENT in entry.meta else None
    return entry.content if sent is None else json.dumps(sent, ensure_ascii=False).encode(errors="surrogatepass")


def client_messages(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The messages among entries that the client of the session has in its history."""
    partial: list[Entry] = []
    for entry in entries:
        if entry.kind != MESSAGE or is_hidden(entry.meta):
            continue
        if _PARTIAL in entry.meta and json.loads(entry.meta).get(PARTIAL) is True:
            partial.append(entry)
            continue
        if partial and entry.role == "assistant":
            yield from partial
        partial.clear()
        yield entry
