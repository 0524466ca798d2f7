"""An upstream without its key is disabled: the others work, and its models are refused with the reason."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.config.loader import load
from recto.errors import SettingsError, UpstreamsWrong
from recto.gateway.api_keys import Key
from recto.gateway.upstreams.http import make_upstreams

VARIABLE = "RECTO_TEST_UPSTREAM_KEY"


@pytest.fixture
def up(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    with running(ScriptedUpstream(lambda request: Says(text="fine"))) as upstream:
        yield upstream


def upstreams(url: str, **others: Any) -> dict[str, Any]:
    vendor = {"url": f"{url}/v1", "key_env": VARIABLE, "models": ["claude-*"], "speaks": ["chat", "messages"]}
    return {"upstreams": {"vendor": vendor} | {name: {"url": f"{url}/v1", **more} for name, more in others.items()}}


def ask(gw: Any, model: str, secret: str = "", path: str = "/v1/chat/completions") -> httpx2.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}
    return httpx2.post(
        f"{gw.url}{path}", json=body, headers={"authorization": f"Bearer {secret or gw.secret}"}, timeout=30
    )


def warnings_in(caplog: Any) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_other_upstreams_work_and_the_models_of_the_disabled_one_are_refused_with_the_reason(tmp_path, up, caplog):
    own = {"models": ["gpt-*"], "key": "sk-own"}
    with gateway(tmp_path, gateway=upstreams(up.url, own=own)) as gw:
        assert [line for line in warnings_in(caplog) if VARIABLE in line and "'vendor'" in line] == warnings_in(caplog)
        assert len(warnings_in(caplog)) == 1
        assert ask(gw, "gpt-4o").status_code == 200
        for path in ("/v1/chat/completions", "/v1/messages"):
            refused = ask(gw, "claude-sonnet-5-5", path=path)
            assert refused.status_code == 404
            assert VARIABLE in refused.json()["error"]["message"]
            assert "vendor" in refused.json()["error"]["message"]
        bound = ask(gw, "gpt-4o", gw.key(upstream="vendor"))
        assert (bound.status_code, VARIABLE in bound.text) == (404, True)
        named = httpx2.post(
            f"{gw.url}/v1/moderations",
            json={"input": "x"},
            headers={"authorization": f"Bearer {gw.secret}", "x-recto-upstream": "vendor"},
        )
        assert (named.status_code, VARIABLE in named.text) == (404, True)
        assert len(up.asked) == 1


def test_models_of_a_disabled_upstream_go_to_another_that_names_them_and_never_to_a_catch_all(tmp_path, up):
    everything, same = {"key": "sk-all"}, {"models": ["claude-opus-*"], "key": "sk-same", "speaks": ["chat"]}
    with gateway(tmp_path, gateway=upstreams(up.url, everything=everything, same=same)) as gw:
        assert ask(gw, "claude-opus-4-5").status_code == 200
        assert up.asked[-1].headers["authorization"] == "Bearer sk-same"
        assert ask(gw, "claude-sonnet-5-5").status_code == 404
        assert ask(gw, "gpt-4o").status_code == 200
        assert up.asked[-1].headers["authorization"] == "Bearer sk-all"


def test_a_gateway_with_all_upstreams_disabled_starts_and_refuses_with_the_reason(tmp_path, up):
    with gateway(tmp_path, gateway=upstreams(up.url)) as gw:
        headers = {"authorization": f"Bearer {gw.secret}"}
        assert httpx2.get(f"{gw.url}/readyz").status_code == 200
        assert httpx2.get(f"{gw.url}/api/v1/sessions", headers=headers).status_code == 200
        assert httpx2.get(f"{gw.url}/v1/models", headers=headers).json()["data"] == []
        for path, model in (("/v1/chat/completions", "claude-x"), ("/v1/moderations", "")):
            answer = ask(gw, model, path=path)
            assert (answer.status_code, VARIABLE in answer.text) == (404, True)


def test_an_upstream_whose_variable_is_set_is_called_with_its_key(tmp_path, up, monkeypatch, caplog):
    monkeypatch.setenv(VARIABLE, "sk-from-the-environment")
    with gateway(tmp_path, gateway=upstreams(up.url)) as gw:
        assert ask(gw, "claude-sonnet-5-5").status_code == 200
    assert up.asked[-1].headers["authorization"] == "Bearer sk-from-the-environment"
    assert warnings_in(caplog) == []


def without_weights():
    raise SettingsError("gateway.upstreams", "no provider is configured")


def test_a_gateway_without_any_model_starts_and_explains_how_to_get_one(tmp_path, caplog):
    settings = load(environ={}, arguments={"store": str(tmp_path / "a.db")})
    upstreams = make_upstreams(settings, without_weights)
    assert ["no provider is configured" in line for line in warnings_in(caplog)] == [True]
    with pytest.raises(UpstreamsWrong, match="no provider is configured"):
        upstreams.for_model("gpt-4o", Key(name="any"))
    assert not upstreams.example_model("gpt-4o")


def test_a_gateway_whose_settings_name_an_embedded_model_does_not_start_without_it(tmp_path):
    embedded = {"model": {"use": "embedded", "path": str(tmp_path / "missing.gguf")}}
    settings = load(environ={}, arguments={"store": str(tmp_path / "a.db"), "compress": embedded})
    with pytest.raises(SettingsError):
        make_upstreams(settings, without_weights)


@pytest.mark.parametrize(
    ("models", "preferred", "example"),
    [
        (["gpt-*", "tiny"], "", "tiny"),
        (["gpt-*", "tiny"], "gpt-4o", "gpt-4o"),
        (["gpt-*", "tiny"], "claude-opus-5", "tiny"),
        (["gpt-*"], "", ""),
    ],
)
def test_the_requests_to_try_name_a_model_that_is_served(tmp_path, monkeypatch, models, preferred, example):
    monkeypatch.delenv(VARIABLE, raising=False)
    made = upstreams("http://127.0.0.1:9", own={"models": models})
    settings = load(environ={}, arguments={"store": str(tmp_path / "a.db"), "gateway": made})
    assert make_upstreams(settings, without_weights).example_model(preferred) == example
