"""Promise 12, part by part: many requests of one client neither delay other clients nor fill memory."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise

from tests.gateway.listening import DEADLINE, asked, connected, listening, status

from recto.gateway import server
from recto.gateway.proxy import RequestLanes
from recto.gateway.scheduler import FairScheduler
from recto.gateway.upstreams._connections import READ_BYTES, UpstreamConnections

HOUR = 3_600.0


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def passes(stile: FairScheduler, key: str, through: list[str]) -> None:
    async with stile.slot(key):
        through.append(key)


def test_requests_of_a_busy_key_are_spaced_while_other_keys_are_active():
    async def meet() -> list[str]:
        stile, through = FairScheduler(2, spacing=HOUR), []
        await passes(stile, "good", through)
        many = [asyncio.create_task(passes(stile, "bad", through)) for _ in range(5)]
        await settled()
        assert through == ["good", "bad"]  # there are free slots, and the other requests wait all the same
        assert stile.waiting == 4
        for task in many:
            task.cancel()
        await asyncio.gather(*many, return_exceptions=True)
        await passes(stile, "third", through)
        assert stile.waiting == 0
        return through

    assert asyncio.run(meet()) == ["good", "bad", "third"]


def test_requests_of_a_key_with_few_are_not_spaced_while_other_keys_are_active():
    async def meet() -> list[str]:
        stile, through = FairScheduler(2, spacing=HOUR, has_many=lambda key: key == "bad"), []
        await passes(stile, "good", through)
        await passes(stile, "bad", through)
        waiting = asyncio.create_task(passes(stile, "bad", through))
        await settled()
        for _ in range(5):
            await passes(stile, "good", through)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return through

    assert asyncio.run(meet()) == ["good", "bad", *["good"] * 5]


def test_a_key_is_busy_while_it_has_more_than_two_requests_in_flight():
    lanes = RequestLanes()
    many = lanes.scheduler(0)._has_many
    with lanes.request("a"), lanes.request("a"):
        assert not many("a")
        with lanes.request("a"):
            assert many("a")
            assert not many("b")
        assert not many("a")
    assert not many("a")


def test_requests_of_the_only_active_key_are_not_spaced():
    async def meet() -> list[str]:
        stile, through = FairScheduler(2, spacing=HOUR), []
        await asyncio.gather(*(passes(stile, "only", through) for _ in range(20)))
        return through

    assert asyncio.run(meet()) == ["only"] * 20


def test_spaced_requests_are_admitted_when_their_time_comes():
    async def meet() -> list[str]:
        stile, through = FairScheduler(2, spacing=0.001), []
        await passes(stile, "good", through)
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*(passes(stile, "bad", through) for _ in range(20)))
        return through

    assert asyncio.run(meet()) == ["good", *["bad"] * 20]


def test_simultaneous_connections_are_paced_and_a_single_one_is_not():
    pacer = server.ConnectionPacer()
    waits = [pacer.delay(100.0) for _ in range(50)]
    assert waits[0] == 0
    assert all(0 < later - sooner < 0.01 for sooner, later in pairwise(waits))
    assert pacer.delay(200.0) == 0
    assert pacer.delay(200.0) > 0


class Endless:
    """An application whose responses never end; counts the requests in flight."""

    def __init__(self) -> None:
        self.under_way = 0
        self.changed = threading.Condition()

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] != "/endless":
            await send({"type": "http.response.body", "body": b"ok"})
            return
        self._count(1)
        gone = asyncio.ensure_future(self._gone(receive))
        try:
            while not gone.done():
                await send({"type": "http.response.body", "body": b"x" * 8_192, "more_body": True})
                await asyncio.sleep(0)
        finally:
            gone.cancel()
            self._count(-1)

    async def _gone(self, receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    def _count(self, by: int) -> None:
        with self.changed:
            self.under_way += by
            self.changed.notify_all()

    def until(self, many: int) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.under_way == many, DEADLINE)


def test_with_too_many_unread_responses_the_longest_waiting_clients_are_disconnected_early(monkeypatch):
    monkeypatch.setattr(server, "_MAX_UNREAD", 3)
    monkeypatch.setattr(server, "_MIN_UNREAD_SECONDS", 0.0)
    app = Endless()
    with listening(app, write_seconds=HOUR) as (_, port):
        socks = []
        for number in range(8):
            sock = connected(port)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            sock.sendall(f"GET /endless HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            socks.append(sock)
            assert app.until(min(number + 1, 3)), number
        assert status(asked(port)) == 200
        for sock in socks:
            sock.close()
        assert app.until(0)


@asynccontextmanager
async def upstream(body: bytes) -> AsyncIterator[tuple[str, list[int]]]:
    """Runs an upstream with a fixed response body; yields its address and the number of requests per connection."""
    request_counts: list[int] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(request_counts)
        request_counts.append(0)
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = re.search(rb"content-length: (\d+)", head)
            await reader.readexactly(int(length[1]) if length else 0)
            request_counts[place] += 1
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        over.release()

    over = asyncio.Semaphore(0)
    listener = await asyncio.start_server(served, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1", request_counts
    finally:
        listener.close()
        for _ in request_counts:
            await over.acquire()


def test_a_connection_is_reused_only_after_its_response_was_read():
    async def meet() -> list[int]:
        lines = UpstreamConnections(connect_seconds=DEADLINE, read_seconds=DEADLINE)
        async with upstream(json.dumps({"said": "x" * 300_000}).encode()) as (url, request_counts):
            for reads in (True, True, False, True):
                answer, over = await lines.send("POST", url, [], b"{}")
                if reads:
                    pieces = [piece async for piece in answer]
                    assert len(b"".join(pieces)) == 300_012
                    assert max(map(len, pieces)) <= READ_BYTES
                await over()
            await lines.close()
            return request_counts

    assert asyncio.run(meet()) == [3, 1]


def test_closing_a_response_twice_does_not_end_the_next_request_on_its_connection():
    async def meet() -> tuple[int, list[int]]:
        lines = UpstreamConnections(connect_seconds=DEADLINE, read_seconds=DEADLINE)
        async with upstream(b"x" * 300_000) as (url, request_counts):
            first, first_over = await lines.send("POST", url, [], b"{}")
            await first.read()
            await first_over()
            second, second_over = await lines.send("POST", url, [], b"{}")
            await first_over()
            body = await second.read()
            await second_over()
            await lines.close()
            return len(body), request_counts

    assert asyncio.run(meet()) == (300_000, [2])
