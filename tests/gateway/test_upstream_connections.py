"""Connections to upstreams: responses are framed correctly wherever the network splits them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.gateway.upstreams._connections import (
    NETWORK_ERRORS,
    READ_BYTES,
    UpstreamConnections,
    UpstreamTimedOut,
    _ChunkDecoder,
)

DEADLINE = 30.0


def chunked(parts: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    chunks = [b"%x%s\r\n%s\r\n" % (len(part), extension, part) for part in parts if part]
    return b"".join(chunks) + b"0\r\n" + trailer + b"\r\n"


@asynccontextmanager
async def upstream(response: bytes, *, closes: bool = False) -> AsyncIterator[tuple[str, list[int]]]:
    """Answers every request with the same bytes; counts the requests of each connection."""
    served: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(0)
        place = len(served) - 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                served[place] += 1
                writer.write(response)
                await writer.drain()
                if closes:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/x", served


def fetch(
    response: bytes, times: int = 1, *, closes: bool = False, read_seconds: float = DEADLINE
) -> tuple[list[tuple[int, bytes]], list[int]]:
    async def meet() -> tuple[list[tuple[int, bytes]], list[int]]:
        lines = UpstreamConnections(connect_seconds=DEADLINE, read_seconds=read_seconds)
        answers: list[tuple[int, bytes]] = []
        async with upstream(response, closes=closes) as (url, served):
            try:
                for _ in range(times):
                    reply, release = await lines.send("GET", url, [], b"")
                    pieces = [piece async for piece in reply]
                    assert all(len(piece) <= READ_BYTES for piece in pieces)
                    answers.append((reply.status, b"".join(pieces)))
                    await release()
            finally:
                await lines.close()
            return answers, served

    return asyncio.run(meet())


@given(parts=st.lists(st.binary(max_size=300), max_size=8), cuts=st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_chunks_are_joined_wherever_the_network_split_them(parts, cuts):
    raw = chunked(parts, b"; name=value", b"x-checksum: 1\r\n") + b"more"
    decoder, found, at = _ChunkDecoder(), b"", 0
    for cut in [*cuts, len(raw)]:
        found += decoder.feed(raw[at : at + cut]) if not decoder.is_complete else b""
        at += cut
    assert decoder.is_complete
    assert found == b"".join(parts)
    assert b"more".startswith(decoder.rest)


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length:5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n" + chunked([b"he", b"llo"]),
    ],
)
def test_a_response_with_a_known_end_keeps_its_connection_for_the_next(head):
    assert fetch(head, 2) == ([(200, b"hello")] * 2, [2])


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello and more that nobody asked for",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n" + chunked([b"hello"]),
    ],
)
def test_a_response_without_a_reliable_end_closes_its_connection(head):
    assert fetch(head, 2, closes=b"content-length" not in head) == ([(200, b"hello")] * 2, [1, 1])


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n" + chunked([b"hello"]),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhelloo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfive\r\nhello\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"x" * 200_000,
        b"",
    ],
)
def test_an_incomplete_or_invalid_response_is_an_error(head):
    with pytest.raises(NETWORK_ERRORS):
        fetch(head, closes=True)


@pytest.mark.parametrize(
    "head", [b"", b"HTTP/1.1 200 OK\r\ncontent-le", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello"]
)
def test_an_upstream_that_stops_sending_times_out(head):
    with pytest.raises(UpstreamTimedOut):
        fetch(head, read_seconds=0.05)
    assert not issubclass(UpstreamTimedOut, OSError), "a TLS stream would take it for a broken connection"


def test_no_header_can_end_the_request_early():
    async def meet() -> None:
        lines = UpstreamConnections(connect_seconds=DEADLINE, read_seconds=DEADLINE)
        async with upstream(b"HTTP/1.1 204 No Content\r\n\r\n") as (url, _):
            for header in ((b"x-one", b"a\r\nx-two: b"), (b"x one", b"a"), (b"x-one", b"a\0")):
                with pytest.raises(NETWORK_ERRORS):
                    await lines.send("GET", url, [header], b"")
            assert (await lines.send("GET", url, [(b"x-one", b"caf\xe9")], b""))[0].status == 204
            await lines.close()

    asyncio.run(meet())


def test_an_unread_response_is_not_buffered_without_limit():
    async def meet() -> tuple[int, int]:
        lines = UpstreamConnections(connect_seconds=DEADLINE, read_seconds=DEADLINE)
        size = 8 * 1024 * 1024
        async with upstream(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + bytes(size)) as (url, _):
            try:
                reply, _ = await lines.send("GET", url, [], b"")
                for _ in range(500):
                    await asyncio.sleep(0)
                buffered = len(reply._connection._tcp._received) + len(reply._start)
                return buffered, len(await reply.read()) - size
            finally:
                await lines.close()

    buffered, missing = asyncio.run(meet())
    assert buffered <= 2 * READ_BYTES
    assert missing == 0
