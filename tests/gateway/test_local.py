"""A local gateway: clients on this machine send their own credentials, which pass untouched; others are refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import anthropic
import httpx2
import openai
import pytest
from gateways import Running, gateway
from upstream import Says, ScriptedUpstream, running

from recto.config import load
from recto.config.settings import GatewaySettings
from recto.errors import RequestRefused, SettingsError, UpstreamsWrong
from recto.gateway.api_keys import Key, Keys
from recto.gateway.middleware.auth import API_ROOTS
from recto.gateway.server import refuse_public
from recto.gateway.upstreams.http import make_upstreams
from recto.gateway.upstreams.targets import Targets
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock

CLAUDE_CODE = {
    "authorization": "Bearer sk-ant-oat01-of-a-subscription",
    "anthropic-beta": "claude-code-20250219,oauth-2025-04-20",
    "anthropic-version": "2023-06-01",
    "x-app": "cli",
}
CODEX = {
    "authorization": "Bearer eyJhbGciOiJSUzI1NiJ9.of-a-subscription.signed",
    "chatgpt-account-id": "account-1",
    "openai-beta": "responses=experimental",
    "originator": "codex_cli_rs",
}
MESSAGES = {"model": "claude-sonnet-5", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}
RESPONSES = {"model": "gpt-5", "input": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
def vendor() -> Iterator[ScriptedUpstream]:
    with running(ScriptedUpstream(lambda request: Says(text="fine"))) as upstream:
        yield upstream


@pytest.fixture
def local(tmp_path: Path, vendor: ScriptedUpstream) -> Iterator[Running]:
    with gateway(tmp_path, gateway={"local": True, "targets": [vendor.url]}) as gw:
        yield gw


def test_the_token_of_a_claude_code_subscription_is_passed_on_untouched(local, vendor):
    answer = httpx2.post(f"{local.url}/to/{vendor.url}/v1/messages?beta=true", json=MESSAGES, headers=CLAUDE_CODE)
    assert answer.status_code == 200, answer.text
    assert {name: vendor.asked[0].headers[name] for name in CLAUDE_CODE} == CLAUDE_CODE
    assert "x-api-key" not in vendor.asked[0].headers
    assert answer.headers["x-recto-session-id"].startswith("agent:default:")


def test_the_token_of_a_codex_subscription_is_passed_on_untouched(local, vendor):
    answer = httpx2.post(f"{local.url}/to/{vendor.url}/v1/responses", json=RESPONSES, headers=CODEX)
    assert answer.status_code == 200, answer.text
    assert {name: vendor.asked[0].headers[name] for name in CODEX} == CODEX


def test_sdks_with_their_own_keys_need_no_settings(local, vendor):
    with openai.OpenAI(base_url=f"{local.url}/to/{vendor.url}/v1", api_key="sk-own", max_retries=0) as client:
        completion = client.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "Hello"}])
        assert completion.choices[0].message.content == "fine"
        assert [model.id for model in client.models.list()] == ["gpt-4o"]
    with anthropic.Anthropic(base_url=f"{local.url}/to/{vendor.url}", api_key="sk-ant-own", max_retries=0) as client:
        client.messages.create(**MESSAGES)
    assert vendor.asked[0].headers["authorization"] == "Bearer sk-own"
    assert "sk-ant-own" in vendor.asked[1].headers.get("x-api-key", "") + vendor.asked[1].headers["authorization"]


def test_a_gateway_with_keys_reads_its_own_key_from_another_header(tmp_path, vendor):
    upstreams = {"main": {"url": vendor.url, "speaks": "messages", "auth": "client"}}
    with gateway(tmp_path, gateway={"upstreams": upstreams}) as gw:
        headers = CLAUDE_CODE | {"x-recto-key": gw.secret}
        assert httpx2.post(f"{gw.url}/v1/messages", json=MESSAGES, headers=headers).status_code == 200
        assert vendor.asked[0].headers["authorization"] == CLAUDE_CODE["authorization"]
        assert "x-recto-key" not in vendor.asked[0].headers
        assert httpx2.post(f"{gw.url}/v1/messages", json=MESSAGES, headers=CLAUDE_CODE).status_code == 401
        answer = httpx2.post(f"{gw.url}/to/{vendor.url}/v1/messages", json=MESSAGES, headers=headers)
        assert answer.status_code in (400, 404), "only a local gateway goes where a client says"
    assert len(vendor.asked) == 1


def test_web_pages_and_foreign_host_names_are_refused(local, vendor):
    path = f"{local.url}/to/{vendor.url}/v1/messages"
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert httpx2.post(path, json=MESSAGES, headers=CLAUDE_CODE | headers).status_code == 403, headers
    assert vendor.asked == []


def test_without_a_key_nothing_can_be_read_or_changed(local):
    for method, path in (("GET", "/api/v1/sessions"), ("GET", "/metrics"), ("POST", "/api/v1/session/notes")):
        assert httpx2.request(method, local.url + path, json={}).status_code == 403, path
    assert httpx2.get(f"{local.url}/api/v1/sessions", headers={"x-recto-key": "rk-unknown"}).status_code == 401


def _targets(*named: str) -> tuple[Targets, list[tuple[str, bool]]]:
    opened: list[tuple[str, bool]] = []

    def open_upstream(url: str, public_only: bool) -> str:
        opened.append((url, public_only))
        return url

    key = Key(id="local", name="this machine")
    return Targets(GatewaySettings(local=True, targets=named), key, open_upstream, API_ROOTS), opened


@pytest.mark.parametrize(
    ("raw", "url", "path"),
    [
        (b"/to/https://api.openai.com/v1/chat/completions", "https://api.openai.com/v1", b"/v1/chat/completions"),
        (b"/to/https:/api.anthropic.com/v1/messages", "https://api.anthropic.com/v1", b"/v1/messages"),
        (b"/to/https://openrouter.ai/api/v1/responses", "https://openrouter.ai/api/v1", b"/v1/responses"),
        (
            b"/to/https://chatgpt.com/backend-api/codex/responses",
            "https://chatgpt.com/backend-api/codex",
            b"/v1/responses",
        ),
        (b"/to/https://LLM.example.com/v1/files/f-1", "https://llm.example.com/v1", b"/v1/files/f-1"),
    ],
)
def test_an_address_is_split_into_a_base_and_a_path(raw, url, path):
    targets, opened = _targets("llm.example.com")
    assert targets.resolve(raw) == (url, path)
    assert opened == [(url, True)], "a host by name must not lead to a private address"


@pytest.mark.parametrize(
    "raw",
    [
        b"/to/https://evil.example/v1/messages",
        b"/to/http://api.openai.com/v1/messages",
        b"/to/https://api.openai.com:8443/v1/messages",
        b"/to/https://api.openai.com@evil.example/v1/messages",
        b"/to/https://127.0.0.1/v1/messages",
        b"/to/https://[::1]/v1/messages",
        b"/to/file:///etc/passwd",
        b"/to/https://api.openai.com",
        b"/to/https://api.openai.com/a/../v1/messages",
        b"/to/https://api.openai.com/%2e%2e/v1/messages",
        b"/to/https://api.openai.com/dashboard/billing",
    ],
)
def test_other_addresses_are_refused(raw):
    targets, opened = _targets()
    with pytest.raises(RequestRefused):
        targets.resolve(raw)
    assert opened == []


def test_a_host_name_that_resolves_to_a_private_address_is_not_called(tmp_path, vendor):
    port = vendor.url.rpartition(":")[2]
    with gateway(tmp_path, gateway={"local": True, "targets": [f"localhost:{port}"]}) as gw:
        answer = httpx2.post(f"{gw.url}/to/https://localhost:{port}/v1/messages", json=MESSAGES, headers=CLAUDE_CODE)
        assert answer.status_code in (502, 503)
    assert vendor.asked == []


def test_a_local_gateway_serves_loopback_only():
    keys, local = Keys(MemoryStore(), FakeClock()), GatewaySettings(local=True)
    keys.add(Key(name="one"))
    refuse_public(local, keys)
    with pytest.raises(SettingsError, match="without keys"):
        refuse_public(replace(local, host="0.0.0.0", hosts=("gateway.example.com",)), keys)
    with pytest.raises(SettingsError, match="targets"):
        _targets("https://user@host/path")


def test_a_local_gateway_starts_without_the_embedded_model_and_reports_it_on_first_use(tmp_path):
    settings = load(environ={}, arguments={"store": str(tmp_path / "a.db"), "gateway": {"local": True}})

    def missing():
        raise SettingsError("model", "the weights are not here")

    upstreams = make_upstreams(settings, missing)
    with pytest.raises(UpstreamsWrong, match="the weights are not here"):
        upstreams.for_model("gpt-4o", Key(name="any"))
