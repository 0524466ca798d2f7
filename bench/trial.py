"""Measures, by the rules of `recto lab trial`, how much of the recorded next action each prompt contains.
At four moments of each recorded agent run, Recto's prompts in windows of 8 K, 16 K and 32 K tokens are compared with
the whole history, with trimming at equal tokens, and with a search over files.

Measuring all runs takes a quarter of an hour of one core, so it has two steps; the section prints the stored counts:

    python -m bench.trial measure FILE [--window 8000]    counts on all runs; continues where it was interrupted
    python -m bench.trial keep FILE                       stores the counts of every run in bench/trial.json

Each run has four moments in each window, among the calls whose history has up to 100,000 tokens. The likelihoods on the
page are those of the section `likelihood`, judged by the same test of equivalence as in `recto lab trial`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import astuple, fields
from pathlib import Path

from bench import likelihood, provenance
from bench.action_support import load_run, run_names
from bench.measure import figures, row
from bench.plots import Bar, Row, bars
from recto.config import load
from recto.config.factory import open_session
from recto.lab.bootstrap import Equivalence, PairedDifference, judge_equivalence
from recto.lab.isolation import isolated
from recto.lab.moments import WHOLE, Choice
from recto.lab.trial import ArmResult, Support, TrialTask, TriedRun, summarize_trial, try_run
from recto.lab.variants import MODES
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE, Entry

KEPT = Path(__file__).with_suffix(".json")
PICTURE = Path("docs/pictures/trial.svg")
WINDOWS = (8_000, 16_000, 32_000)
MOMENTS = 4
LONGEST = 100_000
MODEL = "gpt-4o"
_COUNTS = tuple(count.name for count in fields(Support))
_SAMPLE = 4
"""One in so many runs is taken through every mode, the others through the default alone."""


def run(quick: bool) -> list[dict]:
    """The kept counts as tables, and the verdicts on the kept likelihoods."""
    del quick  # counts are kept, not measured
    if not KEPT.exists():
        return [row("recorded runs", 0, "runs", "nothing is kept: python -m bench.trial measure FILE")]
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    rows = []
    for what, runs in groups(kept["runs"]).items():
        rows.append(row(what, len(runs), "runs"))
        rows += [_support_row(what, result) for result in summarize_trial(runs)]
    return rows + [_likelihood_row(arm, judged) for arm, judged in likelihoods().items()]


def groups(lines: Sequence[dict]) -> dict[str, list[TriedRun]]:
    """The kept runs by kind with the default mode, and the sample with every mode."""
    kinds = {"all runs": None, "tool calls": "agent_sessions", "commands as text": "swebench_trajectories"}
    found = {
        what: kept_runs((line for line in lines if kind in (None, line["kind"])), without=MODES[1:])
        for what, kind in kinds.items()
    }
    return found | {"sample": kept_runs(line for line in lines if line["every_mode"])}


def kept_runs(lines: Iterable[dict], without: Collection[str] = ()) -> list[TriedRun]:
    """The counts of each run, all windows together."""
    found: dict[str, dict[tuple[int, str], Support]] = {}
    for line in sorted(lines, key=lambda line: line["window"]):
        support = found.setdefault(line["run"], {})
        support |= {
            (line["window"], arm): Support(**dict(zip(_COUNTS, counts, strict=True)))
            for arm, *counts in line["support"]
            if arm not in without
        }
    return [TriedRun(name=name, support=support) for name, support in found.items()]


def likelihoods() -> dict[str, Equivalence]:
    """The verdict on each arm of the section `likelihood`."""
    scores = [likelihood.Score(*values) for values in json.loads(likelihood.KEPT.read_text())["scores"]]
    whole = {score.moment: score for score in scores if score.arm == WHOLE}
    by_arm: dict[str, dict[str, list[PairedDifference]]] = {}
    for score in scores:
        if score.arm != WHOLE:
            loss = PairedDifference(score.mean - whole[score.moment].mean, 1)  # tokens of responses were not kept
            by_arm.setdefault(score.arm, {}).setdefault(score.run, []).append(loss)
    judged = {arm: judge_equivalence(runs) for arm, runs in by_arm.items()}
    return {arm: found for arm, found in judged.items() if found is not None}


def _support_row(what: str, result: ArmResult) -> dict:
    support, gain = result.support, result.gain
    return figures(
        f"{what}, {result.window // 1000} K: {result.arm}",
        {
            "support": support.all,
            "old": support.old,
            "gain": gain and gain.value,
            "low": gain and gain.low,
            "high": gain and gain.high,
            "tokens": round(support.tokens / max(support.moments, 1)),
            "refused": support.refused,
        },
        f"{support.moments:,} moments, {support.needed:,} referents, {support.old_needed:,} old",
    )


def _likelihood_row(arm: str, judged: Equivalence) -> dict:
    interval = judged.interval
    values = {"loss": interval.value, "low": interval.low, "high": interval.high, "within .05": judged.within}
    return figures(arm, values, f"{judged.verdict}: {judged.moments} moments of {judged.runs} runs")


def measure(file: Path, windows: Sequence[int]) -> None:
    """Appends the counts of every run to a file, but of those that it has."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(line["run"], line["window"]) for line in lines}
    settings = load(environ={})
    for place, (name, kind) in enumerate(run_names()):
        modes = MODES[: 1 if place % _SAMPLE else None]
        left = [window for window in windows if (name, window) not in done]
        entries = tuple(recorded_entries(name, kind)) if left else ()
        for window in left:
            choice = Choice(windows=(window,), modes=modes, count=MOMENTS, longest=LONGEST)
            task = TrialTask(name=name, entries=entries, settings=settings, choice=choice, model=MODEL)
            support = [[arm, *astuple(counts)] for (_, arm), counts in try_run(task, lambda by: None).support.items()]
            with file.open("a") as stream:
                line = {"run": name, "kind": kind, "window": window, "every_mode": modes == MODES, "support": support}
                stream.write(json.dumps(line) + "\n")


def recorded_entries(name: str, kind: str) -> Iterator[Entry]:
    """The messages of a recorded run as a session stores them."""
    recorded = load_run(name, kind)
    with (
        closing(MemoryStore()) as store,
        closing(open_session(isolated(load(environ={}), model=MODEL), store)) as session,
    ):
        session.append_all(list(recorded.raws), wire=recorded.wire)
        yield from (entry for entry in session.read() if entry.kind == MESSAGE)


def keep(file: Path) -> None:
    """Keeps the counts, with the commit and what they were measured of, and draws them."""
    kept = provenance.state_of("trial")
    lines = ",\n".join(line for line in file.read_text().splitlines())
    KEPT.write_text(json.dumps(kept, indent=1)[:-2] + f',\n "runs": [\n{lines}\n]\n}}\n')
    PICTURE.write_text(picture(kept_runs(map(json.loads, file.read_text().splitlines()), without=MODES[1:])))


def picture(runs: Sequence[TriedRun]) -> str:
    """Support in each window, of everything that actions use and of what trimming has lost."""
    results = summarize_trial(runs)
    windows = list(dict.fromkeys(result.window for result in results))
    panels = [f"{window // 1000} K, {part}" for window in windows for part in ("all", "old")]
    rows = []
    for arm in dict.fromkeys(result.arm for result in results):
        supports = [
            result.support for window in windows for result in results if (result.window, result.arm) == (window, arm)
        ]
        shares = [share for support in supports for share in (support.all, support.old)]
        rows.append(
            Row(
                label=arm,
                ours=arm in MODES,
                bars=[
                    Bar(
                        value=share,
                        text="–" if share is None else f"{share:.1%}",
                        mark="ours" if arm in MODES else "sound",
                    )
                    for share in shares
                ],
            )
        )
    note = f"Share of what the recorded next action uses that is in the prompt; {len(runs)} recorded runs."
    return bars("Action support", note, panels, rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.trial", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("measure", "keep"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--window", type=int, action="append", choices=WINDOWS)
    given = parser.parse_args()
    if given.what == "keep":
        keep(given.file)
    else:
        measure(given.file, given.window or WINDOWS)


if __name__ == "__main__":
    main()
