"""The working record: rules, task, questions and commands stay in the prompt after their messages are evicted."""

from __future__ import annotations

import json

import pytest

import recto
from recto.engine.projection import DECISIONS
from recto.formats import problems

WINDOW = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}
RULE = "Never push to main without my approval."


def opened(store="memory:", **window):
    return recto.open(store, model="gpt-4o", models=WINDOW, window=window, recall={"enabled": False})


def shown(prompt) -> str:
    return "\n".join(str(message.get("content")) for message in prompt.messages)


def chat(session, turns: int, first: str = "Let us plan the release of the parser.") -> None:
    session.append({"role": "user", "content": first})
    for turn in range(turns):
        session.prompt()
        session.append(
            {"role": "assistant", "content": f"Part {turn}: " + "details of the parser and its tests. " * 20}
        )
        session.append({"role": "user", "content": f"And what comes after part {turn}?"})


def text_agent(session, steps: int, lines: int = 120) -> None:
    """Simulates an agent that writes commands as text and gets their outputs as user messages."""
    session.append({"role": "system", "content": "Answer with one bash block."})
    session.append({"role": "user", "content": "Make the tests of the billing module pass."})
    for number in range(steps):
        session.prompt()
        command = f"sed -n '{number}00,{number}99p' src/billing/module_{number}.py"
        session.append({"role": "assistant", "content": f"THOUGHT: read on.\n\n```bash\n{command}\n```"})
        output = "\n".join(f"    value_{number}_{line} = compute({line})" for line in range(lines))
        session.append({"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{output}\n</output>"})


def decisions(session) -> list[dict]:
    return [json.loads(entry.content) for entry in session.read() if entry.kind in DECISIONS]


@pytest.mark.requirement("protect.statements")
def test_a_rule_of_the_user_is_in_the_prompt_after_it_was_evicted():
    with opened() as session:
        session.append({"role": "user", "content": "Help me release the parser."})
        session.append({"role": "assistant", "content": "Gladly."})
        session.append({"role": "user", "content": RULE})
        chat(session, 60)
        prompt = session.prompt()
        assert session.window.state.evicted_messages > 20
        assert 3 not in session.window.state.messages
        assert RULE in shown(prompt)


def test_without_a_record_an_evicted_rule_is_gone():
    with opened(record_percent=0) as session:
        session.append({"role": "user", "content": "Help me release the parser."})
        session.append({"role": "assistant", "content": "Gladly."})
        session.append({"role": "user", "content": RULE})
        chat(session, 60)
        assert RULE not in shown(session.prompt())


def test_a_record_stays_within_its_share_of_the_input_budget():
    with opened(record_percent=4) as session:
        text_agent(session, 60)
        budget = session.window.budget.input_budget
        texts = [payload["record"]["text"] for payload in decisions(session) if "record" in payload]
        assert texts
        assert all(session.count(text) <= 0.04 * budget for text in texts)


@pytest.mark.parametrize("length", [28, 36])
def test_the_record_gets_the_tokens_that_the_newest_messages_leave_free(length):
    with opened(floor_percent=85, ceiling_percent=96) as session:
        session.append({"role": "user", "content": "Let us plan."})
        for turn in range(50):
            session.prompt()
            names = f"function_{turn}_load and table_{turn}_rows"
            session.append({"role": "assistant", "content": f"See {names}. " + "It has details and tests. " * length})
            names = f"module_{turn}_main calls reader_{turn}_next, writer_{turn}_last"
            session.append({"role": "user", "content": f"{names}. " + "That is how it works here. " * length})
        budget = session.window.budget.input_budget
        last = [payload for payload in decisions(session) if "record" in payload][-1]
        assert session.count(last["record"]["text"]) > 0.06 * budget
        assert last["tokens_after"] <= 0.91 * budget


def test_outputs_are_reduced_to_one_line_before_any_step_is_evicted():
    with opened() as session:
        text_agent(session, 8)
        prompt = session.prompt()
        assert session.window.state.shortened
        assert not session.window.state.evicted_messages
        text = shown(prompt)
        for number in range(8):
            assert f"src/billing/module_{number}.py" in text
        assert "value_7_119" in text
        assert "value_0_60 " not in text
        assert problems(prompt.raw, prompt.built.wire) == []


def test_a_tool_output_is_not_a_question_and_the_task_stays_the_question():
    with opened() as session:
        text_agent(session, 12)
        session.prompt()
        state = session.window.state
        assert state.task_seq == 2
        assert state.turn == 1
        assert 2 in state.messages


def test_the_next_user_message_is_a_question_again():
    with opened() as session:
        text_agent(session, 3, lines=5)
        session.append({"role": "user", "content": "Stop and explain what you found."})
        session.prompt()
        assert session.window.state.turn == 2


def test_a_reopened_session_has_the_same_prompt(tmp_path):
    store = tmp_path / "agent.db"
    with opened(store) as session:
        text_agent(session, 40)
        before = session.prompt().raw
    with opened(store) as session:
        assert session.prompt().raw == before


def test_restoring_a_decision_restores_the_record_before_it():
    with opened() as session:
        text_agent(session, 40)
        session.prompt()
        last = [entry for entry in session.read() if entry.kind in DECISIONS][-1]
        payload = json.loads(last.content)
        session.restore(last.seq)
        state = session.window.state
        assert state.record_seq == payload["record_before"]
        before = session.get(next(entry.id for entry in session.read() if entry.seq == state.record_seq))
        assert state.record.text == json.loads(before.content)["record"]["text"]


def test_a_restored_output_is_no_question_and_a_new_one_is_still_an_output():
    with opened() as session:
        text_agent(session, 40)
        session.prompt()
        question = session.window.state.question
        for decision in [entry for entry in session.read() if entry.kind in DECISIONS][:2]:
            session.append({"role": "assistant", "content": "I look.\n```bash\ncat a.py\n```"})
            session.restore(decision.seq)
            assert session.window.state.question == question
            session.append({"role": "user", "content": "Output:\nnothing"})
            assert session.window.state.question == question


def test_an_environment_note_is_not_the_task():
    with opened() as session:
        session.append({"role": "user", "content": "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>"})
        session.append({"role": "user", "content": "Rename the module billing to invoices."})
        session.prompt()
        assert session.window.state.task_seq == 2


def test_an_environment_note_with_agent_metadata_is_not_the_task():
    environment = "<environment_context>\n  <cwd>/repo</cwd>\n</environment_context>"
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": environment}]}
    with opened() as session:
        session.append({**item, "internal_chat_message_metadata_passthrough": {"turn_id": "1"}})
        session.append({"role": "user", "content": "Rename the module billing to invoices."})
        assert session.window.state.task_seq == 2


def test_a_short_answer_keeps_the_question_it_answers():
    with opened() as session:
        chat(session, 60)
        session.append({"role": "assistant", "content": "Shall I (1) merge, (2) tag, or (3) wait? " + "because " * 300})
        session.append({"role": "user", "content": "1+2"})
        assert "Shall I (1) merge" in shown(session.prompt())


@pytest.mark.parametrize("role", ["system", "user"])
def test_a_text_that_exceeds_the_window_alone_is_cut_and_not_refused(role):
    with opened() as session:
        session.append({"role": role, "content": "Keep to these rules. " + "A long rule follows. " * 3_000})
        session.append({"role": "user", "content": "What is rule one?"})
        prompt = session.prompt()
        assert prompt.tokens <= session.window.budget.input_budget
        assert "What is rule one?" in shown(prompt)
        assert "Keep to these rules." in shown(prompt)
        assert "recto://" in shown(prompt)


def test_a_quotation_is_never_the_last_message():
    with recto.open("memory:", model="gpt-4o", models=WINDOW, recall={"embedder": {"use": "none"}}) as session:
        session.append({"role": "user", "content": "Help me with the books of this year."})
        session.append({"role": "assistant", "content": "Gladly."})
        session.append({"role": "user", "content": "The invoice number of Acme is INV-4711."})
        session.append({"role": "assistant", "content": "Noted."})
        chat(session, 60)
        session.append({"role": "assistant", "content": "Done."})
        session.append({"role": "user", "content": "Which invoice number does Acme have?"})
        prompt = session.prompt()
        assert prompt.recalled
        assert prompt.messages[-1]["content"] == "Which invoice number does Acme have?"


def test_a_long_task_is_cut_once_the_model_has_seen_it_and_the_run_continues():
    with opened() as session:
        session.append({"role": "user", "content": "Fix this bug. " + "A long description of it follows. " * 700})
        for number in range(12):
            session.prompt()
            call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            session.append({"role": "assistant", "content": None, "tool_calls": [call]})
            session.append({"role": "tool", "tool_call_id": f"c{number}", "content": "line of the file\n" * 150})
        prompt = session.prompt()
        assert prompt.tokens <= session.window.budget.input_budget
        assert "Fix this bug." in shown(prompt)


def test_a_long_answer_of_the_model_is_cut_before_the_task_and_the_system_text():
    task = "Make the tests of the billing module pass. " + "It has many parts, and each has tests. " * 20
    with opened() as session:
        session.append({"role": "system", "content": "Answer with one bash block."})
        session.append({"role": "user", "content": task})
        body = "\n".join(f"value_{line} = {line}" for line in range(900))
        session.append({"role": "assistant", "content": f"```bash\ncat > values.py <<'EOF'\n{body}\nEOF\n```"})
        session.append({"role": "user", "content": "<returncode>0</returncode>\n<output>\n</output>"})
        prompt = session.prompt()
        assert prompt.tokens <= session.window.budget.input_budget
        assert problems(prompt.raw, prompt.built.wire) == []
        assert [message["content"] for message in prompt.messages[:2]] == ["Answer with one bash block.", task]
        [answer] = [message for message in prompt.messages if message["role"] == "assistant"]
        assert "value_0 = 0" in answer["content"]
        assert "value_450 = 450" not in answer["content"]


@pytest.mark.parametrize("mode", ["auto_compact", "zones"])
def test_record_and_summary_say_each_thing_once(mode):
    with opened(mode=mode) as session:
        session.append({"role": "user", "content": "Help me release the parser."})
        session.append({"role": "assistant", "content": "Gladly."})
        session.append({"role": "user", "content": RULE})
        chat(session, 60)
        text = shown(session.prompt())
        assert session.window.state.summary is not None
        assert text.count(RULE) == 1
        lines = [line for line in text.splitlines() if line.startswith("- ")]
        assert len(lines) == len(set(lines))
