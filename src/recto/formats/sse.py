"""Server-sent events: an incremental parser, and a writer. Parsed events can be forwarded byte for byte."""

from __future__ import annotations

from typing import Final, NamedTuple

from recto.errors import MalformedMessage
from recto.text.lazy_re import lazy_re

MAX_EVENT_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of one event. A complete response with its images is one event."""

DONE: Final = "[DONE]"
"""The data of the event that ends a stream in OpenAI's formats."""

_SPLIT_BYTES: Final = 64 * 1024
"""Bytes that are split into events at once. Of a longer event, what was searched is not searched again."""
_BOM: Final = b"\xef\xbb\xbf"
_END = lazy_re(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")  # atomic, or a plain \r\n would look like two ends
_LINE_END = lazy_re(rb"\r\n|\n|\r")


class SseEvent(NamedTuple):
    """One event. A comment is an event without data, so that the events together are all bytes of the stream."""

    name: str
    """The value of `event:`; empty if there is none."""
    data: str
    raw: bytes
    """The exact bytes, including the blank line at the end."""


class SseReader:
    """Splits a stream into events in linear time, however the network chunks it."""

    def __init__(self, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._seen = 0
        """The position before which no event ends: everything before it was searched."""
        self._first = True
        self._returns = False
        """Whether the stream contains carriage returns."""
        self._after_return = False
        """The last event ended with a carriage return; its line feed may be in the next chunk."""

    @property
    def rest(self) -> bytes:
        """The bytes of the incomplete last event."""
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Returns the events that these bytes complete. Raises `MalformedMessage` if one is too long."""
        self._buffer += chunk
        self._returns = self._returns or b"\r" in chunk
        events: list[SseEvent] = []
        at = 0 if self._first else self._split(0, events)
        while (end := self._next_end(at)) is not None:
            if end - at > self._max_bytes:
                break
            events.append(_event(bytes(self._buffer[at:end]), first=self._first))
            self._after_return = end == len(self._buffer) and self._buffer[end - 1] == 0x0D
            self._first = False
            at = self._seen = end
            at = self._seen = self._split(at, events)
        del self._buffer[:at]
        self._seen -= at
        if len(self._buffer) > self._max_bytes and not events:
            raise MalformedMessage(f"an event of the stream is longer than {self._max_bytes:,} bytes")
        return events

    def _split(self, at: int, events: list[SseEvent]) -> int:
        """Adds all events that follow if they are separated as in nearly all streams. Returns where the rest begins."""
        if self._returns or len(self._buffer) - at > min(_SPLIT_BYTES, self._max_bytes):
            return at
        following = bytes(self._buffer[at:])
        if following.startswith(b"\n") or b"\n\n\n" in following:
            return at
        complete = following.split(b"\n\n")
        rest = complete.pop()
        events += [_event(event + b"\n\n", first=False) for event in complete]
        return at + len(following) - len(rest)

    def _next_end(self, at: int) -> int | None:
        if not self._returns and not self._first and self._buffer[at : at + 1] != b"\n":  # nearly always
            blank = self._buffer.find(b"\n\n", max(self._seen, at))
            if blank >= 0:
                return blank + 2
            self._seen = max(at, len(self._buffer) - 1)
            return None
        start = at
        if self._after_return and len(self._buffer) > at:
            start += self._buffer.startswith(b"\n", at)
        if self._first and self._buffer.startswith(_BOM):
            start += len(_BOM)
        empty = _LINE_END.match(self._buffer, start)
        if empty is not None:
            return empty.end()
        end = self._blank_line(max(self._seen, start))
        if end is None:
            self._seen = max(start, len(self._buffer) - 3)
        return end

    def _blank_line(self, start: int) -> int | None:
        """Returns the end of the first blank line. Nearly all streams have plain line feeds, and `find` is faster."""
        if not self._returns:
            at = self._buffer.find(b"\n\n", start)
            return None if at < 0 else at + 2
        match = _END.search(self._buffer, start)
        return None if match is None else match.end()


def sse(name: str | None, data: str | bytes) -> bytes:
    """Writes one event, without an `id`: with one, some clients report empty events later."""
    raw = data.encode(errors="replace") if isinstance(data, str) else data
    lines = [b"data: " + line + b"\n" for line in raw.splitlines() or [b""]]
    head = f"event: {name}\n".encode() if name else b""
    return head + b"".join(lines) + b"\n"


def _event(raw: bytes, *, first: bool) -> SseEvent:
    if raw.startswith(b"data: ") and raw.find(b"\n") == len(raw) - 2 and b"\r" not in raw:  # one line, nearly always
        return SseEvent("", raw[6:-2].decode(errors="replace"), raw)
    name = ""
    data: list[str] = []
    for line in (raw.removeprefix(_BOM) if first else raw).splitlines():
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            data.append(value.decode(errors="replace"))
        elif field == b"event":
            name = value.decode(errors="replace")
    return SseEvent(name=name, data="\n".join(data), raw=raw)
