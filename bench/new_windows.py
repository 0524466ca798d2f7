"""Measures what the recorded next action finds in the prompt after windows opened at fixed intervals, and the cost.
Recorded agent runs are replayed in a window of 16 K tokens, and a new window is opened at every 10th, 25th or 50th
call. These prompts are compared with those of the default mode without new windows, and with plain trimming.

This is a scripted stand-in for a model that opens windows with `new_context` at the gateway; it opens them whatever the
state of the work is. Unlike a real model, it states nothing about its work and searches nothing afterwards. The figures
show what checkpoint, first page and working record carry over by themselves, not how well a model chooses its moments.
A hash chooses the runs; everything is measured as in the section *Action support*.
"""

from __future__ import annotations

import multiprocessing
import os

from bench.action_support import DEFAULT, EQUAL, SAMPLE, TRIMMED, Arm, Tally, _bucket, judge, run_names
from bench.measure import figures, row

WINDOW = 16_000
EVERY = (10, 25, 50)
ARMS = (DEFAULT, *(Arm(mode=DEFAULT.mode, new_window=every) for every in EVERY))


def run(quick: bool) -> list[dict]:
    """Judges the arms over the chosen runs."""
    names = list(run_names())
    sample = [
        (name, kind)
        for chosen in ("agent_sessions", "swebench_trajectories")
        for name, kind in sorted(
            ((name, kind) for name, kind in names if kind == chosen), key=lambda run: _bucket("sample", run[0])
        )[: 1 if quick else 4 * SAMPLE]
    ]
    if not sample:
        return [row("recorded runs", 0, "runs", "none found: name the folder in RECTO_TEST_DATA")]
    jobs = [(name, kind, WINDOW, (arm,)) for name, kind in sample for arm in ARMS]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        results = pool.starmap(judge, jobs, chunksize=1)
    totals: dict[str, Tally] = {}
    for (_, _, _, arms), found in zip(jobs, results, strict=True):
        labels = [arms[0].label, *((TRIMMED, EQUAL) if arms[0] == DEFAULT else ())]
        for label in labels:
            totals[label] = totals.get(label, Tally()) + found[label]
    rows = [row("recorded runs", len(sample), "runs", f"{totals[DEFAULT.label].steps:,} calls, {WINDOW:,} tokens")]
    return rows + [_figures(label, tally, totals[TRIMMED]) for label, tally in totals.items()]


def _figures(label: str, tally: Tally, plain: Tally) -> dict:
    values: dict[str, float] = {
        "all": tally.all,
        "old": tally.old,
        "refused": tally.refused,
        "fill": tally.fill / max(tally.moments, 1),
        "unchanged prefix": tally.unchanged / max(tally.tokens, 1),
        "dollars": tally.picodollars / max(plain.picodollars, 1),
    }
    return figures(label, values, f"{tally.needed:,} referents, {tally.old_needed:,} old")
