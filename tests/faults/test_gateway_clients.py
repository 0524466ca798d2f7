"""Promise 12: one slow or misbehaving client does not affect others.

Hundreds of clients that do not read, do not finish their requests, send too much or disconnect attack a gateway process
while a good client works. The bad ones are disconnected, their upstream requests are cancelled, and partial responses
are stored.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from apart import Process, place
from chaos import TOOLS, Line, Provider, Reply, clean
from tests.gateway.upstream import Asked, Says, ScriptedUpstream

from recto.config.factory import SystemClock
from recto.engine.verification import verify
from recto.formats.openai_chat import CHAT
from recto.gateway.api_keys import Key, Keys
from recto.stores.sqlite import SqliteStore

pytestmark = pytest.mark.timeout(0)
DEADLINE = 300
"""Seconds until an expected event has to happen, also on a busy machine."""
MOST, EACH = 64 << 20, 256 << 10
"""Bytes of memory that all non-reading clients may cost together, and each of a few: its session and unread data."""
PIECE = b'data: {"choices": [{"index": 0, "delta": {"content": "' + b"x" * 16_000 + b'"}}]}\n\n'


@dataclass
class Work:
    """The upstream side of requests whose responses never end: counts those in flight."""

    under_way: int = 0
    begun: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def fault(self, upstream_request: Asked) -> Any:
        raw = upstream_request.raw
        return self.endless if b"endless" in raw else self.silent if b"silent" in raw else clean

    async def endless(self, line: Line, reply: Reply, upstream_request: Asked) -> None:
        """Streams for as long as the gateway reads."""
        await self.until_gone(line, b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", PIECE)

    async def silent(self, line: Line, reply: Reply, upstream_request: Asked) -> None:
        """Never sends a response."""
        await self.until_gone(line, b"", b"")

    async def until_gone(self, line: Line, head: bytes, piece: bytes) -> None:
        self.under_way += 1
        self.begun += 1
        self.idle.clear()
        try:
            await line.send(head)
            while not line.writer.is_closing() and not line.reader.at_eof():
                if piece:
                    await line.send(piece)
                    await asyncio.sleep(0)
                else:
                    await line.reader.read(1)
        finally:
            line.stays = False
            self.under_way -= 1
            if not self.under_way:
                self.idle.set()


def request(port: int, secret: str, text: str, *, stream: bool = True) -> bytes:
    messages = [{"role": "user", "content": text}]
    body = json.dumps({"model": "gpt-4o", "messages": messages, "tools": TOOLS[CHAT], "stream": stream}).encode()
    return head(port, secret, len(body)) + body


def head(port: int, secret: str, size: int) -> bytes:
    lines = [f"Host: 127.0.0.1:{port}", f"Authorization: Bearer {secret}", "Content-Type: application/json"]
    lines += [f"Content-Length: {size}", "Connection: close"]
    return "\r\n".join(["POST /v1/chat/completions HTTP/1.1", *lines]).encode() + b"\r\n\r\n"


async def connected(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
    return sock


async def send(sock: socket.socket, raw: bytes) -> None:
    with suppress(ConnectionError):
        await asyncio.get_running_loop().sock_sendall(sock, raw)


async def read(sock: socket.socket, size: int = 65536) -> bytes:
    with suppress(ConnectionError):
        return await asyncio.get_running_loop().sock_recv(sock, size)
    return b""


async def whole(sock: socket.socket) -> bytes:
    got = b""
    while more := await read(sock):
        got += more
    sock.close()
    return got


async def hung_up(sock: socket.socket) -> None:
    """Waits until the gateway has closed a connection that is not read from: writing to it fails."""
    loop = asyncio.get_running_loop()
    while sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
        try:
            await loop.sock_sendall(sock, b"x")
        except OSError:
            break
        await asyncio.sleep(0.1)
    sock.close()


class Memory:
    """The peak growth of the memory of a process since this was created."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._resident()
        self.grown = 0

    def look(self) -> None:
        self.grown = max(self.grown, self._resident() - self._before)

    def _resident(self) -> int:
        found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self._pid}/status").read_text())
        assert found is not None
        return int(found[1]) * 1024


def kinds_in(path: Path) -> Counter[str]:
    """Returns how many sessions contain each kind of entry, after verifying all chains."""
    with SqliteStore(path) as store:
        assert verify(store).ok
        names = [summary.session for summary in store.sessions() if summary.session.startswith("agent:")]
        return Counter(kind for name in names for kind in {entry.kind for entry in store.read(name)})


async def attacked(folder: Path, stalled: int, others: int) -> dict[str, Any]:
    """Runs a gateway under attack; returns what happened to the good client and the bad ones."""
    work = Work()
    provider = Provider(ScriptedUpstream(lambda _: Says(text="All is well.")), work.fault)
    times = {"header_seconds": 3, "body_seconds": 3, "write_seconds": 5, "drain_seconds": 1}
    every = 2 * (stalled + others)  # so that all of them are served, though they share a key
    async with place(folder, provider, concurrency=every, connections=2 * every, **times) as (path, config, secret):
        process = await Process.started(config)
        port = process.port

        async def good(number: int) -> bytes:
            sock = await connected(port)
            await send(sock, request(port, secret, f"good {number}"))
            return await whole(sock)

        for _ in range(4):  # warms up everything that is created once
            assert all(b"[DONE]" in answer for answer in await asyncio.gather(*(good(0) for _ in range(16))))
        memory = Memory(process.running.pid)
        bad = [await connected(port) for _ in range(stalled)]
        for number, sock in enumerate(bad):
            await send(sock, request(port, secret, f"endless {number}"))
        slow = [await connected(port) for _ in range(others)]
        for number, sock in enumerate(slow):
            raw = head(port, secret, 1_000)
            await send(sock, raw[: len(raw) // 2] if number % 2 else raw + b"{")
        large = [await connected(port) for _ in range(4)]
        for sock in large:
            await send(sock, head(port, secret, 100 << 20) + b"x" * 65536)
        answers = [await good(number) for number in range(1, 6)]
        gone = [await connected(port) for _ in range(others)]
        for number, sock in enumerate(gone):
            kind = "silent" if number % 2 else "endless"
            stream = number % 3 != 0 or kind == "endless"
            await send(sock, request(port, secret, f"{kind} gone {number}", stream=stream))
        async with asyncio.timeout(DEADLINE):
            while work.begun < stalled + others:
                answers.append(await good(len(answers) + 1))
                memory.look()
            for sock in gone:
                sock.close()
            answers += [await good(len(answers) + 1) for _ in range(5)]
            memory.look()
            refused = [await whole(sock) for sock in large]
            await asyncio.gather(*(whole(sock) for sock in slow))
            await work.idle.wait()
            await asyncio.gather(*map(hung_up, bad))
            memory.look()
        answers.append(await good(len(answers) + 1))
        await process.end(signal.SIGTERM)
        return {
            "failed": [answer for answer in answers if b"[DONE]" not in answer],
            "refused": [answer[:12] for answer in refused],
            "grown": memory.grown,
            "kinds": kinds_in(path),
            "asked": work.begun,
        }


@pytest.mark.promise
def test_clients_that_stall_vanish_or_send_too_much_are_disconnected_without_affecting_a_good_one(tmp_path, scale):
    stalled, others = scale(100, ci=1_000, release=1_000), scale(12, ci=50, release=200)
    result = asyncio.run(attacked(tmp_path, stalled, others))
    assert result["failed"] == []
    assert set(result["refused"]) == {b"HTTP/1.1 413"}
    assert result["asked"] == stalled + others
    assert result["kinds"]["reply_cut"] == stalled + others
    assert result["grown"] < min(MOST, stalled * EACH)


async def overfed(folder: Path, many: int) -> tuple[list[bytes], int]:
    """Sends bodies of a hundred megabytes without a content length, over and over, next to a good client."""
    provider = Provider(ScriptedUpstream(lambda _: Says(text="All is well.")), lambda _: clean)
    async with place(folder, provider, drain_seconds=1) as (_, config, secret):
        process = await Process.started(config)
        port = process.port
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"

        async def good() -> bytes:
            """Sends the same request to the same session: sessions would take memory too, the more the faster it is."""
            sock = await connected(port)
            named = b"Connection: close\r\nX-Session-Id: good"
            await send(sock, request(port, secret, "good").replace(b"Connection: close", named))
            return await whole(sock)

        async def feed() -> bytes:
            sock = await connected(port)
            request_head = head(port, secret, 0).replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            await send(sock, request_head)
            with suppress(OSError):
                for _ in range(1_600):
                    await asyncio.get_running_loop().sock_sendall(sock, chunk)
            return (await whole(sock))[:12]

        for _ in range(8):  # warms up everything that is created once
            assert all(b"[DONE]" in answer for answer in await asyncio.gather(*(good() for _ in range(16))))
        memory = Memory(process.running.pid)
        async with asyncio.timeout(DEADLINE):
            fed = asyncio.gather(*(feed() for _ in range(many)))
            while not fed.done():
                assert b"[DONE]" in await good()
                memory.look()
            refused = await fed
        await process.end(signal.SIGTERM)
        return refused, memory.grown


def test_endless_bodies_without_a_length_cost_little_memory_before_they_are_refused(tmp_path):
    refused, grown = asyncio.run(overfed(tmp_path, 8))
    assert set(refused) <= {
        b"HTTP/1.1 413",
        b"",
    }  # a client that is still sending may see a reset instead of the response
    assert grown < MOST


async def flooded(folder: Path, many: int, places: int) -> tuple[list[bytes], list[bytes], int]:
    """Opens more non-reading clients of one key than the gateway serves, and a client of another key."""
    work = Work()
    provider = Provider(ScriptedUpstream(lambda _: Says(text="All is well.")), work.fault)
    async with place(folder, provider, concurrency=places, drain_seconds=1) as (path, config, secret):
        with SqliteStore(path) as store:
            _, flooding = Keys(store, SystemClock()).add(Key(id="", name="flooding"))
        process = await Process.started(config)
        port = process.port
        socks = [await connected(port) for _ in range(many)]
        for number, sock in enumerate(socks):
            await send(sock, request(port, flooding, f"endless {number}"))
        async with asyncio.timeout(DEADLINE):
            while work.begun < places - places // 8:
                await asyncio.sleep(0.01)
            answers = []
            for number in range(5):
                sock = await connected(port)
                await send(sock, request(port, secret, f"good {number}"))
                answers.append(await whole(sock))
            refused = [head for head in [await read(sock, 12) for sock in socks] if head != b"HTTP/1.1 200"]
        await process.end(signal.SIGTERM)
        for sock in socks:
            sock.close()
        return answers, refused, work.begun


def test_a_key_that_floods_the_gateway_leaves_slots_for_others(tmp_path):
    answers, refused, begun = asyncio.run(flooded(tmp_path, 40, 16))
    assert all(b"[DONE]" in answer for answer in answers), answers
    assert refused == [b"HTTP/1.1 503"] * 26
    assert begun == 14


async def stopped(folder: Path, number: int) -> Counter[str]:
    """Ends a gateway with streams in flight."""
    work = Work()
    provider = Provider(ScriptedUpstream(lambda _: Says(text="All is well.")), work.fault)
    async with place(folder, provider, drain_seconds=1) as (path, config, secret):
        process = await Process.started(config)
        socks = [await connected(process.port) for _ in range(12)]
        for place_of, sock in enumerate(socks):
            text = f"{'silent' if place_of % 3 == 0 else 'endless'} {place_of}"
            await send(sock, request(process.port, secret, text))
        async with asyncio.timeout(DEADLINE):
            while work.begun < len(socks):
                await asyncio.sleep(0.01)
            reading = [asyncio.ensure_future(whole(sock)) for sock in socks]
            await process.end(number)
            await asyncio.gather(*reading)
        if number == signal.SIGTERM:
            assert process.running.returncode == 0
        return kinds_in(path)


def test_a_stopped_gateway_records_every_stream_in_flight(tmp_path):
    kinds = asyncio.run(stopped(tmp_path, signal.SIGTERM))
    assert kinds["reply_cut"] == 12


def test_a_killed_gateway_records_no_stream_in_flight(tmp_path):
    kinds = asyncio.run(stopped(tmp_path, signal.SIGKILL))
    assert kinds["message"] == 12
    assert kinds["reply_cut"] == 0
