"""Approved memory reaches the upstream in every format: critical memory always, the rest when it is relevant."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.config.factory import open_memory

CRITICAL = "Refunds above 200.00 need two approvals, not one."
PLAIN = "The warehouse in Ghent ships on Mondays and Thursdays."
QUESTION = "On which days does the warehouse in Ghent ship?"
BODIES = {
    "chat/completions": {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    },
    "responses": {"instructions": "Be brief.", "input": [{"role": "user", "content": QUESTION}]},
    "messages": {"system": "Be brief.", "max_tokens": 100, "messages": [{"role": "user", "content": QUESTION}]},
}


@pytest.mark.parametrize("path", BODIES)
def test_the_prompt_of_a_new_conversation_contains_approved_memory(tmp_path, path):
    upstream = ScriptedUpstream(lambda request: Says(text="On Mondays and Thursdays."))
    with running(upstream) as up, gateway(tmp_path, up.url) as gw:
        memories = open_memory(replace(gw.gateway.settings, session="agent:default:main"), gw.store)
        for text, critical in ((CRITICAL, True), (PLAIN, False)):
            made = memories.propose("fact", text, critical=critical)
            memories.approve(made.id, made.digest, "ada")
        headers = {"authorization": f"Bearer {gw.secret}"}
        answer = httpx2.post(
            f"{gw.url}/v1/{path}", json={"model": "gpt-4o", **BODIES[path]}, headers=headers, timeout=30
        )
        assert answer.status_code == 200, answer.text
        sent = json.dumps(up.asked[-1].body)
        assert sent.count(CRITICAL) == 1
        assert sent.count(PLAIN) == 1
        assert sent.count("Be brief.") == 1
        assert up.asked[-1].problems == []
        assert json.dumps(up.asked[-1].messages[-1]).count(QUESTION) == 1, "the question is last"
