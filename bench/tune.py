"""Measures whether `recto lab tune` finds settings that suit real agent sessions better than the defaults.
Half of the sessions are held out. On the others, candidates are tried by replay for a quarter of an hour; the best one
is compared once with the defaults on the held-out sessions.

A gain is the fall of missed needs per turn: what a response needed that had been evicted from the prompt and was not
recalled. Its interval is over sessions. The table shows the result whichever way it comes out.
"""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

from bench.compaction_data import DATA
from bench.measure import figures
from recto.config import load
from recto.lab.commands.tune import TuneOptions, WindowRange, make_subject, tune_files
from recto.lab.tune import Gain, TuneResult

MODEL = "claude-sonnet-4-5"
WINDOWS = (16_000, 32_000)
SECONDS = 900.0
SHORT = 400_000
"""Bytes of the longest session when it is only to be seen that it runs."""
SAYS = {
    "better": "better, and recommended",
    "noise": "within noise: the defaults stay",
    "worse": "worse: the defaults stay",
    "beyond": "better at too high a price: the defaults stay",
    "nothing": "nothing was better: the defaults stay",
}


def run(quick: bool) -> list[dict]:
    files = _files(SHORT if quick else inf)
    asked = TuneOptions(trials=40, seconds=SECONDS / 10 if quick else SECONDS, held_out=0.5)
    which = ", sessions up to 400 KB" if quick else ""
    return [one for window in WINDOWS for one in _rows(f"{window // 1000} K{which}", _tuned(files, window, asked))]


def _files(most: float) -> tuple[Path, ...]:
    listed = json.loads((DATA / "agent_sessions" / "index.json").read_text(encoding="utf-8"))
    files = [DATA / "agent_sessions" / about["path"] for about in listed]
    return tuple(file for file in files if file.stat().st_size <= most)


def _tuned(files: tuple[Path, ...], window: int, asked: TuneOptions) -> TuneResult:
    size = WindowRange(low=window, high=window)
    subject = make_subject(load(environ={}), window=size, mode=None, model=MODEL, options=asked)
    return tune_files(files, subject, asked)


def _rows(name: str, tuned: TuneResult) -> list[dict]:
    searched = f"{tuned.trials} candidates, {tuned.dropped} dropped early"
    if tuned.gain is None or tuned.tried_gain is None:
        found = {"sessions": tuned.tried_on, "candidates": tuned.trials}
        return [figures(f"{name}: tried on", found, f"{searched}; {SAYS[tuned.verdict]}")]
    changes = ", ".join(f"{key} {value}" for key, value in tuned.values.items())
    return [
        figures(f"{name}: tried on", _figures(tuned.tried_gain), f"{searched}; best: {changes}"),
        figures(f"{name}: held out", _figures(tuned.gain), SAYS[tuned.verdict]),
    ]


def _figures(gain: Gain) -> dict[str, float]:
    return {
        "sessions": gain.sessions,
        "turns": gain.baseline.turns,
        "missed per turn, defaults": gain.baseline_rate,
        "tuned": gain.chosen_rate,
        "less by": gain.interval.value,
        "from (95 %)": gain.interval.low,
        "to": gain.interval.high,
        "cost": gain.cost,
    }
