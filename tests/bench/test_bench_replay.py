"""How a long replay went is told from what its processes measured."""

from __future__ import annotations

from bench.replay import Measured, _course, _figures, _sums, measured

from recto.config import load
from recto.lab.backtest import Backtest
from recto.lab.recordings import ReplayTask
from recto.lab.results import VariantOutcome, Way
from recto.lab.variants import variants


def test_memory_is_told_as_it_was_at_a_quarter_at_half_and_at_the_end(tmp_path):
    file = tmp_path / "session.json"
    file.write_text("x" * 1_000_000)
    way = Way(name="zones", mode="zones")
    done = [
        Measured(
            outcome=VariantOutcome(
                place=0, file="a", way=way, result=Backtest(turns=10, tokens=1_000, picodollars=10**12)
            ),
            done=1_000.0 + at,
            peak_mb=peak,
            seconds=2.0,
        )
        for at, peak in ((1.0, 90.0), (4.0, 80.0), (7.0, 120.0), (8.0, 100.0))
    ]
    rows = {one["what"]: one for one in _course(done, (file,), began=1_000.0, took=8.0, jobs=2)}
    peaks = [rows[f"peak memory of a process, {name} of the time"]["value"] for name in ("a quarter", "half", "all")]
    assert peaks == [90.0, 90.0, 120.0]
    assert rows["replay of all of them, processor at work"]["value"] == 8.0
    (figures,) = [_figures(one)["figures"] for one in _sums(done)]
    assert (figures["dollars"], figures["M tokens"]) == (4.0, 0.004)


def test_a_task_is_measured_where_it_is_done(tmp_path):
    file = tmp_path / "session.json"
    file.write_text('[{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}]')
    none, *_ = variants(load(environ={}), model="gpt-4o", window=8_000, against="none")
    found = measured(ReplayTask(place=0, file=file, variant=none), lambda by: None)
    assert found.outcome.result.turns == 1
    assert found.peak_mb > 1
    assert found.seconds >= 0
