"""A seeded store, and a gateway in front of it that serves the page."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from starlette.responses import StreamingResponse
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Asked, Says, ScriptedUpstream, running

import recto
from recto.config.factory import SystemClock
from recto.testing import scripted_session
from recto.transcript.session_keys import TenantStore
from recto.transcript.sources import SessionSource, SessionSources

DEADLINE = 20
MAIN = "agent:default:main"
OTHER = "agent:default:other"
SETTINGS: dict[str, Any] = {
    "model": "gpt-4o",
    "models": {"gpt-4o": {"window": 16_000, "max_input": 16_000, "max_output": 1_000}},
    "recall": {"embedder": {"use": "none"}, "background": False},
    "compress": {"background": False},
    "window": {"keep_recent_tokens": 2_000, "shorten_outputs": False, "record_percent": 0, "ceiling_percent": 92},
}
ANSWER = "The invoices go out on the 5th, as you said on the first day."
PROPOSALS = ("I prefer invoices on the 5th.", "I prefer tabs in Makefiles.", "I prefer short answers.")
SECRET_PORT = "The staging server listens on port 8471, and nobody else knows."


def fill(folder: Path) -> None:
    """Fills a store: a session that has outgrown its window, with a recalled message and pending memory proposals."""
    store = str(folder / "transcript.db")
    with recto.open(store, session=MAIN, **SETTINGS) as session:
        session.append({"role": "user", "content": f"{SECRET_PORT} Invoices go out on the 5th, never on the 1st."})
        session.append({"role": "assistant", "content": "Understood: the 5th. I will not touch migrations."})
        for message in scripted_session(exchanges=14):
            session.append(message)
            if message["role"] == "user":
                session.prompt()
        session.note("constraints", "Amounts are in cents.")
        session.checkpoint(goal="Mend the billing of the shop", plan=["Round in one place"], done=["Read the code"])
        session.append({"role": "user", "content": "Which port does the staging server listen on?"})
        session.prompt()
        session.append({"role": "assistant", "content": "It listens on 8471."})
        for text in PROPOSALS:
            session.memory.propose("preference", text, sources=[f"recto://{MAIN}/1"])
    with recto.open(store, session=OTHER, **SETTINGS) as session:
        session.append({"role": "user", "content": "Hello from the other session."})
        SessionSources(TenantStore(session.store, "")).record(
            SystemClock(), OTHER, SessionSource(agent="codex", project="/srv/shop")
        )
        session.append({"role": "assistant", "content": "Hello."})


@dataclass
class World:
    """The gateway, and the scripted provider behind it."""

    gateway: Running
    upstream: ScriptedUpstream

    @property
    def url(self) -> str:
        return self.gateway.url

    @property
    def key(self) -> str:
        return self.gateway.secret

    def count_events(self, kind: str, session: str = MAIN) -> int:
        """Number of events of this kind in a session."""
        return self.events(session).count(kind)

    def events(self, session: str = MAIN) -> list[str]:
        """The kinds of the events of a session, in order."""
        return [entry.kind for entry in self.gateway.store.read(session) if entry.role == "event"]


@contextmanager
def world(folder: Path, seeded_store: Path | None = None, answer: str = ANSWER, **more: Any) -> Iterator[World]:
    """Runs a gateway over a copy of a seeded store, or over a new store."""
    if seeded_store is not None:
        shutil.copytree(seeded_store, folder, dirs_exist_ok=True)

    def reply(request: Asked) -> Says:
        return Says(answer)

    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(reply)))
        made = stack.enter_context(gateway(folder, upstream.url, **{**SETTINGS, **more}))
        yield World(made, upstream)


class PausedAnswer:
    """A streamed answer that pauses in its middle until `go_on` is set."""

    def __init__(self, world: World, first: str = "The first half", second: str = ", and the second.") -> None:
        self.go_on = threading.Event()
        self._pieces = first, second
        world.upstream.fail = self.answer

    def answer(self, request: Asked) -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            yield _chunk({"content": self._pieces[0]})
            await anyio.to_thread.run_sync(self.go_on.wait, DEADLINE, abandon_on_cancel=True)
            yield _chunk({"content": self._pieces[1]})
            yield _chunk({}, "stop")
            yield "data: [DONE]\n\n"

        return StreamingResponse(pieces(), media_type="text/event-stream")


def _chunk(delta: dict[str, str], finish: str | None = None) -> str:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, 'finish_reason': finish}]})}\n\n"
