"""Turns and requests beside the plain loop, in one process: nothing became many times slower than it was.

These are the only tests that look at time. They compare processor time with processor time of the same process and
moment, by medians, and fail at three times the ratio that was measured: a busy machine slows both sides alike.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from statistics import median
from urllib.parse import urlsplit

import pytest
from bench.plain_loop import PlainLoop
from bench.turns import MODEL, continued, exchanges
from tests.gateway.gateways import gateway

import recto

WINDOW = 32_000
MOST_TURN, MOST_RECALLING, MOST_REQUEST = 30, 180, 40
"""At most so many times the plain loop: three times what was measured, or more."""
ROUNDS = 31


@pytest.fixture(scope="module")
def made() -> list[list[dict]]:
    return list(exchanges(150))


@pytest.fixture(scope="module")
def session(made, tmp_path_factory) -> Iterator[recto.Session]:
    """A session that is full several times over, with its words indexed, as an agent has it after some hours."""
    path = tmp_path_factory.mktemp("ratios") / "session.db"
    models = {MODEL: {"window": WINDOW, "max_output": 4_000}}
    with recto.open(path, model=MODEL, models=models, recall={"embedder": {"use": "none"}}) as opened:
        for exchange in made:
            opened.append_all(exchange)
        opened.prompt()
        yield opened


def middle(works: list[Callable[[], object]], clock: Callable[[], float] = time.thread_time) -> list[float]:
    """The median of each work, done in turn, so that whatever else the machine does meets all of them."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for work, took in zip(works, times, strict=True):
            start = clock()
            work()
            took.append(clock() - start)
    return [median(took) for took in times]


def test_turns_cost_a_bounded_multiple_of_the_plain_loop(session, made, tmp_path):
    following, going_on, plain = cycle(made), cycle(map(continued, made)), cycle(made)
    searched: list[int] = []

    def turn(exchange: list[dict]) -> None:
        session.append_all(exchange)
        searched.append(len(session.prompt().recalled))

    with PlainLoop(tmp_path / "plain.db", MODEL, WINDOW - 4_000) as loop:
        for exchange in made:
            loop.turn(exchange)
        works = [
            lambda: loop.turn(next(plain)),
            lambda: turn(next(going_on)),
            lambda: turn(next(following)),
        ]
        plain_turn, default_turn, recalling_turn = middle(works)
    assert all(searched[1::2])  # otherwise the second one measures something else
    assert default_turn / plain_turn < MOST_TURN
    assert recalling_turn / plain_turn < MOST_RECALLING


def test_a_request_through_the_gateway_costs_a_bounded_multiple_of_the_plain_loop(made, tmp_path):
    exchange = [{"role": "system", "content": "Be brief."}, *made[0][:1]]
    body = json.dumps({"model": MODEL, "messages": exchange}).encode()
    plain = cycle(made)
    with (
        upstream() as url,
        gateway(tmp_path, url, recall={"embedder": {"use": "none"}}) as running,
        PlainLoop(tmp_path / "plain.db", MODEL, WINDOW) as loop,
        connected(url) as direct,
        connected(running.url) as through,
    ):
        for each in made:
            loop.turn(each)
        works = [
            lambda: loop.turn(next(plain)),
            lambda: ask(direct, body, "sk-upstream"),
            lambda: ask(through, body, running.secret),
        ]
        for work in works:
            work()
        plain_turn, alone, with_gateway = middle(works, time.process_time)
    assert (with_gateway - alone) / plain_turn < MOST_REQUEST


def ask(connection: http.client.HTTPConnection, body: bytes, key: str) -> None:
    headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    connection.request("POST", "/v1/chat/completions", body, headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    assert json.loads(answer.read())["choices"]


@contextmanager
def connected(url: str) -> Iterator[http.client.HTTPConnection]:
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


ANSWER = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }
).encode()
RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


@contextmanager
def upstream() -> Iterator[str]:
    """A provider that does next to nothing: it reads a request and answers it with the same bytes each time."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def _accept(server: socket.socket) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:  # closed
            return
        threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as lines:
        while line := lines.readline():
            length = 0
            while line.strip():
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
                line = lines.readline()
            lines.read(length)
            connection.sendall(RESPONSE)
