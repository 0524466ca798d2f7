"""Baselines behave as documented, checked against known numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from recto.formats import format_named, read
from recto.formats.message import fields_of
from recto.lab.baselines import BaselineMessage, OldestTrimmed, backtest_baseline
from recto.lab.results import MOST_POINTS, PromptSizes, VariantOutcome, Way, best, difference, has_overflow, summarize
from recto.stores.memory import MemoryStore
from recto.testing import scripted_session
from recto.tokens.meter import Frame, Meter
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import Draft

ROOM = 50
METER = Meter(name="known", count=len, frame=Frame(message=0, prompt=0))
CARD = ModelCard(
    name="priced",
    window=100,
    max_input=100,
    max_output=10,
    input_price=10,
    cache_read_price=1,
    cache_write_price=12,
    cache_minimum=1,
)


def call(number: int, path: str) -> dict:
    function = {"name": "read_file", "arguments": json.dumps({"path": path})}
    return {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]}


def result(number: int, text: str) -> dict:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


MESSAGES = (
    (10, {"role": "user", "content": "Look into it."}),
    (5, call(1, "src/alpha.py")),
    (30, result(1, "def alpha(): pass")),
    (5, {"role": "assistant", "content": "Done."}),
    (10, {"role": "user", "content": "And the other."}),
    (5, call(2, "src/beta.py")),
    (30, result(2, "def beta(): pass")),
    (5, {"role": "assistant", "content": "Done."}),
    (10, {"role": "user", "content": "The first again."}),
    (5, call(3, "src/alpha.py")),
)
"""Messages with their token counts. The model is called five times, with 10, 45, 60, 95 and 110 tokens."""


def stored(messages, wire="openai.chat"):
    store = MemoryStore()
    for number, (tokens, message) in enumerate(messages):
        draft = Draft(
            id=str(number),
            ts=number,
            role=message["role"],
            content=json.dumps(message).encode(),
            wire=wire,
            tokens=tokens,
            counter=METER.name,
        )
        store.append("agent:default:main", [draft])
    return list(store.read("agent:default:main"))


def run(name, messages=MESSAGES, card=CARD, on_turn=lambda turn: None):
    return backtest_baseline(name, stored(messages), card=card, input_budget=ROOM, meter=METER, on_turn=on_turn)


def test_the_full_history_baseline_sends_everything_and_misses_nothing():
    found = run("none")
    assert (found.turns, found.tokens, found.largest) == (5, 10 + 45 + 60 + 95 + 110, 110)
    assert (found.over, found.refused) == (3, 0)
    assert found.unchanged == found.cache_read == 10 + 45 + 60 + 95
    assert found.cache_write == 110
    assert found.picodollars == 210 * 1 + 110 * 12
    assert (found.breaks, found.decisions) == (0, 0)
    assert (found.regret, found.survival) == (0, 1.0)


def test_trimming_evicts_only_as_many_of_the_oldest_as_necessary():
    turns = []
    found = run("trim", on_turn=turns.append)
    # The third call evicts the first question, the fourth the first call with its result, the fifth "Done." and the
    # second question.
    assert [(turn.tokens, turn.unchanged, turn.broke) for turn in turns] == [
        (10, 0, False),
        (45, 10, False),
        (50, 0, True),
        (50, 0, True),
        (50, 0, True),
    ]
    assert (found.over, found.largest, found.breaks, found.decisions) == (0, 50, 3, 3)
    assert found.picodollars == 10 * 1 + (205 - 10) * 12
    assert (found.fetched_again, found.fetched_met) == (1, 0)
    assert found.missed >= 1


def test_trimming_keeps_system_messages_and_the_newest_message_even_over_budget():
    messages = (
        (20, {"role": "system", "content": "Be brief."}),
        *MESSAGES[:3],
        (60, {"role": "user", "content": "All this"}),
    )
    turns = []
    found = run("trim", [*messages, (5, {"role": "assistant", "content": "Yes."})], on_turn=turns.append)
    assert turns[-1].tokens == 20 + 60
    assert turns[-1].unchanged == 20
    assert found.over == 1


def test_a_result_that_arrives_after_its_call_was_trimmed_is_left_out():
    wait, yes = (46, {"role": "user", "content": "Wait."}), (2, {"role": "assistant", "content": "Yes."})
    turns = []
    run(
        "trim",
        [*MESSAGES[:2], wait, yes, MESSAGES[2], (5, {"role": "assistant", "content": "So?"})],
        on_turn=turns.append,
    )
    assert [turn.tokens for turn in turns] == [10, 46, 48]


def test_system_text_outside_the_message_list_counts_but_not_as_unchanged():
    messages = ((20, {"role": "system", "content": "Be brief."}), *MESSAGES[:4])
    anthropic = ModelCard(name="claude", provider="anthropic", window=100, max_input=100, max_output=10)
    found = run("none", messages, anthropic)
    assert (found.tokens, found.unchanged) == (30 + 65, 10)
    assert found.picodollars is None


@pytest.mark.parametrize("seed", range(4))
def test_trimming_never_splits_a_call_from_its_result_and_fits(seed):
    keeper = OldestTrimmed()
    in_prompt: dict[int, tuple[tuple[str, ...], tuple[str, ...], int]] = {}
    for seq, message in enumerate(scripted_session(seed=seed, exchanges=12), 1):
        raw = json.dumps(message).encode()
        tied = format_named("openai.chat").validation.tool_call_ids(fields_of(raw))
        tokens = METER.message(read(raw, "openai.chat"))
        is_system = message["role"] == "system"
        calls, answers = tuple(tied.calls), tuple(tied.answers)
        keeper.take(BaselineMessage(seq=seq, tokens=tokens, is_system=is_system, calls=calls, answers=answers))
        in_prompt[seq] = calls, answers, tokens
        sent = keeper.prompt(9_000)
        in_prompt = {seq: entry for seq, entry in in_prompt.items() if seq not in sent.evicted}
        assert sent.tokens == sum(tokens for _, _, tokens in in_prompt.values())
        assert sent.tokens <= 9_000 or len(in_prompt) == 1
        assert {call for _, answers, _ in in_prompt.values() for call in answers} <= {
            call for calls, _, _ in in_prompt.values() for call in calls
        }
    assert len(in_prompt) > 2


def test_variants_are_summed_over_files_and_compared_with_the_baseline():
    trim, other = Way(name="trim", is_baseline=True), Way(name="zones", mode="zones", policy="prune")
    first, second = run("trim"), run("none")
    outcomes = [
        VariantOutcome(place=place, file="a", way=way, result=result)
        for place in range(2)
        for way, result in ((trim, first), (other, second))
    ]
    baseline, sums = summarize(outcomes)
    assert baseline.against is None
    assert sums.against == baseline.result == first + first
    assert difference(sums.result, baseline.result)["tokens"] == 2 * (320 - 205)
    assert (
        difference(sums.result, run("none", card=ModelCard(name="x", window=9, max_input=9, max_output=1)))["dollars"]
        is None
    )
    assert best([baseline, sums], "tokens") is baseline
    assert best([baseline, sums], "tokens", highest=True) is sums
    assert best([baseline, sums], "turns") is None
    assert has_overflow(outcomes)
    assert not has_overflow([replace(outcome, way=trim) for outcome in outcomes])


def test_a_long_curve_keeps_its_ends_and_its_peaks():
    turns, sizes = [], PromptSizes()
    messages = [
        (1, {"role": role, "content": "x"}) for _ in range(2 * MOST_POINTS + 7) for role in ("user", "assistant")
    ]
    run("none", messages, on_turn=turns.append)
    for turn in turns:
        sizes.take(turn)
    found = sizes.curve()
    assert (found.turns, found.input_budget) == (len(turns), ROOM)
    assert len(found.tokens) == MOST_POINTS
    assert found.largest == max(turn.tokens for turn in turns) == found.tokens[-1]
    assert list(found.tokens) == sorted(found.tokens)
    assert PromptSizes().curve() is None
