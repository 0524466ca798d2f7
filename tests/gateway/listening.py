"""Calls a gateway's guard and server in tests: directly, or over real sockets on loopback."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from recto.config.settings import GatewaySettings
from recto.gateway.server import Server

DEADLINE = 30
PORT = 8642


@dataclass
class RecordingApp:
    """An application behind the guard that records what reached it."""

    bodies: list[bytes] = field(default_factory=list)
    scopes: list[Any] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)
    """Set when an endless response has ended."""
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    cancelled: list[str] = field(default_factory=list)
    """What handlers recorded when they were cancelled."""

    def app(self) -> Any:
        inside = self.inside()

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            try:
                await inside(scope, receive, send)
            finally:
                if scope.get("path") == "/v1/embeddings":
                    self.ended.set()

        return watched

    def inside(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/healthz", self.health, methods=["GET"]),
                Route("/v1/models", self.models, methods=["GET"]),
                Route("/v1/conversations/{id}", self.long, methods=["GET"]),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
                Route("/v1/messages", self.chat, methods=["POST"]),
                Route("/v1/embeddings", self.endless, methods=["POST"]),
                Route("/v1/responses", self.waiting, methods=["POST"]),
            ]
        )

    async def health(self, request: Request) -> Response:
        return JSONResponse({"ok": True}, headers={"server": "of mine"})

    async def models(self, request: Request) -> Response:
        self.scopes.append(request.scope)
        return JSONResponse({"key": request.scope["recto.key"].name})

    async def long(self, request: Request) -> Response:
        """Returns as many bytes as the path asks for."""
        return Response(b"x" * int(request.path_params["id"]))

    async def chat(self, request: Request) -> Response:
        self.scopes.append(request.scope)
        self.bodies.append(await request.body())
        return JSONResponse({"bytes": len(self.bodies[-1])})

    async def endless(self, request: Request) -> Response:
        """Streams without ever waiting, and never ends by itself."""

        async def chunks() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1024

        return StreamingResponse(chunks())

    async def waiting(self, request: Request) -> Response:
        """Starts a response, and ends it when `go_on` is set."""

        async def chunks() -> AsyncIterator[bytes]:
            yield b"begun "
            self.begun.set()
            try:
                await anyio.to_thread.run_sync(self.go_on.wait, DEADLINE, abandon_on_cancel=True)
            except asyncio.CancelledError:
                with anyio.CancelScope(shield=True):
                    # as a handler that stores a partial response
                    await anyio.to_thread.run_sync(self.cancelled.append, "begun")
                raise
            yield b"ended"

        return StreamingResponse(chunks())


@contextmanager
def listening(app: Any, **changes: Any) -> Iterator[tuple[Server, int]]:
    """Runs a server on a free port of loopback, in a thread, and stops it at the end."""
    gateway = GatewaySettings(**{"port": 0, "drain_seconds": 0.2, **changes})
    ready, addresses = threading.Event(), []

    def on_ready(address: str) -> None:
        addresses.append(address)
        ready.set()

    server = Server(app, gateway, ready=on_ready, draining=lambda: None)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    assert ready.wait(DEADLINE)
    try:
        yield server, int(addresses[0].rpartition(":")[2]) if addresses[0].startswith("http") else 0
    finally:
        server.should_exit = True
        thread.join(DEADLINE)
        assert not thread.is_alive()


def connected(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
    sock.settimeout(DEADLINE)
    return sock


def until_closed(sock: socket.socket) -> bytes:
    """Receives everything until the other side closes. A reset counts as a close."""
    received = bytearray()
    try:
        while piece := sock.recv(65536):
            received += piece
    except ConnectionError:
        pass
    return bytes(received)


def read_response(sock: socket.socket) -> bytes:
    """Receives a response with a Content-Length, on a connection that stays open."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(sock)
    head, _, body = received.partition(b"\r\n\r\n")
    size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    while len(body) < size:
        body += _more(sock)
    return head + b"\r\n\r\n" + body


def _more(sock: socket.socket) -> bytes:
    piece = sock.recv(65536)
    assert piece, "the other side has closed"
    return piece


def asked(port: int, method: str = "GET", path: str = "/healthz", *lines: str, body: bytes = b"") -> bytes:
    """Sends a request exactly as it is written here and returns the server's response."""
    head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Connection: close", *lines]
    with connected(port) as sock:
        sock.sendall("\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body)
        return until_closed(sock)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@dataclass
class AsgiResponse:
    """A response of an ASGI application."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


async def call_app(
    app: Any, method: str = "GET", path: str = "/v1/models", headers: Any = (), pieces: Any = (), **scope: Any
) -> AsgiResponse:
    """Calls an application directly, with exactly these headers and pieces of a body."""
    answer = AsgiResponse()
    waiting = list(pieces)

    async def receive() -> Any:
        if waiting:
            piece = waiting.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(waiting)}
        if pieces:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode().lower(): value.decode("latin-1") for name, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    whole = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers],
        "server": ("127.0.0.1", PORT),
        "client": ("127.0.0.1", 5),
        "scheme": "http",
        "root_path": "",
        **scope,
    }
    await app(whole, receive, send)
    return answer
