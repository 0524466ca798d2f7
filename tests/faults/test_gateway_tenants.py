"""Promise 9 at the gateway: a tenant never sees another's text, nor that it is there.

Tenants say the same things to the same agent in sessions of the same names, each with a word of its own. Every route
of the gateway is asked with every kind of name that belongs to somebody else, and with names that nobody has: the
answers are the same to the byte, and the words of others are in none of them.
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
from chaos import PATHS, TOOLS, Answered, Direct, Provider, direct
from tests.gateway.inspecting import example
from tests.gateway.upstream import Asked, Says, ScriptedUpstream

from recto.formats.openai_responses import RESPONSES
from recto.gateway.inspection.operations import OPERATIONS, PREFIX
from recto.transcript import tenancy

pytestmark = pytest.mark.timeout(0)
MAIN = "agent:default:main"
PROJECT = "agent:default:project"
CANARY = re.compile(rb"canary[a-z]{8}")


def canary(number: int) -> str:
    return "canary" + "".join(chr(ord("a") + (number >> shift) % 26) for shift in range(8))


def unknown(names: dict[str, str]) -> dict[str, str]:
    """Names of the same length that nobody has."""
    return {kind: name[:5] + "z" * (len(name) - 5) for kind, name in names.items()}


def echoing(asked: Asked) -> Says:
    """A provider that says everything it was told: whatever reached a prompt is in the answer."""
    return Says(text=f"I was told: {json.dumps(asked.messages)[-2_000:]}")


class Tenant:
    """One of many that talk alike."""

    def __init__(self, gw: Direct, number: int) -> None:
        self.gw = gw
        self.word = canary(number)
        self.secret = gw.key(tenant=f"t{number}" if number else "")
        self.names: dict[str, str] = {}

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> Answered:
        return await self.gw.post(path, body, self.secret, **headers)

    async def talk(self) -> None:
        """Says the usual things everywhere, and keeps the names it is given."""
        told = f"the password is {self.word}"
        for path, member in (("/v1/chat/completions", "messages"), ("/v1/messages", "messages")):
            answer = await self.post(path, {"model": "gpt-4o", member: [{"role": "user", "content": told}]})
            assert answer.status == 200, answer
        body: dict[str, Any] = {"model": "gpt-4o", "messages": [{"role": "user", "content": told}]}
        await self.post("/v1/chat/completions", body, x_recto_session_id="project")
        items = {"metadata": {"of": self.word}, "items": [{"role": "user", "content": told}]}
        self.names["conversation"] = (await self.post("/v1/conversations", items)).json["id"]
        body = {"model": "gpt-4o", "input": told, "tools": TOOLS[RESPONSES]}
        answer = await self.post("/v1/responses", body)
        self.names["session"] = answer.headers["x-recto-session-id"]
        # Providers number their answers by chance; the scripted one would give two tenants the same.
        self.names["response"] = answer.json["id"]
        compacted = await self.post("/v1/responses/compact", body)
        self.names["compaction"] = compacted.json["output"][-1]["encrypted_content"].removeprefix("recto:")


def without_chance(answer: Answered, *names: str) -> tuple[int, dict[str, str], bytes]:
    """An answer without what is different each time, and without the name that was asked for."""
    body = answer.body
    for name in names:
        body = body.replace(name.encode(), b"NAME")
    body = re.sub(rb"req_[0-9a-f]{32}", b"REQ", body)
    chance = ("x-request-id", "request-id", "x-recto-request-id")
    headers = {key: value for key, value in answer.headers.items() if key not in chance}
    return answer.status, headers, body


def ways(name: dict[str, str]) -> list[tuple[str, str, str, dict[str, Any] | None]]:
    """Requests that name something which is held: method, path, query, body."""
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


async def differences(gw: Direct, one: Tenant, other: Tenant) -> list[Any]:
    """What one learns of the other: other words than its own, and answers that differ from those about nothing."""
    found: list[Any] = []
    nobodys = unknown(other.names)
    for real, made in zip(ways(other.names), ways(nobodys), strict=True):
        answers = []
        for method, path, query, body in (real, made):
            raw = b"" if body is None else json.dumps(body).encode()
            answers.append(await gw.ask(method, path, raw, one.secret, query=query))
        first, second = (
            without_chance(answer, *names.values())
            for answer, names in zip(answers, (other.names, nobodys), strict=True)
        )
        if first != second:
            found.append(("differs", real[:2], first, second))
        found += [("leaks", real[:2], answer) for answer in answers if foreign_words(answer.body, one)]
    return found


def foreign_words(body: bytes, one: Tenant) -> set[bytes]:
    return set(CANARY.findall(body)) - {one.word.encode()}


async def every_route(gw: Direct, one: Tenant, names: list[str]) -> list[Any]:
    """Asks everything that can be inspected of sessions that others have."""
    found: list[Any] = []
    for operation in OPERATIONS:
        for name in names if "session" in operation.query else names[:1]:
            query, body = example(operation, session=name)
            raw = b"" if body is None else json.dumps(body).encode()
            answer = await gw.ask(operation.method, PREFIX + operation.path, raw, one.secret, query=urlencode(query))
            if answer.status >= 500 or foreign_words(answer.body, one):
                found.append((operation.path, name, answer))
    for path in ("/v1/models", "/metrics", "/", "/healthz", "/readyz"):
        answer = await gw.ask("GET", path, b"", one.secret)
        if foreign_words(answer.body, one):
            found.append((path, answer))
    return found


async def go_on(one: Tenant, others: list[Tenant]) -> list[Any]:
    """Goes on in sessions by the names that others have for theirs: each has its own under that name."""
    found: list[Any] = []
    for name in [MAIN, PROJECT, *(other.names["session"] for other in others)]:
        for wire, path in PATHS.items():
            member = "input" if wire == RESPONSES else "messages"
            body = {"model": "gpt-4o", member: [{"role": "user", "content": "what is the password"}]}
            answer = await one.post(path, body, x_recto_session_id=name)
            if answer.status >= 500 or foreign_words(answer.body, one):
                found.append((name, path, answer))
    return found


def met(folder: Path, work: Callable[[Direct, list[Tenant]], Coroutine[Any, Any, Any]], many: int) -> Any:
    """So many tenants in one gateway, all of whom have talked."""

    async def run() -> Any:
        async with Provider(ScriptedUpstream(echoing)).listening() as provider, direct(folder, provider.url) as gw:
            tenants = [Tenant(gw, number) for number in range(many)]
            await asyncio.gather(*(tenant.talk() for tenant in tenants))
            return await work(gw, tenants)

    return asyncio.run(run())


async def all_of_it(gw: Direct, tenants: list[Tenant]) -> list[Any]:
    found: list[Any] = []
    for place, one in enumerate(tenants):
        other = tenants[place - 1]
        others = [other.names["session"], f"tenant:t{place - 1}/{MAIN}", "recto:keys", f"recto:lineage/t{place - 1}/00"]
        found += await differences(gw, one, other)
        found += await every_route(gw, one, [MAIN, PROJECT, *others])
        found += await go_on(one, [other])
    return found


@pytest.mark.promise
def test_no_route_and_no_name_leads_from_one_tenant_to_another(swift_folder, scale):
    assert met(swift_folder, all_of_it, scale(4, ci=100, release=200)) == []


def test_a_lineage_that_all_tenants_share_is_caught(swift_folder, monkeypatch):
    monkeypatch.setattr(tenancy, "record_key", lambda area, tenant, shard: f"recto:{area}/all/{shard}")
    found = met(swift_folder, all_of_it, 2)
    assert {one[0] for one in found} & {"differs", "leaks"}


def test_every_route_says_which_right_it_needs(swift_folder):
    async def missing(gw: Direct, tenants: list[Tenant]) -> list[str]:
        return gw.gateway.authority.missing(gw.gateway.routes)

    assert met(swift_folder, missing, 0) == []
