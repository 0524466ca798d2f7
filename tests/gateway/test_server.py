"""The server: slow, greedy, silent and disconnected clients harm no other client, and a stop loses no begun request."""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from listening import DEADLINE, RecordingApp, asked, connected, listening, read_response, status, until_closed

from recto.config.settings import GatewaySettings
from recto.errors import SettingsError
from recto.gateway.api_keys import Key, Keys
from recto.gateway.middleware.auth import Guard
from recto.gateway.server import listen, refuse_public
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock

JSON = "Content-Type: application/json"


class Served:
    """A guarded application, its key, and the requests that reached it."""

    def __init__(self, **changes):
        self.behind = RecordingApp()
        self.keys = Keys(MemoryStore(), FakeClock())
        _, secret = self.keys.add(Key(name="one"))
        self.bearer = f"Authorization: Bearer {secret}"
        self.changes = changes
        self.guard = Guard(self.behind.app(), GatewaySettings(**changes), self.keys)

    def listening(self):
        return listening(self.guard, **self.changes)

    def head(self, port, path, *lines, method="POST"):
        first = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{self.bearer}\r\n"
        return (first + "".join(f"{line}\r\n" for line in lines) + "\r\n").encode()


@pytest.fixture(scope="module")
def served():
    made = Served()
    with made.listening() as (_, port):
        yield made, port


@pytest.fixture(scope="module")
def hasty():
    """A server with very short timeouts."""
    made = Served(header_seconds=1.5, body_seconds=0.5, write_seconds=0.4, connections=20, body_bytes=1 << 20)
    with made.listening() as (made.server, port):
        yield made, port


def wait_until_idle(made):
    waiting = threading.Event()
    give_up = time.monotonic() + DEADLINE
    while made.server.connections and time.monotonic() < give_up:
        waiting.wait(0.05)
    assert not made.server.connections


def test_responses_do_not_reveal_the_server_software(served):
    made, port = served
    answer = asked(port)
    assert status(answer) == 200
    assert b"uvicorn" not in answer.lower()
    assert b"\r\nserver:" not in answer.lower()
    assert b"\r\ndate:" not in answer.lower()
    assert status(asked(port, "GET", "/v1/models")) == 401
    assert asked(port, "GET", "/v1/models", made.bearer).endswith(b'{"key":"one"}')


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        ((JSON, "Content-Length: 2", "Transfer-Encoding: chunked"), 400),
        (("Host: evil.example",), 400),
        (("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: eA=="), 400),
        ((JSON, "Content-Length: 2", "Content-Length: 3"), 400),
        ((JSON, "Transfer-Encoding: chunked, identity"), (400, 501)),
        (("X-Long: " + "x" * 100_000,), (400, 431)),
        (("X-Odd: a\x00b",), 400),
        (("X-Forwarded-Host: evil.example", "X-Forwarded-For: 1.2.3.4", JSON, "Content-Length: 2"), 200),
    ],
)
def test_ambiguous_requests_are_refused(served, lines, wanted):
    made, port = served
    answer = asked(port, "POST", "/v1/chat/completions", made.bearer, *lines, body=b"{}")
    assert status(answer) in (wanted if isinstance(wanted, tuple) else (wanted,))
    if status(answer) == 200:
        assert made.behind.scopes.pop()["client"][0] == "127.0.0.1"  # not the address in an untrusted header


def test_a_request_smuggled_in_a_body_with_two_lengths_is_not_answered(served):
    made, port = served
    hidden = made.head(port, "/v1/models", method="GET")
    smuggled = b"0\r\n\r\n" + hidden
    head = made.head(
        port, "/v1/chat/completions", JSON, f"Content-Length: {len(smuggled)}", "Transfer-Encoding: chunked"
    )
    with connected(port) as sock:
        sock.sendall(head + smuggled)
        answer = until_closed(sock)
    assert answer.count(b"HTTP/1.1") == 1
    assert status(answer) == 400


def test_a_client_that_does_not_finish_its_headers_is_disconnected(hasty):
    made, port = hasty
    with connected(port) as silent, connected(port) as slow, connected(port) as again:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127")
        again.sendall(made.head(port, "/healthz", method="GET"))
        assert status(read_response(again)) == 200
        again.sendall(b"GET /healthz HT")
        assert [until_closed(sock) for sock in (silent, slow, again)] == [b"", b"", b""]


def test_a_client_that_does_not_finish_its_body_gets_408_and_is_disconnected(hasty):
    made, port = hasty
    with connected(port) as sock:
        sock.sendall(made.head(port, "/v1/chat/completions", JSON, "Content-Length: 100") + b"{")
        answer = until_closed(sock)
    assert status(answer) == 408
    assert b"connection: close" in answer.lower()
    assert made.behind.bodies == []


def test_a_client_that_does_not_read_a_stream_is_disconnected_and_the_handler_ends(hasty):
    made, port = hasty
    made.behind.ended.clear()
    with connected(port) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.sendall(made.head(port, "/v1/embeddings", JSON, "Content-Length: 2") + b"{}")
        assert made.behind.ended.wait(DEADLINE)
    assert status(asked(port)) == 200


def test_a_client_that_does_not_read_the_rest_of_a_finished_response_is_disconnected(hasty):
    made, port = hasty
    unread = [connected(port) for _ in range(18)]
    for place, sock in enumerate(unread):  # whatever the system buffers, some of them have a few bytes left
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        path = f"/v1/conversations/{200_000 + 45_000 * place}"
        sock.sendall(made.head(port, path, "Connection: close", method="GET"))
    wait_until_idle(made)
    for sock in unread:
        sock.close()


def test_an_endless_response_without_a_reader_starves_no_other_client(served):
    made, port = served
    made.behind.ended.clear()
    with connected(port) as sock:
        sock.sendall(made.head(port, "/v1/embeddings", JSON, "Content-Length: 2") + b"{}")
        assert sock.recv(1024)
        assert status(asked(port)) == 200  # also while it is being read
    assert status(asked(port)) == 200
    assert made.behind.ended.wait(DEADLINE)


def test_above_the_limit_the_newest_connection_is_closed(hasty):
    made, port = hasty
    wait_until_idle(made)  # connections of the previous test may still be closing, and would count
    open_sockets = []
    try:
        for _ in range(20):
            open_sockets.append(connected(port))
            open_sockets[-1].sendall(made.head(port, "/healthz", method="GET"))
        assert all(status(read_response(sock)) == 200 for sock in open_sockets)
        with connected(port) as late:
            with suppress(ConnectionError):
                late.sendall(made.head(port, "/healthz", method="GET"))
            assert until_closed(late) == b""
    finally:
        for sock in open_sockets:
            sock.close()


def test_a_body_of_a_hundred_megabytes_is_refused_without_buffering_it(hasty):
    made, port = hasty
    piece = b"x" * (1 << 20)
    asked(port)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for lines in (("Content-Length: 104857600",), ("Transfer-Encoding: chunked",)):
        chunk = piece if "Content" in lines[0] else b"100000\r\n" + piece + b"\r\n"
        with connected(port) as sock:
            sock.sendall(made.head(port, "/v1/chat/completions", JSON, *lines))
            try:
                for _ in range(100):
                    sock.sendall(chunk)
            except ConnectionError:
                continue  # cut off while it was still sending
            assert status(until_closed(sock)) in (0, 408, 413)  # too slow, where the machine is
    with connected(port) as sock:
        sock.sendall(made.head(port, "/v1/chat/completions", JSON, "Content-Length: 104857600") + b"x")
        assert status(until_closed(sock)) == 413
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 64 * 1024  # kilobytes
    assert made.behind.bodies == []


def test_a_refused_client_that_keeps_sending_can_read_the_refusal(served):
    _, port = served
    with connected(port) as sock:
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{JSON}\r\nContent-Length: 4194304\r\n\r\n"
        )
        sock.sendall(head.encode())
        sock.sendall(b"x" * 4194304)
        assert status(until_closed(sock)) == 401


def test_a_running_response_finishes_before_the_server_stops():
    made = Served(drain_seconds=DEADLINE)
    with made.listening() as (server, port), connected(port) as sock, connected(port) as idle:
        idle.sendall(made.head(port, "/healthz", method="GET"))
        assert status(read_response(idle)) == 200
        sock.sendall(made.head(port, "/v1/responses", JSON, "Content-Length: 2") + b"{}")
        assert made.behind.begun.wait(DEADLINE)
        server.should_exit = True
        for _ in range(50):  # longer than the server takes to see that it is stopped
            assert status(asked(port)) == 200
        made.behind.go_on.set()
        assert until_closed(idle) == b""
        answer = until_closed(sock)
    assert b"begun" in answer
    assert b"ended" in answer
    assert made.behind.cancelled == []


def test_a_response_that_does_not_finish_is_recorded_before_the_server_stops():
    made = Served(drain_seconds=0.1)
    with made.listening() as (server, port), connected(port) as sock:
        sock.sendall(made.head(port, "/v1/responses", JSON, "Content-Length: 2") + b"{}")
        assert made.behind.begun.wait(DEADLINE)
        server.should_exit = True
        answer = until_closed(sock)
    assert b"begun" in answer
    assert not answer.endswith(b"0\r\n\r\n")  # the client sees that it was cut off
    assert made.behind.cancelled == ["begun"]


def test_an_unanswered_request_gets_503_with_a_retry_time_when_the_server_stops():
    made = Served(drain_seconds=0.1)
    begun = threading.Event()

    async def never(scope, receive, send):
        if scope["type"] == "lifespan":
            await made.behind.app()(scope, receive, send)
        await receive()
        begun.set()
        await receive()

    made.guard.app = never
    with made.listening() as (server, port), connected(port) as sock:
        begun.clear()
        sock.sendall(made.head(port, "/v1/models", method="GET"))
        assert begun.wait(DEADLINE)
        server.should_exit = True
        answer = until_closed(sock)
    assert status(answer) == 503
    assert b"retry-after: 1" in answer.lower()


PROGRAM = """
import sys
from starlette.applications import Starlette
from recto.gateway.api_keys import Keys
from recto.gateway.server import serve
from recto.config.settings import GatewaySettings
from recto.stores.memory import MemoryStore
from recto.config.factory import SystemClock
say = lambda text: print(text, flush=True)
keys = Keys(MemoryStore(), SystemClock())
serve(Starlette(), GatewaySettings(port=0), keys, ready=say, draining=lambda: say("draining"))
say("closed")
"""


def test_a_signal_stops_the_server_and_its_caller_continues_to_close():
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        os.kill(process.pid, signal.SIGTERM)
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()
    assert output == "draining\nclosed\n"
    assert process.returncode == 0


SLOW_PROGRAM = """
import asyncio
import sys
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from recto.config.settings import GatewaySettings
from recto.gateway.server import Server
say = lambda text: print(text, flush=True)
released = asyncio.Event()

async def slow(request):
    say("begun")
    await released.wait()
    return PlainTextResponse("ended")

async def release(request):
    released.set()
    return PlainTextResponse("released")

app = Starlette(routes=[Route("/slow", slow), Route("/release", release)])
Server(app, GatewaySettings(port=0), ready=say, draining=lambda: say("draining")).run()
say("closed")
"""


def test_after_a_signal_the_server_listens_until_the_requests_under_way_are_answered():
    process = subprocess.Popen([sys.executable, "-c", SLOW_PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline().rpartition(":")[2])
        with connected(port) as sock:
            sock.sendall(f"GET /slow HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert process.stdout.readline() == "begun\n"
            os.kill(process.pid, signal.SIGTERM)
            assert process.stdout.readline() == "draining\n"
            for _ in range(50):
                assert status(asked(port)) == 404
            assert status(asked(port, path="/release")) == 200
            assert b"ended" in until_closed(sock)
        output, _ = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.wait()
    assert output == "closed\n"
    assert process.returncode == 0


def test_a_public_address_needs_a_host_name_and_a_key():
    keys = Keys(MemoryStore(), FakeClock())
    refuse_public(GatewaySettings(), keys)
    for host in ("0.0.0.0", "::", "10.1.2.3", "example.com"):
        with pytest.raises(SettingsError, match="what they call this gateway"):
            refuse_public(GatewaySettings(host=host), keys)
        with pytest.raises(SettingsError, match="recto keys add"):
            refuse_public(GatewaySettings(host=host, hosts=("a.example.com",)), keys)
    key, _ = keys.add(Key(name="one"))
    with pytest.raises(SettingsError, match="what they call this gateway"):
        refuse_public(GatewaySettings(host="0.0.0.0"), keys)
    refuse_public(GatewaySettings(host="0.0.0.0", hosts=("a.example.com",)), keys)
    keys.revoke(key.id)
    with pytest.raises(SettingsError, match="recto keys add"):
        refuse_public(GatewaySettings(host="0.0.0.0", hosts=("a.example.com",)), keys)


def test_a_port_in_use_is_explained(served):
    _, port = served
    with pytest.raises(SettingsError, match="Choose another port"):
        listen(GatewaySettings(port=port))


def test_a_unix_socket_is_accessible_to_its_owner_alone(tmp_path):
    path = tmp_path / "gateway.sock"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    made = Served(host=f"unix:{path}")
    with made.listening():
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(SettingsError, match="another program listens"):
            listen(GatewaySettings(host=f"unix:{path}"))
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(DEADLINE)
            sock.connect(str(path))
            sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = until_closed(sock)
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {"ok": True}
    assert not Path(path).exists()
