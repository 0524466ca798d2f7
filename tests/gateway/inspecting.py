"""Serves the inspection API over a store whose tenants use the same session names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.testclient import TestClient

from recto.config import Settings, load
from recto.config.factory import SystemClock, make_indexer, open_store
from recto.gateway.api_keys import Key, Keys
from recto.gateway.inspection.operations import OPERATIONS, PREFIX, RULES, Operation
from recto.gateway.inspection.queries import Inspection
from recto.gateway.inspection.routes import Sources, description, routes
from recto.gateway.middleware.auth import TABLE, AccessPolicy, Guard
from recto.gateway.session_pool import SessionPool

MAIN = "agent:books:main"
ODD = "chat/one?&=%2F #ü"
"""A session name with every character that has a meaning in a URL."""
SMALL = {"gpt-4o": {"window": 6_000, "max_output": 1_000}}

KEYS = {
    "anna": Key(name="anna", tenant="north", agent="books"),
    "bert": Key(name="bert", tenant="south", agent="books"),
    "none": Key(name="none", agent="books"),
    "look": Key(name="look", tenant="north", agent="books", rights=frozenset({"read"})),
    "asks": Key(name="asks", tenant="north", agent="books", rights=frozenset({"ask"})),
}
CANARIES = {"anna": "canarynorth", "bert": "canarysouth", "none": "canarynobody"}


@cache
def _validator(method: str, path: str, status: int) -> Draft202012Validator:
    document = description(OPERATIONS)
    answer = document["paths"][PREFIX + path][method.lower()]["responses"][str(status)]
    if "$ref" in answer:
        answer = document["components"]["responses"][str(status)]
    schema = answer["content"]["application/json"]["schema"]
    return Draft202012Validator({**schema, "components": document["components"]})


def conforms(method: str, path: str, status: int, body: Any) -> None:
    """Checks a response against its schema in the API description."""
    _validator(method, path, status).validate(body)


class World:
    """A store, the API over it, and a client with a key for each user."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = open_store(settings)
        self.indexer = make_indexer(settings, self.store)
        self.sessions = SessionPool(settings, self.store, self.indexer)
        self.inspection = Inspection(self.sessions, settings)
        self.access = keys = Keys(self.store, SystemClock())
        made = {name: keys.add(key) for name, key in KEYS.items()}
        self.keys = {name: key for name, (key, _) in made.items()}
        self.secrets = {name: secret for name, (_, secret) in made.items()} | {"": ""}
        self.routes = routes(Sources(self.inspection))
        self.app = Guard(Starlette(routes=self.routes), settings.gateway, keys, AccessPolicy(TABLE, RULES))
        self.client = TestClient(self.app, base_url="http://127.0.0.1")

    def ask(self, who: str, method: str, path: str, *, body: Any = None, **query: Any):
        content = None if body is None else json.dumps(body)
        answer = self.client.request(method, PREFIX + path, params=query, content=content, headers=self.headers(who))
        conforms(method, path, answer.status_code, answer.json())
        return answer

    def headers(self, who: str, kind: str = "application/json") -> dict[str, str]:
        return {"content-type": kind} | ({"authorization": f"Bearer {self.secrets[who]}"} if who else {})

    def get(self, path: str, who: str = "anna", **query: Any) -> Any:
        answer = self.ask(who, "GET", path, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any, who: str = "anna", **query: Any) -> Any:
        answer = self.ask(who, "POST", path, body=body, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def talk(self, who: str, name: str, turns: int, *, words: int = 60) -> None:
        """Appends a conversation in which every message contains the tenant's canary word."""
        with self.sessions.use(KEYS[who], name) as session:
            for turn in range(turns):
                session.append({"role": "user", "content": f"{CANARIES[who]} asks for shelf {turn} of the library"})
                session.prompt()
                text = f"{CANARIES[who]} finds book {turn * 7} on it. " + "It is a long story. " * words
                session.append({"role": "assistant", "content": text})

    def close(self) -> None:
        self.sessions.close()
        self.indexer.close()
        self.store.close()


@contextmanager
def world(folder: Path) -> Iterator[World]:
    """Opens a world in a folder, without any session yet."""
    arguments = {"store": str(folder / "a.db"), "model": "gpt-4o", "models": SMALL, "window": {"record_percent": 5}}
    made = World(load(environ={}, arguments=arguments | {"recall": {"embedder": {"use": "none"}, "background": False}}))
    try:
        with made.client:  # one event loop for all requests
            yield made
    finally:
        made.close()


def example(operation: Operation, session: str = MAIN, **more: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Returns query parameters and a body that an operation accepts."""
    usual: dict[str, Any] = {
        "session": session, "seq": 1, "first": 1, "second": 2, "version": 1, "entries": [1], "decision": 1,
        "restored": 1, "kind": "misc", "text": "a note", "query": "which shelf", "proposal": "0" * 16,
        "digest": "0" * 64, "pattern": "shelf", "file": "src/shelf.py", "title": "Shelves",
        "pointer": f"recto://{session}/1", "verdict": "helpful", "memory": "0" * 16,
        "name": "agent:books:copy", "confirm": session, "reason": "asked for",
    }  # fmt: skip
    usual |= more
    query = {name: usual[name] for name, kind in operation.query.items() if kind.required}
    body = (
        None
        if operation.body is None
        else {name: usual[name] for name, kind in operation.body.items() if kind.required}
    )
    return query, body


def named(operation: Operation) -> str:
    return f"{operation.method} {operation.path}"


ALL = OPERATIONS
