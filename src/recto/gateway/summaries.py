"""Recent summaries that clients had written of their conversations, to link a compacted conversation to its source.

A client that compacts its history asks the model for a summary and begins a new history with it. The new history has
nothing else in common with the old one. It is linked where its first messages quote the summary.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from recto.formats import read
from recto.gateway.api_keys import Key
from recto.gateway.request import ClientRequest
from recto.transcript.entries import Entry

_ASKS = re.compile(r"\b(?:summar|compact|handoff|hand-off|recap)", re.IGNORECASE)
_ASKED_TEXT = 4_000
"""Characters of a message in which a summary is asked for."""
_MIN_REPLIES = 2
"""Responses in a conversation that is worth compacting."""
_MAX_SUMMARIES = 256
_FIRST_MESSAGES = 4
"""Messages at the beginning of a history that may quote a summary."""
_LINE = 40
"""Characters of a line that identifies a summary."""
_LINES = 3
"""Lines of a summary that have to be quoted; all where it has fewer."""
_MIN_QUOTED = 80
"""Characters that have to be quoted, at least."""


def asks_for_summary(request: ClientRequest) -> bool:
    """Whether the last message of a conversation asks for a summary of it."""
    if len(request.replies) < _MIN_REPLIES or request.replies[-1] == len(request.messages) - 1:
        return False
    message = read(request.messages[-1], request.wire)
    if message.role != "user" or message.results:
        return False
    return _ASKS.search(message.text[:_ASKED_TEXT]) is not None


@dataclass(frozen=True, slots=True)
class StoredSummary:
    """A summary, and where it is stored."""

    entry: Entry
    lines: tuple[str, ...]


class Summaries:
    """The recent summaries of each tenant and agent. Thread-safe."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str, str], StoredSummary] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: Key, entry: Entry, messages: Sequence[bytes]) -> None:
        """Keep the summary of a session."""
        text = "\n".join(read(raw, entry.wire).text for raw in messages)
        lines = tuple(line.strip() for line in text.splitlines() if len(line.strip()) >= _LINE)
        if sum(map(len, lines)) < _MIN_QUOTED:
            return
        with self._lock:
            self._recent[key.tenant, key.agent, entry.session] = StoredSummary(entry, lines)
            if len(self._recent) > _MAX_SUMMARIES:
                self._recent.popitem(last=False)

    def source(self, key: Key, request: ClientRequest) -> Entry | None:
        """Return the summary that a new history begins with, if any."""
        with self._lock:
            own = [
                one for (tenant, agent, _), one in self._recent.items() if (tenant, agent) == (key.tenant, key.agent)
            ]
        if not own:
            return None
        messages = [read(raw, request.wire) for raw in (*request.front, *request.messages[:_FIRST_MESSAGES])]
        text = "\n".join([request.instructions.decode(errors="replace"), *(message.text for message in messages)])
        return next((one.entry for one in reversed(own) if _is_quoted(one, text)), None)


def _is_quoted(summary: StoredSummary, text: str) -> bool:
    quoted = [line for line in summary.lines if line in text]
    return len(quoted) >= min(_LINES, len(summary.lines)) and sum(map(len, quoted)) >= _MIN_QUOTED
