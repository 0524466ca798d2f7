"""An HTTP server on loopback with scripted responses: correct, invalid, late or missing."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

Answer = Callable[["Handler", dict], None]


class Server(ThreadingHTTPServer):
    """Sends the scripted responses and records the request bodies, headers and paths."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self.paths: list[str] = []
        self.answers: list[Answer] = []
        self.over = threading.Event()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores disconnected clients, which some tests provoke."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body)
        self.server.headers.append(dict(self.headers))
        self.server.paths.append(self.path)
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer(self, body)

    def give(self, content: object, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Suppresses the log output."""


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()


def free_address() -> str:
    """Returns the URL of a port without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}/v1"


def all_answers_are_through() -> None:
    for thread in threading.enumerate():
        if thread.name == "recto-endpoint":
            thread.join()


def raw(content: bytes, status: int = 200, **headers: str) -> Answer:
    return lambda handler, body: handler.give(content, status, **headers)


def status(code: int, **headers: str) -> Answer:
    return raw(b"{}", code, **headers)


def cut(handler: Handler, body: dict) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"data": [')
    handler.wfile.flush()
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def never(handler: Handler, body: dict) -> None:
    handler.server.over.wait()
    handler.close_connection = True


def half(handler: Handler, body: dict) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b" " * 10)
    handler.wfile.flush()
    never(handler, body)


def drops(handler: Handler, body: dict) -> None:
    """Sends an endless header whose bytes all arrive in time."""
    handler.close_connection = True
    try:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not handler.server.over.wait(0.02):
            handler.wfile.write(b"a")
            handler.wfile.flush()
    except OSError:
        pass


SLOW = (never, half, drops)
