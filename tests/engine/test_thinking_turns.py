"""Thinking of older turns is cleared from the prompt when relief is due, in each format, and at no other time."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.config import load
from recto.config.factory import open_session
from recto.context.window.report import list_token_holders
from recto.engine.audit import audit
from recto.errors import SettingsError
from recto.formats import problems
from recto.stores.memory import MemoryStore

MODELS = {
    "anthropic.messages": "claude-sonnet-4-20250514",
    "openai.responses": "gpt-5",
    "google.gemini": "gemini-2.5-pro",
    "openai.chat": "gpt-4o",
}
MUSING = "Let me think about this at some length before I answer, and weigh one way against the other. " * 6
each_format = pytest.mark.parametrize("wire", MODELS)


def turn(wire: str, number: int, *, steps: int = 1, ids: bool = False) -> list[dict]:
    """Returns a question, `steps` calls with thinking before each, and an answer with thinking."""
    thought, call = f"{MUSING} ({number})", f"c{number}"
    named = {"id": f"item_{number}"} if ids else {}
    match wire:
        case "anthropic.messages":
            block = {"type": "thinking", "thinking": thought, "signature": f"sig{number}"}
            loop = [
                message
                for step in range(steps)
                for message in (
                    {
                        "role": "assistant",
                        "content": [block, {"type": "tool_use", "id": f"{call}_{step}", "name": "read", "input": {}}],
                    },
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": f"{call}_{step}", "content": "found"}],
                    },
                )
            ]
            answer = {"role": "assistant", "content": [block, {"type": "text", "text": f"Answer {number}."}]}
            return [{"role": "user", "content": f"Question {number}?"}, *loop, answer]
        case "openai.responses":
            reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": thought}], **named}
            loop = [
                item
                for step in range(steps)
                for item in (
                    reasoning,
                    {"type": "function_call", "call_id": f"{call}_{step}", "name": "read", "arguments": "{}", **named},
                    {"type": "function_call_output", "call_id": f"{call}_{step}", "output": "found"},
                )
            ]
            text = [{"type": "output_text", "text": f"Answer {number}."}]
            answer = {"type": "message", "role": "assistant", "content": text, **named}
            question = {"type": "message", "role": "user", "content": f"Question {number}?"}
            return [question, *loop, reasoning, answer]
        case "google.gemini":
            thinks = {"text": thought, "thought": True}
            loop = [
                content
                for step in range(steps)
                for content in (
                    {
                        "role": "model",
                        "parts": [
                            thinks,
                            {
                                "functionCall": {"id": f"{call}_{step}", "name": "read", "args": {}},
                                "thoughtSignature": f"sig{number}",
                            },
                        ],
                    },
                    {
                        "role": "user",
                        "parts": [
                            {
                                "functionResponse": {
                                    "id": f"{call}_{step}",
                                    "name": "read",
                                    "response": {"result": "found"},
                                }
                            }
                        ],
                    },
                )
            ]
            answer = {"role": "model", "parts": [thinks, {"text": f"Answer {number}."}]}
            return [{"role": "user", "parts": [{"text": f"Question {number}?"}]}, *loop, answer]
    function = {"name": "read", "arguments": "{}"}
    loop = [
        message
        for step in range(steps)
        for message in (
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": thought,
                "tool_calls": [{"id": f"{call}_{step}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"{call}_{step}", "content": "found"},
        )
    ]
    answer = {"role": "assistant", "content": f"Answer {number}.", "reasoning_content": thought}
    return [{"role": "user", "content": f"Question {number}?"}, *loop, answer]


def opened(wire: str, store=None, *, size: int = 3_200, **window):
    models = {MODELS[wire]: {"window": size, "max_input": size}}
    small = {"min_recent_messages": 4, "reserve": 200, "look_ahead": False, "cache_aware": False} | window
    arguments = {"model": MODELS[wire], "models": models, "window": small, "recall": {"inject": False}}
    return open_session(load(arguments=arguments), store or MemoryStore())


def play(session, wire: str, turns: int, **how):
    """Runs an agent for a number of turns; returns the prompts built for it."""
    prompts = []
    for number in range(turns):
        for message in turn(wire, number, **how):
            if message.get("role") in ("assistant", "model") or message.get("type") in ("reasoning", "function_call"):
                prompts.append(session.prompt(wire=wire))
            session.append(message)
    return prompts


def thoughts(prompt) -> list[int]:
    """Returns the turns whose thinking is in a prompt."""
    text = [json.dumps(message) for message in prompt.messages]
    return [number for number in range(60) if any(f"{MUSING} ({number})" in line for line in text)]


def cleared(session) -> list[dict]:
    return [json.loads(entry.content) for entry in session.read() if entry.kind == "thinking_cleared"]


def until_relief(session, wire: str):
    """Runs turns until the first decision; returns the prompts before and after it and the number of answered turns."""
    before = None
    for number in range(40):
        for message in turn(wire, number):
            session.append(message)
            prompt = session.prompt(wire=wire)
            if prompt.decisions:
                return before, prompt, number
            before = prompt
    raise AssertionError("nothing was decided")


@each_format
@pytest.mark.requirement("evict.thinking")
def test_older_thinking_is_cleared_before_anything_is_evicted(wire):
    with opened(wire) as session:
        before, last, answered = until_relief(session, wire)
        assert {entry.kind for entry in last.decisions} == {"thinking_cleared"}
        [decision] = cleared(session)
        assert decision["tokens_after"] < decision["tokens_before"]
        assert last.tokens < before.tokens
        assert problems(last.raw, wire) == []
        text = json.dumps(last.messages)
        assert all(f"Question {number}?" in text and f"Answer {number}." in text for number in range(answered))
        if wire == "google.gemini":
            assert text.count('"thoughtSignature"') == text.count('"functionCall"') > answered
        if wire == "anthropic.messages":
            blocks = [block for m in last.messages for block in m["content"] if isinstance(block, dict)]
            assert all(block["signature"] for block in blocks if block["type"] == "thinking")


@each_format
@pytest.mark.requirement("evict.thinking")
def test_thinking_of_the_current_and_the_previous_turn_stays(wire):
    with opened(wire) as session:
        for number in range(12):
            prompts = []
            for message in turn(wire, number, steps=2):
                session.append(message)
                prompts.append(session.prompt(wire=wire))
            seen = [thoughts(prompt) for prompt in prompts[3:]]
            assert all(number in numbers for numbers in seen)
            assert all(number - 1 in numbers for numbers in seen if number)
            assert all(problems(prompt.raw, wire) == [] for prompt in prompts if prompt.messages)
        assert cleared(session)


@each_format
@pytest.mark.requirement("evict.thinking")
def test_between_reliefs_the_prefix_is_not_rewritten(wire):
    with opened(wire) as session:
        before = ()
        for prompt in play(session, wire, 20):
            if not prompt.decisions:
                assert prompt.raw[: len(before)] == before
            before = prompt.raw
        assert 1 <= len(cleared(session)) < 20


@each_format
@pytest.mark.requirement("evict.thinking")
def test_clearing_can_be_undone_survives_a_restart_and_changes_no_stored_entry(wire):
    store = MemoryStore()
    with opened(wire, store) as session:
        _, prompt, _ = until_relief(session, wire)
        session.window.pin([1])  # takes a snapshot
    with opened(wire, store) as session:
        assert session.prompt(wire=wire).raw == prompt.raw
        decision = next(entry for entry in session.read() if entry.kind == "thinking_cleared")
        stored = [entry.content for entry in session.read() if entry.kind == "message"]
        assert sum(MUSING.encode() in content for content in stored) > len(thoughts(prompt))
        session.restore(decision.seq)
        assert session.window.state.cleared == {}
        assert session.window.state.tokens == sum(entry.tokens for entry in session.read() if entry.kind == "message")


@pytest.mark.requirement("evict.thinking")
def test_the_audit_and_the_report_name_the_messages_without_their_thinking():
    with opened("anthropic.messages") as session:
        until_relief(session, "anthropic.messages")
        state = session.window.state
        [line] = [line for line in audit(session.store, session.key) if line.kind == "thinking_cleared"]
        assert {seq for first, last in line.shrunk for seq in range(first, last + 1)} == state.cleared.keys()
        assert line.freed == sum(state.messages[seq].tokens - tokens for seq, tokens in state.cleared.items())
        holders = list_token_holders(state, {}, 1)
        assert {holder.seq for holder in holders if holder.condition == "shrunk"} == state.cleared.keys()


@each_format
@pytest.mark.requirement("evict.thinking")
def test_clearing_can_be_switched_off_and_configured(wire):
    with opened(wire, thinking_turns=0) as session:
        play(session, wire, 20)
        assert not cleared(session)
    with opened(wire, thinking_turns=4) as session:
        for prompt in play(session, wire, 12):
            if any(entry.kind == "thinking_cleared" for entry in prompt.decisions):
                assert len(thoughts(prompt)) >= 3
        assert cleared(session)
    with pytest.raises(SettingsError):
        opened(wire, thinking_turns=-1)


@pytest.mark.requirement("evict.thinking")
def test_reasoning_of_items_with_provider_ids_is_not_cleared():
    with opened("openai.responses") as session:
        play(session, "openai.responses", 20, ids=True)
        assert not cleared(session)


@pytest.mark.requirement("evict.thinking")
def test_chat_messages_with_reasoning_details_are_not_changed():
    from recto.formats import format_named

    edits = format_named("openai.chat").edits
    signed = b'{"role": "assistant", "content": "x", "reasoning": "a", "reasoning_details": [{"data": "s"}]}'
    assert edits.without_old_thinking(signed) == signed
    plain = b'{"reasoning_content": "a", "role": "assistant", "content": "x", "reasoning": "a"}'
    assert edits.without_old_thinking(plain) == b'{"role": "assistant", "content": "x"}'
    assert edits.without_old_thinking(b'{"role": "assistant", "content": "", "reasoning": "a"}') is None


@settings(max_examples=40)
@given(
    wire=st.sampled_from(sorted(MODELS)),
    lengths=st.lists(st.integers(0, 5), min_size=4, max_size=12),
    size=st.integers(2_200, 5_000),
    turns=st.integers(1, 4),
)
@pytest.mark.requirement("evict.thinking")
def test_every_prompt_fits_is_valid_and_counted_exactly(wire, lengths, size, turns):
    with opened(wire, size=size, thinking_turns=turns, ceiling_percent=85) as session:
        for number, steps in enumerate(lengths):
            for message in turn(wire, number, steps=steps):
                session.append(message)
                prompt = session.prompt(wire=wire)
                assert prompt.tokens <= session.window.budget.input_budget
                assert problems(prompt.raw, wire) == []
                assert prompt.tokens == session.count(list(prompt.raw))
                for entry in prompt.decisions:
                    decision = json.loads(entry.content)
                    assert decision["tokens_after"] < decision["tokens_before"]
        state = session.window.state
        assert state.tokens == sum(state.cost(seq) for seq in state.messages)
        assert state.cleared.keys() <= state.messages.keys()


def test_redoing_a_clearing_keeps_the_thinking_of_a_message_pinned_by_hand():
    wire = "anthropic.messages"
    with opened(wire, MemoryStore()) as session:
        until_relief(session, wire)
        decision = next(entry for entry in session.read() if entry.kind == "thinking_cleared")
        pinned = min(map(int, json.loads(decision.content)["cleared"]))
        restored = session.restore(decision.seq)
        session.pin(pinned)
        session.redo(restored.seq)
        state = session.window.state
        assert pinned in state.pins
        assert pinned not in state.cleared
        assert state.cleared
