"""Two gateways on one database: turns of one session come one after the other, and a window is never an old one."""

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
    """A provider that keeps one question waiting until it is told to answer."""

    def __init__(self) -> None:
        super().__init__(lambda asked: Says(text=f"answer to {text_of(asked.messages[-1])}"))
        self.slow = ""
        self.reached, self.go_on = threading.Event(), threading.Event()

    def keep_waiting(self, text: str) -> None:
        self.slow = text
        self.reached.clear()
        self.go_on.clear()

    async def _heard(self, request, wire: str) -> Asked:
        asked = await super()._heard(request, wire)
        if self.slow and text_of(asked.messages[-1]) == self.slow:
            self.slow = ""
            self.reached.set()
            await asyncio.get_running_loop().run_in_executor(None, self.go_on.wait, DEADLINE)
        return asked


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
    given = {"authorization": f"Bearer {gw.secret}", **(headers or {})}
    return httpx2.post(f"{gw.url}/v1/{path}", json=body, headers=given, timeout=DEADLINE)


class Refusals:
    """Counts how often a gateway found a turn taken."""

    def __init__(self, gw: Running) -> None:
        self._store, self._turn = gw.store, gw.store.turn
        self._enough = threading.Event()
        self._left = 0

    def wait_for(self, many: int) -> None:
        assert self._enough.wait(DEADLINE), f"{many} refusals were waited for, {self._left} are missing"

    @contextmanager
    def counted(self, many: int) -> Iterator[None]:
        self._left = many
        self._store.turn = self._taken
        try:
            yield
        finally:
            del self._store.turn

    @contextmanager
    def _taken(self, session: str, *, patience: float | None = None) -> Iterator[None]:
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


def told(gw: Running, session: str) -> list[str]:
    entries = [entry for entry in gw.store.read(session) if entry.kind == MESSAGE]
    return [text_of(json.loads(entry.content)) for entry in entries]


def where(answer: httpx2.Response) -> str:
    assert answer.status_code == 200, answer.text
    return answer.headers["x-recto-session-id"]


def test_a_turn_whose_history_is_held_waits_for_that_of_the_other_gateway_and_knows_it(both, upstream, asking):
    held = {"x-recto-session-id": "shared"}
    for gw, text in zip(both, ("one", "two"), strict=True):  # both have the session open from now on
        where(ask(gw, [user(text)], headers=held))
    upstream.keep_waiting("three")
    first = asking.submit(ask, both[0], [user("three")], headers=held)
    assert upstream.reached.wait(DEADLINE)
    with pytest.raises(TurnTaken):
        both[1].store.turn("agent:default:shared", patience=0).__enter__()
    refusals = Refusals(both[1])
    with refusals.counted(9):  # more often than a request is placed again
        second = asking.submit(ask, both[1], [user("four")], headers=held)
        refusals.wait_for(9)
    upstream.go_on.set()
    assert where(first.result()) == where(second.result()) == "agent:default:shared"
    said = [text for one in ("one", "two", "three", "four") for text in (one, f"answer to {one}")]
    assert told(both[0], "agent:default:shared") == said
    last = next(asked for asked in upstream.asked if text_of(asked.messages[-1]) == "four")
    assert [text_of(message) for message in last.messages] == said[:-1]


def test_a_history_that_two_gateways_get_at_once_is_gone_on_with_once_and_opens_a_branch(both, upstream, asking):
    history = [user("red"), assistant("red"), user("blue")]
    start = where(ask(both[0], history[:1], tools=TOOLS))
    upstream.keep_waiting("blue")
    first = asking.submit(ask, both[0], history, tools=TOOLS)
    assert upstream.reached.wait(DEADLINE)
    branch = where(ask(both[1], history, tools=TOOLS))  # it does not wait
    upstream.go_on.set()
    assert where(first.result()) == start
    assert branch.startswith(f"{start}~")
    said = ["red", "answer to red", "blue", "answer to blue"]
    assert told(both[1], start) == told(both[0], branch) == said


def test_a_new_name_that_two_gateways_get_at_once_is_one_session_and_a_branch(both, upstream, asking):
    named = {"x-session-id": "new-name"}
    upstream.keep_waiting("first of the name")
    first = asking.submit(ask, both[0], [user("first of the name")], tools=TOOLS, headers=named)
    assert upstream.reached.wait(DEADLINE)
    branch = where(ask(both[1], [user("second of the name")], tools=TOOLS, headers=named))
    upstream.go_on.set()
    assert where(first.result()) == "agent:default:new-name"
    assert branch.startswith("agent:default:new-name~")
    assert told(both[0], branch) == ["second of the name", "answer to second of the name"]


def test_requests_of_one_conversation_wait_for_each_other_over_both_gateways(both, upstream, asking):
    given = {"authorization": f"Bearer {both[0].secret}"}
    id = httpx2.post(f"{both[0].url}/v1/conversations", json={}, headers=given, timeout=DEADLINE).json()["id"]
    upstream.keep_waiting("spring")
    first = asking.submit(ask, both[0], [user("spring")], path="responses", conversation=id)
    assert upstream.reached.wait(DEADLINE)
    refusals = Refusals(both[1])
    with refusals.counted(2):
        second = asking.submit(ask, both[1], [user("summer")], path="responses", conversation=id)
        refusals.wait_for(2)
    upstream.go_on.set()
    assert where(first.result()) == where(second.result())
    said = ["spring", "answer to spring", "summer", "answer to summer"]
    assert told(both[0], where(first.result())) == said


def test_a_turn_that_was_lost_is_refused_in_the_clients_own_shape_and_writes_nothing_more(both, place, asking):
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
    assert told(both[1], session) == ["too slow", "quick", "answer to quick"]


def test_a_session_of_a_gateway_that_died_is_gone_on_with_when_its_lease_is_over(both, place):
    session, url = "agent:default:orphan", place[2]
    where(ask(both[0], [user("before")], headers={"x-recto-session-id": "orphan"}))
    with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
        dies = "owner = 'dead', epoch = epoch + 1, lease_until = now() + interval '0.5 s'"
        connection.execute(f"UPDATE recto.heads SET {dies} WHERE session = %s", (session,))
    where(ask(both[1], [user("after")], headers={"x-recto-session-id": "orphan"}))
    assert told(both[0], session) == ["before", "answer to before", "after", "answer to after"]


def test_a_key_and_a_response_that_one_gateway_made_are_known_to_the_other(both):
    first = ask(both[0], [user("hail")], path="responses", tools=[])
    other = Running(both[1].url, both[0].secret, both[1].gateway)
    second = ask(other, [user("snow")], path="responses", previous_response_id=first.json()["id"])
    assert where(second) == where(first)
    assert told(both[1], where(second)) == ["hail", "answer to hail", "snow", "answer to snow"]


def test_a_branch_from_a_session_where_another_gateway_has_the_turn_does_not_wait_to_be_noted_there(both):
    history = [user("oak"), assistant("oak"), user("elm")]
    start = where(ask(both[0], history[:1], tools=TOOLS))
    where(ask(both[0], history, tools=TOOLS))
    with both[0].store.turn(start):
        branch = where(ask(both[1], [*history[:2], user("fir")], tools=TOOLS))
    assert told(both[0], branch) == ["oak", "answer to oak", "fir", "answer to fir"]
    kinds = {session: [one.kind for one in both[0].store.read(session)] for session in (start, branch)}
    assert BRANCH in kinds[branch]
    assert BRANCH not in kinds[start]


class Interrupted(MemoryStore):
    """A store in which something happens just before a turn begins, as another process would do it."""

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
    """Asks a gateway in this process."""
    raw = json.dumps({"model": "gpt-4o", "messages": messages, **more}).encode()
    headers = {"host": "127.0.0.1:8642", "authorization": f"Bearer {secret}"}
    headers |= {"content-type": "application/json", "content-length": str(len(raw))}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    status, given, _ = await direct_call(app, "POST", "/v1/chat/completions", pairs, raw)
    return status, dict(given)


@pytest.fixture
def alone(place) -> Iterator[tuple[Gateway, Interrupted, str]]:
    about = {"url": f"{place[1].url}/v1", "speaks": ["chat"]}
    settings = load(environ={}, arguments={"store": "memory:", "gateway": {"upstreams": {"main": about}}})
    store = Interrupted()
    made = Gateway(settings, store)
    _, secret = made.keys.add(Key(id="", name="test", canonical=True))
    yield made, store, secret
    made.close()


def test_a_question_that_is_answered_while_it_is_placed_is_not_answered_there_again(alone, upstream):
    gw, store, secret = alone

    async def race() -> tuple[str, str]:
        upstream.fail = lambda asked: JSONResponse({"error": {"message": "busy"}}, 500)
        status, told_at_first = await call(gw.asgi, secret, [user("rose")], tools=TOOLS)
        assert status == 500  # it is stored, and not answered
        upstream.fail = lambda asked: None
        session = told_at_first["x-recto-session-id"]

        def answered(taken: str) -> None:
            if taken == session:
                store.before_turn = lambda session: None
                with gw.sessions.use(Key(id="", name="other"), session) as opened:
                    opened.append_all([json.dumps(assistant("rose")).encode()])

        store.before_turn = answered
        _, then = await call(gw.asgi, secret, [user("rose")], tools=TOOLS)
        await gw.upstreams.close()
        return session, then["x-recto-session-id"]

    session, branch = asyncio.run(race())
    assert branch.startswith(f"{session}~")
    for one in (session, branch):
        said = [text_of(json.loads(entry.content)) for entry in store.read(one) if entry.kind == MESSAGE]
        assert said == ["rose", "answer to rose"]


def test_what_others_add_while_a_request_is_placed_is_not_gone_on_from(alone):
    gw, store, secret = alone

    async def race() -> tuple[str, str]:
        _, first = await call(gw.asgi, secret, [user("lily")], tools=TOOLS)
        session = first["x-recto-session-id"]

        def another(read: str) -> None:
            if read == session:
                store.after_read = lambda session: None
                with gw.sessions.use(Key(id="", name="other"), session) as opened:
                    opened.append_all([json.dumps(one).encode() for one in (user("tulip"), assistant("tulip"))])

        store.after_read = another
        _, then = await call(gw.asgi, secret, [user("lily"), assistant("lily"), user("aster")], tools=TOOLS)
        await gw.upstreams.close()
        return session, then["x-recto-session-id"]

    session, branch = asyncio.run(race())
    assert branch.startswith(f"{session}~")
    said = [text_of(json.loads(entry.content)) for entry in store.read(branch) if entry.kind == MESSAGE]
    assert said == ["lily", "answer to lily", "aster", "answer to aster"]


def test_a_turn_that_a_thread_begins_while_its_request_is_stopped_is_ended(alone):
    gw, store, secret = alone
    begun, go_on = threading.Event(), threading.Event()

    def held_up(session: str) -> None:
        if not session.startswith("recto:"):
            store.before_append = lambda session: None
            begun.set()
            assert go_on.wait(DEADLINE)

    async def stopped() -> None:
        store.before_append = held_up
        asking = asyncio.ensure_future(call(gw.asgi, secret, [user("stop")]))
        assert await asyncio.get_running_loop().run_in_executor(None, begun.wait, DEADLINE)
        asking.cancel()
        go_on.set()
        await asyncio.gather(asking, return_exceptions=True)  # however it is told
        await gw.upstreams.close()

    asyncio.run(stopped())
    assert gw.turns._busy == {}
    assert [one.kind for one in store.read("agent:default:main")][-1] == "reply_cut"


def test_a_question_whose_turn_is_lost_before_it_is_sent_on_is_refused_and_not_said_again(both, place):
    """Somebody else has spoken meanwhile: said again by the gateway itself, it would stand there twice."""
    session, url, store = "agent:default:overtaken", place[2], both[0].store
    append = store.append

    def overtaken(key: str, drafts, *, expect: int | None = None, also=None) -> list[Entry]:
        stored = append(key, drafts, expect=expect, also=also)
        if key == session:
            store.append = append
            with psycopg.connect(server(), dbname=urlsplit(url).path[1:], autocommit=True) as connection:
                gone = "UPDATE recto.heads SET lease_until = now() - interval '1 s' WHERE session = %s"
                connection.execute(gone, (session,))
            where(ask(both[1], [user("quick")], headers={"x-recto-session-id": "overtaken"}))
        return stored

    store.append = overtaken
    said = [{"role": "system", "content": "Be brief."}, user("slow")]
    refused = ask(both[0], said, headers={"x-recto-session-id": "overtaken"})
    assert refused.status_code == 503, refused.text
    assert told(both[1], session) == ["slow", "quick", "answer to quick"]
