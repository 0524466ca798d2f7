"""The access log: one line per request, whatever its outcome, that no client can forge."""

from __future__ import annotations

import asyncio
import json
import re
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route
from tests.gateway.gateways import gateway
from tests.gateway.listening import until_closed
from tests.gateway.upstream import Says, ScriptedUpstream, running
from tests.hostile_texts import PIECES, acts

from recto.config.settings import GatewaySettings
from recto.gateway.middleware.origin import TrustedProxies
from recto.gateway.telemetry import RequestRecord
from recto.gateway.upstreams.http import UpstreamResponse

DEADLINE = 30
MODEL = "gpt-4o"


@dataclass
class Lines:
    """The lines that a gateway wrote to its access log."""

    texts: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def write(self, text: str) -> int:
        with self.changed:
            self.texts.append(text)
            self.changed.notify_all()
        return len(text)

    def flush(self) -> None:
        pass

    @property
    def all(self) -> list[str]:
        return [line for line in "".join(self.texts).split("\n") if line]

    def first(self, count: int) -> list[str]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.all) >= count, DEADLINE), self.all
            return self.all


@pytest.fixture
def lines() -> Lines:
    return Lines()


def chat(words: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": words}], **more}


def ask(gw: Any, body: Any, path: str = "/v1/chat/completions", **headers: str) -> httpx2.Response:
    all_headers = {"authorization": f"Bearer {gw.secret}", **headers}
    return httpx2.post(f"{gw.url}{path}", json=body, headers=all_headers, timeout=DEADLINE)


@contextmanager
def answering(
    folder: Path, lines: Lines, style: str = "json", says: Any = lambda request: Says(text="an answer"), **options: Any
) -> Iterator[tuple[Any, ScriptedUpstream]]:
    settings = {"access_log": style, **options}
    with running(ScriptedUpstream(says)) as up, redirect_stderr(lines), gateway(folder, up.url, gateway=settings) as gw:
        yield gw, up


@pytest.mark.parametrize("stream", [False, True])
def test_an_answered_request_is_logged_in_one_line_with_its_tokens_and_times(tmp_path, lines, stream):
    with answering(tmp_path, lines) as (gw, _):
        secret = gw.key(tenant="north", agent="coder")
        answer = ask(gw, chat("a question", stream=stream), authorization=f"Bearer {secret}")
        assert answer.status_code == 200
        [line] = lines.first(1)
        key = next(key for key in gw.gateway.keys.list() if key.tenant == "north")
    record = json.loads(line)
    assert secret not in line
    assert (record["key"], record["tenant"], record["agent"]) == (key.id, "north", "coder")
    assert record["session"] == answer.headers["x-recto-session-id"]
    assert record["request"] == answer.headers["x-recto-request-id"]
    assert (record["model"], record["upstream"], record["status"], record["outcome"]) == (MODEL, "main", 200, "ok")
    assert record["streamed"] is stream
    assert record["input_tokens"] > 0
    assert record["output_tokens"] > 0
    assert record["cached_tokens"] == 0
    assert record["counted_by"] == ("recto" if stream else "upstream")  # a stream without include_usage
    assert record["decisions"] == "none"
    assert 0 <= record["added_ms"] <= record["total_ms"]
    assert (record["what"], record["method"], record["path"], record["client"]) == (
        "request",
        "POST",
        "/v1/chat/completions",
        "127.0.0.1",
    )


def test_time_spent_by_the_upstream_and_the_client_is_not_counted_as_added_by_the_gateway():
    clock = [100.0]

    async def respond() -> UpstreamResponse:
        async def pieces() -> Any:
            for _ in range(4):
                clock[0] += 2
                yield b"piece"

        async def close() -> None:
            pass

        clock[0] += 3
        return UpstreamResponse(status=200, headers=[], pieces=pieces(), close=close)

    async def run() -> RequestRecord:
        record = RequestRecord(now=lambda: clock[0])
        clock[0] += 0.5
        async for _ in (await record.timed(respond())).pieces:
            clock[0] += 0.25
        record.client_seconds += 0.75
        return record

    record = asyncio.run(run())
    assert (record.seconds, record.upstream_seconds, record.added_seconds) == (12.5, 11, 0.75)


def test_refused_failed_and_passed_on_requests_are_logged_in_one_line_each(tmp_path, lines):
    failing = JSONResponse({"error": {"message": "no", "type": "server_error", "code": "down"}}, 500)
    with answering(tmp_path, lines) as (gw, up):
        ask(gw, chat("no key"), authorization="Bearer rk-nothing")
        ask(gw, {"model": MODEL, "messages": "nonsense"})
        up.fail = lambda request: failing
        ask(gw, chat("it fails"))
        ask(gw, {"input": "x"}, path="/v1/moderations")
        httpx2.get(f"{gw.url}/healthz")
        httpx2.get(f"{gw.url}/api/v1/sessions", headers={"authorization": f"Bearer {gw.secret}"})
        found = [json.loads(line) for line in lines.first(5)]
    seen = [(record["status"], record["outcome"], record.get("reason"), "key" in record) for record in found]
    assert seen == [
        (401, "refused", "invalid_api_key", False),
        (400, "refused", "malformed_request", True),
        (500, "upstream_error", "status_500", True),
        (404, "upstream_error", "status_404", True),
        (200, "ok", None, True),
    ]
    assert [record["level"] for record in found] == ["info", "info", "error", "info", "info"]


def test_a_retry_that_gets_the_response_of_its_first_attempt_is_logged_as_replayed(tmp_path, lines):
    with answering(tmp_path, lines) as (gw, up):
        for _ in range(2):
            ask(gw, chat("once"), **{"idempotency-key": "k1"})
        first, second = (json.loads(line) for line in lines.first(2))
        assert len(up.asked) == 1
    assert "replayed" not in first
    assert second["replayed"] is True
    assert "input_tokens" not in second


@pytest.mark.parametrize("style", ["text", "json"])
def test_client_text_cannot_forge_a_line_or_control_a_terminal(tmp_path, lines, style):
    names = [piece for piece in PIECES if piece.isprintable() or "\n" in piece][:40]
    names += ["x\n2026-01-01T00:00:00Z level=info status=200 key=forged", 'y" status=200 key="forged', "z\x7f\u2028w"]
    with answering(tmp_path, lines, style) as (gw, _):
        for name in names:
            assert ask(gw, {**chat("hello"), "model": name}).status_code < 500
        found = lines.first(len(names))
    assert len(found) == len(names)
    assert acts("\n".join(found)) == []
    for line in found:
        assert line.isascii()
        if style == "json":
            assert json.loads(line)["key"] != "forged"
        else:
            plain = re.sub(r'"(?:[^"\\]|\\.)*"', '""', line)
            assert "forged" not in plain
            assert re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z level=", line)


def test_a_disabled_log_writes_nothing(tmp_path, lines):
    with answering(tmp_path, lines, "off") as (gw, _):
        ask(gw, chat("hello"))
    assert lines.all == []


def test_a_log_reader_that_stops_reading_blocks_no_request(tmp_path):
    class Stuck(Lines):
        def write(self, text: str) -> int:
            stuck.wait(DEADLINE)
            return len(text)

    stuck = threading.Event()
    with answering(tmp_path, Stuck()) as (gw, _):
        for number in range(3):
            assert ask(gw, chat(f"question {number}")).status_code == 200
        stuck.set()


# Addresses behind proxies


def seen(trusted: tuple[str, ...], peer: str | None, *forwarded: str) -> str:
    headers = [(b"x-forwarded-for", value.encode("latin-1")) for value in forwarded]
    return TrustedProxies(trusted).client({"client": (peer, 1) if peer else None, "headers": headers})


@pytest.mark.parametrize(
    ("trusted", "peer", "forwarded", "client"),
    [
        ((), "203.0.113.9", ("1.2.3.4",), "203.0.113.9"),  # nothing is trusted
        (("10.0.0.0/8",), "203.0.113.9", ("1.2.3.4",), "203.0.113.9"),  # another peer is not
        (("10.0.0.0/8",), "10.0.0.1", ("1.2.3.4",), "1.2.3.4"),
        (("10.0.0.0/8",), "10.0.0.1", ("6.6.6.6, 1.2.3.4",), "1.2.3.4"),  # an address that the client wrote itself
        (("10.0.0.0/8",), "10.0.0.1", ("6.6.6.6", "1.2.3.4"), "1.2.3.4"),  # in a header of its own
        (("10.0.0.0/8",), "10.0.0.1", ("6.6.6.6, 1.2.3.4, 10.0.0.2",), "1.2.3.4"),  # two proxies
        (("10.0.0.0/8",), "10.0.0.1", ("10.9.9.9",), "10.9.9.9"),
        (("10.0.0.0/8",), "10.0.0.1", ("not an address\x1b[2J",), "10.0.0.1"),
        (("10.0.0.0/8",), "10.0.0.1", ("1.2.3.4:5555",), "1.2.3.4"),
        (("10.0.0.0/8",), "10.0.0.1", (), "10.0.0.1"),
        (("10.0.0.0/8",), "::ffff:10.0.0.1", ("[2001:db8::1]:443",), "2001:db8::1"),
        (("unix",), None, ("1.2.3.4",), "1.2.3.4"),
        ((), None, ("1.2.3.4",), "unix"),
        (("10.0.0.0/8",), "no address", ("1.2.3.4",), "no address"),
    ],
)
def test_a_forwarded_address_counts_only_from_a_trusted_proxy(trusted, peer, forwarded, client):
    assert seen(trusted, peer, *forwarded) == client


def test_a_trusted_proxy_that_is_not_an_address_is_refused():
    with pytest.raises(ValueError, match="trusted_proxies"):
        GatewaySettings(trusted_proxies=("gateway.example.com",))
    with pytest.raises(ValueError, match="access_log"):
        GatewaySettings(access_log="loud")  # type: ignore[arg-type]


@pytest.mark.parametrize(("trusted", "client"), [(["127.0.0.1"], "1.2.3.4"), ([], "127.0.0.1")])
def test_the_log_names_the_client_behind_a_trusted_proxy(tmp_path, lines, trusted, client):
    with answering(tmp_path, lines, trusted_proxies=trusted) as (gw, _):
        ask(gw, chat("hello"), **{"x-forwarded-for": "6.6.6.6, 1.2.3.4"})
        assert json.loads(lines.first(1)[0])["client"] == client


# Clients that disconnect from a real process


class Process:
    """A gateway in a process of its own, and the lines that it writes to standard error."""

    def __init__(self, folder: Path, upstream: str) -> None:
        config = folder / "recto.yaml"
        store = folder / "transcript.db"
        upstreams = {"main": {"url": f"{upstream}/v1", "speaks": ["chat", "responses", "messages"], "key": "sk-x"}}
        settings = {
            "store": str(store),
            "recall": {"embedder": {"use": "none"}},
            "gateway": {"port": 0, "drain_seconds": 0.2, "access_log": "json", "upstreams": upstreams},
        }
        config.write_text(json.dumps(settings))
        command = [sys.executable, "-c", "from recto.cli.main import main; main()", "--config", str(config)]
        self.secret = subprocess.run(
            [*command, "keys", "add", "all", "--right", "ask", "--right", "read", "--right", "change"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        self.process = subprocess.Popen(
            [*command, "serve"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        listens = self.process.stdout.readline()
        self.port = int(listens.rpartition(":")[2])
        self.lines: list[str] = []

    def read(self, path: str) -> dict[str, Any]:
        """Returns the next log record of a path. The lines before it are stored in `lines`."""
        while True:
            ready, _, _ = select.select([self.process.stderr], [], [], DEADLINE)
            assert ready, self.lines
            line = self.process.stderr.readline()
            assert line, self.lines
            self.lines.append(line)
            if line.startswith("{") and json.loads(line)["path"] == path:
                return json.loads(line)

    def stop(self) -> list[str]:
        """Stops the process and returns every line that it wrote."""
        self.process.terminate()
        self.process.stdout.close()
        self.lines += self.process.communicate(timeout=DEADLINE)[1].splitlines()
        return self.lines

    def send(self, method: str, path: str, body: bytes = b"", *lines: str, length: int | None = None) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE)
        head = [
            f"{method} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.secret}",
            f"Content-Length: {len(body) if length is None else length}",
            *(lines or ("Content-Type: application/json",)),
        ]
        sock.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        return sock


def reset(sock: socket.socket) -> None:
    """Closes a connection without reading the received data, as a closed browser tab does."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


class Endless:
    """An upstream whose streams and downloads never end, and which reads uploads without a response."""

    def __init__(self) -> None:
        self.uploading = threading.Event()

    def app(self) -> list[Route]:
        async def endless() -> Any:
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
            while True:
                choice = {"index": 0, "delta": {"role": "assistant", "content": "word "}, "finish_reason": None}
                yield f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n"
                await asyncio.sleep(0.01)

        async def stream(request: Any) -> StreamingResponse:
            return StreamingResponse(endless(), media_type="text/event-stream")

        async def upload(request: Any) -> JSONResponse:
            async for _ in request.stream():
                self.uploading.set()
            return JSONResponse({})

        async def breaking() -> Any:
            yield b"a piece"
            raise ConnectionResetError

        async def broken(request: Any) -> StreamingResponse:
            return StreamingResponse(breaking())

        return [
            Route("/v1/audio/speech", broken, methods=["POST"]),
            Route("/v1/chat/completions", stream, methods=["POST"]),
            Route("/v1/audio/transcriptions", upload, methods=["POST"]),
            Route("/v1/images/generations", stream, methods=["POST"]),
        ]


class EndlessUpstream(ScriptedUpstream):
    """A scripted upstream with endless routes; `running` serves them."""

    def __init__(self) -> None:
        super().__init__(lambda request: Says(text=""))
        self.endless = Endless()

    def routes(self) -> list[Route]:
        return [*self.endless.app(), *super().routes()]


def test_a_client_that_disconnects_is_logged_in_one_line_without_a_traceback(tmp_path):
    with running(EndlessUpstream()) as up:
        gw = Process(tmp_path, up.url)
        try:
            # a stream that is read for a while
            sock = gw.send("POST", "/v1/chat/completions", json.dumps(chat("hi", stream=True)).encode())
            while b"word" not in sock.recv(65536):
                pass
            reset(sock)
            record = gw.read("/v1/chat/completions")
            assert (record["status"], record["outcome"], record["reason"]) == (200, "cut", "client_disconnected")
            assert record["counted_by"] == "recto"
            # a body that stops halfway
            reset(gw.send("POST", "/v1/messages", b'{"model": ', length=500))
            record = gw.read("/v1/messages")
            assert (record["status"], record["outcome"], record["reason"]) == (499, "cut", "client_disconnected")
            # an upload that is passed on while it arrives
            sock = gw.send("POST", "/v1/audio/transcriptions", b"x" * 70_000, "Content-Type: audio/wav", length=900_000)
            assert up.endless.uploading.wait(DEADLINE)
            reset(sock)
            record = gw.read("/v1/audio/transcriptions")
            assert (record["status"], record["outcome"], record["reason"]) == (499, "cut", "client_disconnected")
            # a download that is passed on
            sock = gw.send("POST", "/v1/images/generations", b"{}")
            while b"word" not in sock.recv(65536):
                pass
            reset(sock)
            record = gw.read("/v1/images/generations")
            assert (record["status"], record["outcome"], record["reason"]) == (200, "cut", "client_disconnected")
            # an upstream that breaks off in the middle of a download
            sock = gw.send("POST", "/v1/audio/speech", b"{}")
            with sock:
                assert not until_closed(sock).endswith(b"0\r\n\r\n")  # the end of a complete response
            record = gw.read("/v1/audio/speech")
            assert (record["status"], record["outcome"], record["reason"]) == (200, "upstream_error", "upstream_failed")
            # the page's own requests and MCP: answered or not, one line
            call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            for method, path, body in (
                ("GET", "/api/v1/sessions", b""),
                ("GET", "/", b""),
                ("POST", "/mcp", json.dumps(call).encode()),
            ):
                reset(gw.send(method, path, body))
                gw.read(path)
            sock = gw.send("POST", "/v1/chat/completions", json.dumps(chat("last", stream=True)).encode())
            while b"word" not in sock.recv(65536):
                pass
        finally:
            written = gw.stop()
            sock.close()
    assert not [line for line in written if "Traceback" in line or "Error" in line], written
    others = [line for line in written if not line.startswith("{") and line.strip() != "stopped"]
    assert others == []
    last = json.loads([line for line in written if line.startswith("{")][-1])
    assert (last["outcome"], last["reason"]) == ("cut", "gateway_stopped")
    assert len([line for line in written if line.startswith("{")]) == 9
