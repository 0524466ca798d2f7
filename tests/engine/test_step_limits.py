"""In a small window the prompt stays nearly full between the steps of a turn, and makes room where a turn begins."""

from __future__ import annotations

from statistics import fmean

import recto

SMALL, LARGE = 16_000, 32_000


def opened(size=SMALL, **window):
    limits = {"gpt-4o": {"window": size, "max_input": size}}
    settings = {"cache_aware": False, "look_ahead": False} | window
    return recto.open("memory:", model="gpt-4o", models=limits, window=settings, recall={"inject": False})


def fills_of_steps(session, steps=160):
    """One turn of a tool loop with small outputs: how full the prompt of each step is."""
    session.append({"role": "user", "content": "Look at the ledger."})
    fills = []
    for step in range(steps):
        fills.append(session.prompt().tokens / session.window.budget.input_budget)
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": f'{{"page": {step}}}'}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = "\n".join(f"line {line} of page {step} of the ledger" for line in range(25))
        session.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return fills


def fills_once_full(session):
    fills = fills_of_steps(session)
    full = next(place for place, fill in enumerate(fills) if fill > 0.93)
    return fills[full:]


def test_between_steps_a_small_window_stays_nearly_full():
    with opened() as session:
        fills = fills_once_full(session)
    assert fmean(fills) > 0.92
    assert max(fills) <= 1


def test_a_floor_or_a_ceiling_that_is_set_holds_between_steps_too():
    for window in ({"floor_percent": 70}, {"ceiling_percent": 90}):
        with opened(**window) as session:
            fills = fills_of_steps(session)
        assert min(fills[fills.index(max(fills)) :]) < 0.85


def test_where_a_turn_begins_there_is_room_for_a_quotation():
    with opened() as session:
        fills_of_steps(session)
        used, budget = session.prompt().tokens, session.window.budget.input_budget
        while used <= 0.962 * budget:  # below the ceiling between steps, above that of a turn's beginning
            session.append({"role": "assistant", "content": "The next page is in order. " * 3})
            used = session.window.measure().tokens
        assert used <= 0.98 * budget
        session.append({"role": "user", "content": "What was on the first page?"})
        assert session.prompt().tokens < 0.9 * budget


def test_in_a_large_window_the_floor_is_the_same_everywhere():
    with opened(LARGE) as session:
        assert not session.window.rules.step_ceiling
        fills = fills_of_steps(session, 400)
        assert min(fills[fills.index(max(fills)) :]) < 0.8
