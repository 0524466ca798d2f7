"""Every real session is replayed turn by turn in windows it outgrows: no prompt is over budget or invalid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recto.config import load
from recto.config.modes import make_relief_rules
from recto.context.compaction.writer import SummaryWriter, WritingRules
from recto.context.window.budget import Budget
from recto.context.window.state import in_flight
from recto.engine.compactor import Compactor
from recto.engine.prompt_builder import MessageCache
from recto.engine.window import Window
from recto.errors import WindowOverflow
from recto.formats import format_named, problems, read
from recto.formats.session_files import read_file
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock
from recto.tokens.meter import Tokenizers
from recto.tokens.model_registry import Registry
from recto.transcript.entries import MESSAGE, Draft, new_id

SESSION = "agent:replay:main"
CARD = Registry().card("gpt-4o")
SIZES = (8_192, 32_768, 131_072)
CHECKED = 7
"""Every n-th prompt is checked in full detail; all are counted."""


def conversations(file: Path) -> list[list]:
    found: dict[str, list] = {}
    for entry in read_file([file.read_bytes()], file.name):
        if entry.kind == MESSAGE:
            found.setdefault(entry.session, []).append(entry)
    return list(found.values())


def replay(messages: list, size: int, mode: str = "sliding_window") -> dict[str, int]:
    """Replays a conversation and builds a prompt at each model call."""
    meter, clock, store = Tokenizers().meter_for(CARD), FakeClock(), MemoryStore()
    budget = Budget.of(size)
    rules = make_relief_rules(load(environ={}, arguments={"window": {"mode": mode}}), budget, CARD)

    def compactor(messages: MessageCache) -> Compactor:
        return Compactor(store, SESSION, messages, SummaryWriter(lambda: None, WritingRules(), meter.count))

    window = Window(store, SESSION, meter=meter, clock=clock, budget=budget, rules=rules, compactor=compactor)
    seen = {"prompts": 0, "decisions": 0, "overflows": 0}
    previous: tuple[bytes, ...] = ()
    for place, entry in enumerate(messages):
        message = read(entry.content, entry.wire)
        draft = Draft(
            id=new_id(clock),
            ts=0,
            role=message.role,
            content=entry.content,
            wire=entry.wire,
            tokens=meter.message(message),
            counter=meter.name,
        )
        store.append(SESSION, [draft])
        following = messages[place + 1].role if place + 1 < len(messages) else "assistant"
        if message.role == "assistant" or following != "assistant":
            continue
        try:
            prompt = window.prompt()
        except WindowOverflow:
            seen["overflows"] += 1
            continue
        seen["prompts"] += 1
        seen["decisions"] += bool(prompt.decisions)
        assert prompt.tokens <= budget.input_budget
        if seen["prompts"] % CHECKED == 0 or prompt.decisions:
            check(prompt, window, meter)
        previous = prompt.raw
    assert previous or seen["overflows"] or not messages
    return seen


def check(prompt, window, meter) -> None:
    wire = prompt.built.wire
    assert problems(prompt.raw, wire) == []
    spent = sum(meter.message(read(raw, wire)) for raw in prompt.raw)
    assert prompt.tokens == spent + meter.frame.prompt
    state = window.state
    protected = {seq for seq in (state.task_seq, *in_flight(state)) if seq and seq not in state.shortened}
    changed = [raw for seq in protected if (raw := window.messages.raws[seq]) not in prompt.raw]
    # Only messages that a provider refuses may differ. Real sessions have two kinds: blank text blocks, and a result
    # followed by text whose parallel results are in the next message (results come first, so it is split in two).
    assert [raw for raw in changed if format_named(wire).edits.settle([raw]) == [raw] and not mixed(raw)] == []


def mixed(raw: bytes) -> bool:
    kinds = {block["type"] == "tool_result" for block in json.loads(raw)["content"]}
    return kinds == {True, False}


@pytest.mark.promise
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("part", range(4))
def test_real_agent_sessions_are_never_over_budget_or_invalid(data, size, part, scale):
    every = scale(len(SIZES), ci=1, release=1)  # each session in one of the windows, or in all of them
    files = sorted(data.glob("agent_sessions/*/*.jsonl"))[part::4][SIZES.index(size) % every :: every]
    prompts = decisions = overflows = 0
    for file in files:
        for messages in conversations(file):
            seen = replay(messages, size)
            prompts += seen["prompts"]
            decisions += seen["decisions"]
            overflows += seen["overflows"]
    assert prompts > 500 // every
    # A window of 8 K stays nearly full to serve the next action, so it is edited more often.
    assert decisions < prompts * (2 / 3 if size == 8_192 else 1 / 2)
    assert overflows <= prompts * (0.02 if size == 8_192 else 0)


@pytest.mark.promise
@pytest.mark.parametrize("mode", ["auto_compact", "zones"])
@pytest.mark.parametrize("size", SIZES[:2])
def test_compressed_sessions_are_never_over_budget_or_invalid(data, size, mode, scale):
    every = scale(3, ci=1, release=1)
    prompts = decisions = overflows = 0
    for file in sorted(data.glob("agent_sessions/*/*.jsonl"))[2::16][1 % every :: every]:
        for messages in conversations(file):
            seen = replay(messages, size, mode)
            prompts += seen["prompts"]
            decisions += seen["decisions"]
            overflows += seen["overflows"]
    assert prompts > 200 // every
    assert decisions > 0
    assert overflows <= prompts * (0.02 if size == 8_192 else 0)


def test_short_tool_runs_and_long_chats_are_never_over_budget_or_invalid(data):
    runs = conversations(data / "taubench" / "gpt-4o-airline.json")
    for messages in runs[::10]:
        replay(messages, 8_192)
    for messages in conversations(data / "beam_100K" / "3" / "chat.json"):
        assert replay(messages, 32_768)["decisions"] > 0
