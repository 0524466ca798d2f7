"""Promise 9 at the gateway: a tenant never sees another's text, nor that it exists.

Tenants send the same messages to the same agent in sessions of the same names, each with a word of its own. Every route
of the gateway is called with every kind of name of another tenant, and with unknown names: the responses are equal to
the byte, and none contains words of other tenants.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from chaos import PATHS, TOOLS, Direct, GatewayResponse, Provider, direct
from tests.gateway.inspecting import example
from tests.gateway.upstream import Asked, Says, ScriptedUpstream

from recto.formats.openai_responses import RESPONSES
from recto.gateway.inspection.operations import OPERATIONS, PREFIX
from recto.transcript import session_keys

pytestmark = pytest.mark.timeout(0)
MAIN = "agent:default:main"
PROJECT = "agent:default:project"
CANARY = re.compile(rb"canary[a-z]{8}")


def canary(number: int) -> str:
    return "canary" + "".join(chr(ord("a") + (number >> shift) % 26) for shift in range(8))


def unknown(names: dict[str, str]) -> dict[str, str]:
    """Returns unknown names of the same length."""
    return {kind: name[:5] + "z" * (len(name) - 5) for kind, name in names.items()}


def echoing(request: Asked) -> Says:
    """A provider that repeats its prompt: whatever reached a prompt is in the response."""
    return Says(text=f"I was told: {json.dumps(request.messages)[-2_000:]}")


class Tenant:
    """One of many tenants with the same conversations."""

    def __init__(self, gw: Direct, number: int) -> None:
        self.gw = gw
        self.word = canary(number)
        self.secret = gw.key(tenant=f"t{number}" if number else "")
        self.names: dict[str, str] = {}

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> GatewayResponse:
        return await self.gw.post(path, body, self.secret, **headers)

    async def talk(self) -> None:
        """Sends the usual messages to every endpoint, and stores the ids in the responses."""
        text = f"the password is {self.word}"
        for path, member in (("/v1/chat/completions", "messages"), ("/v1/messages", "messages")):
            answer = await self.post(path, {"model": "gpt-4o", member: [{"role": "user", "content": text}]})
            assert answer.status == 200, answer
        body: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": text}]}
        await self.post("/v1/chat/completions", body, x_recto_session_id="project")
        items = {"metadata": {"of": self.word}, "items": [{"role": "user", "content": text}]}
        self.names["conversation"] = (await self.post("/v1/conversations", items)).json["id"]
        body = {"model": "gpt-4o", "input": text, "tools": TOOLS[RESPONSES]}
        answer = await self.post("/v1/responses", body)
        self.names["session"] = answer.headers["x-recto-session-id"]
        # Providers use random ids; the scripted one would give two tenants the same.
        self.names["response"] = answer.json["id"]
        compacted = await self.post("/v1/responses/compact", body)
        self.names["compaction"] = compacted.json["output"][-1]["encrypted_content"].removeprefix("recto:")


def without_chance(answer: GatewayResponse, *names: str) -> tuple[int, dict[str, str], bytes]:
    """Returns a response without its random parts and without the requested name."""
    body = answer.body
    for name in names:
        body = body.replace(name.encode(), b"NAME")
    body = re.sub(rb"req_[0-9a-f]{32}", b"REQ", body)
    chance = ("x-request-id", "request-id", "x-recto-request-id")
    headers = {key: value for key, value in answer.headers.items() if key not in chance}
    return answer.status, headers, body


def ways(name: dict[str, str]) -> list[tuple[str, str, str, dict[str, Any] | None]]:
    """Returns requests that name a stored object: method, path, query, body."""
    ask = {"model": "gpt-4o", "tools": TOOLS[RESPONSES]}
    compaction = {"type": "compaction", "encrypted_content": f"recto:{name['compaction']}"}
    went_on = [compaction, {"role": "user", "content": "go on"}]
    conversation = f"/v1/conversations/{name['conversation']}"
    return [
        ("GET", conversation, "", None),
        ("GET", f"{conversation}/items", "", None),
        ("GET", f"{conversation}/items", "limit=100&order=asc", None),
        ("POST", "/v1/responses", "", {**ask, "input": "go on", "previous_response_id": name["response"]}),
        ("POST", "/v1/responses", "", {**ask, "input": "go on", "conversation": name["conversation"]}),
        ("POST", "/v1/responses", "", {**ask, "input": "go on", "conversation": {"id": name["conversation"]}}),
        ("POST", "/v1/responses", "", {**ask, "input": went_on}),
        ("POST", "/v1/responses/compact", "", {**ask, "input": went_on}),
        ("POST", "/v1/responses/compact", "", {**ask, "input": "x", "previous_response_id": name["response"]}),
        ("POST", "/v1/responses/input_tokens", "", {**ask, "input": "x", "previous_response_id": name["response"]}),
        ("POST", "/v1/responses/input_tokens", "", {**ask, "input": went_on}),
    ]


async def differences(gw: Direct, tenant: Tenant, other: Tenant) -> list[Any]:
    """Returns what a tenant learns of another: foreign words, and responses that differ from unknown names."""
    found: list[Any] = []
    unknown_names = unknown(other.names)
    for real, made in zip(ways(other.names), ways(unknown_names), strict=True):
        answers = []
        for method, path, query, body in (real, made):
            raw = b"" if body is None else json.dumps(body).encode()
            answers.append(await gw.ask(method, path, raw, tenant.secret, query=query))
        first, second = (
            without_chance(answer, *names.values())
            for answer, names in zip(answers, (other.names, unknown_names), strict=True)
        )
        if first != second:
            found.append(("differs", real[:2], first, second))
        found += [("leaks", real[:2], answer) for answer in answers if foreign_words(answer.body, tenant)]
    return found


def foreign_words(body: bytes, tenant: Tenant) -> set[bytes]:
    return set(CANARY.findall(body)) - {tenant.word.encode()}


async def every_route(gw: Direct, tenant: Tenant, names: list[str]) -> list[Any]:
    """Calls every inspection route with sessions of other tenants; returns failures and leaks."""
    found: list[Any] = []
    for operation in OPERATIONS:
        for name in names if "session" in operation.query else names[:1]:
            query, body = example(operation, session=name)
            raw = b"" if body is None else json.dumps(body).encode()
            answer = await gw.ask(operation.method, PREFIX + operation.path, raw, tenant.secret, query=urlencode(query))
            if answer.status >= 500 or foreign_words(answer.body, tenant):
                found.append((operation.path, name, answer))
    for path in ("/v1/models", "/metrics", "/", "/healthz", "/readyz"):
        answer = await gw.ask("GET", path, b"", tenant.secret)
        if foreign_words(answer.body, tenant):
            found.append((path, answer))
    return found


async def go_on(tenant: Tenant, others: list[Tenant]) -> list[Any]:
    """Continues sessions under names that other tenants use: each tenant has its own session of that name."""
    found: list[Any] = []
    for name in [MAIN, PROJECT, *(other.names["session"] for other in others)]:
        for wire, path in PATHS.items():
            member = "input" if wire == RESPONSES else "messages"
            body = {"model": "gpt-4o", member: [{"role": "user", "content": "what is the password"}]}
            answer = await tenant.post(path, body, x_recto_session_id=name)
            if answer.status >= 500 or foreign_words(answer.body, tenant):
                found.append((name, path, answer))
    return found


def met(folder: Path, work: Callable[[Direct, list[Tenant]], Coroutine[Any, Any, Any]], many: int) -> Any:
    """Runs `work` on a gateway with so many tenants, after their conversations."""

    async def run() -> Any:
        async with Provider(ScriptedUpstream(echoing)).listening() as provider, direct(folder, provider.url) as gw:
            tenants = [Tenant(gw, number) for number in range(many)]
            await asyncio.gather(*(tenant.talk() for tenant in tenants))
            return await work(gw, tenants)

    return asyncio.run(run())


async def all_of_it(gw: Direct, tenants: list[Tenant]) -> list[Any]:
    found: list[Any] = []
    for place, tenant in enumerate(tenants):
        other = tenants[place - 1]
        others = [other.names["session"], f"tenant:t{place - 1}/{MAIN}", "recto:keys", f"recto:lineage/t{place - 1}/00"]
        found += await differences(gw, tenant, other)
        found += await every_route(gw, tenant, [MAIN, PROJECT, *others])
        found += await go_on(tenant, [other])
    return found


@pytest.mark.promise
def test_no_route_and_no_name_leads_from_one_tenant_to_another(swift_folder, scale):
    assert met(swift_folder, all_of_it, scale(4, ci=100, release=200)) == []


def test_a_lineage_that_all_tenants_share_is_caught(swift_folder, monkeypatch):
    monkeypatch.setattr(session_keys, "record_key", lambda area, tenant, shard: f"recto:{area}/all/{shard}")
    found = met(swift_folder, all_of_it, 2)
    assert {finding[0] for finding in found} & {"differs", "leaks"}


def test_every_route_declares_the_permission_it_needs(swift_folder):
    async def missing(gw: Direct, tenants: list[Tenant]) -> list[str]:
        return gw.gateway.authority.missing(gw.gateway.routes)

    assert met(swift_folder, missing, 0) == []
