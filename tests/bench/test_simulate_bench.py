"""The figures of made-up agents add up, and a session that was filled goes on as if it had been gone through."""

from __future__ import annotations

from bench import simulate
from recto.lab.probes import ProbeCounts, total_counts


def test_every_need_of_the_last_turns_is_counted_once_with_recall_and_without(monkeypatch):
    monkeypatch.setattr(simulate, "TIMED", 2)
    monkeypatch.setattr(simulate, "TAIL", 25)
    recall, without = (simulate.measured("chat", 40, recall=recall) for recall in (True, False))
    due = [turn.need for turn in simulate.simulate("chat", turns=40) if turn.need and turn.number > 15]
    assert total_counts(recall[0].fared).asked == total_counts(without[0].fared).asked == len(due) > 0
    assert (recall[0].turns, recall[1].turns) == (25, 2)
    rows = simulate.told([("chat", 40, recall, without)])
    assert rows[0]["figures"]["needs"] == rows[-1]["figures"]["needs"] == len(due)
    assert rows[0]["figures"]["over"] == 0
    assert rows[-1]["figures"]["met"] >= rows[-1]["figures"]["without recall"]


def test_shares_are_of_what_was_asked_and_of_what_had_left():
    fared = ProbeCounts(asked=10, prompt=4, recalled=3)
    assert (fared.met, fared.missed, fared.share, fared.share_of_evicted) == (7, 3, 0.7, 0.5)
    assert ProbeCounts().share == ProbeCounts().share_of_evicted == 1.0
