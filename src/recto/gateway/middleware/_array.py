"""Sends a stream of server-sent events as one JSON array, for clients that did not ask for events."""

from __future__ import annotations

from starlette.types import Message, Send

from recto.formats.sse import SseReader

_EVENTS = b"text/event-stream"
_LENGTH = b"content-length"


class ArraySender:
    """Turns each event into an element of the array, byte for byte. An error in place of a stream is its only one."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._reader: SseReader | None = None
        self._count = 0

    async def __call__(self, message: Message) -> None:
        """Send one message of the response."""
        if message["type"] == "http.response.start":
            await self._send(self._start(message))
        elif self._reader is None:
            await self._send({**message, "body": self._closed(message, message.get("body", b""))})
        else:
            events = self._reader.feed(message.get("body", b""))
            body = b"".join(self._element(event.data.encode()) for event in events if event.data)
            await self._send({**message, "body": self._ended(message, body)})

    def _start(self, message: Message) -> Message:
        headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
        if any(name == b"content-type" and _EVENTS in value for name, value in headers):
            self._reader = SseReader()
        kept = [pair for pair in headers if pair[0] not in (b"content-type", _LENGTH)]
        return {**message, "headers": [*kept, (b"content-type", b"application/json")]}

    def _element(self, data: bytes) -> bytes:
        self._count += 1
        return (b"[" if self._count == 1 else b",\r\n") + data

    def _closed(self, message: Message, body: bytes) -> bytes:
        return self._ended(message, self._element(body) if body and not self._count else body)

    def _ended(self, message: Message, body: bytes) -> bytes:
        if message.get("more_body", False):
            return body
        return body + (b"]" if self._count else b"[]")
