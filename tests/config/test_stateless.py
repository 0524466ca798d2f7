"""One-call functions: `fit` and `evict` say what left, `count` counts, `PressureMonitor` measures."""

from __future__ import annotations

import json
import logging

import pytest

import recto
from recto.context.policies.scorers import SCORERS
from recto.errors import InputError, SettingsError
from recto.formats import problems
from recto.testing import scripted_session

MODEL = "gpt-4o"
SESSION = list(scripted_session(exchanges=40))


def valid(messages) -> bool:
    return problems([json.dumps(message).encode() for message in messages], "openai.chat") == []


@pytest.mark.requirement("fit.knows")
def test_fit_knows_what_it_pruned_and_logs_it(caplog):
    with caplog.at_level(logging.INFO, "recto.fit"):
        fitted = recto.fit(SESSION, 8_000, model=MODEL)
    assert isinstance(fitted, list)
    stayed = {id(message) for message in fitted}
    assert fitted.evicted == [message for message in SESSION if id(message) not in stayed]
    assert fitted.evicted
    assert fitted.tokens == recto.count(fitted, model=MODEL) <= 8_000
    assert f"{len(fitted.evicted)} of {len(SESSION)} messages were pruned" in caplog.text


def test_a_list_that_fits_stays_as_it_is_and_nothing_is_logged(caplog):
    with caplog.at_level(logging.INFO, "recto.fit"):
        fitted = recto.fit(SESSION[:5], 100_000, model=MODEL)
    assert fitted == SESSION[:5]
    assert (fitted.evicted, caplog.text) == ([], "")


def test_fit_notices_settings_that_change_between_calls(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    messages = list(scripted_session(exchanges=40))

    def left() -> int:
        return recto.fit(messages, model="gpt-4o").evicted_count

    assert left() == 0
    monkeypatch.setenv("RECTO_WINDOW__MAX_TOKENS", "6000")
    by_variable = left()
    assert by_variable > 0
    monkeypatch.setenv("RECTO_WINDOW__MAX_TOKENS", "7000")
    assert 0 < left() < by_variable
    monkeypatch.delenv("RECTO_WINDOW__MAX_TOKENS")
    assert left() == 0
    folder = tmp_path / ".recto"
    folder.mkdir()
    (folder / "recto.yaml").write_text("window: {max_tokens: 6000}")
    assert left() == by_variable


@pytest.mark.requirement("fit.size")
def test_fit_takes_its_size_from_the_model():
    many = list(scripted_session(exchanges=100))
    assert recto.count(many, model=MODEL) > 128_000
    fitted = recto.fit(many, model=MODEL)
    assert fitted.evicted
    assert fitted.tokens < 128_000
    assert recto.fit(many, model="claude-sonnet-4-5").evicted != fitted.evicted
    with pytest.raises(SettingsError, match="give the size of the window, or a model"):
        recto.fit(many)


@pytest.mark.parametrize("policy", ["prune", *SCORERS])
@pytest.mark.requirement("evict.list")
def test_evict_frees_what_is_asked_for_by_any_policy_of_the_settings(policy):
    before = recto.count(SESSION, model=MODEL)
    evicted = recto.evict(SESSION, free=3_000, policy=policy, model=MODEL)
    assert evicted.freed >= 3_000
    assert evicted.tokens == before - evicted.freed == recto.count(evicted, model=MODEL)
    assert len(evicted.evicted) + len(evicted) == len(SESSION) + 1  # the marker
    assert evicted[0] is SESSION[0]
    assert SESSION[1] in evicted
    assert evicted[-1] is SESSION[-1]
    assert valid(evicted)
    assert evicted.policy == (policy if policy == "prune" else f"evict.{policy}")
    scored = {id(SESSION[place]) for place in evicted.scores}
    assert policy == "prune" or scored == {id(message) for message in evicted.evicted}


def test_evict_leaves_what_must_stay_and_says_what_it_freed():
    question = [*SESSION, {"role": "user", "content": "And now?"}]
    evicted = recto.evict(question, free=10**9, policy="fifo", model=MODEL)
    assert evicted[0] is SESSION[0]
    assert SESSION[1] in evicted
    assert evicted[-1] is question[-1]
    assert evicted.tokens == recto.count(question, model=MODEL) - evicted.freed
    nothing = recto.evict(question, free=0, model=MODEL)
    assert (nothing, nothing.evicted, nothing.freed) == (question, [], 0)


class Longest:
    """A scorer of one's own: the largest unit leaves first."""

    name = "longest"

    def score(self, features):
        return [{"total": -float(features.view.cost(unit))} for unit in features.view.eligible]


@pytest.mark.requirement("evict.policies")
def test_evict_takes_a_scorer_of_ones_own():
    evicted = recto.evict(SESSION, free=100, policy=Longest(), model=MODEL)
    assert evicted.policy == "evict.longest"
    totals = [parts["total"] for parts in evicted.scores.values()]
    assert min(totals) == max(totals)


@pytest.mark.parametrize("wrong", [{"free": -1}, {"free": 1, "policy": "fifoo"}, {"free": 1, "policy": 7}])
def test_evict_refuses_what_makes_no_sense(wrong):
    with pytest.raises(SettingsError):
        recto.evict(SESSION, model=MODEL, **wrong)


@pytest.mark.requirement("tokens.functions")
def test_count_counts_as_a_session_does():
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    with recto.open("memory:", model=MODEL) as session:
        for what in ("some text", SESSION[1], SESSION, json.dumps(SESSION[1]).encode()):
            assert recto.count(what, model=MODEL) == session.count(what)
        assert recto.count(SESSION, model=MODEL, tools=tools) == session.count(SESSION, tools=tools)


@pytest.mark.requirement("pressure.reading")
def test_a_monitor_gives_fill_zone_velocity_turns_and_urgency():
    changes = []
    monitor = recto.PressureMonitor(100_000, on_zone_change=changes.append)
    readings = [monitor.turn(tokens) for tokens in (10_000, 12_000, 14_000, 54_000, 80_000, 92_000)]
    assert [reading.zone for reading in readings] == ["green", "green", "green", "yellow", "orange", "red"]
    assert [(change.before, change.after) for change in changes] == [
        ("green", "yellow"),
        ("yellow", "orange"),
        ("orange", "red"),
    ]
    assert readings[1].velocity == 2_000
    assert readings[1].turns_until_red == 39
    assert [reading.urgency for reading in readings] == [
        "normal",
        "normal",
        "normal",
        "warning",
        "critical",
        "critical",
    ]
    assert monitor.last is readings[-1]
    monitor.reset()
    assert monitor.last is None
    assert monitor.measure(10_000).velocity == 0


@pytest.mark.parametrize(("turns", "urgency"), [(2, "critical"), (3, "warning"), (9, "warning"), (10, "normal")])
@pytest.mark.requirement("pressure.urgency")
def test_urgency_is_critical_under_three_turns_and_a_warning_under_ten(turns, urgency):
    monitor = recto.PressureMonitor(100_000)
    monitor.turn(90_000 - (turns + 1) * 1_000)
    reading = monitor.turn(90_000 - turns * 1_000)
    assert (reading.turns_until_red, reading.urgency) == (turns, urgency)


@pytest.mark.requirement("pressure.reading")
def test_a_reading_names_its_source():
    exact, estimated = recto.PressureMonitor(model=MODEL), recto.PressureMonitor(model="claude-sonnet-4-5")
    assert exact.measure(SESSION[:9]).source == "counted"
    assert estimated.measure(SESSION[:9]).source == "estimated"
    assert estimated.measure(SESSION[:9], reported=estimated.measure(SESSION[:9]).tokens - 50).source == "reported"
    assert exact.measure(reported=5_000).source == "reported"
    assert exact.measure(5_000, reported=4_000).source == "counted"  # an exact count is a lower bound
    with recto.open("memory:", model="claude-sonnet-4-5") as session:
        session.append({"role": "user", "content": "word " * 500})
        prompt = session.prompt()
        assert prompt.reading.source == "estimated"
        session.observe(list(prompt.raw), {"input_tokens": int(prompt.tokens * 0.8)})
        assert session.window.measure().source == "reported"


def test_a_spike_is_told_once_and_relief_is_no_negative_growth():
    spikes = []
    monitor = recto.PressureMonitor(100_000, on_velocity_spike=spikes.append)
    for tokens in (10_000, 12_000, 14_000, 16_000):
        monitor.turn(tokens)
    monitor.measure(40_000)
    monitor.measure(41_000)
    assert [spike.gain for spike in spikes] == [24_000]
    monitor.relieved(20_000)
    assert monitor.measure(20_000).gain == 25_000


@pytest.mark.parametrize("prompt", [-1, True, None])
def test_a_monitor_refuses_what_is_no_size(prompt):
    with pytest.raises(InputError):
        recto.PressureMonitor(1_000).measure(prompt)
    with pytest.raises(SettingsError):
        recto.PressureMonitor(0)
    with pytest.raises(SettingsError):
        recto.PressureMonitor()
