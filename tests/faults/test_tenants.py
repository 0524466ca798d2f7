"""Promise 9, as far as recall goes: a tenant never sees another's text, nor that it is there.

A hundred tenants say the same things in one store with one index, in a file and in PostgreSQL, each with a word of its
own that nobody else may ever meet. Everything an answer holds is searched for the words of the others.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from msgspec import structs

from recto.config import Settings, load
from recto.config.factory import open_session
from recto.engine.session import Session
from recto.engine.views.codec import to_json
from recto.errors import InputError
from recto.recall import recall as recalling
from recto.recall.indexer import Indexer
from recto.recall.protocols import RecallIndex
from recto.recall.stemmer import PorterLexicon
from recto.recall.types import HEADER
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore
from recto.stores.sqlite.index import SqliteIndex
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import Reach, TenantStore, pointer_to, stored_key

pytestmark = pytest.mark.timeout(0)
SHARDS = 2
TENANTS = 100
NAMES = ("a", "A", "a.", "a-", "a_", "aa", "ab", "a.b", "tenant", "agent", "0", "00", "-", "_", ".", "..", "x" * 64)
"""Names that begin or look like each other. The others are numbers."""
SESSIONS = (
    "agent:a:main",
    "agent:ab:main",
    "agent:a:tenant:a/agent:a:main",
    "agent:%:_",
    "agent:а:main",  # a Cyrillic letter
    "chat",
    "chat/1",
    "a/agent:a:main",
    "agent:a",
    "*",
)
"""What tenants call their sessions: patterns, paths, look-alikes, pieces of the stored form of keys."""
SCOPES = ("session", "agent", "tenant")
CANARY = re.compile(r"canary[a-z]{8}")
IN_POSTGRES = 24 if os.environ.get("RECTO_TEST_SCALE", "small") == "small" else TENANTS
"""Tenants there: filling it takes longer than a file."""


@dataclass
class World:
    """The store of all tenants, and its one index."""

    store: TranscriptStore
    indexer: Indexer
    tenants: list[str]


def tenants(count: int) -> list[str]:
    return [*NAMES, *(f"t{number}" for number in range(count - len(NAMES) - 1)), ""]


def canary(tenant: str) -> str:
    rng = random.Random(f"canary of {tenant}")
    return "canary" + "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=8))


def sessions_of(tenant: str) -> list[str]:
    rng = random.Random(f"sessions of {tenant}")
    return ["agent:a:main", *rng.sample(SESSIONS[1:], 2)]


@pytest.fixture(scope="module")
def settings() -> Settings:
    recall = {"embedder": {"use": "none"}, "background": False}
    models = {"gpt-4o": {"window": 2_000, "max_input": 2_000}}
    return load(environ={}, arguments={"model": "gpt-4o", "models": models, "recall": recall})


@contextmanager
def in_a_file(folder: Path) -> Iterator[tuple[TranscriptStore, RecallIndex, int]]:
    with closing(SqliteStore(folder / "a.db")) as store:
        yield store, SqliteIndex(folder / "a.db-recall"), TENANTS


@contextmanager
def in_postgres(folder: Path) -> Iterator[tuple[TranscriptStore, RecallIndex, int]]:
    postgres = pytest.importorskip("tests.postgres")
    from recto.stores.postgres import PostgresStore

    with postgres.database() as url, PostgresStore(url) as store:
        yield store, store.index(lock_timeout=30.0), IN_POSTGRES


@pytest.fixture(scope="module", params=[in_a_file, in_postgres])
def world(request, tmp_path_factory, settings) -> Iterator[World]:
    with request.param(tmp_path_factory.mktemp("world")) as (store, index, count):
        indexer = Indexer(store, index, lexicon=PorterLexicon(), in_background=False)
        for tenant in tenants(count):
            for name in sessions_of(tenant):
                session = entered(settings, store, indexer, tenant, name)
                said = ["The password of the harbour is swordfish.", f"Our own word is {canary(tenant)}, of {name}."]
                session.append_all({"role": "user", "content": text} for text in said)
                indexer.catch_up(session.key)
        yield World(store, indexer, tenants(count))
        indexer.close()


def entered(settings, store, indexer, tenant: str, name: str) -> Session:
    return open_session(replace(settings, tenant=tenant, session=name), store, indexer)


def foreign_words(tenant: str, query: str, answer: str) -> set[str]:
    """Words of other tenants in an answer. What the question itself said may be said again."""
    return set(CANARY.findall(answer)) - {canary(tenant)} - set(CANARY.findall(query))


def foreign_keys(tenant: str, keys: list[str]) -> list[str]:
    own = {stored_key(name, tenant) for name in sessions_of(tenant)}
    return [key for key in keys if key not in own]


def questions(rng: random.Random, others: list[str]) -> str:
    other = rng.choice(others)
    return rng.choice(
        (
            "What is the password of the harbour?",
            "Our own word",
            f"Our own word is {canary(other)}",
            f"{canary(other)} tenant:{other}/agent:a:main",
            f"recto://tenant:{other}/agent:a:main/2",
            pointer_to(stored_key("chat", other), 2),
            "%' OR session LIKE 'tenant:%' --",
            '" OR 1=1; NEAR(* word)',
            "harbour " * 50 + canary(other),
            "Our own word on 1970-01-01 or yesterday?",
            "\ud800 own word \x00",
            "",
        )
    )


def leaks(world: World, settings, count: int, seed: int = 0) -> tuple[list[str], int]:
    """Asks so many questions; returns everything that should not have been seen, and how many found something."""
    rng = random.Random(seed)
    found, answered = [], 0
    known: dict[tuple[str, str], Session] = {}
    for _ in range(count):
        tenant, scope = rng.choice(world.tenants), rng.choice(SCOPES)
        name, query = rng.choice(sessions_of(tenant)), questions(rng, world.tenants)
        if (tenant, name) not in known:
            known[tenant, name] = entered(settings, world.store, world.indexer, tenant, name)
        session = known[tenant, name]
        answer = session.recall(query, scope=scope)
        said = to_json(structs.replace(answer, query="")).decode()
        answered += bool(answer.hits)
        found += [f"{tenant} {scope} saw {word}" for word in foreign_words(tenant, query, said)]
        keys = [hit.session for hit in answer.hits] + list(map(unquote, re.findall(r"recto://(.+?)/\d+\b(?!/)", said)))
        found += [f"{tenant} {scope} met {key}" for key in foreign_keys(tenant, keys)]
        if answer.searched > 2 * len(sessions_of(tenant)) or answer.behind or answer.without_vectors:
            found.append(f"{tenant} {scope} can count others: {answer.searched}")
    return found, answered


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_question_ever_finds_another_tenants_text(world, settings, scale, shard):
    few = 10 * len(world.tenants)
    count = scale(few, ci=10_000, release=1_000_000) // SHARDS
    found, answered = leaks(world, settings, count, shard)
    assert found == []
    assert answered > count / 3, "hardly anything was found at all: the test sees too little"


def test_without_the_question_who_owns_a_session_the_same_test_sees_others(world, settings, monkeypatch):
    monkeypatch.setattr(Reach, "contains", lambda self, other: True)
    monkeypatch.setattr(TenantStore, "owns", lambda self, key: True)
    monkeypatch.setattr(recalling, "reach_of", lambda key, scope: Reach(prefix="", key=key, exact=False))
    found, _ = leaks(world, settings, 12)
    assert any("saw" in line for line in found)
    assert any("met" in line for line in found)
    assert any("count" in line for line in found)


def test_a_foreign_pointer_and_one_to_nothing_are_answered_alike(world, settings):
    rng = random.Random(10)
    tried = 0
    for tenant in world.tenants:
        asking = entered(settings, world.store, world.indexer, tenant, "agent:a:main")
        for other in rng.sample(world.tenants, 6):
            for name in sessions_of(other) if other != tenant else ():
                there = stored_key(name, other)
                nowhere = "#" * len(there)
                answers = []
                for key in (there, nowhere):
                    pointer = pointer_to(key, rng.choice((1, 2)))
                    with pytest.raises(InputError) as refused:
                        asking.window.read(pointer, around=rng.choice((0, 5)))
                    answers.append(str(refused.value).replace(pointer, "…"))
                assert answers[0] == answers[1]
                tried += 1
    assert tried > 10 * len(world.tenants)
    own = entered(settings, world.store, world.indexer, "ab", "agent:a:main")
    assert canary("ab") in own.window.read(own.window.pointer(2))[0].content.decode()


@pytest.mark.parametrize("name", ["tenant:a/agent:a:main", "tenant:a", "tenant:"])
def test_nobody_names_anothers_session_as_their_own(name):
    for tenant in ("", "b"):
        with pytest.raises(InputError, match="made by Recto"):
            stored_key(name, tenant)
    for tenant in ("a/agent:x", "a/", "a:b", "а", "a b", "", "%", "x" * 65):
        if tenant:
            with pytest.raises(InputError, match="tenant"):
                stored_key("chat", tenant)


def turn(session: Session, text: str, answer: str = "Noted."):
    session.append({"role": "user", "content": text})
    prompt = session.prompt()
    session.append({"role": "assistant", "content": answer})
    return prompt


def live(settings, store, indexer, tenant: str, told: list[str]) -> None:
    """A tenant fills its window, so that things leave and come back, and notes what of others it met."""
    session = entered(settings, store, indexer, tenant, "agent:a:main")
    turn(session, "Hello.")
    turn(session, f"The harbour master is called {canary(tenant)}, born in Valparaíso.")
    for number in range(24):
        turn(session, f"Say something about boat {number}.", f"Boat {number}: " + "it floats " * 60)
    prompt = turn(session, "How is the harbour master called, who was born in Valparaíso?")
    everything = json.dumps(prompt.messages, ensure_ascii=False) + prompt.system
    everything += "".join(entry.content.decode() for entry in session.read())
    told += [f"{tenant} met {word}" for word in foreign_words(tenant, "", everything)]
    keys = list(map(unquote, re.findall(r"recto://([^\s\"]+)/\d+", everything)))
    told += [f"{tenant} met {key}" for key in keys if key != session.key]
    quoted = [message for message in prompt.messages if HEADER in json.dumps(message)]
    if canary(tenant) not in json.dumps(quoted):
        told.append(f"{tenant} did not get its own back")
    told.append("")


@pytest.mark.parametrize("scope", SCOPES)
def test_tenants_that_work_at_once_through_one_index_meet_only_their_own(tmp_path, settings, scope):
    settings = replace(settings, recall=replace(settings.recall, scope=scope, background=True))
    store, index = SqliteStore(tmp_path / "a.db"), SqliteIndex(tmp_path / "a.db-recall")
    indexer = Indexer(store, index, lexicon=PorterLexicon())
    names, told = [f"t{number}" for number in range(8)], []
    threads = [threading.Thread(target=live, args=(settings, store, indexer, name, told)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    indexer.close()
    store.close()
    assert told == [""] * 8


def test_what_breaks_over_one_tenants_text_is_not_told_to_another(settings):
    class Loud:
        """An embedder whose errors repeat what it was given."""

        name, dims, weight = "loud/1", 4, 0.5

        def documents(self, texts):
            if any(CANARY.search(text) for text in texts):
                raise ValueError(f"cannot embed {texts!r}")
            return np.zeros((len(texts), 4), np.float32)

        def query(self, text):
            return np.zeros((1, 4), np.float32)

    store, told = MemoryStore(), {}
    from recto.stores.memory import MemoryIndex

    indexer = Indexer(store, MemoryIndex(), lexicon=PorterLexicon(), embedder=Loud(), in_background=False)
    for tenant in ("a", "b"):
        session = entered(settings, store, indexer, tenant, "agent:a:main")
        session.append({"role": "user", "content": f"Our word is {canary('a')}." if tenant == "a" else "Good day."})
        told[tenant] = " ".join(session.recall("day").notes)
    assert canary("a") in told["a"], "the trouble is not told at all"
    assert canary("a") not in told["b"]
