"""Many gateways on one database: nothing is lost, duplicated or interleaved, whichever process is killed.

Four real gateway processes serve clients of two kinds. For some, the gateway stores the history: they share sessions,
and their turns run one after the other over all gateways. The others send their history with each request, often to two
gateways at once. Gateways are ended with SIGKILL at any moment, and so is the database; clients retry until they have
received a complete response.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from chaos import PATHS, TOOLS, Line, Provider, Reply
from nursery import Born, Nursery, nursery
from own_postgres import Server, own_server
from tests.gateway.upstream import Asked, Says, ScriptedUpstream
from tests.postgres import database
from witness import findings

from recto.config.factory import SystemClock
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.gateway.api_keys import Key, Keys
from recto.stores.postgres import PostgresStore
from recto.transcript.entries import MESSAGE
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import is_internal

pytestmark = pytest.mark.timeout(0)
GATEWAYS = 4
WINDOW = 1_600
DEADLINE = 300
"""Seconds within which some client has to make progress."""
SETTINGS = ("max_connections=200",)
"""Settings of the server: each gateway may open 32 connections."""
ENDS = {CHAT: b"[DONE]", RESPONSES: b"response.completed", ANTHROPIC: b"message_stop"}
ASKS = re.compile(r"\[[a-z]+ \d+ asks \d+\]")
FILLER = "and there is a good deal more to be said about that, which takes some room in the window. " * 4

SHORT_LEASE = """
from functools import partial
recto.stores.postgres.PostgresStore = partial(recto.stores.postgres.PostgresStore, lease=3.0)
"""
NO_TURNS = """
from contextlib import nullcontext
recto.stores.postgres.PostgresStore.turn = lambda self, session, *, patience=None: nullcontext()
"""


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def answer_to(question: str) -> str:
    return f"The answer to {question} is known, {FILLER}"


def script(request: Asked) -> Says:
    spoken = [text_of(message) for message in request.messages if message.get("role") == "user"]
    return Says(text=answer_to(ASKS.findall(spoken[-1])[0]))


async def in_drops(line: Line, reply: Reply, request: Asked) -> None:
    await line.drip(reply.chunked(line.rng), 400)


@dataclass
class Fleet:
    """The running gateways, and the progress of their clients."""

    born: Nursery
    config: Path
    secret: str
    rng: random.Random
    alive: list[Born] = field(default_factory=list)
    ends: int = 0
    """Complete responses that clients received."""
    over: bool = False
    _stirred: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def stirred(self, until: Any, seconds: float = DEADLINE) -> bool:
        """Waits until a condition holds, checking it after every event. Returns whether it holds."""
        async with self._stirred:
            try:
                async with asyncio.timeout(seconds):
                    await self._stirred.wait_for(until)
            except TimeoutError:
                return False
            return True

    async def stir(self) -> None:
        async with self._stirred:
            self._stirred.notify_all()

    async def replace(self, place: int) -> None:
        """Kills a gateway and starts another one in its place."""
        self.alive[place].kill()
        self.alive[place] = await self.born.start(self.config)
        await self.stir()


@dataclass
class Client:
    """One client; it has one question at a time, and retries it until it receives a complete response."""

    name: str
    wire: str
    headers: dict[str, str]
    stateful: bool
    """Whether the gateway stores its history."""
    history: list[tuple[str, str]] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """The session and the question of every complete response."""
    rooms: list[tuple[int, int]] = field(default_factory=list)
    odd: list[bytes] = field(default_factory=list)
    """Responses that no client should get."""

    def body(self, question: str) -> bytes:
        now = ("user", f"{question} {FILLER}")
        spoken = [{"role": role, "content": text} for role, text in [*([] if self.stateful else self.history), now]]
        body = {"model": "gpt-4o", "input" if self.wire == RESPONSES else "messages": spoken, "stream": True}
        body |= {} if self.stateful else {"tools": TOOLS[self.wire]}
        return json.dumps(body if self.wire == RESPONSES else {**body, "max_tokens": 100}).encode()

    async def talk(self, fleet: Fleet, turns: int) -> None:
        number = 0
        while number < turns or not fleet.over:
            question = f"[{self.name} asks {number}]"
            while not await self._ask(fleet, question):
                ends = fleet.ends
                await fleet.stirred(lambda ends=ends: fleet.ends > ends, 0.3)
            self.history += [("user", f"{question} {FILLER}"), ("assistant", answer_to(question))]
            number += 1

    async def _ask(self, fleet: Fleet, question: str) -> bool:
        """Sends the question to one gateway, or to two at once; returns whether a response was complete."""
        twice = not self.stateful and fleet.rng.random() < 0.4
        chosen = fleet.rng.sample(fleet.alive, 2 if twice and len(fleet.alive) > 1 else 1)
        body = self.body(question)
        self.attempts[question] += len(chosen)
        seen = await asyncio.gather(*(self._send(fleet, gateway.port, body, question) for gateway in chosen))
        return any(seen)

    async def _send(self, fleet: Fleet, port: int, body: bytes, question: str) -> bool:
        got, writer = b"", None
        request_headers = {
            **self.headers,
            "Authorization": f"Bearer {fleet.secret}",
            "Content-Type": "application/json",
        }
        head = f"POST {PATHS[self.wire]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in request_headers.items())
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            while more := await reader.read(65536):
                got += more
        except OSError:
            pass
        finally:
            if writer is not None:
                writer.close()
        if ENDS[self.wire] not in got:
            if got.startswith(b"HTTP/1.1 4"):
                self.odd.append(got)
            return False
        response_headers = {
            name.lower(): value for name, _, value in (line.partition(b": ") for line in got.split(b"\r\n"))
        }
        self.seen.append((response_headers[b"x-recto-session-id"].decode(), question))
        used, _, room = response_headers[b"x-recto-tokens"].partition(b"/")
        self.rooms.append((int(used), int(room)))
        fleet.ends += 1
        await fleet.stir()
        return True


def clients_of(count: int, sessions: int) -> list[Client]:
    made: list[Client] = []
    for place in range(count):
        stateful, wire = place % 2 == 0, (CHAT, RESPONSES, ANTHROPIC)[place % 3]
        named = f"{'held' if stateful else 'told'}-{place // 2 % sessions}"
        header = {"x-recto-session-id" if stateful else "x-session-id": named}
        made.append(Client(f"{'holder' if stateful else 'teller'} {place}", wire, header, stateful))
    return made


Spoken = list[tuple[str, str]]


def spoken_in(store: TranscriptStore) -> dict[str, Spoken]:
    """Returns the roles and questions of the messages of every session."""
    found: dict[str, Spoken] = {}
    for summary in store.sessions():
        if not is_internal(summary.session):
            entries = [entry for entry in store.read(summary.session) if entry.kind == MESSAGE]
            texts = [(entry.role, text_of(json.loads(entry.content))) for entry in entries]
            found[summary.session] = [(role, ASKS.findall(text)[0]) for role, text in texts]
    return found


def interleaved(spoken: dict[str, Spoken]) -> list[Any]:
    """Returns answers that do not directly follow their question, and questions that occur twice in a row."""
    found: list[Any] = []
    for session, messages in spoken.items():
        for place, (role, question) in enumerate(messages):
            before = messages[place - 1] if place else ("", "")
            if (role == "assistant") != (before == ("user", question)):
                found.append((session, place, messages))
    return found


def doubled(spoken: dict[str, Spoken], clients: list[Client]) -> list[Any]:
    """Returns messages stored more often than they were sent; if the client sends its history, more than once."""
    most = {question: count for client in clients if client.stateful for question, count in client.attempts.items()}
    return [
        (session, what, times)
        for session, messages in spoken.items()
        for what, times in Counter(messages).items()
        if times > most.get(what[1], 1)
    ]


def lost(spoken: dict[str, Spoken], clients: list[Client]) -> list[Any]:
    """Returns complete responses that are not in the session named in the response, or not after their history."""
    found: list[Any] = []
    for client in clients:
        for session, question in client.seen:
            messages = spoken.get(session, [])
            there = ("user", question) in messages and ("assistant", question) in messages
            if not client.stateful and there:
                questions = list(client.attempts)
                before = questions[: questions.index(question) + 1]
                known = [(role, earlier) for earlier in before for role in ("user", "assistant")]
                there = messages[: len(known)] == known
            if not there:
                found.append((client.name, session, question, messages))
    return found


def stale(spoken: dict[str, Spoken], clients: list[Client], requests: list[Asked]) -> list[Any]:
    """Returns answers in a shared session to a prompt without the turn before.

    A question whose gateway was killed may never have been sent upstream. When it is retried, the session may have
    grown so much that the turn before it was evicted from the window.
    """
    prompts: dict[str, list[set[str]]] = {}
    for request in requests:
        known = [ASKS.findall(text_of(message)) for message in request.messages]
        mentioned = [found for found in known if found]
        prompts.setdefault(mentioned[-1][0], []).append({name for found in mentioned for name in found})
    found: list[Any] = []
    for session in {session for client in clients if client.stateful for session, _ in client.seen}:
        messages = spoken[session]
        for (_, before), (role, question), after in zip(messages, messages[1:], messages[2:], strict=False):
            answered = (role, after) == ("user", ("assistant", question))
            if answered and not any(before in prompt for prompt in prompts.get(question, [{before}])):
                found.append((session, before, question))
    return found


@asynccontextmanager
async def fleet_of(
    folder: Path, url: str, provider: Provider, *, gateways: int, before: str, seed: int
) -> AsyncIterator[Fleet]:
    with PostgresStore(url) as store:
        _, secret = Keys(store, SystemClock()).add(Key(id="", name="test"))
    async with provider.listening(), nursery(folder / "errors.txt", before) as born:
        upstream_settings = {
            "url": f"{provider.url}/v1",
            "speaks": ["chat", "responses", "messages"],
            "key": "sk-upstream",
        }
        settings = {
            "store": url,
            "recall": {"embedder": {"use": "none"}},
            "models": {"gpt-4o": {"window": WINDOW}},
            "limits": {"lock_seconds": 10},
            "gateway": {"upstreams": {"main": upstream_settings}},
        }
        config = folder / "settings.yaml"
        config.write_text(json.dumps(settings))
        fleet = Fleet(born, config, secret, random.Random(seed))
        fleet.alive = [await born.start(config) for _ in range(gateways)]
        yield fleet


def restart(server: Server) -> None:
    server.kill()
    server.start(*SETTINGS)


async def hammered(
    folder: Path, url: str, server: Server | None, clients: list[Client], *, cycles: int, turns: int
) -> list[Asked]:
    """Runs clients while gateways are killed and, where that is possible, the database is restarted."""
    provider = Provider(ScriptedUpstream(script, WINDOW), lambda request: in_drops)
    async with fleet_of(folder, url, provider, gateways=GATEWAYS, before=SHORT_LEASE, seed=7) as fleet:
        talking = [asyncio.ensure_future(client.talk(fleet, turns)) for client in clients]
        for cycle in range(cycles):
            due = fleet.ends + fleet.rng.randint(2, max(len(clients) // 2, 4))
            assert await fleet.stirred(lambda due=due: fleet.ends >= due), "no client makes progress any more"
            await fleet.replace(fleet.rng.randrange(len(fleet.alive)))
            if server is not None and cycle % 5 == 3:
                await asyncio.to_thread(restart, server)
        fleet.over = True
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*talking)
    return provider.scripted.asked


@pytest.mark.promise
def test_four_gateways_on_one_database_lose_duplicate_and_interleave_nothing_under_kills(tmp_path, scale):
    clients = clients_of(scale(16, ci=64, release=64), scale(4, ci=16, release=16))
    cycles, turns = scale(2, ci=10, release=100), scale(2, ci=3, release=3)
    with ExitStack() as stack:
        is_external = "RECTO_TEST_POSTGRES" in os.environ
        server = None if is_external else stack.enter_context(own_server())
        if server is not None:
            server.start(*SETTINGS)
        url = server.made("many") if server is not None else stack.enter_context(database())
        requests = asyncio.run(hammered(tmp_path, url, server, clients, cycles=cycles, turns=turns))
        with PostgresStore(url) as store:
            spoken = spoken_in(store)
            assert findings(store) == []
    assert [client.odd for client in clients if client.odd] == []
    assert lost(spoken, clients) == []
    assert interleaved(spoken) == []
    assert doubled(spoken, clients) == []
    assert stale(spoken, clients, requests) == []
    assert [request.problems for request in requests if request.problems] == []
    assert [request.tokens for request in requests if request.tokens > WINDOW] == []
    assert [usage for client in clients for usage in client.rooms if usage[0] > usage[1]] == []
    assert sum(len(client.seen) for client in clients) >= turns * len(clients)


def test_an_answer_to_a_prompt_without_the_turn_before_is_detected():
    client = Client("holder 1", CHAT, {}, True, seen=[("held", "[holder 1 asks 1]")])
    messages = [(role, f"[holder 1 asks {number}]") for number in range(2) for role in ("user", "assistant")]

    def request_with(*questions: str) -> Asked:
        body = {"messages": [{"role": "user", "content": question} for question in questions]}
        return Asked(CHAT, body, {}, b"", 0, [])

    whole, late = request_with("[holder 1 asks 0]", "[holder 1 asks 1]"), request_with("[holder 1 asks 1]")
    assert stale({"held": messages}, [client], [whole]) == []
    assert stale({"held": messages}, [client], [late]) == [("held", "[holder 1 asks 0]", "[holder 1 asks 1]")]
    assert stale({"held": messages[:3]}, [client], [late]) == [], "no client got an answer to it"


class Gate:
    """Holds back every response until two requests are waiting."""

    def __init__(self) -> None:
        self._two = asyncio.Barrier(2)

    async def __call__(self, line: Line, reply: Reply, request: Asked) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._two.wait()
        await in_drops(line, reply, request)


async def _at_once(folder: Path, url: str, clients: list[Client]) -> None:
    gate = Gate()
    provider = Provider(ScriptedUpstream(script), lambda request: gate)
    async with fleet_of(folder, url, provider, gateways=2, before=NO_TURNS, seed=1) as fleet:
        asking = (
            client._send(fleet, born.port, client.body("[holder 1 asks 0]".replace("1", client.name[-1])), "")
            for client, born in zip(clients, fleet.alive, strict=True)
        )
        assert all(await asyncio.gather(*asking))


def test_gateways_without_turns_interleave(tmp_path):
    clients = [Client(f"holder {place}", CHAT, {"x-recto-session-id": "held"}, True) for place in range(2)]
    with database() as url:
        asyncio.run(_at_once(tmp_path, url, clients))
        with PostgresStore(url) as store:
            assert interleaved(spoken_in(store)) != []
