"""`recto lab tune`: what is written, what is refused, and which settings may be tried."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace

import pytest
import yaml
from tests.cli.calling import called_at, own_file

from recto.config import Settings, load
from recto.config.factory import model_card
from recto.config.modes import make_relief_rules
from recto.lab._tune_recordings import load_recordings, make_measure
from recto.lab.backtest import Backtest
from recto.lab.bootstrap import Interval
from recto.lab.commands._tune_report import render_settings_file
from recto.lab.commands.tune import TuneOptions, WindowRange, make_subject
from recto.lab.objective import Goal, changed_values, single_changes
from recto.lab.search_space import WINDOW, Subject
from recto.lab.tune import Gain, TuneResult

WASTEFUL = {
    "window": {"floor_percent": 90, "ceiling_percent": 98, "min_recent_messages": 4, "record_percent": 0},
    "recall": {"enabled": False},
}
"""Settings that keep prompts nearly full, so that a search for fewer tokens succeeds quickly."""
SAVE = ("--window", "2k", "--objective", "tokens", "--trials", "1")
SESSIONS = 16


def talk(seed: int) -> list[dict]:
    """Returns a conversation of short messages, twice as long as the window."""
    rng = random.Random(seed)
    words = ("parcel", "ticket", "lamp", "river", "market", "window", "paper", "stone", "garden", "letter")
    texts = [f"{seed}-{place}: " + " ".join(rng.choices(words, k=rng.randint(40, 80))) for place in range(26)]
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    home = tmp_path_factory.mktemp("recorded")
    for seed in range(SESSIONS):
        (home / f"{seed:02}.json").write_text(json.dumps(talk(seed)))
    own_file(home).write_text(yaml.safe_dump(WASTEFUL))
    return home


def files(home) -> list[str]:
    return sorted(file.name for file in home.glob("??.json"))


@pytest.mark.requirement("evict.tuned")
def test_better_settings_are_written_and_can_be_loaded(recorded, tmp_path):
    written = tmp_path / "tuned.yaml"
    save = ("lab", "tune", *files(recorded), *SAVE, "--allowance", "100", "-o", str(written))
    shown = called_at(recorded, *save)
    assert "recommended" in shown
    assert "window.floor_percent" in shown
    text = written.read_text()
    assert yaml.safe_load(text) == {"window": {"floor_percent": 65.0}}
    assert text.startswith("# Written by recto lab tune")
    assert "95 % confidence" in text
    assert load(path=written, environ={}) == replace(Settings(), window=replace(Settings().window, floor_percent=65.0))
    assert "exists" in called_at(recorded, *save, code=2)
    assert [file.name for file in (recorded / ".recto").iterdir()] == ["recto.yaml"]


def test_without_an_improvement_nothing_is_written_and_the_result_is_deterministic(recorded, tmp_path):
    written = tmp_path / "tuned.yaml"
    arguments = ("lab", "tune", *files(recorded), "--window", "2k", "--trials", "1", "-o", str(written), "--json")
    first, second = (json.loads(called_at(recorded, *arguments, code=1)) for _ in range(2))
    assert first == second
    assert (first["verdict"], first["recommended"], first["settings"]) == ("nothing", False, {})
    assert (first["tried_on"], first["held_out"], first["dropped"]) == (8, 8, 1)
    assert not written.exists()


def test_too_few_sessions_are_refused_and_duplicates_count_once(recorded):
    few = files(recorded)[:15]
    (recorded / "again.json").write_bytes((recorded / few[0]).read_bytes())
    shown = called_at(recorded, "lab", "tune", *few, "again.json", *SAVE, code=3)
    assert "15 different sessions" in shown
    assert "16 are needed" in shown


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--window", "64k..16k"), "smaller size comes first"),
        (("--window", "16k..1"), "number of tokens"),
        (("--window", "16k..64k"), "needs --model"),
        (("--window", "16k", "--objective", "dollars"), "needs --model"),
    ],
)
def test_invalid_arguments_are_reported_immediately(recorded, arguments, says):
    assert says in called_at(recorded, "lab", "tune", "00.json", *arguments, code=2)


def test_a_missing_package_is_reported_with_its_install_command(recorded, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'recto-ai[tune]'" in called_at(recorded, "lab", "tune", "00.json", code=2)


def test_the_results_do_not_depend_on_the_number_of_processes(recorded, tmp_path):
    subject = subject_of(WASTEFUL)
    sessions = load_recordings(subject.settings, [recorded / name for name in files(recorded)[:3]], tmp_path)
    values = {"window.floor_percent": 50.0}
    alone, together = (
        make_measure(subject, sessions, jobs, lambda by: None)(values, range(len(sessions))) for jobs in (1, 2)
    )
    assert alone == together
    assert sum(result.turns for result in alone) > 3


def test_a_branch_is_identified_by_its_beginning(recorded, tmp_path):
    messages = json.loads((recorded / "00.json").read_text())
    branch = tmp_path / "branch.json"
    branch.write_text(json.dumps([*messages[:8], {"role": "user", "content": "Go on differently."}]))
    subject = subject_of({})
    found = load_recordings(subject.settings, [recorded / "00.json", branch, recorded / "01.json"], tmp_path)
    assert len(found) == 3
    assert len({recording.key for recording in found}) == 2


def subject_of(arguments: dict, mode: str | None = None, window: WindowRange | None = None) -> Subject:
    settings = load(environ={}, arguments=arguments)
    return make_subject(
        settings,
        window=window or WindowRange(low=16_000, high=16_000),
        mode=mode,
        model="gpt-4o",
        options=TuneOptions(),
    )


@pytest.mark.parametrize("mode", ["sliding_window", "auto_compact", "zones"])
@pytest.mark.parametrize("window", [WindowRange(low=2_000, high=2_000), WindowRange(low=16_000, high=200_000)])
@pytest.mark.parametrize(
    "arguments", [{}, {"window": {"policy": "hybrid", "scorer": {"weights": {"fifo": 0.5, "lru": 0.5}}}}]
)
def test_the_whole_range_of_every_tried_setting_is_valid(mode, window, arguments):
    subject = subject_of(arguments, mode, window)
    space = subject.space()
    assert len({dimension.name for dimension in space if dimension.only_with is None}) == sum(
        dimension.only_with is None for dimension in space
    )
    tried = single_changes(space)
    assert len(tried) >= 8
    usual = {dimension.name: dimension.current for dimension in space}
    for dimension in space:
        for value in dimension.options or (dimension.nearest(dimension.low), dimension.nearest(dimension.high)):
            values = usual | dict([dimension.only_with] if dimension.only_with else []) | {dimension.name: value}
            tried.append({other.name: values[other.name] for other in space if other.applies(values)})
    for values in tried:
        settings = subject.apply(values)
        rules = make_relief_rules(settings, replace(subject, settings=settings).budget, model_card(settings))
        assert 0 < rules.floor < rules.ceiling <= 1
    assert (
        subject.apply({dimension.name: dimension.current for dimension in space if dimension.applies(usual)})
        == subject.settings
    )


def test_a_tuned_window_belongs_to_the_model_and_is_not_a_setting():
    subject = subject_of({}, window=WindowRange(low=16_000, high=64_000))
    smaller = subject.apply({WINDOW: 20_000})
    assert model_card(smaller).window == 20_000
    assert model_card(subject.settings).window == 64_000
    assert subject.tree({WINDOW: 20_000}) == {}


def test_the_file_of_any_candidate_loads_the_measured_settings(tmp_path):
    subject = subject_of({}, "zones", WindowRange(low=16_000, high=64_000))
    interval = Interval(value=0.1, low=0.05, high=0.15)
    gain = Gain(
        sessions=8,
        baseline=Backtest(),
        chosen=Backtest(),
        baseline_rate=0.5,
        chosen_rate=0.4,
        interval=interval,
        cost=0.01,
        excess=0.0,
    )
    usual = {dimension.name: dimension.current for dimension in subject.space()}
    for change in ({WINDOW: 20_000}, {"window.policy": "hybrid"}, {"recall.threshold": 0.2, "compress.line_turns": 30}):
        wanted = usual | change
        values = {dimension.name: wanted[dimension.name] for dimension in subject.space() if dimension.applies(wanted)}
        tuned = TuneResult(
            verdict="better",
            trials=1,
            dropped=0,
            refused=0,
            stopped=False,
            tried_on=8,
            held_out=8,
            values=changed_values(subject.space(), values),
            gain=gain,
        )
        file = tmp_path / "tuned.yaml"
        file.write_text(render_settings_file(tuned, subject, Goal(), Settings(), trials=1, seed=0))
        found, measured = load(path=file, environ={}), subject.apply(values)
        assert found.window == measured.window
        assert found.compress.line_turns == measured.compress.line_turns
        assert (found.recall.threshold, found.recall.tokens) == (measured.recall.threshold, measured.recall.tokens)
        if WINDOW in change:
            assert model_card(replace(found, model="gpt-4o")).window == model_card(measured).window == 20_000


def test_another_policy_does_not_inherit_the_settings_of_the_previous_policy():
    subject = subject_of({"window": {"policy": "lru", "scorer": {"shared": 3}}})
    assert subject.apply({"window.policy": "fifo"}).window.scorer == {}
    assert subject.apply({"window.policy": "lru", "window.scorer.shared": 3}) == subject.settings


def test_untried_settings_of_a_policy_stay():
    given = {"tool": 5, "user": 70}
    subject = subject_of({"window": {"policy": "type_ttl", "scorer": given}})
    assert subject.apply({"window.policy": "type_ttl", "window.scorer.tool": 4}).window.scorer == given | {"tool": 4}
