"""A gateway that knows the agent and the project records them, and siblings find what was said there."""

from __future__ import annotations

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.config import load
from recto.mcp import params, queries
from recto.mcp.stdio import local_context

PROJECT = {"project": "/srv/harbour", "program": "codex"}
SAID = {"role": "user", "content": "The harbour crane is called Ottilie."}


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """A gateway of one project, in whose store there is a session of it, and another session."""
    folder = tmp_path_factory.mktemp("gateway")
    with running(ScriptedUpstream(lambda asked: Says(text="Noted."))) as upstream:
        with gateway(folder, upstream.url) as elsewhere:
            _say(elsewhere, "session-elsewhere", {"role": "user", "content": "The other crane is called Berta."})
        with gateway(folder, upstream.url, gateway=PROJECT) as gw:
            _say(gw, "session-of-the-first", SAID)
            _say(gw, "session-of-the-second", {"role": "user", "content": "Begin."})
            yield gw


def _say(gw, session, message) -> None:
    headers = {"authorization": f"Bearer {gw.secret}", "x-session-id": session}
    body = {"model": "gpt-4o", "messages": [message]}
    answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text


def _found(gw, **more):
    secret = gw.key(rights=frozenset({"read"}))
    answer = httpx2.post(
        f"{gw.url}/api/v1/session/recall",
        params={"session": "agent:default:session-of-the-second"},
        json={"query": "what is the crane called", **more},
        headers={"authorization": f"Bearer {secret}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()["hits"]


@pytest.mark.parametrize("limit", [{"project": "/srv"}, {"agent": "codex"}, {"project": "/srv", "agent": "codex"}])
def test_a_session_finds_what_its_siblings_said_and_nothing_of_others(asked, limit):
    hits = _found(asked, **limit)
    assert {hit["session"] for hit in hits} == {"agent:default:session-of-the-first"}
    assert {(hit["agent"], hit["project"]) for hit in hits} == {("codex", "/srv/harbour")}


def test_a_search_of_everything_names_the_sources_that_are_known(asked):
    sources = {hit["session"]: hit["agent"] for hit in _found(asked, scope="tenant")}
    assert sources["agent:default:session-of-the-first"] == "codex"
    assert sources["agent:default:session-elsewhere"] == ""


def test_of_an_agent_that_is_not_known_nothing_is_found(asked):
    assert _found(asked, agent="code") == []


def test_the_mcp_tool_searches_a_project(asked):
    settings = load(environ={}, arguments={"store": asked.store.location, "recall": {"embedder": {"use": "none"}}})
    indexer = asked.gateway._indexer
    context = local_context(settings, asked.store, indexer, may_change=False)
    session = "agent:default:session-of-the-second"
    request = params.RecallParams(query="what is the crane called", project="/srv/harbour", session=session)
    found = queries.recall(context, request)
    assert "Ottilie" in found.quotation
    assert "· codex in /srv/harbour\n> The harbour crane" in found.quotation
    assert "Berta" not in found.quotation
    assert {hit.agent for hit in found.hits} == {"codex"}
