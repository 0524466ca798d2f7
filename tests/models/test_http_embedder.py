"""Embeddings of an endpoint over real HTTP: every response becomes correct rows or a single kind of error."""

from __future__ import annotations

import base64
import json
import logging
import struct
import threading
from collections.abc import Iterator
from email.utils import formatdate

import numpy as np
import pytest
from serving import SLOW, Answer, Handler, Server, all_answers_are_through, cut, free_address, raw, serving, status

from recto.errors import EmbedderFailed
from recto.models.embedders import http
from recto.models.embedders.http import EndpointEmbedder
from recto.models.http import FIRST_WAIT

KEY = "sk-very-secret-0123456789"


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    with serving(monkeypatch) as server:
        server.answers.append(right)
        yield server


@pytest.fixture
def embedder(server) -> Iterator[EndpointEmbedder]:
    made = make(server)
    yield made
    made.close()


def make(server: Server, **more: object) -> EndpointEmbedder:
    more = {"model": "small", "key": KEY, "wait": lambda seconds: None} | more
    return EndpointEmbedder(server.url, **more)


def vector(text: str) -> list[float]:
    """Returns a vector that is not of length 1 and differs for every text."""
    return [float(len(text)), float(sum(map(ord, text)) % 97) + 1, 3.0, -2.5]


def right(handler: Handler, body: dict) -> None:
    data = [{"object": "embedding", "index": n, "embedding": vector(text)} for n, text in enumerate(body["input"])]
    handler.give({"object": "list", "data": data, "model": body["model"]})


def response_with(*data: object) -> Answer:
    return lambda handler, body: handler.give({"data": list(data)})


def expected(*texts: str) -> np.ndarray:
    rows = np.array([vector(text) for text in texts])
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def test_texts_become_rows_of_length_1_in_order(embedder, server):
    assert np.array_equal(embedder.documents(["one", "three"]), expected("one", "three"))
    assert np.array_equal(embedder.query("what?"), expected("what?"))
    assert (embedder.dims, embedder.documents([]).shape) == (4, (0, 4))
    assert server.asked[0] == {"model": "small", "input": ["one", "three"]}
    assert server.paths[0] == "/v1/embeddings"
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_many_texts_are_sent_in_batches(server):
    texts = [f"text {number}" for number in range(150)]
    embedder = make(server)
    assert np.array_equal(embedder.documents(texts), expected(*texts))
    assert [len(body["input"]) for body in server.asked] == [64, 64, 22]
    embedder.close()


def test_blank_texts_are_not_sent_and_have_zero_rows(embedder, server):
    rows = embedder.documents(["", "one", " \n"])
    assert np.array_equal(rows[1:2], expected("one"))
    assert not rows[[0, 2]].any()
    assert [body["input"] for body in server.asked] == [["one"]]
    assert not embedder.query("  ").any()


def test_prefixes_go_before_questions_and_documents(server):
    embedder = make(server, query_prefix="query: ", document_prefix="passage: ")
    embedder.documents(["a"])
    embedder.query("b")
    assert [body["input"] for body in server.asked] == [["passage: a"], ["query: b"]]
    embedder.close()


def test_any_text_can_be_sent_and_a_long_text_is_truncated(embedder, server):
    embedder.documents(["a\ud800b\x00", "x" * 1_000_000])
    first, second = server.asked[0]["input"]
    assert first == "a\ufffdb\x00"
    assert len(second) == http.TEXT_MOST


def test_vectors_in_base64_and_out_of_order_are_read(embedder, server):
    packed = base64.b64encode(struct.pack("<4f", *vector("one"))).decode()
    server.answers = [response_with({"index": 1, "embedding": vector("two")}, {"index": 0, "embedding": packed})]
    assert np.allclose(embedder.documents(["one", "two"]), expected("one", "two"))


def test_vectors_without_an_index_are_read_in_order(embedder, server):
    server.answers = [response_with({"embedding": vector("one")}, {"embedding": vector("two")})]
    assert np.array_equal(embedder.documents(["one", "two"]), expected("one", "two"))


def test_very_large_and_very_small_numbers_are_still_normalised(embedder, server):
    server.answers = [
        response_with({"embedding": [3e300, 4e300]}, {"embedding": [3e-300, 4e-300]}, {"embedding": [0, 0]})
    ]
    assert embedder.documents(["a", "b", "c"]).tolist() == [pytest.approx([0.6, 0.8])] * 2 + [[0, 0]]


def test_a_configured_length_is_requested_and_enforced(server):
    embedder = make(server, known_dims=3)
    with pytest.raises(EmbedderFailed, match="vectors of 4 dimensions came, expected 3"):
        embedder.documents(["one"])
    assert server.asked[0]["dimensions"] == 3
    embedder.close()


def test_a_length_that_changes_later_is_refused(embedder, server):
    embedder.documents(["one"])
    server.answers = [response_with({"embedding": [1.0, 2.0]})]
    with pytest.raises(EmbedderFailed, match="vectors of 2 dimensions came, expected 4"):
        embedder.documents(["one"])
    assert "dimensions" not in server.asked[-1]


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (response_with(), "0 vectors came for 2 texts"),
        (response_with(*[{"embedding": [1.0]}] * 3), "3 vectors came for 2 texts"),
        (response_with({"embedding": [1.0]}, {"embedding": [1.0, 2.0]}), "vectors of 1, 2 dimensions"),
        (response_with({"embedding": [1.0]}, {"embedding": [float("nan")]}), "not a number"),
        (response_with({"embedding": [1.0]}, {"embedding": [float("inf")]}), "not a number"),
        (response_with({"embedding": []}, {"embedding": []}), "not a number"),
        (response_with({"embedding": [1.0]}, {"embedding": [10**400]}), "out of range"),
        (response_with({"embedding": [1.0]}, {"embedding": ["1"]}), "neither a list of numbers"),
        (response_with({"embedding": [1.0]}, {"embedding": None}), "neither a list of numbers"),
        (response_with({"embedding": [1.0]}, {"embedding": "%%%"}), "not base64"),
        (response_with({"embedding": [1.0]}, {"embedding": "AAA="}), "not base64"),
        (response_with({"embedding": [1.0], "index": 0}, {"embedding": [1.0], "index": 0}), "not numbered"),
        (response_with({"embedding": [1.0], "index": 0}, {"embedding": [1.0], "index": True}), "not numbered"),
        (response_with({"embedding": [1.0], "index": []}, {"embedding": [1.0], "index": {}}), "not numbered"),
        (response_with("a", "b"), "no list of vectors"),
        (raw(b"<html><body>Welcome</body></html>"), "not JSON"),
        (raw(b""), "not JSON"),
        (raw(b"[" * 200_000), "not JSON"),
        (raw(b"\xff\xfe{"), "not JSON"),
        (raw(b"[]"), "no list of vectors"),
        (raw(b'{"data": {}}'), "no list of vectors"),
    ],
)
def test_an_invalid_response_is_refused_with_a_plain_message(embedder, server, answer, detail):
    server.answers = [answer]
    with pytest.raises(EmbedderFailed, match=detail):
        embedder.documents(["one", "two"])
    assert len(server.asked) == 1


def test_an_endless_response_is_cut_off(embedder, server, monkeypatch):
    monkeypatch.setattr(http, "ANSWER_MOST", 100_000)
    server.answers = [raw(b" " * 1_000_000)]
    with pytest.raises(EmbedderFailed, match="longer than 100,000 bytes"):
        embedder.query("a")


@pytest.mark.parametrize("first", [status(429, Retry_After="3"), status(500), status(503, Retry_After="nonsense")])
def test_retryable_errors_are_retried(server, first):
    waits: list[float] = []
    embedder = make(server, wait=waits.append)
    server.answers = [first, right]
    assert np.array_equal(embedder.query("one"), expected("one"))
    assert len(waits) == 1
    assert waits[0] in (3, FIRST_WAIT)
    embedder.close()


def test_a_retry_after_date_is_respected(server):
    waits: list[float] = []
    embedder = make(server, wait=waits.append, seconds=60)
    server.answers = [status(429, Retry_After=formatdate(usegmt=True)), right]
    embedder.query("one")
    assert waits == [0]
    embedder.close()


def test_retries_are_limited_and_waits_grow(server):
    waits: list[float] = []
    embedder = make(server, wait=waits.append)
    server.answers = [status(500)]
    with pytest.raises(EmbedderFailed, match="it answered 500"):
        embedder.query("one")
    assert len(server.asked) == 3
    assert waits == [FIRST_WAIT, 2 * FIRST_WAIT]
    embedder.close()


@pytest.mark.parametrize("retry_after", ["3600", "1e400", "inf"])
def test_a_retry_after_beyond_the_time_limit_is_not_waited_for(server, retry_after):
    waits: list[float] = []
    embedder = make(server, wait=waits.append)
    server.answers = [status(429, Retry_After=retry_after)]
    with pytest.raises(EmbedderFailed, match="no time left"):
        embedder.query("one")
    assert waits == []
    embedder.close()


def test_a_dropped_connection_is_retried(embedder, server):
    server.answers = [cut, right]
    assert np.array_equal(embedder.query("one"), expected("one"))
    server.answers = [cut]
    with pytest.raises(EmbedderFailed, match="the connection failed"):
        embedder.query("one")


def test_an_unreachable_address_is_explained(server):
    waits: list[float] = []
    embedder = EndpointEmbedder(free_address(), model="small", wait=waits.append)
    with pytest.raises(EmbedderFailed, match=r"the connection failed \(ConnectError\)"):
        embedder.query("one")
    assert len(waits) == 2
    embedder.close()


@pytest.mark.parametrize("slow", SLOW)
def test_a_call_waits_no_longer_than_its_time_limit(server, slow):
    embedder = make(server, seconds=0.3)
    server.answers = [slow, right]
    with pytest.raises(EmbedderFailed, match=r"no answer within 0\.3 s"):
        embedder.query("one")
    server.over.set()
    embedder.seconds = 10
    assert np.array_equal(embedder.query("one"), expected("one"))
    embedder.close()
    all_answers_are_through()


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (raw(json.dumps({"error": {"message": f"bad {KEY} \x1b[2J"}}).encode(), 400), "it answered 400 (bad … "),
        (raw(b'{"error": "no such model"}', 404), "it answered 404 (no such model)"),
        (raw(b"<html>" + KEY.encode(), 404), "it answered 404."),
        (raw(b" " * 200_000, 400), "it answered 400."),
        (raw(json.dumps({"error": {"message": f"Incorrect key {KEY[:9]}"}}).encode(), 401), "401: the key is missing"),
        (status(302, Location="http://127.0.0.1:1/"), "a redirect, which is not followed"),
    ],
)
def test_a_refusal_is_reported_without_the_key(embedder, server, answer, detail):
    server.answers = [answer]
    with pytest.raises(EmbedderFailed) as failed:
        embedder.query("one")
    assert detail in str(failed.value)
    assert KEY[:9] not in str(failed.value)
    assert "\x1b" not in str(failed.value)
    assert len(server.asked) == 1


def test_the_key_is_in_no_log(embedder, server, caplog):
    caplog.set_level(logging.DEBUG)
    embedder.query("one")
    server.answers = [status(500)]
    with pytest.raises(EmbedderFailed):
        embedder.query("one")
    assert caplog.text
    assert KEY not in caplog.text


def test_threads_share_an_embedder(embedder, server):
    found: dict[int, np.ndarray] = {}

    def ask(number: int) -> None:
        found[number] = embedder.documents([f"text {number}", "same"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.array_equal(found[number], expected(f"text {number}", "same")) for number in range(8))


def test_names_distinguish_models_hosts_lengths_and_prefixes():
    def name(url: str = "http://a/v1", **more: object) -> str:
        return EndpointEmbedder(url, **({"model": "m"} | more)).name

    names = [name(), name(model="n"), name("http://b/v1"), name("http://a:81/v1"), name(known_dims=8)]
    names.append(name(document_prefix="p"))
    assert len(set(names)) == len(names)
    assert name(query_prefix="q") == name("https://a/v2", key="k") == names[0]


def test_a_query_in_the_address_is_preserved(server):
    embedder = EndpointEmbedder(f"{server.url}/?api-version=1", model="m")
    embedder.query("a")
    assert server.paths == ["/v1/embeddings?api-version=1"]
    embedder.close()
