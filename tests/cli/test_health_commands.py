"""recto health: what it shows, what programs get, and how it ends."""

from __future__ import annotations

import json

import pytest
from tests.cli.calling import called

import recto
from recto.cli.health import sparkline
from recto.engine.monitor import health_of
from recto.testing import scripted_session

SMALL = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}


def worked(path, exchanges=4):
    """A session in which an agent worked; how its turns went."""
    with recto.open(path, model="gpt-4o", models=SMALL, recall={"enabled": False}) as session:
        for message in scripted_session(exchanges=exchanges):
            if message["role"] == "assistant":
                session.prompt()
            session.append(message)
        return [turn for turn, _ in health_of(session.store, session.key)]


def judged(path, score):
    with recto.open(path, model="gpt-4o", models=SMALL, recall={"enabled": False}) as session:
        session.record("fidelity_judged", {"score": score, "questions": 3, "model": "m"})
        session.append({"role": "user", "content": "Well?"})
        session.prompt()
        session.append({"role": "assistant", "content": "Well."})


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "a.db"


def test_people_see_turns_measures_alerts_and_how_long_it_goes_on(store):
    turns = worked(store)
    shown = called("--store", str(store), "health")
    assert shown.returncode == 0, shown.stderr
    last = turns[-1]
    with recto.open(store, model="gpt-4o") as session:
        reading = session.report().reading
    assert reading.room == last.room
    assert reading.tokens > last.tokens  # the answer is in the next prompt
    assert f"{reading.tokens:,} of {reading.room:,} tokens" in shown.stdout
    for said in ("utilization", "messages left", "degradation bloat", "recto context detail", "tokens a turn", "▁"):
        assert said in shown.stdout


def test_programs_get_the_numbers_that_the_transcript_tells(store):
    turns = worked(store)
    told = json.loads(called("--store", str(store), "health", "--json", "--turns", "3").stdout)
    assert [turn["turn"] for turn in told["turns"]] == [turn.turn for turn in turns[-3:]]
    assert told["turns"][-1]["tokens"] == turns[-1].tokens
    assert [alert["name"] for alert in told["alerts"]] == ["bloat"]
    assert told["forecast"]["pace"] > 0


def test_it_ends_with_1_where_something_critical_is_the_matter_and_with_0_once_it_is_over(store):
    worked(store, 2)
    judged(store, 0.4)
    bad = called("--store", str(store), "health")
    assert bad.returncode == 1
    assert "critical fidelity" in bad.stdout
    judged(store, 0.95)
    assert called("--store", str(store), "health").returncode == 0


def test_thresholds_are_those_of_the_settings(store, monkeypatch):
    worked(store, 2)
    monkeypatch.setenv("RECTO_HEALTH__ALERTS__BLOAT", "1.0")
    assert json.loads(called("--store", str(store), "health", "--json").stdout)["alerts"] == []


def test_what_left_the_store_and_came_into_another_is_as_healthy_as_before(store, tmp_path):
    turns = worked(store)
    file, other = tmp_path / "out.jsonl", tmp_path / "b.db"
    assert called("--store", str(store), "session", "export", "-o", str(file)).returncode == 0
    assert called("--store", str(other), "import", str(file)).returncode == 0
    before, after = (json.loads(called("--store", str(at), "health", "--json").stdout) for at in (store, other))
    assert after == before
    assert len(after["turns"]) == min(len(turns), 20)


def test_a_session_whose_prompts_nobody_asked_for_says_so(store, tmp_path):
    (tmp_path / "s.json").write_text('[{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}]')
    called("--store", str(store), "import", str(tmp_path / "s.json"), "--session", "agent:default:main")
    shown = called("--store", str(store), "health")
    assert shown.returncode == 0
    assert "no turn of this session was measured" in shown.stdout


def test_a_session_that_does_not_exist_is_a_mistake_with_a_name(store):
    worked(store, 1)
    shown = called("--store", str(store), "health", "--session", "agent:default:mian")
    assert shown.returncode == 2
    assert "agent:default:main" in shown.stderr


def test_a_name_of_a_model_cannot_act_on_the_terminal(store):
    numbers = dict.fromkeys(("tokens", "room", "prefix", "results", "protected", "recalled", "tools", "lag"), 9)
    with recto.open(store, model="gpt-4o", recall={"enabled": False}) as session:
        session.append({"role": "assistant", "content": "Hi"}, meta={"prompt": {**numbers, "model": "evil\x1b[31m"}})
    shown = called("--store", str(store), "health").stdout
    assert "evil" in shown
    assert "\x1b" not in shown


def test_little_bars_go_from_the_lowest_to_the_highest_and_leave_gaps():
    assert sparkline([0, 1, None, 7.9]) == "▁▂ █"
    assert sparkline([-1.0, 0.0, 1.0]) == "▁▄█"
    assert sparkline([0.0, 0.0]) == "▁▁"
