"""What a stream said, kept while its bytes go past: the same messages as the answer would have had in one piece.

A capture takes whatever comes and never raises: the stream belongs to the client, and what cannot be understood is
none of its business. It does not know where the events come from or where they go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from recto.errors import MalformedMessage
from recto.formats.message import ANTHROPIC, CHAT, RESPONSES
from recto.formats.response import ProviderReply
from recto.formats.sse import SseEvent
from recto.formats.streaming.anthropic import BlockCapture
from recto.formats.streaming.openai_chat import DeltaCapture
from recto.formats.streaming.openai_responses import ItemCapture

__all__ = ["Capture", "capture_for"]

MOST: Final = 64 * 1024 * 1024
"""Bytes that one stream may leave in memory."""


class Capture(Protocol):
    """The answer of one stream, as far as it came."""

    ended: bool
    """Everything that belongs to the message came. What it cost may still follow."""
    failed: str
    """What the provider said went wrong; empty while nothing did."""
    overflowed: bool
    """More came than is kept; the answer is not whole."""
    id: str
    """The id the provider gave the answer."""

    def take(self, event: SseEvent) -> None:
        """Notes what an event says."""
        ...

    def reply(self) -> ProviderReply:
        """The answer of a stream that ended, as `read_reply` would give it; no messages where nothing was said."""
        ...

    def partial(self) -> ProviderReply:
        """What a stream that was cut leaves: text as far as it came, calls only where they are complete."""
        ...


_CAPTURES: Final[Mapping[str, Callable[[int], Capture]]] = {
    CHAT: DeltaCapture,
    RESPONSES: ItemCapture,
    ANTHROPIC: BlockCapture,
}


def capture_for(wire: str, *, most: int = MOST) -> Capture:
    """An empty capture for streams of a wire format."""
    made = _CAPTURES.get(wire)
    if made is None:
        raise MalformedMessage(f"'{wire}' is not a wire format; known are {', '.join(_CAPTURES)}")
    return made(most)
