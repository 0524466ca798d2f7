"""Simulated agents of every kind in small windows: every prompt is bounded and valid, and recall meets their needs."""

from __future__ import annotations

from contextlib import closing

import pytest

from recto.config import load
from recto.config.factory import open_session
from recto.engine.prompt_builder import Prompt
from recto.errors import WindowOverflow
from recto.formats import format_named, problems
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.lab.probes import Need, ProbeCounts, ProbeRun, SimulatedTurn, run_probes, total_counts
from recto.lab.simulation import AGENTS, simulate
from recto.stores.memory import MemoryStore
from recto.transcript.entries import Draft

WINDOW = 8_000
FLOOR = 0.7
"""Minimum share of needs met, over all agents."""
FLOOR_OF_GONE = 0.5
"""Minimum share met of needs whose messages were evicted and can only be recalled."""


def walked(turns, *, recall: bool = True, mode: str = "sliding_window", on_prompt=lambda prompt: None) -> ProbeRun:
    arguments = {
        "model": "made-up",
        "models": {"made-up": {"window": WINDOW, "max_input": WINDOW}},
        "window": {"mode": mode},
        "recall": {"enabled": recall, "embedder": {"use": "none"}, "background": False},
        "compress": {"background": False, "model": {"use": "none"}},
        "health": {"enabled": False},
    }
    with closing(MemoryStore()) as store, open_session(load(environ={}, arguments=arguments), store) as session:
        return run_probes(session, turns, on_prompt=on_prompt)


def judged(wire: str):
    """Returns a callback that validates every prompt as a provider would."""

    def look(prompt: Prompt | WindowOverflow) -> None:
        assert isinstance(prompt, Prompt), str(prompt)
        assert prompt.tokens <= prompt.reading.room
        assert problems(prompt.raw, wire) == []

    return look


@pytest.mark.promise
def test_simulated_agents_stay_bounded_and_valid_and_their_needs_are_met(scale):
    turns = scale(40, ci=120, release=1_000)
    fared = ProbeCounts()
    for kind, wire in zip(AGENTS, (CHAT, RESPONSES, ANTHROPIC, CHAT), strict=True):
        found = walked(simulate(kind, turns=turns, wire=wire), on_prompt=judged(wire))
        assert (found.turns, found.over, found.refused) == (turns, 0, 0)
        assert found.largest <= WINDOW
        fared += total_counts(found.fared)
    assert fared.asked > fared.prompt
    assert fared.share >= FLOOR
    assert fared.share_of_evicted >= FLOOR_OF_GONE


def test_without_recall_the_needs_of_the_same_agents_are_not_met():
    fared = sum((total_counts(walked(simulate(kind, turns=40), recall=False).fared) for kind in AGENTS), ProbeCounts())
    assert fared.asked > fared.prompt
    assert fared.share_of_evicted < FLOOR_OF_GONE


@pytest.mark.parametrize("mode", ["auto_compact", "zones"])
@pytest.mark.requirement("window.modes")
def test_every_mode_is_bounded(mode):
    found = walked(simulate("review", turns=15), mode=mode, on_prompt=judged(CHAT))
    assert (found.over, found.refused) == (0, 0)


def draft(number: int, role, text: str) -> Draft:
    return Draft(id=f"m{number}", ts=number, role=role, content=format_named(CHAT).text_message(role, text), wire=CHAT)


def test_a_need_is_checked_at_its_turn_and_the_question_is_stored_once():
    stored: list[int] = []
    need = Need(kind="exact", turn=2, ask="Which door?", expect=("4711", "green"), said_turn=1, entries=(1,))
    lacking = Need(kind="exact", turn=3, ask="Which key?", expect=("0815",), said_turn=1, entries=(1,))
    turns = [
        SimulatedTurn(
            number=1, first=1, drafts=(draft(1, "user", "Door 4711 is green."), draft(2, "assistant", "I see."))
        ),
        SimulatedTurn(
            number=2, first=3, drafts=(draft(3, "user", need.ask), draft(4, "assistant", "That.")), need=need
        ),
        SimulatedTurn(
            number=3, first=5, drafts=(draft(5, "user", lacking.ask), draft(6, "assistant", "?")), need=lacking
        ),
    ]
    found = walked(turns, on_prompt=lambda prompt: stored.append(len(prompt.raw)))
    assert found.fared == {"exact": ProbeCounts(asked=2, prompt=1)}
    assert found.by_distance == {10: ProbeCounts(asked=2, prompt=1)}
    assert stored == [1, 3, 5]
