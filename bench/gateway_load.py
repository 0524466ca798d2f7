"""Load generator for a gateway: like agents, its clients send the whole history again at each turn.

It runs in a process of its own, so that it shares no event loop with what it measures. It speaks HTTP over bare sockets
and builds its requests from parts that are already bytes. `python -m bench.gateway_load` reads one `Load` as JSON from
its standard input and prints its measurements.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

from bench.gateway_upstream import REPLIES, reply_text

_NUMBER = re.compile(rb"reply (\d+)")
_SAID = (
    "The worker on the second host refuses the new schema and the queue grows since nine this morning. ",
    "Please look at how the retries are counted before anything is changed in the settings of the pool. ",
    "I have read the file and found three places where the time-out is given in seconds, not milliseconds. ",
    "Nothing in the log says why the connection was closed; the one before it lived for eleven minutes. ",
    "The figures of the last run are in the report, and the two that differ are marked at the margin. ",
)
_SYSTEM = {"role": "system", "content": "You keep a fleet of workers alive. " + "Say what you did and why. " * 30}
_TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file and returns its lines.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of whom."""

    url: str
    key: str = "none"
    clients: int = 1
    """Requests under way at once; each of them belongs to a session of its own."""
    sessions: int = 1
    """Sessions that each client has, one after the other."""
    messages: int = 10
    """Messages of a session before its first question."""
    turns: int = 10
    stream: bool = False
    leave_every: int = 0
    """After so many turns of a client it asks once more and goes away without an answer; 0: never."""
    name: str = "0"
    """Makes the sessions different from those of any other load."""


@dataclass(slots=True)
class Took:
    """Milliseconds."""

    opening: list[float] = field(default_factory=list)
    """The first request of each session: a history that was never seen."""
    turns: list[float] = field(default_factory=list)
    first_byte: list[float] = field(default_factory=list)
    seconds: float = 0.0
    """From the first turn to the last, on the clock."""
    failed: int = 0
    left: int = 0
    """Requests whose client went away."""


def history(name: str, count: int) -> list[bytes]:
    """The messages of a session so far; the last is a user's."""
    return [_message("user" if (count - at) % 2 else "assistant", name, at) for at in range(count)]


def _message(role: str, name: str, at: int) -> bytes:
    words = "".join(_SAID[(at * at + shift) % len(_SAID)] for shift in range(3))
    return json.dumps({"role": role, "content": f"[{name}.{at}] {words}"}).encode()


class Talk:
    """One session: what was said, and how to say more."""

    def __init__(self, load: Load, name: str) -> None:
        self.messages = history(name, load.messages + 1)
        self._name = name
        options = b', "stream": true, "stream_options": {"include_usage": true}' if load.stream else b""
        self._start = b'{"model": "gpt-4o", "messages": [' + json.dumps(_SYSTEM).encode() + b", "
        self._end = b'], "tools": [' + json.dumps(_TOOL).encode() + b"]" + options + b"}"
        place = urlsplit(load.url)
        self._head = (
            f"POST {place.path}/chat/completions HTTP/1.1\r\nhost: {place.netloc}\r\nauthorization: Bearer {load.key}"
            "\r\ncontent-type: application/json\r\naccept: */*\r\ncontent-length: "
        ).encode()

    def request(self) -> bytes:
        body = b"".join((self._start, b", ".join(self.messages), self._end))
        return b"".join((self._head, str(len(body)).encode(), b"\r\n\r\n", body))

    def answered(self, number: int) -> None:
        """Takes the answer into the history, and says the next thing."""
        self.messages.append(json.dumps({"role": "assistant", "content": reply_text(number)}).encode())
        self.messages.append(_message("user", self._name, len(self.messages)))


class Line:
    """One connection, kept."""

    def __init__(self, load: Load) -> None:
        place = urlsplit(load.url)
        self._where = place.hostname, place.port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> tuple[int, bytes, float, float]:
        """Status, body, and the seconds to its first byte and to its last; on a new connection where one was closed."""
        kept = self._streams is not None
        try:
            return await self._asked(request)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            if not kept:
                raise
            return await self._asked(request)

    async def _asked(self, request: bytes) -> tuple[int, bytes, float, float]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(*self._where, limit=4 * 1024 * 1024)
        reader, writer = self._streams
        begun = time.perf_counter()
        writer.write(request)
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = bytearray()
        first = 0.0
        length = re.search(rb"\r\ncontent-length: *(\d+)", head)
        if length:
            body += await reader.readexactly(int(length[1]))
            first = time.perf_counter() - begun
        else:
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:size]
                first = first or time.perf_counter() - begun
            await reader.readexactly(2)
        took = time.perf_counter() - begun
        if b"\r\nconnection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1]), bytes(body), first, took

    async def leave(self, request: bytes) -> None:
        """Asks, and goes away."""
        self.close()
        _, writer = await asyncio.open_connection(*self._where)
        writer.write(request)
        await writer.drain()
        writer.close()

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def measured(load: Load) -> Took:
    """First every session is opened; then, all together, their turns are taken and timed."""
    took = Took()
    talks = [
        [Talk(load, f"{load.name}.{client}.{number}") for number in range(load.sessions)]
        for client in range(load.clients)
    ]
    lines = [Line(load) for _ in talks]

    async def opened(client: int) -> None:
        for talk in talks[client]:
            await _turn(lines[client], talk, took, took.opening, [])

    async def spoken(client: int) -> None:
        said = 0
        for talk in talks[client]:
            for _ in range(load.turns):
                await _turn(lines[client], talk, took, took.turns, took.first_byte)
                said += 1
                if load.leave_every and said % load.leave_every == 0:
                    await lines[client].leave(talk.request())
                    took.left += 1

    await asyncio.gather(*map(opened, range(load.clients)))
    begun = time.perf_counter()
    await asyncio.gather(*map(spoken, range(load.clients)))
    took.seconds = time.perf_counter() - begun
    for line in lines:
        line.close()
    return took


async def _turn(line: Line, talk: Talk, took: Took, times: list[float], firsts: list[float]) -> None:
    status, body, first, last = await line.ask(talk.request())
    found = _NUMBER.search(body)
    if status != 200 or found is None or int(found[1]) >= REPLIES:
        took.failed += 1
        if took.failed <= 3:
            print(f"{status}: {body[:300]!r}", file=sys.stderr)
        return
    times.append(1e3 * last)
    firsts.append(1e3 * first)
    talk.answered(int(found[1]))


def main() -> None:
    load = Load(**json.loads(sys.stdin.read()))
    print(json.dumps(asdict(asyncio.run(measured(load)))))


if __name__ == "__main__":
    main()
