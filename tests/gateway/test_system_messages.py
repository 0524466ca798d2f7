"""System messages inside a conversation: each is stored once and sent at the client's place."""

from __future__ import annotations

import json
from contextlib import ExitStack

import httpx2
import pytest
from starlette.responses import JSONResponse
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.gateway import system_messages
from recto.transcript.entries import MESSAGE

TOOLS = [{"type": "function", "name": "run", "function": {"name": "run", "parameters": {"type": "object"}}}]
WIRES = ["chat/completions", "responses"]
ON, OFF = "PLAN MODE ON", "PLAN MODE OFF"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda asked: Says(text="answer"))))
        made = gateway(tmp_path_factory.mktemp("gateway"), upstream.url, speaks=("chat", "responses"))
        yield stack.enter_context(made), upstream


@pytest.fixture
def gw(place) -> Running:
    return place[0]


@pytest.fixture
def upstream(place) -> ScriptedUpstream:
    place[1].fail = lambda asked: None
    return place[1]


class Client:
    """A client that sends its whole history with each request."""

    def __init__(self, gw: Running, upstream: ScriptedUpstream, path: str) -> None:
        self.gw, self.upstream, self.path = gw, upstream, path
        self.system_role = "developer" if path == "responses" else "system"
        self.history: list[dict] = []
        self.session = ""

    def say(self, role: str, text: str) -> None:
        self.history.append({"role": self.system_role if role == "system" else role, "content": text})

    def post(self, *, closing: str = "") -> httpx2.Response:
        member = "input" if self.path == "responses" else "messages"
        last = [{"role": self.system_role, "content": closing}] if closing else []
        body = {"model": "gpt-4o", member: [*self.history, *last], "tools": TOOLS}
        headers = {"authorization": f"Bearer {self.gw.secret}"}
        return httpx2.post(f"{self.gw.url}/v1/{self.path}", json=body, headers=headers, timeout=30)

    def ask(self, *, closing: str = "") -> None:
        response = self.post(closing=closing)
        assert response.status_code == 200, response.text
        self.session = response.headers["x-recto-session-id"]

    def answered(self) -> None:
        self.ask()
        self.say("assistant", "answer")

    def sent(self) -> list[str]:
        """Returns what the upstream received last."""
        body = json.loads(self.upstream.asked[-1].raw)
        return [text_of(message) for message in body["input" if self.path == "responses" else "messages"]]

    def stored(self) -> list[str]:
        return [text_of(json.loads(e.content)) for e in self.gw.store.read(self.session) if e.kind == MESSAGE]

    def assert_same(self) -> None:
        """What was sent to the upstream and stored is what the client sent; stored is the answer, too."""
        own = [text_of(message) for message in self.history]
        assert self.sent() == own
        first = next(n for n, message in enumerate(self.history) if message["role"] == "user")
        assert self.stored() == [*own[first:], "assistant: answer"]


def text_of(message: dict) -> str:
    content = message["content"]
    text = content if isinstance(content, str) else "".join(block["text"] for block in content)
    return f"{message['role']}: {text}"


@pytest.fixture(params=WIRES)
def client(gw, upstream, request) -> Client:
    return Client(gw, upstream, request.param)


def toggle(client: Client, title: str) -> None:
    client.say("system", "Be brief.")
    client.say("user", f"{title} {client.path}")
    for number, text in enumerate((ON, OFF, ON, ON)):
        client.answered()
        client.say("system", text)
        client.say("user", f"question {number}")


def test_a_text_that_repeats_is_stored_and_sent_each_time(client):
    toggle(client, "toggle")
    client.ask()
    client.assert_same()


def test_a_history_that_is_new_to_the_gateway_keeps_its_order(client):
    client.say("user", f"all at once {client.path}")
    for text in (ON, OFF, ON):
        client.say("assistant", "answer")
        client.say("system", text)
        client.say("user", f"after {text}")
    client.ask()
    client.assert_same()
    client.say("assistant", "answer")
    client.say("user", "and on")
    client.ask()
    client.assert_same()


def test_a_system_message_that_is_the_last_one_comes_before_its_answer(client):
    client.say("user", f"nudged {client.path}")
    client.answered()
    first = client.session
    for _ in range(2):
        client.say("system", "Go on.")
        client.answered()
    client.say("user", "thanks")
    client.ask()
    client.assert_same()
    assert client.session == first


def test_a_client_that_keeps_its_system_messages_keeps_one_after_a_question(client):
    client.say("user", f"keeps them {client.path}")
    client.answered()
    for number in range(3):
        client.say("user", f"question {number}")
        client.say("system", "Think.")
        client.answered()
    client.say("user", "thanks")
    client.ask()
    client.say("assistant", "answer")
    client.say("user", "again")
    client.ask()
    own = [text_of(message) for message in client.history]
    assert client.sent()[6:] == own[6:]  # the first one was taken for a reminder
    assert client.stored().count(f"{client.system_role}: Think.") == 3


def test_a_system_message_that_moves_along_before_the_question_is_sent_once(client):
    client.say("user", f"moves before the question {client.path}")
    client.answered()
    for number in range(4):
        before = list(client.history)
        client.say("system", "REMINDER")
        client.say("user", f"question {number}")
        client.ask()
        assert sum("REMINDER" in text for text in client.sent()) == 1
        client.history = before
        client.say("user", f"question {number}")
        client.say("assistant", "answer")


def test_a_system_message_that_returns_is_sent_at_its_place(client):
    client.say("user", f"gone and back {client.path}")
    client.answered()
    start = list(client.history)
    client.say("system", ON)
    client.answered()
    whole = list(client.history)
    client.history = [*start, whole[-1]]
    client.say("user", "without it")
    client.ask()
    assert not any(ON in text for text in client.sent())
    client.history = whole
    client.say("user", "without it")
    client.say("assistant", "answer")
    client.say("user", "with it")
    client.ask()
    assert sum(ON in text for text in client.sent()) == 1


def test_a_system_message_that_moves_along_is_sent_once(client):
    client.say("user", f"moves along {client.path}")
    for _ in range(3):
        client.answered()
        client.ask(closing="Go on.")
        assert client.sent() == [*map(text_of, client.history), f"{client.system_role}: Go on."]
        client.say("assistant", "answer")
    client.say("user", "thanks")
    client.ask()
    assert client.sent() == [text_of(message) for message in client.history]


@pytest.mark.parametrize("is_last", [False, True])
def test_a_retry_stores_a_repeated_text_once(client, upstream, is_last):
    toggle(client, f"retry {is_last}")
    client.answered()
    first = client.session
    client.say("system", ON)
    if not is_last:
        client.say("user", "once more")
    upstream.fail = lambda asked: JSONResponse({"error": {"message": "busy"}}, 503)
    assert client.post().status_code == 503
    upstream.fail = lambda asked: None
    client.ask()
    client.assert_same()
    assert client.session == first


def test_a_question_after_an_unanswered_one_keeps_the_repeated_text_between_them(client, upstream):
    client.say("user", f"unanswered {client.path}")
    client.answered()
    client.say("system", ON)
    client.say("user", "one")
    upstream.fail = lambda asked: JSONResponse({"error": {"message": "busy"}}, 503)
    assert client.post().status_code == 503
    upstream.fail = lambda asked: None
    client.say("system", ON)
    client.say("user", "two")
    client.ask()
    client.assert_same()


def test_an_edited_history_keeps_the_order_in_its_branch(client):
    toggle(client, "edited")
    client.ask()
    first = client.session
    client.history[-4:] = [client.history[-2]]
    client.say("user", "edited")
    client.ask()
    client.assert_same()
    assert client.session != first


def test_a_client_that_drops_its_oldest_messages_stores_nothing_twice(client):
    toggle(client, "trimmed")
    for number in range(4):
        client.answered()
        client.say("user", f"further {number}")
    client.answered()
    first, before = client.session, client.stored()
    client.history = client.history[5:]
    client.say("system", ON)
    client.say("user", "the end")
    client.ask()
    assert client.session == first
    assert client.stored() == [*before, f"{client.system_role}: {ON}", "user: the end", "assistant: answer"]


def test_a_text_that_an_older_version_stored_is_not_stored_again(client, monkeypatch):
    client.say("user", f"stored before {client.path}")
    client.answered()
    client.say("system", ON)
    client.say("user", "question")
    with monkeypatch.context() as patched:
        patched.setattr(system_messages, "_KEY", "amid/")  # its keys: of the text alone
        client.answered()
    for text in ("next", "last"):
        client.say("system", ON)
        client.say("user", text)
        client.ask()
        client.assert_same()
        client.say("assistant", "answer")
