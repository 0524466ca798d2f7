"""Promise 1 at the gateway: what a client received survives the death of the gateway, and retries store nothing twice.

A real gateway process serves 32 streams at once and is ended with SIGKILL in the middle of them. The messages of every
request whose response began are stored, and so is every response that a client received completely. After a restart
over the same store each client sends its last request again and goes on.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from apart import Process, place
from chaos import PATHS, TOOLS, Line, Provider, Reply
from tests.gateway.upstream import Asked, Says, ScriptedUpstream
from witness import findings

from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.stores.sqlite import SqliteStore
from recto.transcript.entries import MESSAGE

pytestmark = pytest.mark.timeout(0)
CLIENTS = 32
ENOUGH = CLIENTS // 2
MORE = 6
"""Additional kills, used if the requested ones cut too few streams."""

CARELESS = """
import asyncio
from recto.gateway.responses import StreamedResponse

until_whole, store = StreamedResponse._until_complete, StreamedResponse._store

async def at_once(self, send):
    await self._send(send, b"".join(await until_whole(self, send)))
    return []

async def slowly(self):
    await asyncio.sleep(5)
    await store(self)

StreamedResponse._until_complete, StreamedResponse._store = at_once, slowly
"""
"""Sends the end of a response before it is stored, on a slow disk."""


def script(request: Asked) -> Says:
    return Says(text=f"The answer to {text_of(request.messages[-1])} is long enough to come in several pieces.")


def text_of(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else content[0]["text"]


async def in_drops(line: Line, reply: Reply, request: Asked) -> None:
    await line.drip(reply.chunked(line.rng), 90)


@dataclass
class Client:
    """A client that sends its whole history with each request."""

    name: str
    wire: str
    session: str = ""
    history: list[tuple[str, str]] = field(default_factory=list)
    """Roles and texts of all messages that must be stored."""
    waiting: str = ""
    """The question that is not answered yet."""
    begun: bool = False
    """Whether its response has begun."""

    def body(self) -> bytes:
        spoken = [{"role": role, "content": text} for role, text in [*self.history, ("user", self.waiting)]]
        member = "input" if self.wire == RESPONSES else "messages"
        body = {"model": "gpt-4o", member: spoken, "tools": TOOLS[self.wire], "stream": True}
        return json.dumps(body if self.wire == RESPONSES else {**body, "max_tokens": 100}).encode()

    async def ask(self, port: int, secret: str, piece: Any) -> bool:
        """Sends one request; returns whether the response was complete. The gateway may die in the middle."""
        self.waiting = self.waiting or f"{self.name} asks for {len(self.history)}"
        self.begun = False
        body = self.body()
        got = b""
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"POST {PATHS[self.wire]} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {secret}\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            while more := await reader.read(65536):
                got += more
                if not self.begun and b"\r\n\r\n" in got:
                    self.begun = True
                    assert got.startswith(b"HTTP/1.1 200"), got
                    self.session = got.partition(b"x-recto-session-id: ")[2].partition(b"\r\n")[0].decode()
                piece()
        except ConnectionError:
            pass
        finally:
            if writer is not None:
                writer.close()
        ends = {CHAT: b"[DONE]", RESPONSES: b"response.completed", ANTHROPIC: b"message_stop"}
        if ends[self.wire] not in got:
            return False
        answer = f"The answer to {self.waiting} is long enough to come in several pieces."
        self.history += [("user", self.waiting), ("assistant", answer)]
        self.waiting = ""
        return True


def stored(store: SqliteStore, session: str) -> list[tuple[str, str]]:
    entries = [json.loads(entry.content) for entry in store.read(session) if entry.kind == MESSAGE]
    return [(entry["role"], text_of(entry)) for entry in entries]


def losses(path: Path, clients: list[Client]) -> list[Any]:
    """Returns the clients whose known messages are not stored, or are stored twice."""
    found: list[Any] = []
    with SqliteStore(path) as store:
        for client in clients:
            if client.session:
                there = stored(store, client.session)
                known = [*client.history, *([("user", client.waiting)] if client.begun and client.waiting else [])]
                if there[: len(known)] != known or len(set(there)) != len(there):
                    found.append((client.name, known, there))
        found += findings(store)
    return found


@dataclass
class Outcome:
    lost: list[Any] = field(default_factory=list)
    ended: int = 0
    cut: int = 0
    """Streams that had begun and were cut by a kill."""


class Round:
    """One run of a gateway, killed after clients have received `due` pieces, or ended when they are done."""

    def __init__(self, process: Process, outcome: Outcome, due: int | None, *, after_an_end: bool) -> None:
        self.process = process
        self.outcome = outcome
        self.due = due
        self.dead = False
        self._after_an_end = after_an_end
        self._pieces = 0

    def piece(self) -> None:
        self._pieces += 1
        if self.due is None or self.dead or self._pieces < self.due or (self._after_an_end and not self.outcome.ended):
            return
        self.dead = True
        os.kill(self.process.running.pid, signal.SIGKILL)

    async def talk(self, client: Client, secret: str) -> None:
        for _ in range(3):
            if self.dead:
                return
            if not await client.ask(self.process.port, secret, self.piece):
                self.outcome.cut += client.begun
                return
            self.outcome.ended += 1
            self.piece()


async def killed(folder: Path, rng: random.Random, cycles: int, *, careless: bool = False) -> Outcome:
    """Kills a gateway repeatedly while clients use it, until enough streams were cut; the last one may live."""
    outcome = Outcome()
    clients = [Client(f"client {place}", (CHAT, RESPONSES, ANTHROPIC)[place % 3]) for place in range(CLIENTS)]
    async with place(folder, Provider(ScriptedUpstream(script), lambda request: in_drops)) as (path, config, secret):
        kills = [1] * cycles if careless else [*(rng.randint(30, 700) for _ in range(cycles + MORE)), None]
        for cycle, due in enumerate(kills):
            if due and cycle >= cycles and outcome.cut > ENOUGH:
                continue
            process = await Process.started(config, CARELESS if careless else "")
            life = Round(process, outcome, due, after_an_end=careless)
            await asyncio.gather(*(life.talk(client, secret) for client in clients))
            await process.end(signal.SIGKILL if life.dead else signal.SIGTERM)
            outcome.lost += losses(path, clients)
    assert careless or all(client.history for client in clients)
    return outcome


@pytest.mark.promise
def test_completed_responses_survive_kill_9_of_the_gateway_and_retries_store_nothing_twice(tmp_path, scale):
    outcome = asyncio.run(killed(tmp_path, random.Random(1), scale(1, ci=6, release=500)))
    assert outcome.lost == []
    assert outcome.ended > CLIENTS
    assert outcome.cut > ENOUGH, "too few streams were cut: the test sees too little"


def test_a_response_completed_before_it_is_stored_is_lost(tmp_path):
    outcome = asyncio.run(killed(tmp_path, random.Random(2), 1, careless=True))
    assert outcome.lost != []
