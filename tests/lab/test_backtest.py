"""Backtests of synthetic conversations with known measures, and of real ones whose measures must be consistent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.config import Settings, load
from recto.config.factory import make_importer, make_indexer, make_meter, model_card, open_session
from recto.context.window.budget import DEFAULT_CACHE_MINIMUM, cached_tokens, call_price, rates_for
from recto.engine.session import Session
from recto.formats import read
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.health.regret import Regret
from recto.lab.backtest import Backtest, ReplayedTurn, backtest
from recto.lab.replay import replay_steps
from recto.stores.memory import MemoryStore
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import DEFAULT_SESSION, Draft, Entry

MODEL = "claude-sonnet-4-5"
CARD = ModelCard(
    name="one",
    window=10_000,
    max_input=10_000,
    max_output=1_000,
    input_price=1_000,
    cache_read_price=100,
    cache_write_price=1_250,
    cache_minimum=1_000,
)


def settings(window: int, mode: str = "sliding_window") -> Settings:
    own = load(environ={}, arguments={"window": {"mode": mode}, "recall": {"background": False}})
    recall = replace(own.recall, embedder=replace(own.recall.embedder, use="none"))
    limits = {MODEL: {"window": window, "max_input": window}}
    return replace(own, store="memory", model=MODEL, models=limits, recall=recall)


def entries_of(messages: list[dict], wire: str = CHAT) -> list[Entry]:
    meter = make_meter(settings(8_000))
    with closing(MemoryStore()) as store:
        for place, message in enumerate(messages, 1):
            raw = json.dumps(message).encode()
            parsed = read(raw, wire)
            tokens = meter.message(parsed)
            draft = Draft(
                id=f"m{place}", ts=place * 10**6, role=parsed.role, content=raw, wire=wire, tokens=tokens,
                counter=meter.name,
            )  # fmt: skip
            store.append(DEFAULT_SESSION, [draft])
        return list(store.read(DEFAULT_SESSION))


@contextmanager
def opened(window: int, mode: str) -> Iterator[Session]:
    own = settings(window, mode)
    with (
        closing(MemoryStore()) as store,
        closing(make_indexer(own, store)) as indexer,
        closing(open_session(own, store, indexer)) as session,
    ):
        yield session


def replayed(entries: list[Entry], window: int, mode: str = "sliding_window") -> tuple[Backtest, list[ReplayedTurn]]:
    turns: list[ReplayedTurn] = []
    with opened(window, mode) as session:
        return backtest(session, entries, on_turn=turns.append), turns


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def says(text: str) -> dict:
    return {"role": "assistant", "content": text}


def calls(id: str, tool: str, **arguments: str) -> dict:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(id: str, text: str) -> dict:
    return {"role": "tool", "tool_call_id": id, "content": text}


def filler(exchanges: int) -> list[dict]:
    """Returns messages without names or paths, to fill the window until earlier messages are evicted."""
    words = "they went down to the water and looked for a long while at what the evening had left of the day "
    return [message for _ in range(exchanges) for message in (user(words * 6), says(words * 6))]


FILE = "\n".join(f"the walls are measured in row {word}" for word in ("one", "two", "three", "four", "five")) + "\n"
WORK = [
    user("Please survey the old lighthouse."),
    calls("c1", "read_file", path="survey/lighthouse.txt"),
    result("c1", FILE + "the keeper is Ottokar_77 and the lamp has the number LMP-55120"),
    says("I have read it."),
]


def test_without_pressure_nothing_is_missed_and_the_prompt_only_grows():
    again = [user("And now?"), calls("c2", "read_file", path="survey/lighthouse.txt"), result("c2", FILE), says("ok")]
    found, turns = replayed(entries_of([*WORK, *filler(2), *again]), 200_000)
    assert (found.turns, found.decisions, found.breaks, found.over, found.refused) == (6, 0, 0, 0, 0)
    assert (found.regret, found.missed, found.survival) == (0, 0, 1.0)
    assert found.entities_used == found.entities_there == 1
    assert [turn.number for turn in turns] == [1, 2, 3, 4, 5, 6]
    assert [turn.seq for turn in turns] == [2, 4, 6, 8, 10, 12]


def test_repeated_reads_and_references_after_eviction_are_counted_in_their_turns():
    again = [
        user("And now?"),
        calls("c2", "read_file", path="survey/lighthouse.txt"),
        result("c2", "gone"),
        says("The lamp is LMP-55120, or LMP-99999."),
    ]
    found, turns = replayed(entries_of([*WORK, *filler(30), *again]), 8_000)
    assert found.decisions > 0
    assert found.fetched_again == 1
    assert turns[-2].regret.fetched_again == 1
    assert turns[-1].regret.referred == turns[-1].regret.entities_used == 1
    assert found.referred == sum(turn.regret.referred for turn in turns)
    assert found.breaks == sum(turn.broke for turn in turns) > 0
    assert found.tokens == sum(turn.tokens for turn in turns)
    assert found.largest == max(turn.tokens for turn in turns)
    assert all(turn.tokens <= turn.input_budget for turn in turns)


def test_recalled_text_meets_the_need():
    lost = [user("Who keeps the old lighthouse, and which number has its lamp?"), says("Ottokar_77, and LMP-55120.")]
    found, turns = replayed(entries_of([*WORK, *filler(30), *lost, user("Thank you."), says("Gladly.")]), 8_000)
    assert turns[-2].regret == Regret(referred=2, referred_met=2, entities_used=2, entities_there=2)
    assert found.missed == found.regret - 2
    assert (turns[-1].broke, turns[-1].decisions) == (True, 0)  # the quotation for a question is removed with it


def test_a_fully_quoted_result_meets_the_repeated_call():
    short = [*WORK[:2], result("c1", "the keeper of the old lighthouse is Ottokar_77"), says("I have read it.")]
    again = [user("Who is the keeper of the old lighthouse?"), calls("c2", "read_file", path="survey/lighthouse.txt")]
    found, _ = replayed(entries_of([*short, *filler(30), *again]), 8_000)
    assert (found.fetched_again, found.fetched_met) == (1, 1)


def test_a_summary_meets_references_to_what_it_names():
    lost = [user("go on"), says("It stands in survey/lighthouse.txt.")]
    found, turns = replayed(entries_of([*WORK, *filler(30), *lost]), 8_000, "auto_compact")
    assert turns[-1].regret == Regret(referred=1, referred_met=1, entities_used=1, entities_there=1)
    assert found.decisions > 0


def test_a_shortened_result_is_fetched_again_and_its_placeholder_meets_quoted_references():
    line = "the walls are measured again and again by the keeper of the house\n"
    long = [calls("c1", "read_file", path="survey/lighthouse.txt"), result("c1", line * 75)]
    replay_steps = [
        message
        for step in range(5)
        for message in (
            calls(f"t{step}", "shell", command=f"step {step}"),
            result(f"t{step}", f"LMP-5512{step} is lit\n{line * 20}"),
        )
    ]
    words = "they went down to the water and looked " * 4
    talk = [message for _ in range(14) for message in (user(words), says(words))]
    again = [user("And now?"), says("It is LMP-55120."), user("Then?"), calls("t9", "shell", command="step 0")]
    turns: list[ReplayedTurn] = []
    with opened(8_000, "zones") as session:
        entries = entries_of([user("Survey it."), *long, *replay_steps, says("I have read it all."), *talk, *again])
        backtest(session, entries, on_turn=turns.append)
        state = session.window.state
        shortened = next(entry for entry in session.store.read(session.key) if b"LMP-55120 is lit" in entry.content)
        assert shortened.seq in state.messages
        assert "LMP-55120" in state.shortened[shortened.seq].text
    assert turns[-2].regret == Regret(referred=1, referred_met=1, entities_used=1, entities_there=1)
    assert turns[-1].regret.fetched_again == 1


def test_a_refused_turn_is_counted_only_as_refused():
    large = [user("word " * 9_000), says("Too much."), *WORK]
    found, turns = replayed(entries_of(large), 8_000)
    assert turns[0].refused
    assert turns[0].tokens > turns[0].input_budget
    assert found.refused == sum(turn.refused for turn in turns)
    assert found.tokens == sum(turn.tokens for turn in turns if not turn.refused)


def test_an_answer_in_several_entries_is_a_single_turn_with_all_its_calls():
    messages = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "shell", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
    ]
    entries = entries_of(messages, RESPONSES)
    answer_seqs = [[entry.seq for entry in answers] for _, answers in replay_steps(entries) if answers]
    assert answer_seqs == [[2, 3], [5]]
    assert [entry for entry, _ in replay_steps(entries)] == entries


def test_cache_reads_and_writes_are_reported_as_billed():
    turn = ReplayedTurn(number=1, seq=1, tokens=3_000, input_budget=8_000, unchanged=2_000)
    found = Backtest().with_turn(turn, CARD)
    assert (found.cache_read, found.cache_write) == (2_000, 1_000)
    assert found.picodollars == 2_000 * 100 + 1_000 * 1_250
    unwritten = Backtest().with_turn(turn, replace(CARD, cache_write_price=None))
    assert (unwritten.cache_read, unwritten.cache_write) == (2_000, 0)
    uncached = Backtest().with_turn(turn, replace(CARD, cache_read_price=None, cache_write_price=None))
    assert (uncached.cache_read, uncached.cache_write, uncached.picodollars) == (0, 0, 3_000 * 1_000)
    unknown = Backtest().with_turn(turn, None)
    assert (unknown.cache_read, unknown.cache_write, unknown.picodollars) == (2_000, 0, None)


@given(st.integers(0, 5_000), st.integers(0, 5_000), st.sampled_from((None, 1_250)), st.sampled_from((None, 0, 2_000)))
def test_the_cost_is_computed_from_the_tokens_read_and_written(prefix, fresh, writing, minimum):
    card = replace(CARD, cache_write_price=writing, cache_minimum=minimum)
    found_read, found_write = cached_tokens(card, prefix, fresh)
    prices = rates_for(card, prefix + fresh)
    plain = prefix + fresh - found_read - found_write
    assert found_read * prices.read + found_write * prices.write + plain * prices.fresh == call_price(
        card, prefix, fresh
    )
    if prefix + fresh < (DEFAULT_CACHE_MINIMUM if minimum is None else minimum):
        assert found_read == found_write == 0


COUNTS = st.integers(0, 9)
REGRETS = st.tuples(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS).map(
    lambda n: Regret(
        fetched_again=n[0] + n[1], fetched_met=n[1], referred=n[2] + n[3], referred_met=n[3],
        entities_used=n[4] + n[5], entities_there=n[5],
    )
)  # fmt: skip
TURNS = st.lists(
    st.builds(
        ReplayedTurn,
        number=st.just(1), seq=st.just(1), tokens=st.integers(0, 9_000), input_budget=st.just(8_000),
        unchanged=st.integers(0, 500), broke=st.booleans(), decisions=COUNTS, refused=st.booleans(), regret=REGRETS,
    )
)  # fmt: skip


@given(TURNS, TURNS, st.sampled_from((CARD, None)))
def test_the_sum_of_two_backtests_is_the_backtest_of_all_their_turns(first, second, card):
    def over(turns: list[ReplayedTurn]) -> Backtest:
        return reduce(lambda tally, turn: tally.with_turn(turn, card), turns, Backtest())

    both = over([*first, *second])
    assert over(first) + over(second) == both
    assert both.turns == len(first) + len(second)
    assert 0 <= both.met <= both.regret
    assert both.missed == both.regret - both.met
    assert 0 <= both.survival <= 1


@pytest.mark.promise
def test_real_sessions_meet_at_most_what_they_need(data, scale, tmp_path):
    every, card = scale(14, ci=4, release=1), model_card(settings(16_000))
    found: list[Backtest] = []
    for file in sorted(data.glob("agent_sessions/*/*.jsonl"))[::every]:
        for entries in _begun(file, tmp_path / file.name):
            result, turns = replayed(entries, 16_000)
            assert result == reduce(lambda tally, turn: tally.with_turn(turn, card), turns, Backtest())
            assert result.over == 0
            assert result.fetched_met <= result.fetched_again
            assert result.referred_met <= result.referred
            assert result.entities_there <= result.entities_used
            assert result.cache_read <= result.unchanged <= result.tokens
            assert result.breaks < result.turns
            found.append(result)
    together = reduce(add, found)
    assert together.turns > 60
    assert together.fetched_again > 0
    assert 0 < together.referred_met < together.referred
    assert 0.5 < together.survival < 1


def _begun(file: Path, part: Path) -> list[list[Entry]]:
    """Returns the first sixty messages of each session of a file."""
    part.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:200]))
    with closing(MemoryStore()) as store:
        sessions = make_importer(settings(16_000), store).import_file(part).sessions
        return [[entry for entry in store.read(name) if entry.kind == "message"][:60] for name in sessions]
