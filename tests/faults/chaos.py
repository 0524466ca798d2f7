"""A scripted provider behind a faulty connection, and in-process clients of a gateway.

The connection is a TCP server in front of the scripted provider. It forwards each request to the provider unchanged and
returns the response as a seed determines: truncated, corrupted, duplicated, in small pieces, compressed, delayed, or
replaced by something else. Clients call the gateway's ASGI application directly, including its guard; everything behind
it is real.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from tests.gateway.upstream import Asked, ScriptedUpstream

from recto.config import load
from recto.config.factory import open_store
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.gateway.api_keys import Key
from recto.gateway.app import Gateway

PORT = 8642
PATHS = {CHAT: "/v1/chat/completions", RESPONSES: "/v1/responses", ANTHROPIC: "/v1/messages"}
TOOLS = {
    CHAT: [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}],
    RESPONSES: [{"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}}],
    ANTHROPIC: [{"name": "run", "input_schema": {"type": "object", "properties": {}}}],
}


@dataclass
class Reply:
    """An HTTP response of the provider, before a fault is applied to it."""

    status: int
    headers: dict[str, str]
    body: bytes

    def wired(self) -> bytes:
        """The raw response with a content length, for a connection that stays open."""
        head = {**self.headers, "content-length": str(len(self.body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        return f"HTTP/1.1 {self.status} Said\r\n{lines}\r\n".encode() + self.body

    def chunked(self, rng: random.Random) -> bytes:
        """The raw response with chunked transfer encoding, in chunks of random size."""
        head = {name: value for name, value in self.headers.items() if name != "content-length"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**head, "transfer-encoding": "chunked"}.items())
        made = [f"HTTP/1.1 {self.status} Said\r\n{lines}\r\n".encode()]
        at = 0
        while at < len(self.body):
            size = rng.choice((40, 200, 1_000, 5_000))
            piece = self.body[at : at + size]
            made.append(b"%x\r\n%s\r\n" % (len(piece), piece))
            at += size
        return b"".join(made) + b"0\r\n\r\n"


@dataclass
class Line:
    """The server side of one connection, as passed to a fault."""

    rng: random.Random
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    stays: bool = True

    async def send(self, raw: bytes) -> None:
        self.writer.write(raw)
        await self.writer.drain()

    async def drip(self, raw: bytes, size: int) -> None:
        for at in range(0, len(raw), size):
            self.writer.write(raw[at : at + size])
            await asyncio.sleep(0)
        await self.writer.drain()

    def cut(self) -> None:
        """Ends the connection, at random with a reset instead of a close."""
        self.stays = False
        if self.rng.random() < 0.5:
            self.writer.transport.abort()


Fault = Callable[[Line, Reply, Asked], Awaitable[None]]


async def clean(line: Line, reply: Reply, request: Asked) -> None:
    await line.send(reply.chunked(line.rng) if line.rng.random() < 0.7 else reply.wired())


async def cut(line: Line, reply: Reply, request: Asked) -> None:
    raw = reply.chunked(line.rng)
    await line.send(raw[: line.rng.randrange(len(raw))])
    line.cut()


async def cut_between_events(line: Line, reply: Reply, request: Asked) -> None:
    """Sends a stream that is complete as HTTP, but lacks its last events."""
    events = reply.body.split(b"\n\n")
    partial = b"".join(event + b"\n\n" for event in events[: line.rng.randrange(len(events))])
    await line.send(Reply(reply.status, reply.headers, partial).chunked(line.rng))


async def headers_alone(line: Line, reply: Reply, request: Asked) -> None:
    raw = reply.wired()
    await line.send(raw[: raw.index(b"\r\n\r\n") + 4])
    line.cut()


async def nothing(line: Line, reply: Reply, request: Asked) -> None:
    line.cut()


async def garbage_in_the_stream(line: Line, reply: Reply, request: Asked) -> None:
    body = bytearray(reply.body)
    for _ in range(line.rng.randint(1, 4)):
        at = line.rng.randrange(len(body) + 1)
        body[at : at + line.rng.randrange(3)] = line.rng.randbytes(line.rng.randint(1, 40))
    await line.send(Reply(reply.status, reply.headers, bytes(body)).chunked(line.rng))


async def garbage_on_the_line(line: Line, reply: Reply, request: Asked) -> None:
    raw = bytearray(reply.chunked(line.rng))
    at = line.rng.randrange(len(raw))
    raw[at:at] = line.rng.randbytes(line.rng.randint(1, 40))
    await line.send(bytes(raw))
    line.cut()


async def doubled(line: Line, reply: Reply, request: Asked) -> None:
    """Repeats events: some of them in place, one of them later, or all of them."""
    events = [event + b"\n\n" for event in reply.body.split(b"\n\n") if event]
    match line.rng.randrange(3):
        case 0:
            events = [event for event in events for _ in range(2 if line.rng.random() < 0.3 else 1)]
        case 1:
            events.insert(line.rng.randrange(len(events) + 1), line.rng.choice(events))
        case _:
            events += events
    await line.send(Reply(reply.status, reply.headers, b"".join(events)).chunked(line.rng))


async def in_drops(line: Line, reply: Reply, request: Asked) -> None:
    await line.drip(reply.chunked(line.rng), line.rng.randint(7, 60))


async def one_long_event(line: Line, reply: Reply, request: Asked) -> None:
    long = b"data: " + b"x" * line.rng.choice((70_000, 300_000))
    body = long + (b"\n\n" if line.rng.random() < 0.5 else b"") + reply.body
    await line.send(Reply(reply.status, reply.headers, body).chunked(line.rng))


async def refused(line: Line, reply: Reply, request: Asked) -> None:
    status = line.rng.choice((429, 500, 502, 503, 529))
    headers = {"content-type": "application/json"}
    if line.rng.random() < 0.5:
        headers["retry-after"] = line.rng.choice(("1", "soon", "-1"))
    await line.send(Reply(status, headers, _error(request.wire)).wired())


async def refused_by_a_proxy(line: Line, reply: Reply, request: Asked) -> None:
    """Sends an error page of a proxy in front of the provider."""
    bodies = (b"", b"<html>Bad gateway</html>", b"[]", b"null", b'"no"', b"\xff\xfe", b'{"error": {"mess')
    status = line.rng.choice((400, 401, 403, 404, 413, 418, 429, 500, 502, 503, 599))
    await line.send(Reply(status, {"content-type": "text/html"}, line.rng.choice(bodies)).wired())


async def bomb(line: Line, reply: Reply, request: Asked) -> None:
    headers = {**reply.headers, "content-encoding": line.rng.choice(("gzip", "deflate", "br", "zstd", "nonsense"))}
    await line.send(Reply(line.rng.choice((200, 200, 500)), headers, _BOMB).wired())


async def of_another_type(line: Line, reply: Reply, request: Asked) -> None:
    kind = line.rng.choice(("text/html", "application/json", "", "text/event-stream", "text/event-stream; charset=x"))
    headers = {**reply.headers, "content-type": kind}
    await line.send(Reply(line.rng.choice((200, 200, 201, 204, 206)), headers, reply.body).wired())


async def an_error_with_status_200(line: Line, reply: Reply, request: Asked) -> None:
    await line.send(Reply(200, {"content-type": "application/json"}, _error(request.wire)).wired())


async def an_error_in_the_stream(line: Line, reply: Reply, request: Asked) -> None:
    events = reply.body.split(b"\n\n")
    at = line.rng.randrange(len(events))
    error = b"event: error\ndata: " + _error(ANTHROPIC if request.wire == RESPONSES else request.wire)
    body = b"\n\n".join([*events[:at], error]) + b"\n\n"
    await line.send(Reply(reply.status, reply.headers, body).chunked(line.rng))


async def elsewhere(line: Line, reply: Reply, request: Asked) -> None:
    headers = {**reply.headers, "location": "http://169.254.169.254/latest/meta-data/"}
    await line.send(Reply(line.rng.choice((301, 302, 303, 307, 308, 304)), headers, reply.body).wired())


async def odd_headers(line: Line, reply: Reply, request: Asked) -> None:
    odd = line.rng.choice(("\u2603 snow", "a\tb", "\u00e9", "x" * 60_000, ""))
    headers = {**reply.headers, "x-odd": odd, "set-cookie": "a=b", "x-recto-session-id": "forged"}
    await line.send(Reply(reply.status, headers, reply.body).wired())


async def no_http(line: Line, reply: Reply, request: Asked) -> None:
    ways = (b"HTTP/9.9 200\r\n\r\n", b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")
    await line.send(line.rng.choice((*ways, line.rng.randbytes(200))))
    line.cut()


FAULTS: tuple[Fault, ...] = (
    *(clean, cut, cut, cut_between_events, headers_alone, nothing, garbage_in_the_stream, garbage_on_the_line),
    *(doubled, in_drops, one_long_event, refused, refused_by_a_proxy, bomb, of_another_type),
    *(an_error_with_status_200, an_error_in_the_stream, elsewhere, odd_headers, no_http),
)
_BOMB = gzip.compress(bytes(1 << 20))


def _error(wire: str) -> bytes:
    error = {"type": "server_error", "message": "busy", "code": "busy", "param": None}
    return json.dumps({"type": "error", "error": error} if wire == ANTHROPIC else {"error": error}).encode()


@dataclass
class Provider:
    """The scripted provider behind the faulty connection."""

    scripted: ScriptedUpstream
    fault: Callable[[Asked], Fault] = lambda request: clean
    seed: int = 0
    url: str = ""
    calls: int = 0
    closed: int = 0
    """Connections that the gateway closed."""
    _app: Any = None
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Provider]:
        self._app = Starlette(routes=self.scripted.routes())
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=1_000)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        line = Line(random.Random(f"{self.seed}"), reader, writer)
        try:
            while line.stays:
                head = await reader.readuntil(b"\r\n\r\n")
                first, *lines = head.decode("latin-1").split("\r\n")
                headers = {
                    name.lower(): value.strip() for name, _, value in (header.partition(":") for header in lines)
                }
                body = await reader.readexactly(int(headers.get("content-length") or 0))
                method, path, _ = first.split(" ")
                reply = await self._respond(method, path, headers, body)
                self.calls += 1
                line.rng = random.Random(f"{self.seed}/{self.calls}")
                request = next((entry for entry in reversed(self.scripted.asked) if entry.raw == body), None)
                if request is None:  # models and vectors are sent without faults
                    await line.send(reply.wired())
                else:
                    await self.fault(request)(line, reply, request)
        except (asyncio.IncompleteReadError, ConnectionError):
            self.closed += 1
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            with suppress(ConnectionError):
                writer.close()
            self._tasks.discard(task)

    async def _respond(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Reply:
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items() if name]
        try:
            status, response_headers, content = await call(self._app, method, path.partition("?")[0], pairs, body)
        except (AttributeError, KeyError, TypeError, ValueError):  # fields that a provider would reject
            wire = ANTHROPIC if "messages" in path else CHAT
            return Reply(400, {"content-type": "application/json"}, _error(wire))
        forwarded = {name: value for name, value in response_headers if name in ("content-type",)}
        return Reply(status, forwarded, content)


def is_refusal(wire: str, answer: GatewayResponse) -> bool:
    """Returns whether a response is an error in the shape of its wire format."""
    try:
        payload = answer.json
        error = payload["error"]
        shaped = isinstance(error["message"], str) and isinstance(error["type"], str)
    except (ValueError, KeyError, TypeError):
        return False
    return shaped and (wire != ANTHROPIC or payload["type"] == "error")


async def call(
    app: Any,
    method: str,
    path: str,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    *,
    query: bytes = b"",
    leave_after: int | None = None,
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Calls an ASGI application. With `leave_after`, the client disconnects after that many body chunks."""
    got: list[bytes] = []
    start: dict[str, Any] = {"status": 0, "headers": []}
    ended, gone = False, asyncio.Event()
    waiting = [body]

    async def receive() -> dict[str, Any]:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal start, ended
        if message["type"] == "http.response.start":
            start = message
        else:
            got.append(message.get("body", b""))
            ended = not message.get("more_body", False)
        if leave_after is not None and len(got) >= leave_after:
            gone.set()

    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "headers": list(headers),
        "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 5),
        "scheme": "http",
        "root_path": "",
    }
    await app(scope, receive, send)
    assert ended or gone.is_set(), "the response never ended"
    response_headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in start["headers"]]
    return start["status"], response_headers, b"".join(got)


@dataclass
class GatewayResponse:
    """A response of the gateway to a client."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Direct:
    """A gateway that is called in this process, through its guard."""

    gateway: Gateway
    secret: str

    @property
    def store(self) -> Any:
        return self.gateway.store

    def key(self, **fields: Any) -> str:
        return self.gateway.keys.add(Key(id="", name="test", **fields))[1]

    async def post(self, path: str, body: Any, secret: str | None = None, **headers: str) -> GatewayResponse:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.ask("POST", path, raw, secret, headers={k.replace("_", "-"): v for k, v in headers.items()})

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        secret: str | None = None,
        *,
        query: str = "",
        headers: dict[str, str] | None = None,
        leave_after: int | None = None,
    ) -> GatewayResponse:
        request_headers = {
            "host": f"127.0.0.1:{PORT}",
            "authorization": f"Bearer {secret or self.secret}",
            **(headers or {}),
        }
        if body:
            request_headers |= {"content-type": "application/json", "content-length": str(len(body))}
        pairs = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in request_headers.items()]
        status, response_headers, content = await call(
            self.gateway.asgi, method, path, pairs, body, query=query.encode(), leave_after=leave_after
        )
        return GatewayResponse(status, dict(response_headers), content)


@asynccontextmanager
async def direct(folder: Path, upstream: str, **more: Any) -> AsyncIterator[Direct]:
    """Opens a gateway over a store in the folder, in front of a provider."""
    upstream_settings = {"url": f"{upstream}/v1", "speaks": ["chat", "responses", "messages"], "key": "sk-upstream"}
    gateway_settings = {"upstreams": {"main": upstream_settings}, **more.pop("gateway", {})}
    arguments = {
        "store": str(folder / "transcript.db"),
        "recall": {"embedder": {"use": "none"}, "background": False},
        "gateway": gateway_settings,
        **more,
    }
    settings = load(environ={}, arguments=arguments)
    with closing(open_store(settings)) as store:
        gateway = Gateway(settings, store)
        _, secret = gateway.keys.add(Key(id="", name="test"))
        try:
            yield Direct(gateway, secret)
        finally:
            await gateway.upstreams.close()
            gateway.close()
