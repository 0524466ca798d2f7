"""The cost of a request that continues a conversation: commits, and hops between threads."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

from recto.stores.sqlite import rows

TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]


@pytest.fixture
def counted(monkeypatch) -> Counter[str]:
    counts: Counter[str] = Counter()
    commit, hop = rows.SqliteWriter._commit, ThreadPoolExecutor.submit

    def counted_commit(self, *args):
        counts["commits"] += 1
        return commit(self, *args)

    def counted_hop(self, call, *args):
        counts["hops"] += 1
        return hop(self, call, *args)

    monkeypatch.setattr(rows.SqliteWriter, "_commit", counted_commit)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", counted_hop)
    return counts


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_continues_a_conversation_takes_two_commits_and_two_hops(tmp_path, counted, stream):
    with running(ScriptedUpstream(lambda request: Says(text="an answer"))) as up, gateway(tmp_path, up.url) as gw:
        headers = {"authorization": f"Bearer {gw.secret}"}
        messages = [{"role": "system", "content": "Be brief."}]
        for turn in range(6):
            before = counted.copy()
            messages.append({"role": "user", "content": f"question {turn} about the build"})
            body = {"model": "gpt-4o", "messages": messages, "tools": TOOLS, "stream": stream}
            answer = httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
            assert answer.status_code == 200, answer.text
            if not stream:
                assert json.loads(answer.content)["choices"][0]["message"]["content"] == "an answer"
            messages.append({"role": "assistant", "content": "an answer"})
        assert counted - before == {"commits": 2, "hops": 2}
