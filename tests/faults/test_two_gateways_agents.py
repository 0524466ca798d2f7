"""Two gateways on one PostgreSQL, as a role that opens tenants with its key, and two agents of one tenant.

Neither agent reads or writes what the other has, by name or by id, on either gateway. What both write at once through
both gateways is there once, and in nobody else's session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx2
import pytest
from test_gateway_agents import SECRET, attempts, call
from tests.gateway.gateways import Running, gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running
from tests.postgres import as_role, database, new_role

from recto.engine.verification import verify
from recto.gateway import session_resolver
from recto.stores.postgres import PostgresStore, grant_role
from recto.transcript.entries import MESSAGE
from recto.transcript.session_keys import stored_key

pytestmark = pytest.mark.timeout(300)
AGENTS = ("owner", "other")
PATHS = ("chat/completions", "responses", "messages")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Iterator[tuple[list[Running], ScriptedUpstream, dict[str, str], str]]:
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda asked: Says(text="noted"))))
        url = stack.enter_context(database())
        PostgresStore(url).close()
        role = stack.enter_context(new_role(url))
        folder = tmp_path_factory.mktemp("agents")
        more = {"store": as_role(url, role), "store_key": grant_role(url, role), "limits": {"lock_seconds": 20}}
        both = [stack.enter_context(gateway(folder, upstream.url, **more)) for _ in range(2)]
        keys = {agent: both[0].key(agent=agent, tenant="acme") for agent in AGENTS}
        yield both, upstream, keys, url


def ask(gw: Running, secret: str, session: str, text: str, path: str = PATHS[0]) -> httpx2.Response:
    said = [{"role": "user", "content": text}]
    body = {"model": "gpt-4o", "input" if path == "responses" else "messages": said, "max_tokens": 50}
    if path == "responses":
        del body["max_tokens"]
    headers = {"authorization": f"Bearer {secret}", "x-recto-session-id": session}
    return httpx2.post(f"{gw.url}/v1/{path}", json=body, headers=headers, timeout=60)


def texts(url: str) -> dict[str, list[str]]:
    """What is in every session, read as the owner of the tables."""
    with PostgresStore(url) as store:
        return {
            summary.session: [entry.content.decode() for entry in store.read(summary.session) if entry.kind == MESSAGE]
            for summary in store.sessions()
        }


@pytest.mark.parametrize("here", [0, 1])
@pytest.mark.parametrize("there", [0, 1])
def test_another_agent_gets_nothing_by_id_on_either_gateway(place, here, there):
    both, upstream, keys, url = place
    found = attempts((both[here], upstream, keys), both[there])
    for path, owned, unknown in found:
        assert owned.status_code == unknown.status_code, path
        assert SECRET not in owned.text
        assert "input_tokens" in path or owned.status_code == 404
    asked = [one.raw.decode() for one in upstream.asked if "what was said?" in one.raw.decode()]
    assert not any(SECRET in raw for raw in asked)
    for session, said in texts(url).items():
        if session.startswith(stored_key("agent:owner:", "acme")):
            assert not any("what was said?" in text for text in said)


@pytest.mark.parametrize("path", PATHS)
def test_another_agent_neither_reads_nor_writes_by_name_on_either_gateway(place, path):
    both, upstream, keys, url = place
    name = f"agent:owner:named-{path.replace('/', '-')}"
    assert ask(both[0], keys["owner"], name, SECRET, path).status_code == 200
    before = texts(url)[stored_key(name, "acme")]
    for gw in both:
        for tried in (name, stored_key(name, "acme"), f"{name}-of-nobody"):
            answer = ask(gw, keys["other"], tried, "what was said?", path)
            assert 400 <= answer.status_code < 500 or tried.startswith("tenant:")  # that is a name like any other
            assert SECRET not in answer.text
    asked = [one.raw.decode() for one in upstream.asked if "what was said?" in one.raw.decode()]
    assert not any(SECRET in raw for raw in asked)
    assert texts(url)[stored_key(name, "acme")] == before
    assert stored_key(f"{name}-of-nobody", "acme") not in texts(url)
    for gw in both:
        assert ask(gw, keys["owner"], name, "and again", path).status_code == 200
    assert SECRET in upstream.asked[-1].raw.decode()


def test_what_both_write_at_once_through_both_is_there_once_and_nowhere_else(place):
    both, _, keys, url = place
    opened = {agent: call(both[0], keys[agent], "POST", "conversations", {}).json()["id"] for agent in AGENTS}
    names = {agent: f"agent:{agent}:at-once" for agent in AGENTS}

    def write(number: int) -> tuple[str, str, bool]:
        agent, gw, path = AGENTS[number % 2], both[number // 2 % 2], PATHS[number // 4 % 3]
        mark = f"mark {agent} {number} end"
        if number % 3:
            return agent, mark, ask(gw, keys[agent], names[agent], mark, path).status_code == 200
        body = {"model": "gpt-4o", "input": [{"role": "user", "content": mark}], "conversation": opened[agent]}
        return agent, mark, call(gw, keys[agent], "POST", "responses", body).status_code == 200

    with ThreadPoolExecutor(6) as threads:
        written = list(threads.map(write, range(48)))
    assert all(is_stored for *_, is_stored in written)
    stored = texts(url)
    where = {mark: [name for name, said in stored.items() for text in said if mark in text] for _, mark, _ in written}
    for agent, mark, _ in written:
        [session] = where[mark]
        assert session.startswith(stored_key(f"agent:{agent}:", "acme"))
    lengths = Counter(session for [session] in where.values())
    for session, questions in lengths.items():
        assert len(stored[session]) == 2 * questions  # each with its answer
    with PostgresStore(url) as store:
        assert verify(store).ok


def test_without_the_check_the_other_agent_reads_it(place, monkeypatch):
    both, upstream, keys, _ = place
    monkeypatch.setattr(session_resolver, "_is_agents", lambda key, name: True)
    assert any(SECRET in owned.text for _, owned, _ in attempts((both[0], upstream, keys), both[1]))
