"""Digests on arrival: large tool results are summarised before the model sees them, if configured."""

from __future__ import annotations

import json

import httpx2
import pytest
from tests.gateway.gateways import gateway
from tests.gateway.upstream import Says, ScriptedUpstream, running

import recto
from recto.engine.projection import TRIMMED
from recto.formats import FORMATS as BY_NAME
from recto.formats import problems
from recto.formats.tool_calls import NewToolCall, NewToolResult
from recto.transcript.entries import MESSAGE

ROWS = "\n".join(f"10:00:{number % 60:02} INFO checked=row_{number} size={number * 7}" for number in range(600))
LONG = f"{ROWS}\n10:11:00 ERROR broken=part_7381_gate"
SHORT = "3 files, all clean"


def opened(store="memory:", tokens=1_000, **more):
    return recto.open(store, model="gpt-4o", compress={"on_arrival_tokens": tokens}, recall={"enabled": False}, **more)


def step(wire: str, number: int, output: str, tool: str = "check") -> list[bytes]:
    edits = BY_NAME[wire].edits
    return [
        *edits.call_messages("", [NewToolCall(f"call_{number}", tool, {"part": str(number)})]),
        *edits.result_messages([NewToolResult(f"call_{number}", output, tool)]),
    ]


def work(session, wire: str, *outputs: str, tool: str = "check"):
    """Appends a question and one step per output; returns the prompt after each step."""
    session.append(BY_NAME[wire].text_message("user", "Look at the parts."))
    prompts = []
    for number, output in enumerate(outputs):
        for message in step(wire, number, output, tool):
            session.append(message)
        prompts.append(session.prompt())
    return prompts


def text_of(prompt) -> str:
    return b"\n".join(prompt.raw).decode()


def decisions(session) -> list[dict]:
    return [json.loads(entry.content) | {"seq": entry.seq} for entry in session.read() if entry.kind == TRIMMED]


@pytest.mark.requirement("compress.arrival")
@pytest.mark.parametrize("wire", BY_NAME)
def test_a_large_result_enters_the_prompt_as_a_digest_and_is_stored_in_full(wire, tmp_path):
    with opened(tmp_path / "a.db") as session:
        first, second, third = work(session, wire, LONG, SHORT, LONG.replace("7381", "9412"))
        assert "row_300 " not in text_of(first)
        assert "ERROR broken=part_7381_gate" in text_of(first)
        assert "Shortened from" in text_of(first)
        assert "9412" in text_of(third)
        assert first.tokens < 1_000
        assert third.tokens < 2_000
        assert problems(third.raw, third.built.wire) == []
        # each is summarised once, before it is sent: every prompt begins with the one before
        assert [decision["policy"] for decision in decisions(session)] == ["on_arrival", "on_arrival"]
        assert second.raw[: len(first.raw)] == first.raw
        assert third.raw[: len(second.raw)] == second.raw
        assert sum(b"row_300 " in entry.content for entry in session.read() if entry.kind == MESSAGE) == 2
    with opened(tmp_path / "a.db") as session:
        assert session.prompt().raw == third.raw


def test_by_default_the_model_sees_every_result_in_full_once():
    with opened(tokens=0) as session:
        (prompt,) = work(session, "openai.chat", LONG)
        assert "row_300 " in text_of(prompt)
        assert decisions(session) == []


def test_a_restored_result_is_not_digested_again():
    with opened() as session:
        work(session, "openai.chat", LONG)
        session.restore(decisions(session)[0]["seq"])
        assert "row_300 " in text_of(session.prompt())
        assert len(decisions(session)) == 1


def test_results_of_excluded_tools_and_marked_results_are_not_digested():
    with opened(window={"trim": {"exclude_tools": ["check"]}}) as session:
        assert "row_300 " in text_of(work(session, "openai.chat", LONG)[0])
    with opened() as session:
        assert "row_300 " in text_of(work(session, "openai.chat", f"DO_NOT_EVICT\n{LONG}")[0])
        assert decisions(session) == []


def test_the_output_of_a_command_written_as_text_is_summarised_too():
    with opened() as session:
        session.append({"role": "user", "content": "Look at the parts."})
        session.append({"role": "assistant", "content": "I look.\n\n```bash\ncat parts.txt\n```"})
        session.append({"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{LONG}\n</output>"})
        prompt = session.prompt()
        assert "row_300 " not in text_of(prompt)
        assert "part_7381_gate" in text_of(prompt)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_gateway_sends_the_digest_and_keeps_the_client_history_in_one_session(tmp_path, stream):
    history = [
        {"role": "user", "content": "Look at the parts."},
        *(json.loads(raw) for raw in step("openai.chat", 1, LONG)),
    ]
    with (
        running(ScriptedUpstream(lambda request: Says(text="One error."))) as upstream,
        gateway(tmp_path, upstream.url, compress={"on_arrival_tokens": 1_000}) as gw,
    ):

        def ask(messages):
            body = {"model": "gpt-4o", "messages": messages, "stream": stream}
            headers = {"authorization": f"Bearer {gw.secret}"}
            return httpx2.post(f"{gw.url}/v1/chat/completions", json=body, headers=headers, timeout=60)

        answers = [ask(history)]
        longer = [*history, {"role": "assistant", "content": "One error."}, {"role": "user", "content": "Which?"}]
        answers.append(ask(longer))
        assert [answer.status_code for answer in answers] == [200, 200]
        assert len({answer.headers["x-recto-session-id"] for answer in answers}) == 1
        for request in upstream.asked:
            assert request.problems == []
            assert b"row_300 " not in request.raw
            assert b"part_7381_gate" in request.raw
