"""A scripted upstream that costs next to nothing: it reads a request and answers with prepared bytes.

It runs in a process of its own. Of a request it inspects only the length, whether the response is to be streamed, and
whether usage is requested, so that what is measured in front of it is the gateway. A message that begins with `endless`
gets a response without an end.
"""

from __future__ import annotations

import asyncio
import json
import re
from itertools import cycle

REPLIES = 512
"""Answers that differ."""
PIECES = 24
"""Events that carry the text of a streamed answer."""
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?true')
_USAGE = re.compile(rb'"include_usage": ?true')
_ENDLESS = re.compile(rb'"content": ?"endless')
_TEXT = "The port is free again and the build went through; next I read the log of the worker and compare it."


def reply_text(number: int) -> str:
    """What the answer of a number says; it begins with the number, by which a client knows it."""
    return f"reply {number}: {_TEXT} {_TEXT}"


class Canned(asyncio.Protocol):
    """One connection."""

    numbers = cycle(range(REPLIES))

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needs = 0
        self._transport: asyncio.Transport | None = None
        self._endless = self._paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a server's transports can write

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) < self._needs:
            return
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        found = _LENGTH.search(self._buffer, 0, head + 2)
        self._needs = head + 4 + (int(found[1]) if found else 0)
        if len(self._buffer) < self._needs:
            return
        body = bytes(self._buffer[head + 4 : self._needs])
        del self._buffer[: self._needs]
        self._needs = 0
        if self._transport is None:
            return
        if _ENDLESS.search(body):
            self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            self._endless = True
            self._go_on()
        else:
            self._transport.write(answer(body, next(self.numbers)))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._go_on()

    def _go_on(self) -> None:
        """The next piece of an answer without an end, for as long as it is taken."""
        if self._endless and not self._paused and self._transport is not None and not self._transport.is_closing():
            self._transport.write(_PIECE)
            asyncio.get_running_loop().call_soon(self._go_on)


def answer(body: bytes, number: int) -> bytes:
    """The whole answer to a request, with its headers."""
    usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 48, "total_tokens": len(body) // 4 + 48}
    head = {"id": f"chatcmpl-{number}", "created": 1_800_000_000, "model": "gpt-4o"}
    if not _STREAM.search(body):
        message = {"role": "assistant", "content": reply_text(number), "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        whole = json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (
            len(whole),
            whole,
        )
    last = {**head, "object": "chat.completion.chunk", "choices": [], "usage": usage}
    events = [_pieces(number), *([_event(last)] if _USAGE.search(body) else []), b"data: [DONE]\n\n"]
    start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    return start + b"".join([events[0], *map(_chunk, events[1:])]) + b"0\r\n\r\n"


_made: dict[int, bytes] = {}


def _pieces(number: int) -> bytes:
    """The events of an answer, each a chunk of its own."""
    if number not in _made:
        text = reply_text(number)
        start, rest = text[:10], text[10:]
        size = -(-len(rest) // (PIECES - 1))
        deltas = [{"content": start}, *({"content": rest[at : at + size]} for at in range(0, len(rest), size))]
        events = [_delta(number, {"role": "assistant", "content": ""}), *(_delta(number, one) for one in deltas)]
        _made[number] = b"".join(map(_chunk, [*events, _delta(number, {}, "stop")]))
    return _made[number]


def _delta(number: int, delta: dict, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": f"chatcmpl-{number}", "created": 1_800_000_000, "model": "gpt-4o", "object": "chat.completion.chunk"}
    return _event({**head, "choices": [choice]})


def _event(about: dict) -> bytes:
    return f"data: {json.dumps(about)}\n\n".encode()


def _chunk(event: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(event), event)


_PIECE = _delta(0, {"content": _TEXT * 20})


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Canned, "127.0.0.1", 0, backlog=512)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve())
