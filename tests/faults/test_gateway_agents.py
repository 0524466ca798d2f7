"""Two agents of one tenant: neither reads nor writes sessions of the other, by name or by id."""

from __future__ import annotations

from contextlib import ExitStack

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.gateway import session_resolver

SECRET = "the vault opens with 4711"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with ExitStack() as stack:
        upstream = stack.enter_context(running(ScriptedUpstream(lambda request: Says(text="noted"))))
        gw = stack.enter_context(gateway(tmp_path_factory.mktemp("agents"), upstream.url))
        yield gw, upstream, {agent: gw.key(agent=agent, tenant="acme") for agent in ("owner", "other")}


def call(gw, secret, method, path, body=None) -> httpx2.Response:
    headers = {"authorization": f"Bearer {secret}"}
    return httpx2.request(method, f"{gw.url}/v1/{path}", json=body, headers=headers, timeout=30)


def attempts(place, there=None) -> list[tuple[str, httpx2.Response, httpx2.Response]]:
    """Returns the responses to another agent for each id of the owner and for an unknown id; `there` is its gateway."""
    gw, _, keys = place
    there = there or gw
    opening = {"items": [{"type": "message", "role": "user", "content": SECRET}]}
    conversation = call(gw, keys["owner"], "POST", "conversations", opening).json()["id"]
    body = {"model": "gpt-4o", "input": [{"role": "user", "content": SECRET}]}
    response = call(gw, keys["owner"], "POST", "responses", body).json()["id"]
    compacted = call(gw, keys["owner"], "POST", "responses/compact", body).json()["output"][-1]
    question = {"model": "gpt-4o", "input": [{"role": "user", "content": "what was said?"}]}

    def forms(conversation: str, response: str, item: dict) -> list[tuple[str, str, dict | None]]:
        return [
            ("GET", f"conversations/{conversation}", None),
            ("GET", f"conversations/{conversation}/items", None),
            ("POST", "responses", {**question, "conversation": conversation}),
            ("POST", "responses", {**question, "conversation": {"id": conversation}}),
            ("POST", "responses", {**question, "previous_response_id": response}),
            ("POST", "responses", {**question, "input": [item, *question["input"]]}),
            ("POST", "responses/compact", {**question, "previous_response_id": response}),
            ("POST", "responses/input_tokens", {**question, "previous_response_id": response}),
        ]

    unknown_item = {**compacted, "id": "cmp_" + "0" * 32, "encrypted_content": "recto:cmp_" + "0" * 32}
    theirs = forms(conversation, response, compacted)
    unknown = forms("conv_" + "0" * 32, "resp_" + "0" * 32, unknown_item)
    return [
        (owned[1], call(there, keys["other"], *owned), call(there, keys["other"], *missing))
        for owned, missing in zip(theirs, unknown, strict=True)
    ]


def test_another_agent_gets_the_same_for_an_owned_id_as_for_an_unknown_one(place):
    gw, upstream, _ = place
    found = attempts(place)
    prompts = [entry.raw.decode() for entry in upstream.asked if "what was said?" in entry.raw.decode()]
    assert not any(SECRET in raw for raw in prompts)
    for path, owned, unknown in found:
        assert owned.status_code == unknown.status_code == 404, path
        assert SECRET not in owned.text
    for session in gw.store.sessions():
        if session.session.startswith("tenant:acme/agent:owner:"):
            texts = [entry.content.decode() for entry in gw.store.read(session.session)]
            assert not any("what was said?" in text for text in texts)


def test_the_owner_can_use_all_of_its_ids(place):
    gw, _, keys = place
    opened = call(gw, keys["owner"], "POST", "conversations", {}).json()["id"]
    body = {"model": "gpt-4o", "input": "hello", "conversation": opened}
    answer = call(gw, keys["owner"], "POST", "responses", body)
    assert answer.status_code == 200
    again = {"model": "gpt-4o", "input": "again", "previous_response_id": answer.json()["id"]}
    assert call(gw, keys["owner"], "POST", "responses", again).status_code == 200
    assert len(call(gw, keys["owner"], "GET", f"conversations/{opened}/items").json()["data"]) == 4


def test_without_the_check_the_other_agent_reads_it(place, monkeypatch):
    monkeypatch.setattr(session_resolver, "_is_agents", lambda key, name: True)
    assert any(SECRET in owned.text for _, owned, _ in attempts(place))
