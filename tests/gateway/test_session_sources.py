"""A gateway with a configured agent and project records them, and sessions of the same source find each other."""

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
def project_gateway(tmp_path_factory):
    """A gateway of one project; its store has two sessions of the project and another session."""
    folder = tmp_path_factory.mktemp("gateway")
    with running(ScriptedUpstream(lambda request: Says(text="Noted."))) as upstream:
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
def test_a_session_finds_messages_of_its_siblings_and_of_no_other_session(project_gateway, limit):
    hits = _found(project_gateway, **limit)
    assert {hit["session"] for hit in hits} == {"agent:default:session-of-the-first"}
    assert {(hit["agent"], hit["project"]) for hit in hits} == {("codex", "/srv/harbour")}


def test_a_search_of_all_sessions_names_the_known_sources(project_gateway):
    sources = {hit["session"]: hit["agent"] for hit in _found(project_gateway, scope="tenant")}
    assert sources["agent:default:session-of-the-first"] == "codex"
    assert sources["agent:default:session-elsewhere"] == ""


def test_a_search_for_an_unknown_agent_finds_nothing(project_gateway):
    assert _found(project_gateway, agent="code") == []


def test_the_mcp_tool_searches_a_project(project_gateway):
    settings = load(
        environ={}, arguments={"store": project_gateway.store.location, "recall": {"embedder": {"use": "none"}}}
    )
    indexer = project_gateway.gateway._indexer
    context = local_context(settings, project_gateway.store, indexer, may_change=False)
    session = "agent:default:session-of-the-second"
    request = params.RecallParams(query="what is the crane called", project="/srv/harbour", session=session)
    found = queries.recall(context, request)
    assert "Ottilie" in found.quotation
    assert "· codex in /srv/harbour\n> The harbour crane" in found.quotation
    assert "Berta" not in found.quotation
    assert {hit.agent for hit in found.hits} == {"codex"}
