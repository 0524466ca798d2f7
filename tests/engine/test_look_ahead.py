"""Look-ahead: relief comes before the turn that would pass the ceiling, and postponed relief gives its reason."""

from __future__ import annotations

import json

import pytest

import recto
from recto.context.window.budget import Growth
from recto.engine.projection import DECISIONS

WINDOW = 16_000


def opened(**window):
    limits = {"gpt-4o": {"window": WINDOW, "max_input": WINDOW}}
    settings = {"floor_percent": 60, "ceiling_percent": 90, "cache_aware": False, "min_recent_messages": 4} | window
    return recto.open("memory:", model="gpt-4o", models=limits, window=settings, recall={"inject": False})


def run_turn(session, turn, steps=4, lines=40):
    """Runs one turn of a tool loop; returns the number of model calls before the first decision, or None."""
    session.append({"role": "user", "content": f"Look at part {turn} of the ledger."})
    first_step = None
    for step in range(steps):
        prompt = session.prompt()
        if prompt.decisions and first_step is None:
            first_step = step
        call = {"id": f"c{turn}-{step}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = "\n".join(f"line {line} of page {turn}.{step} of the ledger" for line in range(lines))
        session.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    session.append({"role": "assistant", "content": f"Part {turn} is in order."})
    return first_step


def decided_at(turns=16, **window):
    """Returns, for each turn with a decision, the number of model calls before it, and all reasons."""
    with opened(**window) as session:
        steps = [run_turn(session, turn) for turn in range(turns)]
        reasons = [json.loads(entry.content)["reason"] for entry in session.read() if entry.kind in DECISIONS]
        return [step for step in steps if step is not None], reasons


@pytest.mark.requirement("pressure.ahead")
def test_relief_comes_before_a_turn_of_predictable_growth_and_gives_that_reason():
    ahead, reasons = decided_at()
    without, _ = decided_at(look_ahead=False)
    assert ahead
    assert set(ahead) == {0}
    assert any(step > 0 for step in without)
    assert any(reason.startswith("before a turn that may add ") for reason in reasons)


def test_a_prompt_far_below_the_ceiling_is_left_alone_however_fast_it_grows():
    with opened() as session:
        limit = 0.75 * session.window.budget.input_budget
        for turn in range(12):
            session.append({"role": "user", "content": f"Look at part {turn}."})
            before = session.window.measure().tokens
            if session.prompt().decisions:
                assert before > limit
            session.append({"role": "assistant", "content": "word " * 2_500})


def test_expected_growth_is_the_high_end_of_recent_turns():
    growth = Growth(level=0)
    assert growth.high_gain == 0
    for level in (100, 200, 1_200, 1_300):
        growth = growth.turn(level)
    assert growth.gains == (100, 100, 1_000, 100)
    assert growth.high_gain == 1_000
    assert Growth(level=0, gains=(500, 600)).high_gain == 0  # two turns say little


def postponed(session):
    return [json.loads(entry.content) for entry in session.read() if entry.kind == "relief_postponed"]


@pytest.mark.requirement("window.postponed")
def test_postponed_relief_is_logged_once_per_turn_with_its_reason():
    with opened(min_recent_messages=1_000, look_ahead=False) as session:
        while session.window.measure().utilization < 0.92:
            session.append({"role": "user", "content": "word " * 300})
            session.prompt()
            session.append({"role": "assistant", "content": "yes"})
        session.append({"role": "user", "content": "And now?"})
        assert not session.prompt().decisions
        assert not session.prompt().decisions
        reports = postponed(session)
        assert reports
        assert "too few for an edit" in reports[-1]["reason"]
        assert reports[-1]["tokens"] > 0.9 * reports[-1]["room"]
        assert len(reports) == len({entry["tokens"] for entry in reports})


def test_nothing_is_postponed_below_the_ceiling():
    with opened() as session:
        for turn in range(3):
            run_turn(session, turn)
        assert not postponed(session)
