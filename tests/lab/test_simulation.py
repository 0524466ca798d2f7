"""Simulated sessions are deterministic per seed, valid in every format, and state facts in the announced entries."""

from __future__ import annotations

import hashlib
import tracemalloc
from itertools import chain

import pytest

from recto.errors import InputError
from recto.formats import problems, read
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.lab.probes import NEED_KINDS, SimulatedTurn
from recto.lab.simulation import AGENTS, limit_tokens, simulate

WIRES = [CHAT, RESPONSES, ANTHROPIC]
TURNS = 300
DIGESTS = {
    "chat": "08f8a64761937375",
    "review": "213e7c66fb612bae",
    "research": "5187f638df4bf0a8",
    "monitoring": "19b84c0a98b925cc",
}
"""Digests of 300 turns with seed 7, equal on every Python regardless of hash seeds. A new generator changes them."""


def texts_of(turns: list[SimulatedTurn]) -> dict[int, str]:
    """Returns the text of every entry by its number."""
    drafts = chain.from_iterable(turn.drafts for turn in turns)
    return {number: read(draft.content, draft.wire).text for number, draft in enumerate(drafts, 1)}


def digest_of(turns: list[SimulatedTurn]) -> str:
    whole = hashlib.sha256()
    for turn in turns:
        whole.update(repr((turn.number, turn.first, turn.need)).encode())
        for draft in turn.drafts:
            whole.update(repr((draft.id, draft.ts, draft.role, draft.content)).encode())
    return whole.hexdigest()[:16]


@pytest.fixture(scope="module", params=AGENTS)
def made(request) -> tuple[str, list[SimulatedTurn]]:
    return request.param, list(simulate(request.param, seed=7, turns=TURNS))


def test_a_seed_makes_the_same_session_on_every_machine(made):
    kind, turns = made
    assert digest_of(turns) == DIGESTS[kind]


def test_another_seed_makes_another_session(made):
    kind, turns = made
    assert digest_of(list(simulate(kind, seed=8, turns=TURNS))) != digest_of(turns)


def test_a_shorter_session_is_the_beginning_of_a_longer_one(made):
    kind, turns = made
    assert list(simulate(kind, seed=7, turns=40)) == turns[:40]
    some = list(limit_tokens(simulate(kind, seed=7), 5_000))
    assert some == turns[: len(some)]
    size = sum(len(draft.content) for turn in some for draft in turn.drafts)
    assert size >= 20_000 > size - sum(len(draft.content) for draft in some[-1].drafts)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", AGENTS)
def test_a_simulated_session_is_valid_in_every_format(kind, wire):
    drafts = [draft for turn in simulate(kind, turns=TURNS, wire=wire) for draft in turn.drafts]
    assert problems([draft.content for draft in drafts], wire) == []
    messages = [read(draft.content, wire) for draft in drafts]
    assert [message.role for message in messages] == [draft.role for draft in drafts]
    calls = [part.call_id for message in messages for part in message.calls]
    assert len(calls) == len(set(calls)) > 10
    assert len({draft.id for draft in drafts}) == len(drafts)
    assert [draft.ts for draft in drafts] == sorted(draft.ts for draft in drafts)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("kind", AGENTS)
def test_a_fact_is_in_the_named_entries_and_nowhere_else(kind, wire):
    turns = list(simulate(kind, seed=3, turns=TURNS, wire=wire))
    texts = texts_of(turns)
    needs = [turn.need for turn in turns if turn.need]
    assert len(needs) > 5
    for need in needs:
        for value in need.expect:
            assert tuple(number for number, text in texts.items() if value in text) == need.entries


def test_a_question_is_the_first_message_of_its_turn_and_comes_after_its_fact(made):
    _, turns = made
    first = 1
    for turn in turns:
        assert turn.first == first
        first += len(turn.drafts)
        if turn.need is None:
            continue
        assert (turn.need.turn, turn.drafts[0].role) == (turn.number, "user")
        assert read(turn.drafts[0].content, CHAT).text == turn.need.ask
        assert turn.need.said_turn < turn.number
        assert max(turn.need.entries) < turn.first
        source_turn = turns[turn.need.said_turn - 1]
        assert source_turn.first <= turn.need.entries[-1] < source_turn.first + len(source_turn.drafts)


def test_a_corrected_fact_is_stated_before_its_correction_and_not_again(made):
    _, turns = made
    texts = texts_of(turns)
    corrected = [turn.need for turn in turns if turn.need and turn.need.outdated]
    assert corrected or made[0] == "monitoring"
    for need in corrected:
        for old in need.outdated:
            places = [number for number, text in texts.items() if old in text]
            assert places
            assert places[0] < need.entries[0]
            assert places[-1] <= need.entries[0]


def test_all_kinds_of_needs_occur_at_short_and_long_distances():
    needs = [turn.need for kind in AGENTS for turn in simulate(kind, turns=500) if turn.need]
    assert {need.kind for need in needs} == set(NEED_KINDS)
    distances = sorted(need.distance for need in needs)
    assert distances[0] < 10
    assert distances[-1] > 100


def test_files_are_read_again_and_tools_are_called_in_parallel():
    messages = [read(draft.content, CHAT) for turn in simulate("review", turns=200) for draft in turn.drafts]
    read_files = [part.text for message in messages for part in message.calls if part.name == "read_file"]
    assert len(set(read_files)) < 0.9 * len(read_files)
    assert max(len(message.calls) for message in messages) > 1


def test_a_monitored_machine_has_long_quiet_periods():
    turns = list(simulate("monitoring", turns=400))
    quiet = [b"Nothing to report." in turn.drafts[-1].content for turn in turns]
    assert sum(quiet) > 200
    longest = max(len(run) for run in "".join("q" if is_quiet else "." for is_quiet in quiet).split("."))
    assert longest >= 8


def test_memory_does_not_grow_with_the_session(scale):
    turns = scale(800, release=1_000_000)
    tracemalloc.start()
    try:
        for _ in simulate("chat", turns=turns):
            pass
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_an_unknown_agent_or_format_is_reported():
    with pytest.raises(InputError, match="there are chat, review, research, monitoring"):
        simulate("gardener")
    with pytest.raises(InputError, match="not a wire format"):
        simulate("chat", wire="morse")
