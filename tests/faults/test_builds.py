"""Promise 8: never over budget, never a split pair, and always an answer.

Transcripts are generated from a seed: hostile token runs, calls whose results come late, twice or never, results
without a call, in every wire format, under every policy and with budgets from absurd to generous. Every build fits and
is valid, or is a typed overflow.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from recto.context.policies.edits import TrimResults
from recto.context.policies.eviction import Evict, Prune
from recto.context.policies.planner import ReliefRules, plan_relief
from recto.context.policies.scorers import scorer_named
from recto.context.window.state import Protection, WindowState
from recto.context.window.units import Plan
from recto.engine.prompt_builder import MessageCache, PromptBuilder, PromptExtras
from recto.formats import FORMATS, problems
from recto.formats.anthropic import ANTHROPIC
from recto.formats.gemini import GEMINI
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.tokens.meter import Frame, Meter

SHARDS = 4
BUILDS = 5
GOOD = {"fits", "overflow", "nothing to send"}
METER = Meter(name="quarter", count=lambda text: len(text) // 4 + 1, frame=Frame(message=4, prompt=3, call=8, result=6))
TEXTS = ("ok", "a" * 4_000, "字" * 900, "<|endoftext|>" * 60, "\x00\x1b[2J\u202e", '{"a": "b"}', "word " * 400, "")
POLICIES = (
    (Prune(),),
    (TrimResults(keep_newest=1), Prune()),
    (TrimResults(style="head_tail", head_tokens=20, tail_tokens=20), Evict(scorer=scorer_named("fifo"))),
    (Evict(scorer=scorer_named("lru")),),
    (Evict(scorer=scorer_named("type_ttl")), Prune()),
)


def transcript(rng: random.Random, wire: str) -> Iterator[bytes]:
    waiting: list[str] = []
    for step in range(rng.randint(1, 14)):
        sign = rng.choice("uuaccdrrrrx")
        text = rng.choice(TEXTS)
        if sign in "cd":
            calls = [f"c{step}-{n}" for n in range(1 if sign == "c" else 3)]
            waiting += calls
            yield from calling(wire, text, calls)
        elif sign in "rx":
            call = waiting.pop(rng.randrange(len(waiting))) if waiting and sign == "r" else f"c{rng.randrange(14)}-0"
            if rng.random() < 0.1:
                waiting.append(call)  # it will come twice
            yield answering(wire, call, text)
        else:
            yield saying(wire, "user" if sign == "u" else "assistant", text)


def saying(wire: str, role: str, text: str) -> bytes:
    if wire == GEMINI.name:
        return GEMINI.text_message(role, text or ".")
    return json.dumps({"role": role, "content": text or "."}).encode()


def calling(wire: str, text: str, calls: list[str]) -> Iterator[bytes]:
    if wire == CHAT:
        made = [{"id": c, "type": "function", "function": {"name": "f", "arguments": text}} for c in calls]
        yield json.dumps({"role": "assistant", "content": None, "tool_calls": made}).encode()
    elif wire == ANTHROPIC:
        blocks = [{"type": "tool_use", "id": c, "name": "f", "input": {"x": text}} for c in calls]
        yield json.dumps({"role": "assistant", "content": blocks}).encode()
    elif wire == GEMINI.name:
        parts = [{"functionCall": {"id": c, "name": "f", "args": {"x": text}}} for c in calls]
        yield json.dumps({"role": "model", "parts": parts}).encode()
    else:
        for call in calls:
            yield json.dumps({"type": "function_call", "call_id": call, "name": "f", "arguments": text}).encode()


def answering(wire: str, call: str, text: str) -> bytes:
    if wire == CHAT:
        return json.dumps({"role": "tool", "tool_call_id": call, "content": text}).encode()
    if wire == ANTHROPIC:
        block = {"type": "tool_result", "tool_use_id": call, "content": text}
        return json.dumps({"role": "user", "content": [block]}).encode()
    if wire == GEMINI.name:
        part = {"functionResponse": {"id": call, "name": "f", "response": {"output": text}}}
        return json.dumps({"role": "user", "parts": [part]}).encode()
    return json.dumps({"type": "function_call_output", "call_id": call, "output": text}).encode()


def gathered(rng: random.Random) -> tuple[PromptBuilder, WindowState, str]:
    """Loads a generated transcript into a prompt builder."""
    wire = rng.choice(list(FORMATS))
    messages = MessageCache(meter=METER, pointer_of=lambda seq: f"recto://s/{seq}")
    builder = PromptBuilder(
        messages=messages, marker_of=lambda state: f"[{state.evicted_messages} left]", extras=PromptExtras(frame=3)
    )
    state = WindowState()
    for seq, raw in enumerate(transcript(rng, wire), 1):
        state.add(messages.take(seq, str(seq), raw, wire))
    state.pins |= {seq for seq in state.messages if rng.random() < 0.05}
    return builder, state, wire


def build(rng: random.Random, builder: PromptBuilder, state: WindowState, wire: str, policies=None) -> str:
    """Builds one prompt and returns the outcome."""
    rules = ReliefRules(
        input_budget=rng.choice((60, 200, 800, 2_000, 9_000)),
        protection=Protection(min_recent_messages=rng.choice((0, 3, 24))),
        policies=policies or rng.choice(POLICIES),
    )
    relief = plan_relief(state, rules, builder)
    if relief.after > rules.input_budget:
        return "overflow"
    built = builder.build(relief.state)
    if built.tokens > rules.input_budget:
        return "over"
    if any(seq not in relief.state.messages for seq in state.pins):
        return "a pin left"
    if not built.messages:
        orphans = {message.seq for message in built.arrangement.omitted}
        return "nothing to send" if orphans >= relief.state.messages.keys() else "all is gone"
    found = problems(built.messages, wire)
    return f"invalid: {found[0]}" if found else "fits"


def builds(rng: random.Random, count: int, policies=None) -> dict[str, int]:
    """Runs `count` builds, several for each transcript, and counts their outcomes."""
    seen: dict[str, int] = {}
    for _ in range(count // BUILDS):
        inputs = gathered(rng)
        for _ in range(BUILDS):
            outcome = build(rng, *inputs, policies)
            seen[outcome] = seen.get(outcome, 0) + 1
    return seen


@pytest.mark.promise
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_build_fits_and_is_valid_or_is_an_overflow(shard, scale):
    seen = builds(random.Random(shard), scale(4_000, ci=10**5, release=10**7) // SHARDS)
    assert set(seen) <= GOOD, seen
    assert seen["fits"] > seen["overflow"] > 0


def test_even_a_policy_that_splits_pairs_cannot_make_a_prompt_invalid():
    class Careless:
        name = "careless"

        def plan(self, view, need):
            units = [unit for unit in view.eligible if len(unit.messages) > 1]
            split = [type(unit)(unit.messages[:1], unit.exchange, unit.opens) for unit in units]
            return Plan(policy=self.name, evicts=tuple(split[:1]), frees=1)

    assert set(builds(random.Random(1), 2_000, (Careless(), Prune()))) <= GOOD


def test_without_repair_the_same_transcripts_are_refused():
    rng = random.Random(2)
    refused = 0
    for _ in range(200):
        builder, state, wire = gathered(rng)
        refused += bool(problems([builder.messages.raws[seq] for seq in state.messages], wire))
    assert refused > 50


def test_without_relief_the_same_transcripts_exceed_the_budget():
    rng = random.Random(3)
    over = 0
    for _ in range(200):
        builder, state, _ = gathered(rng)
        over += builder.build(state).tokens > 2_000
    assert over > 20


def test_the_check_detects_a_split_pair():
    assert problems([answering(CHAT, "c", "x")], CHAT)
    assert problems([saying(ANTHROPIC, "user", "x"), answering(ANTHROPIC, "c", "x")], ANTHROPIC)
    assert problems([answering(RESPONSES, "c", "x")], RESPONSES)
    assert problems([saying(GEMINI.name, "user", "x"), answering(GEMINI.name, "c", "x")], GEMINI.name)
