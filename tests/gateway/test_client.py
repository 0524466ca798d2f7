"""A screen asks a gateway that runs already, or one of its own, and draws what that answers."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.config import load
from recto.config.factory import open_store
from recto.errors import RequestRefused
from recto.gateway.api_keys import SESSION as KEYS
from recto.gateway.client import GatewayClient, connect_gateway

MAIN = "agent:default:main"


@pytest.fixture(scope="module")
def upstream():
    with running(ScriptedUpstream(lambda asked: Says(text="It left Lisbon on Monday."))) as made:
        yield made


def asked(reached, work):
    async def whole():
        client = GatewayClient(reached.url, reached.key)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(whole())


async def conversation(client: GatewayClient) -> tuple[str, dict, dict]:
    async with client.answer(MAIN, "Where is order 4711?", "gpt-4o") as answer:
        pieces = [piece async for piece in answer]
    return "".join(pieces), dict(answer.headers), dict(answer.usage)


def own(tmp_path, upstream, **more):
    upstreams = {"main": {"url": f"{upstream.url}/v1", "speaks": ["chat"], "key": "sk-upstream"}}
    return load(
        environ={},
        arguments={
            "store": str(tmp_path / "transcript.db"),
            "recall": {"embedder": {"use": "none"}},
            "gateway": {"upstreams": upstreams, **more},
        },
    )


def test_a_gateway_of_ones_own_answers_and_keeps_everything_in_the_store(tmp_path, upstream):
    settings = own(tmp_path, upstream)
    with connect_gateway(settings) as reached:
        said, headers, usage = asked(reached, conversation)
        shown = asked(reached, lambda client: client.get("/session/transcript", session=MAIN, order="desc", limit=5))
    assert said == "It left Lisbon on Monday."
    assert headers["x-recto-session-id"] == MAIN
    assert usage["prompt_tokens"] > 0
    assert [entry["text"] for entry in shown["entries"] if entry["kind"] == "message"] == [said, "Where is order 4711?"]
    store = open_store(settings)
    assert store.head(MAIN).seq > 2
    store.close()


def test_the_key_of_a_gateway_of_ones_own_ends_with_it_and_is_stored_nowhere(tmp_path, upstream):
    settings = own(tmp_path, upstream)
    with connect_gateway(settings, name="the chat") as reached:
        who = asked(reached, lambda client: client.get("/asker"))
        assert (who["name"], who["agent"], who["main"]) == ("the chat", "default", MAIN)
    store = open_store(settings)
    assert store.head(KEYS).seq == 0
    store.close()
    with connect_gateway(settings) as later, pytest.raises(RequestRefused) as refused:
        asked(type(later)(url=later.url, key=reached.key), lambda client: client.get("/asker"))
    assert refused.value.status == 401


def test_a_gateway_of_ones_own_listens_on_loopback_whatever_the_settings_say(tmp_path, upstream):
    with connect_gateway(own(tmp_path, upstream, host="0.0.0.0", hosts=["recto.example"], port=1)) as reached:
        assert reached.url.startswith("http://127.0.0.1:")


def test_a_gateway_that_runs_already_is_asked_where_it_is(tmp_path, upstream):
    with gateway(tmp_path, upstream.url) as running_gateway:
        settings = own(tmp_path / "elsewhere", upstream)
        with connect_gateway(settings, running_gateway.url, running_gateway.secret) as reached:
            assert asked(reached, conversation)[0] == "It left Lisbon on Monday."
    assert not (tmp_path / "elsewhere").exists()


def test_what_the_gateway_refuses_is_told_in_its_own_words(tmp_path, upstream):
    with connect_gateway(own(tmp_path, upstream)) as reached:
        with pytest.raises(RequestRefused) as missing:
            asked(reached, lambda client: client.get("/session", session="agent:default:nowhere"))
        assert (missing.value.status, missing.value.code) == (404, "not_found")
        with pytest.raises(RequestRefused) as bad:
            asked(reached, lambda client: client.get("/sessions", limit=0))
        assert "limit" in str(bad.value)
    with pytest.raises(RequestRefused) as gone:
        asked(reached, lambda client: client.get("/sessions"))
    assert "recto serve" in str(gone.value)
