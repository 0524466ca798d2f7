"""How `recto tune` tells what came of it, and the file of settings that it writes."""

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
from recto.lab.results import told
from recto.lab.search_space import WINDOW, Subject
from recto.lab.tune import Gain, Tuned

_SAYS = {
    "better": "better on sessions that it had not seen: recommended",
    "noise": "within noise: keep the settings as they are",
    "worse": "worse on sessions that it had not seen: keep the settings as they are",
    "beyond": "better, but at too high a price on sessions that it had not seen: keep the settings as they are",
    "nothing": "nothing tried was better: keep the settings as they are",
}


def show(tuned: Tuned, subject: Subject, goal: Goal, *, as_json: bool) -> None:
    """To a program or to a person."""
    if as_json:
        click.echo(json.dumps(as_object(tuned, subject, goal)))
        return
    if tuned.gain is not None and tuned.tried_gain is not None:
        out.print(_changes(tuned, subject))
        out.print(_gains(tuned.gain, tuned.tried_gain, goal))
    noun = "candidate" if tuned.trials == 1 else "candidates"
    searched = f"{tuned.trials} {noun} tried on {tuned.tried_on} sessions, {tuned.dropped} dropped early"
    stopped = "; stopped before the end" if tuned.stopped else ""
    out.print(f"{searched}; {tuned.held_out} sessions held out{stopped}", markup=False, soft_wrap=True)
    out.print(_SAYS[tuned.verdict], style="green" if tuned.verdict == "better" else "yellow", soft_wrap=True)


def as_object(tuned: Tuned, subject: Subject, goal: Goal) -> dict[str, Any]:
    """Everything, by name."""
    return {
        "verdict": tuned.verdict,
        "recommended": tuned.verdict == "better",
        "objective": goal.objective,
        "allowance": goal.allowance,
        "mode": subject.settings.window.mode,
        "window": subject.budget.window,
        "trials": tuned.trials,
        "dropped": tuned.dropped,
        "refused": tuned.refused,
        "stopped": tuned.stopped,
        "tried_on": tuned.tried_on,
        "held_out": tuned.held_out,
        "settings": dict(tuned.values),
        "gain": _gain_object(tuned.gain),
        "tried_gain": _gain_object(tuned.tried_gain),
    }


def file_of(tuned: Tuned, subject: Subject, goal: Goal, settings: Settings, *, trials: int, seed: int) -> str:
    """The file of settings: only what changes, and how it was come by."""
    assert tuned.gain is not None  # noqa: S101  # only what was judged is written
    tree = subject.tree(tuned.values)
    own = subject.settings
    if own.window.mode != settings.window.mode:
        tree = {**tree, "window": {"mode": own.window.mode, **tree.get("window", {})}}
    if WINDOW in tuned.values:
        size = tuned.values[WINDOW]
        tree["models"] = {own.model: {"window": size, "max_input": size}}
    gain, interval = tuned.gain, tuned.gain.interval
    model = f", counted as {one_line(subject.model, 100)}" if subject.model else ""
    lines = (
        f"Written by recto tune, {datetime.now(UTC):%Y-%m-%d}: mode {own.window.mode}, window "
        f"{tuned.values.get(WINDOW, subject.budget.window):,}{model}.",
        f"{tuned.trials} of {trials} candidates, seed {seed}, tried on {tuned.tried_on} sessions.",
        f"On {tuned.held_out} others, {MEANINGS[goal.objective]}: {gain.given_rate:.4g} before, {gain.chosen_rate:.4g} "
        f"now;",
        f"less by {interval.value:.4g}, with 95 % confidence by {interval.low:.4g} to {interval.high:.4g}. "
        f"Cost {gain.cost:+.1%}.",
    )
    said = "".join(f"# {line}\n" for line in lines)
    return said + yaml.safe_dump(tree, sort_keys=False, allow_unicode=False)


def _changes(tuned: Tuned, subject: Subject) -> Table:
    table = Table("setting", Column("now", justify="right"), Column("tried", justify="right"))
    given = {one.name: one.given for one in subject.space()}
    for name, value in tuned.values.items():
        now = given[name]
        table.add_row(Text(name), Text(_number(now)), Text(_number(value)))
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
            *(_number(one) for one in (gain.given_rate, gain.chosen_rate)),
            f"{gain.share:.1%}",
            f"{_number(interval.low)} to {_number(interval.high)}",
            f"{gain.cost:+.1%}",
        )
    return table


def _gain_object(gain: Gain | None) -> dict[str, Any] | None:
    if gain is None:
        return None
    return {
        "sessions": gain.sessions,
        "given_rate": gain.given_rate,
        "chosen_rate": gain.chosen_rate,
        **asdict(gain.interval),
        "share": gain.share,
        "cost": gain.cost,
        "excess": gain.excess,
        "given": told(gain.given),
        "chosen": told(gain.chosen),
    }


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1_000 else f"{value:.3g}"
