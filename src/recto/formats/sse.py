"""Server-sent events, read as bytes come and written. What was read can be forwarded byte for byte.

It knows lines and events. What an event says is read elsewhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from recto.errors import MalformedMessage

MOST: Final = 32 * 1024 * 1024
"""Bytes of one event. A whole response with its images comes as one."""

DONE: Final = "[DONE]"
"""The data of the event that ends a stream of OpenAI's."""

_BOM: Final = b"\xef\xbb\xbf"
_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")  # atomic, or a plain \r\n would look like two ends
_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class SseEvent:
    """One event. A comment is one too, with no data, so that the bytes of all events are the bytes of the stream."""

    name: str
    """What stands after `event:`; empty where nothing does."""
    data: str
    raw: bytes
    """The exact bytes, with the blank line that ends it."""


class SseReader:
    """Cuts a stream into its events, in linear time, wherever the network cut it."""

    def __init__(self, *, most: int = MOST) -> None:
        self._most = most
        self._buffer = bytearray()
        self._seen = 0
        """No end of an event begins before here."""
        self._first = True
        self._returns = False
        """Whether any line ended with a carriage return."""
        self._after_return = False
        """The last event ended with a carriage return, whose line feed may still come."""

    @property
    def rest(self) -> bytes:
        """What came and is no event yet. At the end of a stream it is what was cut off."""
        return bytes(self._buffer)

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that these bytes complete. Raises `MalformedMessage` where one is too long."""
        self._buffer += chunk
        self._returns = self._returns or b"\r" in chunk
        found: list[SseEvent] = []
        at = 0
        while (end := self._next_end(at)) is not None:
            if end - at > self._most:
                break
            found.append(_event(bytes(self._buffer[at:end]), first=self._first))
            self._after_return = end == len(self._buffer) and self._buffer[end - 1] == 0x0D
            self._first = False
            at = self._seen = end
        del self._buffer[:at]
        self._seen -= at
        if len(self._buffer) > self._most and not found:
            raise MalformedMessage(f"an event of the stream is longer than {self._most:,} bytes")
        return found

    def _next_end(self, at: int) -> int | None:
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
        """Where the first blank line ends. Nearly all streams have plain line feeds, which are found far quicker."""
        if not self._returns:
            at = self._buffer.find(b"\n\n", start)
            return None if at < 0 else at + 2
        found = _END.search(self._buffer, start)
        return None if found is None else found.end()


def sse(name: str | None, data: str | bytes) -> bytes:
    """One event, written. It never carries an `id`, which makes clients read empty events later."""
    raw = data.encode(errors="replace") if isinstance(data, str) else data
    lines = [b"data: " + line + b"\n" for line in raw.splitlines() or [b""]]
    head = f"event: {name}\n".encode() if name else b""
    return head + b"".join(lines) + b"\n"


def _event(raw: bytes, *, first: bool) -> SseEvent:
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
