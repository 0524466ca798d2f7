"""`recto acp`: every byte passes unchanged, and every turn is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import recto
from recto.adapters.acp import AcpTurns
from recto.transcript.entries import MESSAGE

AGENT = Path(__file__).with_name("scripted_acp_agent.py")
PROGRAM = Path(sys.executable).with_name("recto")
SESSION = "sess-12345678"


def line(method: str, id: int | None = None, **params: object) -> bytes:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    return json.dumps(message if id is None else {**message, "id": id}).encode() + b"\n"


PROMPT = line("session/prompt", 3, sessionId=SESSION, prompt=[{"type": "text", "text": "What is the port?"}])


def test_a_turn_passes_unchanged_and_is_stored_with_its_call_and_result(tmp_path):
    sent = [line("initialize", 1, protocolVersion=1), line("session/new", 2, cwd="/", mcpServers=[]), b"", PROMPT]
    agent = [sys.executable, str(AGENT)]
    plain = subprocess.run(agent, input=b"".join(sent), capture_output=True, check=True)
    store = tmp_path / "acp.db"
    passed = subprocess.run(
        [PROGRAM, "--store", store, "acp", "--", *agent], input=b"".join(sent), capture_output=True, check=True
    )
    assert (passed.stdout, passed.stderr) == (plain.stdout, plain.stderr)
    with recto.open(store, session=SESSION) as session:
        stored = [json.loads(entry.content) for entry in session.read() if entry.kind == MESSAGE]
        surfaces = {entry.surface for entry in session.read() if entry.kind == MESSAGE}
    assert surfaces == {"acp"}
    assert [message["role"] for message in stored] == ["user", "assistant", "tool", "assistant"]
    assert stored[0]["content"] == "What is the port?"
    assert stored[1]["content"] == "I look at the file."
    assert json.loads(stored[1]["tool_calls"][0]["function"]["arguments"])["input"] == {"path": "a.py"}
    assert stored[2] == {"role": "tool", "tool_call_id": "call-1", "content": "port = 5433"}
    assert stored[3]["content"] == "The port is 5433."


def test_the_proxy_exits_with_the_exit_code_of_the_agent(tmp_path):
    command = [PROGRAM, "--store", tmp_path / "a.db", "acp", "--", sys.executable, "-c", "import sys; sys.exit(7)"]
    assert subprocess.run(command, input=b"", check=False).returncode == 7


def update(**fields: object) -> bytes:
    return line("session/update", sessionId=SESSION, update=fields)


def test_a_call_that_never_ends_is_stored_with_its_turn():
    turns = AcpTurns()
    [(_, message)] = turns.from_editor(PROMPT)
    assert message == {"role": "user", "content": "What is the port?"}
    assert turns.from_agent(update(sessionUpdate="tool_call", toolCallId="1", title="Run", kind="execute")) == []
    ended = turns.from_agent(b'{"jsonrpc": "2.0", "id": 3, "result": {"stopReason": "cancelled"}}')
    assert [message["role"] for _, message in ended] == ["assistant", "tool"]
    assert turns.end() == []


def test_parallel_calls_are_each_stored_with_their_result():
    turns = AcpTurns()
    turns.from_editor(PROMPT)
    for id in ("a", "b"):
        assert turns.from_agent(update(sessionUpdate="tool_call", toolCallId=id, kind="read", status="pending")) == []
    done = [
        turns.from_agent(update(sessionUpdate="tool_call_update", toolCallId=id, status="completed")) for id in "ba"
    ]
    assert [[message.get("tool_call_id") for _, message in pair] for pair in done] == [[None, "b"], [None, "a"]]


def test_input_that_is_not_a_turn_is_ignored():
    turns = AcpTurns()
    for odd in (b"", b"not json", b"[1]", b'{"method": "session/prompt"}', b'{"id": 3, "result": {}}', b"[" * 100_000):
        assert turns.from_editor(odd) == []
        assert turns.from_agent(odd) == []
    assert turns.from_agent(update(sessionUpdate="agent_message_chunk", content={"type": "text", "text": "x"})) == []
