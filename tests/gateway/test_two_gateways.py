"""Two gateways on one database: turns of a session are serialized, and no gateway uses a stale window."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx2
import psycopg
import pytest
from starlette.responses import JSONResponse
from tests.faults.chaos import call as direct_call
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running
from tests.postgres import database, server

from recto.config import load
from recto.engine.fork import BRANCH
from recto.errors import TurnTaken
from recto.gateway.api_keys import Key
from recto.gateway.app import Gateway
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Entry

TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]
DEADLINE = 30


def text_of(message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else " ".join(part["text"] for part in content or [])


class Upstream(ScriptedUpstream):
    """A provider that delays the answer to one question until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(lambda request: Says(text=f"answer to {text_of(request.messages[-1])}"))
        self.slow = ""
        self.reached, self.go_on = threading.Event(), threading.Event()

    def keep_waiting(self, text: str) -> None:
        self.slow = text
        self.reached.clear()
        self.go_on.clear()

    async def _receive(self, request, wire: str) -> Asked:
        received = await super()._receive(request, wire)
        if self.slow and text_of(received.messages[-1]) == self.slow:
            self.slow = ""
            self.reached.set()
            await asyncio.get_running_loop().run_in_executor(None, self.go_on.wait, DEADLINE)
        return received


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[tuple[list[Running], Upstream, str]]:
    with ExitStack() as stack:
        upstream = stack.enter_context(running(Upstream()))
        url = stack.enter_context(database())
        folder = tmp_path_factory.mktemp("gateways")
        more = {"store": url, "recall": {"embedder": {"use": "none"}}, "limits": {"lock_seconds": 10}}
        made = [stack.enter_context(gateway(folder, upstream.url, **more)) for _ in range(2)]
        yield made, upstream, url


@pytest.fixture
def both(place) -> list[Running]:
    return place[0]


@pytest.fixture
def upstream(place) -> Upstream:
    return place[1]


@pytest.fixture
def asking() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def ask(gw: Running, messages, *, path="chat/completions", headers=None, **more) -> httpx2.Response:
    body = {"model": "gpt-4o", "input" if path == "responses" else "messages": messages, **more}
    all_headers = {"authorization": f"Bearer {gw.secret}", **(headers or {})}
    return httpx2.post(f"{gw.url}/v1/{path}", json=body, headers=all_headers, timeout=DEADLINE)


class Refusals:
    """Counts how often a gateway was refused a turn."""

    def __init__(self, gw: Running) -> None:
        self._store, self._turn = gw.store, gw.store.turn
        self._enough = threading.Event()
        self._left = 0

    def wait_for(self, many: int) -> None:
        assert self._enough.wait(DEADLINE), f"{self._left} of {many} refusals are missing"

    @contextmanager
    def counted(self, many: int) -> Iterator[None]:
        self._left = many
        self._store.turn = self._counted_turn
        try:
            yield
        finally:
            del self._store.turn

    @contextmanager
    def _counted_turn(self, session: str, *, patience: float | None = None) -> Iterator[None]:
        with ExitStack() as stack:
            try:
                stack.enter_context(self._turn(session, patience=patience))
            except TurnTaken:
                self._left -= 1
                if self._left <= 0:
                    self._enough.set()
                raise
            yield


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": f"answer to {text}"}


def texts_of(gw: Running, session: str) -> list[str]:
    entries = [entry for entry in gw.store.read(session) if entry.kind == MESSAGE]
    return [text_of(json.loads(entry.content)) for entry in entries]


def where(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers["x-recto-session-id"]


def test_a_turn_of_a_named_session_waits_for_the_other_gateways_turn_and_includes_it(both, upstream, asking):
    session_header = {"x-recto-session-id": "shared"}
    for gw, text in zip(both, ("one", "two"), strict=True):  # both gateways have the session open from now on
        where(ask(gw, [user(text)], headers=session_header))
    upstream.keep_waiting("three")
    first = asking.submit(ask, both[0], [user("three")], headers=session_header)
    assert upstream.reached.wait(DEADLINE)
    with pytest.raises(TurnTaken):
        both[1].store.turn("agent:default:shared", patience=0).__enter__()
    refusals = Refusals(both[1])
    with refusals.counted(9):  # more often than session resolution is retried
        second = asking.submit(ask, both[1], [user("four")], headers=session_header)
        refusals.wait_for(9)
    upstream.go_on.set()
    assert where(first.result()) == where(second.result()) == "agent:default:shared"
    expected = [text for question in ("one", "two", "three", "four") for text in (question, f"answer to {question}")]
    assert texts_of(both[0], "agent:default:shared") == expected
    last = next(request for request in upstream.asked if text_of(request.messages[-1]) == "four")
    assert [text_of(message) for message in last.messages] == expected[:-1]


def test_a_history_that_two_gateways_get_at_once_is_continued_once_and_branched_once(both, upstream, asking):
    history = [user("red"), assistant("red"), user("blue")]
    start = where(ask(both[0], history[:1], tools=TOOLS))
    upstream.keep_waiting("blue")
    first = asking.submit(ask, both[0], history, tools=TOOLS)
    assert upstream.reached.wait(DEADLINE)
    branch = where(ask(both[1], history, tools=TOOLS))  # it does not wait
    upstream.go_on.set()
    assert where(first.result()) == start
    assert branch.startswith(f"{start}~")
    expected = ["red", "answer to red", "blue", "answer to blue"]
    assert texts_of(both[1], start) == texts_of(both[0], branch) == expected


def test_a_new_name_that_two_gateways_get_at_once_becomes_one_session_and_a_branch(both, upstream, asking):
    named = {"x-session-id": "new-name"}
    upstream.keep_waiting("first of the name")
    first = asking.submit(ask, both[0], [user("first of the name")], tools=TOOLS, headers=named)
    assert upstream.reached.wait(DEADLINE)
    branch = where(ask(both[1], [user("second of the name")], tools=TOOLS, headers=named))
    upstream.go_on.set()
    assert where(first.result()) == "agent:default:new-name"
    assert branch.startswith("agent:default:new-name~")
    assert texts_of(both[0], branch) == ["second of the name", "answer to second of the name"]


def test_requests_of_one_conversation_wait_for_each_other_over_both_gateways(both, upstream, asking):
    all_headers = {"authorization": f"Bearer {both[0].secret}"}
    id = httpx2.post(f"{both[0].url}/v1/conversations", json={}, headers=all_headers, timeout=DEADLINE).json()["id"]
    upstream.keep_waiting("spring")
    first = asking.submit(ask, both[0], [user("spring")], path="responses", conversation=id)
    assert upstream.reached.wait(DEADLINE)
    refusals = Refusals(both[1])
    with refusals.counted(2):
        second = asking.submit(ask, both[1], [user("summer")], path="responses", conversation=id)
        refusals.wait_for(2)
    upstream.go_on.set()
    assert where(first.result()) == where(second.result())
    expected = ["spring", "answer to spring", "summer", "answer to summer"]
    assert texts_of(both[0], where(first.result())) == expected


def test_a_lost_turn_is_refused_in_the_clients_protocol_and_stores_nothing_more(both, place, asking):
    upstream, url, session = place[1], place[2], "agent:default:lost"
    upstream.keep_waiting("too slow")
    first = asking.submit(ask, both[0], [user("too slow")], headers={"x-recto-session-id": "lost"})
    assert upstream.reached.wait(DEADLINE)
    with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
        gone = "UPDATE recto.heads SET lease_until = now() - interval '1 s' WHERE session = %s"
        connection.execute(gone, (session,))
    where(ask(both[1], [user("quick")], headers={"x-recto-session-id": "lost"}))
    upstream.go_on.set()
    refused = first.result()
    assert refused.status_code == 503, refused.text
    assert "another process has taken over the turn" in refused.json()["error"]["message"]
    assert texts_of(both[1], session) == ["too slow", "quick", "answer to quick"]


def test_a_session_of_a_dead_gateway_is_continued_when_its_lease_expires(both, place):
    session, url = "agent:default:orphan", place[2]
    where(ask(both[0], [user("before")], headers={"x-recto-session-id": "orphan"}))
    with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
        dies = "owner = 'dead', epoch = epoch + 1, lease_until = now() + interval '0.5 s'"
        connection.execute(f"UPDATE recto.heads SET {dies} WHERE session = %s", (session,))
    where(ask(both[1], [user("after")], headers={"x-recto-session-id": "orphan"}))
    assert texts_of(both[0], session) == ["before", "answer to before", "after", "answer to after"]


def test_a_key_and_a_response_that_one_gateway_made_are_known_to_the_other(both):
    first = ask(both[0], [user("hail")], path="responses", tools=[])
    other = Running(both[1].url, both[0].secret, both[1].gateway)
    second = ask(other, [user("snow")], path="responses", previous_response_id=first.json()["id"])
    assert where(second) == where(first)
    assert texts_of(both[1], where(second)) == ["hail", "answer to hail", "snow", "answer to snow"]


def test_a_branch_from_a_session_whose_turn_another_gateway_holds_does_not_wait(both):
    history = [user("oak"), assistant("oak"), user("elm")]
    start = where(ask(both[0], history[:1], tools=TOOLS))
    where(ask(both[0], history, tools=TOOLS))
    with both[0].store.turn(start):
        branch = where(ask(both[1], [*history[:2], user("fir")], tools=TOOLS))
    assert texts_of(both[0], branch) == ["oak", "answer to oak", "fir", "answer to fir"]
    kinds = {session: [entry.kind for entry in both[0].store.read(session)] for session in (start, branch)}
    assert BRANCH in kinds[branch]
    assert BRANCH not in kinds[start]


class Interrupted(MemoryStore):
    """A store with hooks before turns and appends and after reads, to act as another process would."""

    def __init__(self) -> None:
        super().__init__()
        self.before_turn = lambda session: None
        self.before_append = lambda session: None
        self.after_read = lambda session: None

    def turn(self, session: str, *, patience: float | None = None):
        self.before_turn(session)
        return super().turn(session, patience=patience)

    def read(self, session: str, start: int = 1, stop: int | None = None) -> Iterator[Entry]:
        yield from super().read(session, start, stop)
        self.after_read(session)

    def append(self, session, drafts, *, expect: int | None = None, also=None) -> list[Entry]:
        self.before_append(session)
        return super().append(session, drafts, expect=expect, also=also)


async def call(app, secret: str, messages, **more) -> tuple[int, dict[str, str]]:
    """Sends a request to a gateway in this process."""
    raw = json.dumps({"model": "gpt-4o", "messages": messages, **more}).encode()
    headers = {"host": "127.0.0.1:8642", "authorization": f"Bearer {secret}"}
    headers |= {"content-type": "application/json", "content-length": str(len(raw))}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    status, response_headers, _ = await direct_call(app, "POST", "/v1/chat/completions", pairs, raw)
    return status, dict(response_headers)


@pytest.fixture
def alone(place) -> Iterator[tuple[Gateway, Interrupted, str]]:
    upstream_settings = {"url": f"{place[1].url}/v1", "speaks": ["chat"]}
    settings = load(environ={}, arguments={"store": "memory:", "gateway": {"upstreams": {"main": upstream_settings}}})
    store = Interrupted()
    made = Gateway(settings, store)
    _, secret = made.keys.add(Key(id="", name="test", canonical=True))
    yield made, store, secret
    made.close()


def test_a_question_answered_elsewhere_during_session_resolution_opens_a_branch(alone, upstream):
    gw, store, secret = alone

    async def race() -> tuple[str, str]:
        upstream.fail = lambda request: JSONResponse({"error": {"message": "busy"}}, 500)
        status, first_headers = await call(gw.asgi, secret, [user("rose")], tools=TOOLS)
        assert status == 500  # the question is stored, but not answered
        upstream.fail = lambda request: None
        session = first_headers["x-recto-session-id"]

        def answered(turn_session: str) -> None:
            if turn_session == session:
                store.before_turn = lambda session: None
                with gw.sessions.use(Key(id="", name="other"), session) as opened:
                    opened.append_all([json.dumps(assistant("rose")).encode()])

        store.before_turn = answered
        _, then = await call(gw.asgi, secret, [user("rose")], tools=TOOLS)
        await gw.upstreams.close()
        return session, then["x-recto-session-id"]

    session, branch = asyncio.run(race())
    assert branch.startswith(f"{session}~")
    for name in (session, branch):
        expected = [text_of(json.loads(entry.content)) for entry in store.read(name) if entry.kind == MESSAGE]
        assert expected == ["rose", "answer to rose"]


def test_messages_appended_elsewhere_during_session_resolution_are_not_continued(alone):
    gw, store, secret = alone

    async def race() -> tuple[str, str]:
        _, first = await call(gw.asgi, secret, [user("lily")], tools=TOOLS)
        session = first["x-recto-session-id"]

        def another(read: str) -> None:
            if read == session:
                store.after_read = lambda session: None
                with gw.sessions.use(Key(id="", name="other"), session) as opened:
                    opened.append_all([json.dumps(message).encode() for message in (user("tulip"), assistant("tulip"))])

        store.after_read = another
        _, then = await call(gw.asgi, secret, [user("lily"), assistant("lily"), user("aster")], tools=TOOLS)
        await gw.upstreams.close()
        return session, then["x-recto-session-id"]

    session, branch = asyncio.run(race())
    assert branch.startswith(f"{session}~")
    expected = [text_of(json.loads(entry.content)) for entry in store.read(branch) if entry.kind == MESSAGE]
    assert expected == ["lily", "answer to lily", "aster", "answer to aster"]


def test_a_turn_begun_in_a_thread_while_its_request_is_cancelled_is_ended(alone):
    gw, store, secret = alone
    begun, go_on = threading.Event(), threading.Event()

    def block_append(session: str) -> None:
        if not session.startswith("recto:"):
            store.before_append = lambda session: None
            begun.set()
            assert go_on.wait(DEADLINE)

    async def stopped() -> None:
        store.before_append = block_append
        asking = asyncio.ensure_future(call(gw.asgi, secret, [user("stop")]))
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, DEADLINE)
        asking.cancel()
        go_on.set()
        await asyncio.gather(asking, return_exceptions=True)  # whatever its outcome
        await gw.upstreams.close()

    asyncio.run(stopped())
    assert gw.turns._busy == {}
    assert [entry.kind for entry in store.read("agent:default:main")][-1] == "reply_cut"


def test_a_question_whose_turn_is_lost_before_it_is_sent_is_refused_and_not_stored_twice(both, place):
    """Another client has written meanwhile: if the gateway retried by itself, the question would be stored twice."""
    session, url, store = "agent:default:overtaken", place[2], both[0].store
    append = store.append

    def append_and_lose_turn(key: str, drafts, *, expect: int | None = None, also=None) -> list[Entry]:
        stored = append(key, drafts, expect=expect, also=also)
        if key == session:
            store.append = append
            with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
                gone = "UPDATE recto.heads SET lease_until = now() - interval '1 s' WHERE session = %s"
                connection.execute(gone, (session,))
            where(ask(both[1], [user("quick")], headers={"x-recto-session-id": "overtaken"}))
        return stored

    store.append = append_and_lose_turn
    messages = [{"role": "system", "content": "Be brief."}, user("slow")]
    refused = ask(both[0], messages, headers={"x-recto-session-id": "overtaken"})
    assert refused.status_code == 503, refused.text
    assert texts_of(both[1], session) == ["slow", "quick", "answer to quick"]
