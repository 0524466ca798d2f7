"""Many gateways on one database: nothing is lost, doubled or interleaved, whoever is killed in the middle of it.

Four real gateway processes serve clients of two kinds. Some have their history held: they share sessions, and their
turns come one after the other over all gateways. The others tell their history with each request, often to two gateways
at once. Gateways are ended with SIGKILL at any moment, and so is the database; clients ask again until they have
seen the end of an answer.
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
"""Seconds within which somebody has to get on."""
SETTINGS = ("max_connections=200",)
"""Of the server: each gateway may have 32 connections."""
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


def script(asked: Asked) -> Says:
    spoken = [text_of(message) for message in asked.messages if message.get("role") == "user"]
    return Says(text=answer_to(ASKS.findall(spoken[-1])[0]))


async def in_drops(line: Line, reply: Reply, asked: Asked) -> None:
    await line.drip(reply.chunked(line.rng), 400)


@dataclass
class Fleet:
    """The gateways that live, and what their clients know."""

    born: Nursery
    config: Path
    secret: str
    rng: random.Random
    alive: list[Born] = field(default_factory=list)
    ends: int = 0
    """Answers whose end a client saw."""
    over: bool = False
    _stirred: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def stirred(self, until: Any, seconds: float = DEADLINE) -> bool:
        """Waits until something is so; looked at again whenever something happened. Whether it is so."""
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
        """Kills a gateway; another one takes its place."""
        self.alive[place].kill()
        self.alive[place] = await self.born.start(self.config)
        await self.stir()


@dataclass
class Client:
    """One client; it has one question at a time, and asks it until it sees the end of an answer."""

    name: str
    wire: str
    headers: dict[str, str]
    held: bool
    """Whether its history is held by the gateway."""
    told: list[tuple[str, str]] = field(default_factory=list)
    attempts: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """The session and the question of every answer whose end it saw."""
    rooms: list[tuple[int, int]] = field(default_factory=list)
    odd: list[bytes] = field(default_factory=list)
    """Answers that no client should get."""

    def body(self, question: str) -> bytes:
        now = ("user", f"{question} {FILLER}")
        spoken = [{"role": role, "content": text} for role, text in [*([] if self.held else self.told), now]]
        body = {"model": "gpt-4o", "input" if self.wire == RESPONSES else "messages": spoken, "stream": True}
        body |= {} if self.held else {"tools": TOOLS[self.wire]}
        return json.dumps(body if self.wire == RESPONSES else {**body, "max_tokens": 100}).encode()

    async def talk(self, fleet: Fleet, turns: int) -> None:
        number = 0
        while number < turns or not fleet.over:
            question = f"[{self.name} asks {number}]"
            while not await self._asked(fleet, question):
                ends = fleet.ends
                await fleet.stirred(lambda ends=ends: fleet.ends > ends, 0.3)
            self.told += [("user", f"{question} {FILLER}"), ("assistant", answer_to(question))]
            number += 1

    async def _asked(self, fleet: Fleet, question: str) -> bool:
        """Asks one gateway, or two at once; whether the end of an answer was seen."""
        twice = not self.held and fleet.rng.random() < 0.4
        chosen = fleet.rng.sample(fleet.alive, 2 if twice and len(fleet.alive) > 1 else 1)
        body = self.body(question)
        self.attempts[question] += len(chosen)
        seen = await asyncio.gather(*(self._one(fleet, one.port, body, question) for one in chosen))
        return any(seen)

    async def _one(self, fleet: Fleet, port: int, body: bytes, question: str) -> bool:
        got, writer = b"", None
        given = {**self.headers, "Authorization": f"Bearer {fleet.secret}", "Content-Type": "application/json"}
        head = f"POST {PATHS[self.wire]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in given.items())
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
        said = {name.lower(): value for name, _, value in (line.partition(b": ") for line in got.split(b"\r\n"))}
        self.seen.append((said[b"x-recto-session-id"].decode(), question))
        used, _, room = said[b"x-recto-tokens"].partition(b"/")
        self.rooms.append((int(used), int(room)))
        fleet.ends += 1
        await fleet.stir()
        return True


def clients_of(count: int, sessions: int) -> list[Client]:
    made: list[Client] = []
    for place in range(count):
        held, wire = place % 2 == 0, (CHAT, RESPONSES, ANTHROPIC)[place % 3]
        named = f"{'held' if held else 'told'}-{place // 2 % sessions}"
        header = {"x-recto-session-id" if held else "x-session-id": named}
        made.append(Client(f"{'holder' if held else 'teller'} {place}", wire, header, held))
    return made


Spoken = list[tuple[str, str]]


def spoken_in(store: TranscriptStore) -> dict[str, Spoken]:
    """Who said what in every session, each question and answer by the question it is about."""
    found: dict[str, Spoken] = {}
    for one in store.sessions():
        if not is_internal(one.session):
            entries = [entry for entry in store.read(one.session) if entry.kind == MESSAGE]
            texts = [(entry.role, text_of(json.loads(entry.content))) for entry in entries]
            found[one.session] = [(role, ASKS.findall(text)[0]) for role, text in texts]
    return found


def interleaved(spoken: dict[str, Spoken]) -> list[Any]:
    """Answers that do not stand directly behind their question, and questions that stand twice in a row."""
    found: list[Any] = []
    for session, said in spoken.items():
        for place, (role, question) in enumerate(said):
            before = said[place - 1] if place else ("", "")
            if (role == "assistant") != (before == ("user", question)):
                found.append((session, place, said))
    return found


def doubled(spoken: dict[str, Spoken], clients: list[Client]) -> list[Any]:
    """What stands in a session more often than it was asked for; where the history was told, more than once."""
    most = {question: count for client in clients if client.held for question, count in client.attempts.items()}
    return [
        (session, what, times)
        for session, said in spoken.items()
        for what, times in Counter(said).items()
        if times > most.get(what[1], 1)
    ]


def lost(spoken: dict[str, Spoken], clients: list[Client]) -> list[Any]:
    """Answers whose end a client saw and that are not where it was told that they are, with all that was before."""
    found: list[Any] = []
    for client in clients:
        for session, question in client.seen:
            said = spoken.get(session, [])
            there = ("user", question) in said and ("assistant", question) in said
            if not client.held and there:
                asked = list(client.attempts)
                before = asked[: asked.index(question) + 1]
                known = [(role, one) for one in before for role in ("user", "assistant")]
                there = said[: len(known)] == known
            if not there:
                found.append((client.name, session, question, said))
    return found


def stale(spoken: dict[str, Spoken], clients: list[Client], asked: list[Asked]) -> list[Any]:
    """Answers in a shared session that were given to a prompt without the turn before.

    A question whose gateway was killed may never have been sent; when it is asked again, others may have said so much
    that what was before it the first time has left the window.
    """
    prompts: dict[str, list[set[str]]] = {}
    for one in asked:
        known = [ASKS.findall(text_of(message)) for message in one.messages]
        about = [found for found in known if found]
        prompts.setdefault(about[-1][0], []).append({name for found in about for name in found})
    found: list[Any] = []
    for session in {session for client in clients if client.held for session, _ in client.seen}:
        said = spoken[session]
        for (_, before), (role, question), after in zip(said, said[1:], said[2:], strict=False):
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
        about = {"url": f"{provider.url}/v1", "speaks": ["chat", "responses", "messages"], "key": "sk-upstream"}
        settings = {
            "store": url,
            "recall": {"embedder": {"use": "none"}},
            "models": {"gpt-4o": {"window": WINDOW}},
            "limits": {"lock_seconds": 10},
            "gateway": {"upstreams": {"main": about}},
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
    """Lets clients talk while gateways are killed and, where that is possible, the database is restarted."""
    provider = Provider(ScriptedUpstream(script, WINDOW), lambda asked: in_drops)
    async with fleet_of(folder, url, provider, gateways=GATEWAYS, before=SHORT_LEASE, seed=7) as fleet:
        talking = [asyncio.ensure_future(client.talk(fleet, turns)) for client in clients]
        for cycle in range(cycles):
            due = fleet.ends + fleet.rng.randint(2, max(len(clients) // 2, 4))
            assert await fleet.stirred(lambda due=due: fleet.ends >= due), "nobody gets on any more"
            await fleet.replace(fleet.rng.randrange(len(fleet.alive)))
            if server is not None and cycle % 5 == 3:
                await asyncio.to_thread(restart, server)
        fleet.over = True
        async with asyncio.timeout(DEADLINE):
            await asyncio.gather(*talking)
    return provider.scripted.asked


@pytest.mark.promise
def test_four_gateways_on_one_database_lose_double_and_interleave_nothing_whoever_is_killed(tmp_path, scale):
    clients = clients_of(scale(16, ci=64, release=64), scale(4, ci=16, release=16))
    cycles, turns = scale(2, ci=10, release=100), scale(2, ci=3, release=3)
    with ExitStack() as stack:
        is_given = "RECTO_TEST_POSTGRES" in os.environ
        server = None if is_given else stack.enter_context(own_server())
        if server is not None:
            server.start(*SETTINGS)
        url = server.made("many") if server is not None else stack.enter_context(database())
        asked = asyncio.run(hammered(tmp_path, url, server, clients, cycles=cycles, turns=turns))
        with PostgresStore(url) as store:
            spoken = spoken_in(store)
            assert findings(store) == []
    assert [client.odd for client in clients if client.odd] == []
    assert lost(spoken, clients) == []
    assert interleaved(spoken) == []
    assert doubled(spoken, clients) == []
    assert stale(spoken, clients, asked) == []
    assert [one.problems for one in asked if one.problems] == []
    assert [one.tokens for one in asked if one.tokens > WINDOW] == []
    assert [one for client in clients for one in client.rooms if one[0] > one[1]] == []
    assert sum(len(client.seen) for client in clients) >= turns * len(clients)


def test_an_answer_to_a_prompt_without_the_turn_before_is_seen():
    client = Client("holder 1", CHAT, {}, True, seen=[("held", "[holder 1 asks 1]")])
    said = [(role, f"[holder 1 asks {number}]") for number in range(2) for role in ("user", "assistant")]

    def asked(*questions: str) -> Asked:
        body = {"messages": [{"role": "user", "content": question} for question in questions]}
        return Asked(CHAT, body, {}, b"", 0, [])

    whole, late = asked("[holder 1 asks 0]", "[holder 1 asks 1]"), asked("[holder 1 asks 1]")
    assert stale({"held": said}, [client], [whole]) == []
    assert stale({"held": said}, [client], [late]) == [("held", "[holder 1 asks 0]", "[holder 1 asks 1]")]
    assert stale({"held": said[:3]}, [client], [late]) == [], "nobody got an answer to it"


class Gate:
    """Lets nobody be answered until two are waiting."""

    def __init__(self) -> None:
        self._two = asyncio.Barrier(2)

    async def __call__(self, line: Line, reply: Reply, asked: Asked) -> None:
        async with asyncio.timeout(DEADLINE):
            await self._two.wait()
        await in_drops(line, reply, asked)


async def _at_once(folder: Path, url: str, clients: list[Client]) -> None:
    gate = Gate()
    provider = Provider(ScriptedUpstream(script), lambda asked: gate)
    async with fleet_of(folder, url, provider, gateways=2, before=NO_TURNS, seed=1) as fleet:
        asking = (
            client._one(fleet, born.port, client.body("[holder 1 asks 0]".replace("1", client.name[-1])), "")
            for client, born in zip(clients, fleet.alive, strict=True)
        )
        assert all(await asyncio.gather(*asking))


def test_gateways_that_do_not_take_turns_are_seen_to_interleave(tmp_path):
    clients = [Client(f"holder {place}", CHAT, {"x-recto-session-id": "held"}, True) for place in range(2)]
    with database() as url:
        asyncio.run(_at_once(tmp_path, url, clients))
        with PostgresStore(url) as store:
            assert interleaved(spoken_in(store)) != []
