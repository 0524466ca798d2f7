"""Budgets of keys: tokens and dollars per day, across restarts and gateways, refused in each protocol's own shape."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from tests.cli.calling import called
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running
from tests.postgres import database

from recto.config import load
from recto.config.factory import open_store
from recto.errors import InputError, RequestRefused
from recto.formats import Usage
from recto.gateway.api_keys import Key, Keys
from recto.gateway.budgets import Budgets, Spending
from recto.tokens.model_registry import Registry
from recto.transcript.session_keys import TenantStore

PATHS = ("/v1/chat/completions", "/v1/responses", "/v1/messages")
NOON = 1_800_014_400_000_000
"""2027-01-15T12:00Z."""
DAY = 24 * 60 * 60 * 1_000_000


class Clock:
    def __init__(self, at: int = NOON) -> None:
        self.at = at

    def now(self) -> int:
        return self.at


@pytest.fixture
def up():
    with running(ScriptedUpstream(lambda request: Says(text="an answer"))) as upstream:
        yield upstream


def ask(gw: Any, secret: str, path: str = PATHS[0], model: str = "gpt-4o", **more: Any) -> httpx2.Response:
    message = [{"role": "user", "content": "hello"}]
    body = {"model": model, "max_output_tokens": 9, "input": message} if path == PATHS[1] else {}
    body = body or {"model": model, "max_tokens": 9, "messages": message}
    headers = {"authorization": f"Bearer {secret}"}
    return httpx2.post(f"{gw.url}{path}", json={**body, **more}, headers=headers, timeout=30)


@pytest.mark.parametrize("path", PATHS)
def test_a_key_that_has_used_up_its_tokens_is_refused_in_its_protocol(tmp_path, up, path):
    with gateway(tmp_path, up.url) as gw:
        secret = gw.key(tokens_per_day=10)
        assert ask(gw, secret, path).status_code == 200
        refused = ask(gw, secret, path)
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert "of 10 tokens" in error["message"]
        assert "T00:00Z" in error["message"]
        assert 0 < int(refused.headers["retry-after"]) <= 86_400
        assert refused.headers["x-should-retry"] == "false"
        assert error["type"] == ("rate_limit_error" if path == PATHS[2] else "insufficient_quota")
        assert len(up.asked) == 1
        assert ask(gw, gw.secret, path).status_code == 200, "the budget is that of the key"


def test_the_sdks_do_not_retry(tmp_path, up):
    requests: list[str] = []

    def around(app: Any) -> Any:
        async def counting(scope: Any, receive: Any, send: Any) -> None:
            requests.append(scope.get("path", ""))
            await app(scope, receive, send)

        return counting

    with gateway(tmp_path, up.url, around=around) as gw:
        secret = gw.key(tokens_per_day=10)
        ask(gw, secret)
        requests.clear()
        message: Any = [{"role": "user", "content": "hello"}]
        with (
            pytest.raises(openai.RateLimitError) as refused,
            openai.OpenAI(base_url=f"{gw.url}/v1", api_key=secret) as client,
        ):
            client.chat.completions.create(model="gpt-4o", messages=message)
        assert refused.value.code == "insufficient_quota"
        with (
            pytest.raises(anthropic.RateLimitError),
            anthropic.Anthropic(base_url=gw.url, api_key=secret) as anthropic_client,
        ):
            anthropic_client.messages.create(model="gpt-4o", messages=message, max_tokens=9)
        assert requests == ["/v1/chat/completions", "/v1/messages"]


def test_a_budget_survives_restarts_and_is_shared_by_gateways_on_the_same_store(tmp_path, up):
    with gateway(tmp_path, up.url) as gw:
        secret = gw.key(tokens_per_day=60)
        while ask(gw, secret).status_code == 200:
            assert len(up.asked) < 20
        used = len(up.asked)
        with gateway(tmp_path, up.url) as other:
            assert ask(other, secret).status_code == 429
    with gateway(tmp_path, up.url) as again:
        assert ask(again, secret).status_code == 429
    assert len(up.asked) == used


def test_two_gateways_on_one_database_count_every_answer_of_a_key_once(tmp_path, up):
    with (
        database() as url,
        gateway(tmp_path, up.url, store=url) as first,
        gateway(tmp_path, up.url, store=url) as second,
    ):
        secret = first.key(tokens_per_day=1_000_000, tenant="north")
        key = first.gateway.keys.list()[-1]
        with ThreadPoolExecutor(8) as threads:
            asking = [threads.submit(ask, gw, secret) for gw in (first, second) for _ in range(12)]
        assert {answer.result().status_code for answer in asking} == {200}
        each = first.gateway.budgets.today(key).tokens // 24
        assert each >= 7
        for gw in (first, second):
            assert gw.gateway.budgets.today(key).tokens == 24 * each
        first.gateway.keys.limit(key.id, {"tokens_per_day": 24 * each})
        assert [ask(gw, secret).status_code for gw in (first, second)] == [429, 429]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_every_answer_counts_once_even_when_its_usage_is_not_reported(tmp_path, up, path, stream):
    with gateway(tmp_path, up.url) as gw:
        secret = gw.key(tokens_per_day=1_000_000)
        key = gw.gateway.keys.list()[-1]
        answer = ask(gw, secret, path, stream=stream)
        assert answer.status_code == 200
        assert answer.text  # read to its end
        tokens = gw.gateway.budgets.today(key).tokens
        assert tokens >= 7
        ask(gw, secret, path, stream=stream)
        fresh = Budgets(gw.gateway.sessions.view, Clock(), Registry().card)
        assert gw.gateway.budgets.today(key).tokens == 2 * tokens
        assert fresh.today(key).tokens == 0, "another day"


def test_a_stream_that_its_client_interrupts_counts_against_the_budget(tmp_path):
    text = "word " * 2_000
    with running(ScriptedUpstream(lambda request: Says(text=text))) as up, gateway(tmp_path, up.url) as gw:
        secret = gw.key(tokens_per_day=1_000_000)
        key = gw.gateway.keys.list()[-1]
        body = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": "hello"}]}
        headers = {"authorization": f"Bearer {secret}"}
        with httpx2.stream("POST", f"{gw.url}{PATHS[0]}", json=body, headers=headers, timeout=30) as answer:
            next(answer.iter_bytes())
        for _ in range(2_000):  # until the gateway has noticed
            if gw.gateway.budgets.today(key).tokens:
                break
            httpx2.get(f"{gw.url}/healthz")
        assert gw.gateway.budgets.today(key).tokens > 0


def test_dollars_are_counted_at_the_models_prices_and_a_model_without_prices_counts_tokens_only(tmp_path, up, caplog):
    prices = {"dear": {"window": 8_192, "input_price": 10**12, "output_price": 10**12}}
    with gateway(tmp_path, up.url, models=prices) as gw:
        secret = gw.key(dollars_per_day=5, tokens_per_day=10_000)
        key = gw.gateway.keys.list()[-1]
        assert ask(gw, secret, model="nobody-knows-it").status_code == 200
        assert ask(gw, secret, model="nobody-knows-it").status_code == 200
        spent = gw.gateway.budgets.today(key)
        assert spent.dollars == 0
        assert spent.tokens == spent.unpriced > 0
        assert len([line for line in caplog.messages if "no price" in line]) == 1
        assert ask(gw, secret, model="dear").status_code == 200
        refused = ask(gw, secret, model="nobody-knows-it")
        assert refused.status_code == 429
        assert "of 5.00 dollars" in refused.json()["error"]["message"]


def test_cached_tokens_are_charged_at_the_cache_read_price(tmp_path):
    card = Registry(
        overrides={"m": {"window": 9_000, "input_price": 100, "output_price": 1_000, "cache_read_price": 10}}
    ).card
    settings = load(environ={}, arguments={"store": "memory:"})
    with closing(open_store(settings)) as store:
        budgets, key = Budgets(lambda key: TenantStore(store), Clock(), card), Key(id="a", name="a", dollars_per_day=1)
        made = budgets.record(key, "m", Usage(prompt=1_000, output=10, cache_read=900))
        assert made is not None
        assert budgets.today(key) == Spending(1_010, 100 * 100 + 900 * 10 + 10 * 1_000, 0)


def test_records_in_the_total_of_another_gateway_count_once():
    settings = load(environ={}, arguments={"store": "memory:"})
    key = Key(id="a", name="a", tokens_per_day=1_000)
    with closing(open_store(settings)) as store:
        first, second = (Budgets(lambda key: TenantStore(store), Clock(), Registry().card) for _ in range(2))
        for budgets in (first, second):
            if budgets is second:
                budgets.today(key)
            made = budgets.record(key, "gpt-4o", Usage(prompt=20, output=7))
            assert made is not None
            TenantStore(store).append_made_record(*made)
        assert [budgets.today(key).tokens for budgets in (first, second)] == [54, 54]


def test_a_day_begins_at_midnight_utc_and_few_records_are_read(tmp_path):
    settings = load(environ={}, arguments={"store": str(tmp_path / "t.db")})
    clock, read, waits = Clock(), [], set()
    with closing(open_store(settings)) as store:

        class Counted(TenantStore):
            def read_records(self, area: str, shard: str, start: int, stop: int) -> Any:
                for entry in super().read_records(area, shard, start, stop):
                    read.append(entry)
                    yield entry

        def opened() -> Budgets:
            return Budgets(lambda key: Counted(store, key.tenant), clock, Registry().card, refresh_seconds=0)

        def spend(budgets: Budgets) -> None:
            made = budgets.record(key, "gpt-4o", Usage(prompt=90, output=10))
            assert made is not None
            Counted(store).append_made_record(*made)

        def is_refused(budgets: Budgets) -> bool:
            try:
                asyncio.run(budgets.admit(key))
            except RequestRefused as refused:
                waits.add(refused.retry_after)
                return True
            return False

        key = Key(id="abc", name="x", tokens_per_day=10_000)
        first, second = opened(), opened()
        for number in range(100):  # two gateways in turn
            gateway_budgets = second if number % 2 else first
            assert not is_refused(gateway_budgets), number
            spend(gateway_budgets)
        assert is_refused(first)
        assert is_refused(second)
        read.clear()
        third = opened()
        assert is_refused(third)
        assert third.today(key).tokens == 10_000
        assert len(read) < 10, "not all of the day"
        clock.at += DAY
        assert not is_refused(first)
        assert not is_refused(third)
    assert waits == {12 * 60 * 60 + 1}


def test_a_key_without_a_budget_stores_no_usage_record(tmp_path, up):
    with gateway(tmp_path, up.url) as gw:
        ask(gw, gw.secret)
        assert gw.gateway.budgets.record(gw.gateway.keys.list()[0], "gpt-4o", Usage(prompt=1, output=1)) is None


def test_limits_of_a_key_can_be_changed_while_it_is_used(tmp_path, up):
    with gateway(tmp_path, up.url) as gw:
        secret = gw.key(tokens_per_day=10)
        id = gw.gateway.keys.list()[-1].id
        ask(gw, secret)
        assert ask(gw, secret).status_code == 429
        Keys(gw.store, Clock()).limit(id, {"tokens_per_day": 1_000_000})
        assert ask(gw, secret).status_code == 200
        with pytest.raises(InputError):
            gw.gateway.keys.limit(id, {"rights": 1})
        with pytest.raises(InputError):
            gw.gateway.keys.limit(id, {"tokens_per_day": -1})


def test_keys_list_shows_the_usage_of_today(tmp_path, up):
    with gateway(tmp_path, up.url) as gw:
        secret = gw.key(tokens_per_day=1_000, dollars_per_day=2.5)
        ask(gw, secret)
        key = gw.gateway.keys.list()[-1]
        used = gw.gateway.budgets.today(key).tokens
    options = ("--store", str(tmp_path / "transcript.db"))
    listed = [json.loads(line) for line in called(*options, "keys", "list", "--json").stdout.splitlines()]
    row = next(row for row in listed if row["id"] == key.id)
    assert (row["tokens_today"], row["tokens_per_day"], row["dollars_per_day"]) == (used, 1_000, 2.5)
    assert "tokens_today" not in listed[0]
    changed = called(*options, "keys", "limit", key.id, "--tokens-per-day", "7", "--dollars-per-day", "0")
    assert "7 tokens a day" in changed.stdout
    assert called(*options, "keys", "limit", key.id).returncode != 0
    assert json.loads(called(*options, "keys", "list", "--json").stdout.splitlines()[1])["tokens_per_day"] == 7
