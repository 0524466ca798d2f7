"""Messages as compression reads them: who said what, and which call a result answers."""

from __future__ import annotations

from collections.abc import Iterable

from recto.core.entries import MESSAGE, Entry
from recto.core.messages import Message
from recto.core.told import Call, Told
from recto.wire import read

_SAID = ("text", "result")


class Teller:
    """Reads messages in their order, and remembers the calls that results answer."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}

    def tell(self, seq: int, message: Message) -> Told:
        """One message."""
        made = {part.call_id: Call(part.name, part.text) for part in message.calls}
        self._calls |= made
        answered = (self._calls.get(part.call_id) for part in message.results)
        return Told(
            seq=seq,
            role=message.role,
            text="\n".join(part.text for part in message.parts if part.kind in _SAID),
            calls=(*made.values(), *(call for call in answered if call is not None)),
        )


def told_in(entries: Iterable[Entry]) -> list[Told]:
    """The messages among stored entries."""
    teller = Teller()
    return [teller.tell(entry.seq, read(entry.content, entry.wire)) for entry in entries if entry.kind == MESSAGE]
