"""The client of the terminal screens: connects to a running gateway, or starts an embedded one."""

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
    with running(ScriptedUpstream(lambda request: Says(text="It left Lisbon on Monday."))) as made:
        yield made


def run_with_client(target, work):
    async def whole():
        client = GatewayClient(target.url, target.key)
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


def test_an_embedded_gateway_answers_and_stores_everything(tmp_path, upstream):
    settings = own(tmp_path, upstream)
    with connect_gateway(settings) as target:
        text, headers, usage = run_with_client(target, conversation)
        shown = run_with_client(
            target, lambda client: client.get("/session/transcript", session=MAIN, order="desc", limit=5)
        )
    assert text == "It left Lisbon on Monday."
    assert headers["x-recto-session-id"] == MAIN
    assert usage["prompt_tokens"] > 0
    assert [entry["text"] for entry in shown["entries"] if entry["kind"] == "message"] == [text, "Where is order 4711?"]
    store = open_store(settings)
    assert store.head(MAIN).seq > 2
    store.close()


def test_the_key_of_an_embedded_gateway_ends_with_it_and_is_not_stored(tmp_path, upstream):
    settings = own(tmp_path, upstream)
    with connect_gateway(settings, name="the chat") as target:
        who = run_with_client(target, lambda client: client.get("/asker"))
        assert (who["name"], who["agent"], who["main"]) == ("the chat", "default", MAIN)
    store = open_store(settings)
    assert store.head(KEYS).seq == 0
    store.close()
    with connect_gateway(settings) as later, pytest.raises(RequestRefused) as refused:
        run_with_client(type(later)(url=later.url, key=target.key), lambda client: client.get("/asker"))
    assert refused.value.status == 401


def test_an_embedded_gateway_listens_on_loopback_whatever_the_settings_say(tmp_path, upstream):
    with connect_gateway(own(tmp_path, upstream, host="0.0.0.0", hosts=["recto.example"], port=1)) as target:
        assert target.url.startswith("http://127.0.0.1:")


def test_a_client_connects_to_a_gateway_that_already_runs(tmp_path, upstream):
    with gateway(tmp_path, upstream.url) as running_gateway:
        settings = own(tmp_path / "elsewhere", upstream)
        with connect_gateway(settings, running_gateway.url, running_gateway.secret) as target:
            assert run_with_client(target, conversation)[0] == "It left Lisbon on Monday."
    assert not (tmp_path / "elsewhere").exists()


def test_a_refusal_is_raised_with_the_gateways_message(tmp_path, upstream):
    with connect_gateway(own(tmp_path, upstream)) as target:
        with pytest.raises(RequestRefused) as missing:
            run_with_client(target, lambda client: client.get("/session", session="agent:default:nowhere"))
        assert (missing.value.status, missing.value.code) == (404, "not_found")
        with pytest.raises(RequestRefused) as bad:
            run_with_client(target, lambda client: client.get("/sessions", limit=0))
        assert "limit" in str(bad.value)
    with pytest.raises(RequestRefused) as gone:
        run_with_client(target, lambda client: client.get("/sessions"))
    assert "recto serve" in str(gone.value)
