"""Hostile clients of a gateway; each kind runs in a process of its own and shares no event loop with a good client.

`python -m bench.gateway_attack` reads one `Attack` as JSON from its standard input, prints a line when all its clients
have begun, and at the end what became of their connections. It ends when its connections have been closed, or when its
time is over. It runs at low priority: an attack from another machine would take no CPU time from the gateway's.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from urllib.parse import urlsplit

STALLED, SLOW, LARGE, STORM = "stalled", "slow", "large", "storm"
_GIVES_WAY = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is done to whom."""

    kind: str
    url: str
    key: str
    many: int
    seconds: float = 60.0
    """The longest it lasts."""


@dataclass(slots=True)
class Became:
    """Seconds from when a client had sent what it sends until its connection was ended, by what it did."""

    ended: dict[str, list[float]] = field(default_factory=dict)
    left: int = 0
    """Connections that were still there at the end."""

    def note(self, what: str, seconds: float) -> None:
        self.ended.setdefault(what, []).append(seconds)


class Attacker:
    """All clients of one attack."""

    def __init__(self, attack: Attack) -> None:
        place = urlsplit(attack.url)
        self.attack = attack
        self.where = place.hostname, place.port
        self.head = (
            f"POST {place.path}/chat/completions HTTP/1.1\r\nhost: {place.netloc}\r\n"
            f"authorization: Bearer {attack.key}\r\ncontent-type: application/json\r\n"
        ).encode()
        self.became = Became()
        self.until = time.monotonic() + attack.seconds

    def request(self, number: int, word: str) -> bytes:
        messages = [{"role": "user", "content": f"{word} {number}"}]
        tool = {"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}
        body = json.dumps({"model": "gpt-4o", "messages": messages, "tools": [tool], "stream": True}).encode()
        return self.head + b"content-length: %d\r\n\r\n" % len(body) + body

    async def stalled(self, number: int) -> None:
        """Asks for an answer without an end and does not read it."""
        sock = await self._connected(4_096)
        await self._sent(sock, self.request(number, "endless"))
        await self._until_ended(sock, "a reader that stalls", reads=False)

    async def slow(self, number: int) -> None:
        """Sends half of the headers, or half of the body."""
        whole = self.request(number, "slow")
        sock = await self._connected()
        half = number % 2
        await self._sent(sock, whole[: len(self.head) // 2] if half else whole[:-20])
        await self._until_ended(sock, "half of the headers" if half else "half of the body", reads=True)

    async def large(self, number: int) -> None:
        """Sends a hundred megabytes over and over, some with their length told before."""
        while time.monotonic() < self.until:
            await self._large(number)
            await asyncio.sleep(0.5)

    async def _large(self, number: int) -> None:
        sock = await self._connected()
        told = b"content-length: 104857600\r\n\r\n" if number % 2 else b"transfer-encoding: chunked\r\n\r\n"
        await self._sent(sock, self.head + told)
        piece = b"x" * 65_536 if number % 2 else b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        with suppress(OSError):
            for _ in range(1_600):
                await asyncio.get_running_loop().sock_sendall(sock, piece)
        await self._until_ended(sock, "a body of 100 MB", reads=True)

    async def storm(self, number: int) -> None:
        """Asks and goes away, over and over."""
        while time.monotonic() < self.until:
            sock = await self._connected()
            await self._sent(sock, self.request(number, "endless" if number % 2 else "good"))
            sock.close()
            self.became.left += 1
            await asyncio.sleep(0.5)

    async def _connected(self, takes: int = 0) -> socket.socket:
        sock = socket.socket()
        if takes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, takes)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.where)
        return sock

    async def _sent(self, sock: socket.socket, raw: bytes) -> None:
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(sock, raw)

    async def _until_ended(self, sock: socket.socket, what: str, *, reads: bool) -> None:
        begun = time.monotonic()
        with sock:
            try:
                async with asyncio.timeout(self.until - begun):
                    await (_read(sock) if reads else _hung_up(sock))
            except TimeoutError:
                self.became.left += 1
            else:
                self.became.note(what, time.monotonic() - begun)

    async def run(self) -> Became:
        tasks = [asyncio.create_task(getattr(self, self.attack.kind)(number)) for number in range(self.attack.many)]
        print("begun", flush=True)
        await asyncio.gather(*tasks)
        return self.became


async def _read(sock: socket.socket) -> None:
    """Reads until the other side ends it."""
    with suppress(ConnectionError):
        while await asyncio.get_running_loop().sock_recv(sock, 65_536):
            pass


async def _hung_up(sock: socket.socket) -> None:
    """Reads nothing, and sends nothing, until the other side ends it."""
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    with select.epoll() as looking:
        looking.register(sock.fileno(), select.EPOLLRDHUP)
        loop.add_reader(looking.fileno(), gone.set)
        try:
            await gone.wait()
        finally:
            loop.remove_reader(looking.fileno())


def main() -> None:
    os.nice(_GIVES_WAY)
    attack = Attack(**json.loads(sys.stdin.readline()))
    print(json.dumps(asdict(asyncio.run(Attacker(attack).run()))))


if __name__ == "__main__":
    main()
