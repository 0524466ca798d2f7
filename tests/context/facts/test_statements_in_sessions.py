"""Statements of the user are in the prompt of their later turn, after many evictions and in every mode.

These are the sessions of `python -m bench statements`, which measures all of them.
"""

from __future__ import annotations

import pytest
from bench.statements import EVICTIONS, Case, Outcome, cases, play, read_set

MODES = ["sliding_window", "auto_compact", "zones"]


def play_all(selected, mode, window) -> Outcome:
    total = Outcome()
    for case in selected:
        total.add(play(case, mode, window))
    return total


def check(total: Outcome) -> None:
    assert min(total.evictions) >= EVICTIONS
    assert len(total.lost) <= 0.05 * total.asked, total.lost
    assert len(total.kept) <= 0.2 * total.neutral, total.kept


@pytest.mark.promise
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.requirement("protect.statements")
def test_statements_are_in_the_prompt_of_their_later_turn(mode, scale):
    selected = cases(*read_set(), real=False)
    check(play_all(selected[1 : scale(3, ci=6, release=24)], mode, 16_384))


@pytest.mark.promise
@pytest.mark.parametrize("window", [8_192, 16_384, 32_768])
def test_statements_are_in_the_prompt_among_the_messages_of_real_agents(data, window, scale):
    selected = cases(*read_set(), real=True)
    check(play_all(selected[1 : scale(4, ci=9, release=24)], "sliding_window", window))


def test_a_session_full_of_statements_keeps_them_in_a_small_window():
    total = play_all(crowded(real=False), "sliding_window", 16_384)
    assert total.lost == []
    assert max(total.record_tokens) <= 0.2 * total.budget


def test_the_newest_messages_make_room_for_what_the_user_said(data):
    """Real agents' results fill a window of 8 K: the record stays as it is, and messages are evicted instead."""
    total = play_all(crowded(real=True), "sliding_window", 8_192)
    assert total.lost == []


def crowded(*, real: bool) -> list[Case]:
    return [case for case in cases(*read_set(), real=real) if len(case.statements) == 25][:1]


def test_without_a_record_statements_are_lost():
    total = play(cases(*read_set(), real=False)[1], "sliding_window", 16_384, record_percent=0)
    assert len(total.lost) > 0.5 * total.asked
