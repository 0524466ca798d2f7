"""Output of `recto lab tune`, and the settings file that it writes."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click
import yaml
from rich.table import Column, Table
from rich.text import Text

from recto.cli.console import one_line, out
from recto.config import Settings
from recto.lab.objective import MEANINGS, Goal
from recto.lab.results import measures_of
from recto.lab.search_space import WINDOW, Subject
from recto.lab.tune import Gain, TuneResult

_VERDICTS = {
    "better": "better on sessions that it had not seen: recommended",
    "noise": "within noise: keep the settings as they are",
    "worse": "worse on sessions that it had not seen: keep the settings as they are",
    "beyond": "better, but at too high a price on sessions that it had not seen: keep the settings as they are",
    "nothing": "nothing tried was better: keep the settings as they are",
}


def show(result: TuneResult, subject: Subject, goal: Goal, *, as_json: bool) -> None:
    """Prints the result, as JSON or for people."""
    if as_json:
        click.echo(json.dumps(as_dict(result, subject, goal)))
        return
    if result.gain is not None and result.tried_gain is not None:
        out.print(_changes(result, subject))
        out.print(_gains(result.gain, result.tried_gain, goal))
    noun = "candidate" if result.trials == 1 else "candidates"
    searched = f"{result.trials} {noun} tried on {result.tried_on} sessions, {result.dropped} dropped early"
    stopped = "; stopped before the end" if result.stopped else ""
    out.print(f"{searched}; {result.held_out} sessions held out{stopped}", markup=False, soft_wrap=True)
    out.print(_VERDICTS[result.verdict], style="green" if result.verdict == "better" else "yellow", soft_wrap=True)


def as_dict(result: TuneResult, subject: Subject, goal: Goal) -> dict[str, Any]:
    """Returns the result for the JSON output."""
    return {
        "verdict": result.verdict,
        "recommended": result.verdict == "better",
        "objective": goal.objective,
        "allowance": goal.allowance,
        "mode": subject.settings.window.mode,
        "window": subject.budget.window,
        "trials": result.trials,
        "dropped": result.dropped,
        "refused": result.refused,
        "stopped": result.stopped,
        "tried_on": result.tried_on,
        "held_out": result.held_out,
        "settings": dict(result.values),
        "gain": _gain_as_dict(result.gain),
        "tried_gain": _gain_as_dict(result.tried_gain),
    }


def render_settings_file(
    result: TuneResult, subject: Subject, goal: Goal, settings: Settings, *, trials: int, seed: int
) -> str:
    """Renders the settings file: only what changes, with a comment on how it was found."""
    assert result.gain is not None  # noqa: S101  # only what was judged is written
    tree = subject.tree(result.values)
    tuned_settings = subject.settings
    if tuned_settings.window.mode != settings.window.mode:
        tree = {**tree, "window": {"mode": tuned_settings.window.mode, **tree.get("window", {})}}
    if WINDOW in result.values:
        size = result.values[WINDOW]
        tree["models"] = {tuned_settings.model: {"window": size, "max_input": size}}
    gain, interval = result.gain, result.gain.interval
    model = f", counted as {one_line(subject.model, 100)}" if subject.model else ""
    lines = (
        f"Written by recto lab tune, {datetime.now(UTC):%Y-%m-%d}: mode {tuned_settings.window.mode}, window "
        f"{result.values.get(WINDOW, subject.budget.window):,}{model}.",
        f"{result.trials} of {trials} candidates, seed {seed}, tried on {result.tried_on} sessions.",
        f"On {result.held_out} others, {MEANINGS[goal.objective]}: {gain.baseline_rate:.4g} before, "
        f"{gain.chosen_rate:.4g} now;",
        f"less by {interval.value:.4g}, with 95 % confidence by {interval.low:.4g} to {interval.high:.4g}. "
        f"Cost {gain.cost:+.1%}.",
    )
    comment = "".join(f"# {line}\n" for line in lines)
    return comment + yaml.safe_dump(tree, sort_keys=False, allow_unicode=False)


def _changes(result: TuneResult, subject: Subject) -> Table:
    table = Table("setting", Column("now", justify="right"), Column("tried", justify="right"))
    current = {dimension.name: dimension.current for dimension in subject.space()}
    for name, value in result.values.items():
        before = current[name]
        table.add_row(Text(name), Text(_number(before)), Text(_number(value)))
    return table


def _gains(held_out: Gain, tried: Gain, goal: Goal) -> Table:
    names = ("sessions", "now", "then", "less by", "sure (95 %)", "cost")
    columns = [Column(name, justify="right", no_wrap=True) for name in names]
    table = Table(Column("", no_wrap=True), *columns, title=MEANINGS[goal.objective], title_justify="left")
    for name, gain in (("tried on", tried), ("held out", held_out)):
        interval = gain.interval
        table.add_row(
            name,
            f"{gain.sessions:,}",
            *(_number(rate) for rate in (gain.baseline_rate, gain.chosen_rate)),
            f"{gain.share:.1%}",
            f"{_number(interval.low)} to {_number(interval.high)}",
            f"{gain.cost:+.1%}",
        )
    return table


def _gain_as_dict(gain: Gain | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    return {
        "sessions": gain.sessions,
        "given_rate": gain.baseline_rate,
        "chosen_rate": gain.chosen_rate,
        **asdict(gain.interval),
        "share": gain.share,
        "cost": gain.cost,
        "excess": gain.excess,
        "given": measures_of(gain.baseline),
        "chosen": measures_of(gain.chosen),
    }


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1_000 else f"{value:.3g}"
