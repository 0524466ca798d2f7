"""A retried request is stored once, sent upstream once and answered once, whatever failed in between.

Clients mark retries: by an `Idempotency-Key`, or by the retry count of the SDKs. Without these marks the same requests
are duplicated, which every group of tests here shows.
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx2
import pytest
from own_postgres import own_server
from starlette.responses import JSONResponse
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

from recto.formats import format_at
from recto.formats.streaming import SseReader
from recto.gateway.lineage import Lineage
from recto.gateway.request import retry_key
from recto.gateway.retries import Attempt, Retries
from recto.gateway.session_resolver import SessionResolver
from recto.stores.postgres import PostgresStore
from recto.transcript.entries import MESSAGE

pytestmark = pytest.mark.timeout(0)
PATHS = ("chat/completions", "responses", "messages")
BOTH = [(path, stream) for path in PATHS for stream in (False, True)]
TOOLS = {
    "chat/completions": [{"type": "function", "function": {"name": "run", "parameters": {"type": "object"}}}],
    "responses": [{"type": "function", "name": "run", "parameters": {"type": "object"}}],
    "messages": [{"name": "run", "input_schema": {"type": "object"}}],
}
SECONDS = 60
BRIEF = 0.5


class Upstream(ScriptedUpstream):
    """Answers with a number, so that no two answers are the same; it can be blocked, and it can be down."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.go_on = threading.Event()
        self.go_on.set()
        self.heard = threading.Semaphore(0)
        self.is_down = False
        self.calls = False
        self.numbers = 0
        self.fail = self._failing

    def _failing(self, request: Asked) -> JSONResponse | None:
        return JSONResponse({"error": {"message": "down", "type": "server_error"}}, 503) if self.is_down else None

    def _answer(self, request: Asked) -> Says:
        self.heard.release()
        assert self.go_on.wait(SECONDS)
        self.numbers += 1
        calls = (("run", {"command": "ls"}),) if self.calls and "tools" in request.body else ()
        return Says(text=f"answer number {self.numbers}", calls=calls)


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with running(Upstream()) as made:
        yield made


@pytest.fixture
def gw(tmp_path, upstream) -> Iterator[Running]:
    with gateway(tmp_path, upstream.url) as made:
        yield made


def body_of(text: str, path: str = "chat/completions", **more) -> bytes:
    message = {"role": "user", "content": text}
    body = {"model": "gpt-4o", "input" if path == "responses" else "messages": [message], "tools": TOOLS[path], **more}
    return json.dumps(body if path == "responses" else {**body, "max_tokens": 100}).encode()


def ask(gw: Running, body: bytes, path: str = "chat/completions", secret: str = "", **headers) -> httpx2.Response:
    request_headers = {name.replace("_", "-"): value for name, value in headers.items()}
    request_headers |= {"authorization": f"Bearer {secret or gw.secret}", "content-type": "application/json"}
    return httpx2.post(f"{gw.url}/v1/{path}", content=body, headers=request_headers, timeout=SECONDS)


def key(name: str) -> dict[str, str]:
    return {"idempotency_key": name}


def count(number: int) -> dict[str, str]:
    return {"x_stainless_retry_count": str(number)}


def text_of(answer: httpx2.Response, path: str) -> list[str]:
    """Returns the texts and calls in a response, streamed or not, read by the format's own reader."""
    assert answer.status_code == 200, answer.text
    format = format_at(f"/v1/{path}")
    if "text/event-stream" in answer.headers["content-type"]:
        capture = format.capture()
        for event in SseReader().feed(answer.content):
            capture.take(event)
        assert capture.ended
        reply = capture.reply()
    else:
        reply = format.read_response(answer.text, answer.json())
    parts = [part for raw in reply.messages for part in format.messages.read(raw).parts]
    return [part.text if part.kind == "text" else part.name for part in parts if part.text or part.name]


def stored(store) -> Counter[tuple[str, str]]:
    """Counts each message of all sessions."""
    return Counter(
        (entry.role, str(json.loads(entry.content).get("content") or entry.content))
        for found in store.sessions()
        if "agent:" in found.session
        for entry in store.read(found.session)
        if entry.kind == MESSAGE
    )


@pytest.mark.parametrize(("path", "stream"), BOTH)
def test_the_same_key_gets_the_same_response_and_nothing_is_sent_or_stored_twice(gw, upstream, path, stream):
    body = body_of("what is it?", path, stream=stream)
    first, again, third = (ask(gw, body, path, **key("one")) for _ in range(3))
    assert first.content == again.content == third.content
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.headers["x-recto-session-id"] == first.headers["x-recto-session-id"]
    assert again.headers["content-type"] == first.headers["content-type"]
    assert (len(upstream.asked), set(stored(gw.store).values())) == (1, {1})
    other = ask(gw, body, path, **key("two"))
    assert (text_of(first, path), text_of(other, path)) == (["answer number 1"], ["answer number 2"])


def test_without_a_key_the_same_requests_are_sent_upstream_twice(gw, upstream):
    body = body_of("what is it?")
    sessions = {ask(gw, body).headers["x-recto-session-id"] for _ in range(2)}
    assert (len(upstream.asked), len(sessions)) == (2, 2)
    assert max(stored(gw.store).values()) == 2


def test_a_key_is_refused_for_another_body_and_belongs_to_one_api_key(gw, upstream):
    assert ask(gw, body_of("one"), **key("k")).status_code == 200
    refused = ask(gw, body_of("two"), **key("k"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "idempotency_key_reused")
    refused = ask(gw, body_of("two", "messages"), "messages", **key("k"))
    assert refused.status_code == 200, "another endpoint is another request"
    assert ask(gw, body_of("two"), secret=gw.key(tenant="other"), **key("k")).status_code == 200
    assert ask(gw, body_of("two"), secret=gw.key(), **key("k")).status_code == 200
    assert ask(gw, body_of("two"), **key("k" * 256)).status_code == 400
    assert len(upstream.asked) == 4


def test_the_key_of_a_client_does_not_reach_the_upstream(gw, upstream):
    ask(gw, body_of("one"), **key("k"), **count(0))
    assert "idempotency-key" not in upstream.asked[0].headers
    assert upstream.asked[0].headers["x-stainless-retry-count"] == "0"


@pytest.mark.parametrize(("path", "stream"), BOTH)
def test_a_request_that_comes_while_its_first_attempt_runs_waits_for_its_answer(gw, upstream, path, stream):
    body = body_of("what is it?", path, stream=stream)
    upstream.go_on.clear()
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, gw, body, path, **key("one"))
        assert upstream.heard.acquire(timeout=SECONDS)
        others = [pool.submit(ask, gw, body, path, **key("one")) for _ in range(6)]
        upstream.go_on.set()
        assert {other.result().content for other in others} == {first.result().content}
    assert (len(upstream.asked), set(stored(gw.store).values())) == (1, {1})


def leave(gw: Running, upstream: Upstream, body: bytes, path: str, **headers) -> None:
    """Sends a request and disconnects as soon as the upstream has received it."""
    where = urlsplit(gw.url)
    lines = [f"POST /v1/{path} HTTP/1.1", f"host: {where.netloc}", f"authorization: Bearer {gw.secret}"]
    lines += ["content-type: application/json", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    upstream.go_on.clear()
    with socket.create_connection((where.hostname, where.port), SECONDS) as sock:
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + body)
        assert upstream.heard.acquire(timeout=SECONDS)


@pytest.mark.parametrize(("path", "stream"), BOTH)
def test_a_client_that_disconnects_and_retries_with_its_key_gets_the_answer_of_its_first_attempt(
    gw, upstream, path, stream
):
    body = body_of("what is it?", path, stream=stream)
    leave(gw, upstream, body, path, **key("one"))
    upstream.go_on.set()
    assert text_of(ask(gw, body, path, **key("one")), path) == ["answer number 1"]
    assert (len(upstream.asked), set(stored(gw.store).values())) == (1, {1})


@pytest.mark.parametrize("path", PATHS)
def test_an_sdk_that_times_out_and_retries_gets_the_answer_of_its_first_attempt(gw, upstream, path):
    body = body_of("what is it?", path)
    leave(gw, upstream, body, path, **count(0))
    upstream.go_on.set()
    assert text_of(ask(gw, body, path, **count(1)), path) == ["answer number 1"]
    assert text_of(ask(gw, body, path, **count(2)), path) == ["answer number 1"]
    assert (len(upstream.asked), set(stored(gw.store).values())) == (1, {1})


def test_a_client_that_disconnects_without_a_mark_causes_a_second_upstream_call(gw, upstream):
    body = body_of("what is it?")
    leave(gw, upstream, body, "chat/completions")
    upstream.go_on.set()
    assert ask(gw, body).status_code == 200
    assert len(upstream.asked) == 2


def test_samples_of_one_question_are_not_treated_as_retries(gw, upstream):
    body = body_of("a number, please")
    samples = [ask(gw, body, **count(0)) for _ in range(2)]
    upstream.is_down = True
    assert ask(gw, body, **count(0)).status_code == 503
    upstream.is_down = False
    samples.append(ask(gw, body, **count(1)))
    assert [text_of(sample, "chat/completions") for sample in samples] == [[f"answer number {n}"] for n in (1, 2, 3)]


def test_the_retries_of_a_real_sdk_store_its_question_once(gw, upstream):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{gw.url}/v1", api_key=gw.secret, max_retries=1)
    upstream.is_down = True
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "what is it?"}])
    assert [request.headers["x-stainless-retry-count"] for request in upstream.asked] == ["0", "1"]
    assert stored(gw.store) == {("user", "what is it?"): 1}


@pytest.mark.parametrize(("path", "stream"), BOTH)
def test_another_gateway_on_the_same_store_returns_the_stored_answer(tmp_path, upstream, path, stream):
    upstream.calls = True
    body = body_of("what is it?", path, stream=stream)
    with gateway(tmp_path, upstream.url) as before:
        first = ask(before, body, path, **key("one"))
        plain = ask(before, body_of("more", path, stream=stream), path, **count(0))
    with gateway(tmp_path, upstream.url) as gw:
        secret = before.secret
        again = ask(gw, body, path, secret, **key("one"))
        assert text_of(again, path) == text_of(first, path) == ["answer number 1", "run"]
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["x-recto-session-id"] == first.headers["x-recto-session-id"]
        if not stream:
            tokens = "prompt_tokens" if path == "chat/completions" else "input_tokens"
            assert again.json()["usage"][tokens] == first.json()["usage"][tokens]
        retried = ask(gw, body_of("more", path, stream=stream), path, secret, **count(1))
        assert text_of(retried, path) == text_of(plain, path)
        assert len(upstream.asked) == 2
        assert ask(gw, body_of("other", path), path, secret, **key("one")).status_code == 422
        assert set(stored(gw.store).values()) == {1}
        ask(gw, body_of("more", path, stream=stream), path, secret, **count(0))
        assert len(upstream.asked) == 3, "a first attempt is a new question"


def test_a_conversation_can_continue_from_a_rebuilt_response(tmp_path, upstream):
    body = body_of("what is it?", "responses")
    with gateway(tmp_path, upstream.url) as before:
        first = ask(before, body, "responses", **key("one"))
    with gateway(tmp_path, upstream.url) as gw:
        again = ask(gw, body, "responses", before.secret, **key("one"))
        more = body_of("and then?", "responses", previous_response_id=again.json()["id"])
        going = ask(gw, more, "responses", before.secret)
        assert going.headers["x-recto-session-id"] == first.headers["x-recto-session-id"]


HEADERS = {"x_recto_session_id": "shared"}


def two_clients(gw: Running, upstream: Upstream, numbers: tuple[int, int], tools: bool = True) -> list[str]:
    """Two clients retry in one session while the upstream is down, and once more when it is up. Returns the answers."""
    more = {} if tools else {"tools": None}
    bodies = [body_of("the question of Ada", **more), body_of("the question of Bo", **more)]
    upstream.is_down = True
    for number in numbers:
        for body in bodies:
            assert ask(gw, body, **HEADERS, **count(number)).status_code == 503
    upstream.is_down = False
    last = numbers[-1] + 1 if numbers[-1] else 0
    return [text_of(ask(gw, body, **HEADERS, **count(last)), "chat/completions")[0] for body in bodies]


@pytest.mark.parametrize("tools", [True, False])
def test_questions_of_two_clients_are_stored_once_while_the_upstream_is_down(gw, upstream, tools):
    answers = two_clients(gw, upstream, (0, 1), tools)
    assert answers == ["answer number 1", "answer number 1"], "both questions were answered in one turn"
    assert stored(gw.store) == {
        ("user", "the question of Ada"): 1,
        ("user", "the question of Bo"): 1,
        ("assistant", "answer number 1"): 1,
    }


def test_without_a_retry_count_the_same_two_clients_store_every_attempt(gw, upstream):
    two_clients(gw, upstream, (0, 0))
    assert max(stored(gw.store).values()) == 3


def test_a_client_that_retries_after_others_gets_an_answer_to_its_own_question(gw, upstream):
    upstream.is_down = True
    for text in ("the question of Ada", "the question of Bo"):
        assert ask(gw, body_of(text, tools=None), **HEADERS).status_code == 503
    upstream.is_down = False
    ask(gw, body_of("the question of Ada", tools=None), **HEADERS)
    assert upstream.asked[-1].messages[-1]["content"] == "the question of Ada"


@pytest.fixture(scope="module")
def postgres():
    with own_server() as made:
        made.start()
        yield made


@pytest.fixture
def on_postgres(tmp_path, upstream, postgres, request):
    url, patience = postgres.made(f"retries_{abs(hash(request.node.name))}"), getattr(request, "param", BRIEF)
    with own_gateway(tmp_path, upstream, url, patience) as made:
        yield made


def own_gateway(folder, upstream: Upstream, url: str, patience: float = BRIEF):
    """Opens a gateway that waits so many seconds for a database that is down or locked."""
    return gateway(
        folder,
        upstream.url,
        opening=lambda settings: PostgresStore(url, lock_timeout=patience, connections=4, lease=2.0),
    )


def killed_while_it_answers(gw, upstream, postgres, body, path, first, second) -> httpx2.Response:
    """Kills the database while the model answers, so that the answer cannot be stored; returns the retry's response."""
    upstream.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, gw, body, path, **first)
        assert upstream.heard.acquire(timeout=SECONDS)
        postgres.kill()
        upstream.go_on.set()
        answer = asking.result()
    meanwhile = ask(gw, body, path, **second)
    postgres.start()
    assert answer.status_code in (503, 529) or b"could not be stored" in answer.content, answer.text
    assert meanwhile.status_code in (503, 529), "the database is still down"
    return ask(gw, body, path, **second)


@pytest.mark.parametrize(
    ("path", "stream", "marks"),
    [
        ("chat/completions", False, (key("one"), key("one"))),
        ("responses", True, (key("one"), key("one"))),
        ("messages", False, (count(0), count(1))),
    ],
)
def test_a_retry_stores_the_answer_that_a_killed_database_could_not_store(
    on_postgres, upstream, postgres, path, stream, marks
):
    body = body_of("what is it?", path, stream=stream)
    answer = killed_while_it_answers(on_postgres, upstream, postgres, body, path, *marks)
    assert text_of(answer, path) == ["answer number 1"]
    assert len(upstream.asked) == 1
    assert set(stored(on_postgres.store).values()) == {1}


def test_without_a_mark_a_killed_database_causes_a_second_upstream_call(on_postgres, upstream, postgres):
    body = body_of("what is it?")
    answer = killed_while_it_answers(on_postgres, upstream, postgres, body, "chat/completions", {}, {})
    assert text_of(answer, "chat/completions") == ["answer number 2"]
    assert len(upstream.asked) == 2


def test_questions_of_two_clients_are_stored_once_while_the_database_is_down(on_postgres, upstream, postgres):
    bodies = [body_of("the question of Ada"), body_of("the question of Bo")]
    upstream.go_on.clear()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask, on_postgres, bodies[0], **HEADERS, **count(0))
        assert upstream.heard.acquire(timeout=SECONDS)
        postgres.kill()
        upstream.go_on.set()
        statuses = {asking.result().status_code}
    statuses |= {
        ask(on_postgres, bodies[who], **HEADERS, **count(number)).status_code for who, number in ((1, 0), (0, 1))
    }
    postgres.start()
    assert statuses == {503}
    answers = [ask(on_postgres, body, **HEADERS, **count(2)) for body in bodies]
    assert [text_of(answer, "chat/completions")[0] for answer in answers] == ["answer number 1", "answer number 2"]
    assert set(stored(on_postgres.store).values()) == {1}
    assert len(upstream.asked) == 2


@pytest.mark.parametrize("marks", [(key("one"), key("one")), (count(0), count(1))])
def test_a_retry_at_another_gateway_waits_for_the_first_attempt(on_postgres, tmp_path, upstream, marks):
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    body = body_of("what is it?")
    with ExitStack() as stack:
        other = stack.enter_context(own_gateway(other_folder, upstream, on_postgres.store.url))
        other = Running(other.url, on_postgres.secret, other.gateway)
        leave(on_postgres, upstream, body, "chat/completions", **marks[0])
        pool = stack.enter_context(ThreadPoolExecutor(1))
        retry = pool.submit(ask, other, body, **marks[1])
        upstream.go_on.set()
        assert text_of(retry.result(), "chat/completions") == ["answer number 1"]
    assert (len(upstream.asked), set(stored(on_postgres.store).values())) == (1, {1})


@pytest.mark.parametrize("marks", [(key("one"), key("one")), (count(0), count(1))])
def test_an_answer_stored_by_another_gateway_while_the_retry_is_resolved_is_found(
    on_postgres, tmp_path, upstream, marks, monkeypatch
):
    body = body_of("what is it?")
    with own_gateway(tmp_path, upstream, on_postgres.store.url) as gateway:
        other = Running(gateway.url, on_postgres.secret, gateway.gateway)
        leave(on_postgres, upstream, body, "chat/completions", **marks[0])
        find_answer = SessionResolver._refuse_answered

        def find_answer_and_let_it_come(self, store, retry):
            find_answer(self, store, retry)
            if not upstream.go_on.is_set():
                upstream.go_on.set()
                ask(on_postgres, body, **marks[1])  # answered as soon as the first attempt is

        monkeypatch.setattr(SessionResolver, "_refuse_answered", find_answer_and_let_it_come)
        assert text_of(ask(other, body, **marks[1]), "chat/completions") == ["answer number 1"]
    assert (len(upstream.asked), set(stored(on_postgres.store).values())) == (1, {1})


def test_an_answer_stored_by_another_gateway_during_the_key_lookup_is_no_conflict(
    on_postgres, tmp_path, upstream, monkeypatch
):
    body = body_of("what is it?")
    with own_gateway(tmp_path, upstream, on_postgres.store.url) as gateway:
        other = Running(gateway.url, on_postgres.secret, gateway.gateway)
        leave(on_postgres, upstream, body, "chat/completions", **key("one"))
        find = Lineage.find

        def find_and_let_the_answer_come(self, store, name):
            found = find(self, store, name)
            if str(name).startswith("idempotency/") and not upstream.go_on.is_set():
                upstream.go_on.set()
                ask(on_postgres, body, **key("one"))
            return found

        monkeypatch.setattr(Lineage, "find", find_and_let_the_answer_come)
        assert text_of(ask(other, body, **key("one")), "chat/completions") == ["answer number 1"]


@pytest.mark.parametrize("on_postgres", [SECONDS], indirect=True)
def test_a_retry_between_the_records_of_an_answer_gets_the_answer(on_postgres, tmp_path, upstream, monkeypatch):
    body = body_of("what is it?")
    append_record = PostgresStore._append_record
    retries = []
    with own_gateway(tmp_path, upstream, on_postgres.store.url, SECONDS) as gateway:
        other = Running(gateway.url, on_postgres.secret, gateway.gateway)

        async def append_last_first(store, records):
            for session, record in reversed(records):
                await append_record(store, session, record)
                if upstream.numbers:
                    retries.append(await asyncio.to_thread(ask, other, body, **key("one")))

        monkeypatch.setattr(PostgresStore, "_append_records", append_last_first)
        assert text_of(ask(on_postgres, body, **key("one")), "chat/completions") == ["answer number 1"]
    assert [text_of(answer, "chat/completions") for answer in retries] == [["answer number 1"]] * len(retries)
    assert (len(retries) > 1, len(upstream.asked)) == (True, 1)


@pytest.mark.parametrize("marks", [(key("one"), key("one")), (count(0), count(1))])
def test_a_retry_at_another_gateway_before_the_records_of_an_answer_gets_the_answer(
    on_postgres, tmp_path, upstream, marks, monkeypatch
):
    body = body_of("what is it?")
    append_records = PostgresStore._append_records
    retries = []
    retried = threading.Event()
    with own_gateway(tmp_path, upstream, on_postgres.store.url) as gateway:
        other = Running(gateway.url, on_postgres.secret, gateway.gateway)

        async def retry_before_records(store, records):
            if upstream.numbers and not retried.is_set():  # the answer is stored, and nothing of its records is
                retried.set()
                retries.append(await asyncio.to_thread(ask, other, body, **marks[1]))
            await append_records(store, records)

        monkeypatch.setattr(PostgresStore, "_append_records", retry_before_records)
        first = ask(on_postgres, body, **marks[0])
    assert [text_of(answer, "chat/completions") for answer in (first, *retries)] == [["answer number 1"]] * 2
    assert (len(upstream.asked), set(stored(on_postgres.store).values())) == (1, {1})


def test_remembered_responses_are_bounded_in_bytes_count_and_age():
    async def answered(retries: Retries, name: str, size: int, *, ok: bool = True) -> list[bytes]:
        got: list[bytes] = []

        async def receive():
            await asyncio.Event().wait()

        async def send(message):
            got.append(message.get("body", b""))

        made = Attempt(
            key=retry_key({"idempotency-key": name}, "me", name.encode()), client_receive=receive, client_send=send
        )

        async def run() -> bool:
            await made.send({"type": "http.response.start", "status": 200, "headers": []})
            await made.send({"type": "http.response.body", "body": b"x" * size})
            return ok

        await retries.respond(made, run, replayed=lambda: got.append(b"replayed"))
        return got

    async def main() -> None:
        retries = Retries(max_bytes=100_000)
        for number in range(50):
            await answered(retries, f"k{number}", 10_000)
        assert retries._size <= 100_000
        assert b"replayed" in await answered(retries, "k49", 1)
        assert b"replayed" not in await answered(retries, "k0", 1)
        assert b"replayed" not in await answered(Retries(), "long", 5_000_000)
        failing = Retries()
        await answered(failing, "k", 10, ok=False)
        assert b"replayed" not in await answered(failing, "k", 10)
        soon = Retries(seconds=-1)
        await answered(soon, "k", 10)
        assert b"replayed" not in await answered(soon, "k", 10)
        assert (len(soon._order), sum(map(len, soon._ended.values())), soon._running) == (1, 1, {})

    asyncio.run(main())
