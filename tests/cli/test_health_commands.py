"""`recto health`: its report, its JSON, and its exit codes."""

from __future__ import annotations

import json

import pytest
from tests.cli.calling import called, own_file

import recto
from recto.cli.health import sparkline
from recto.engine.monitor import health_of
from recto.testing import scripted_session

SMALL = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}


def record_session(path, exchanges=4):
    """Records a scripted session; returns the measurements of its turns."""
    with recto.open(path, model="gpt-4o", models=SMALL, recall={"enabled": False}) as session:
        for message in scripted_session(exchanges=exchanges):
            if message["role"] == "assistant":
                session.prompt()
            session.append(message)
        return [turn for turn, _ in health_of(session.store, session.key)]


def record_fidelity(path, score):
    with recto.open(path, model="gpt-4o", models=SMALL, recall={"enabled": False}) as session:
        session.record("fidelity_judged", {"score": score, "questions": 3, "model": "m"})
        session.append({"role": "user", "content": "Well?"})
        session.prompt()
        session.append({"role": "assistant", "content": "Well."})


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path / "a.db"


def test_the_report_shows_turns_measures_alerts_and_a_forecast(store, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    own_file(tmp_path).write_text(json.dumps({"models": SMALL}))
    turns = record_session(store)
    shown = called("--store", str(store), "health")
    assert shown.returncode == 0, shown.stderr
    last = turns[-1]
    with recto.open(store, model="gpt-4o", models=SMALL) as session:
        reading = session.report().reading
    assert reading.room == last.room
    assert reading.tokens > last.tokens  # the answer is in the next prompt
    assert f"{reading.tokens:,} of {reading.room:,} tokens" in shown.stdout
    for words in ("utilization", "messages left", "degradation bloat", "recto context detail", "tokens a turn", "▁"):
        assert words in shown.stdout


def test_json_output_has_the_numbers_of_the_transcript(store):
    turns = record_session(store)
    report = json.loads(called("--store", str(store), "health", "--json", "--turns", "3").stdout)
    assert [turn["turn"] for turn in report["turns"]] == [turn.turn for turn in turns[-3:]]
    assert report["turns"][-1]["tokens"] == turns[-1].tokens
    assert [alert["name"] for alert in report["alerts"]] == ["bloat"]
    assert report["forecast"]["pace"] > 0


def test_a_critical_alert_exits_with_1_and_a_resolved_alert_with_0(store):
    record_session(store, 2)
    record_fidelity(store, 0.4)
    bad = called("--store", str(store), "health")
    assert bad.returncode == 1
    assert "critical fidelity" in bad.stdout
    record_fidelity(store, 0.95)
    assert called("--store", str(store), "health").returncode == 0


def test_thresholds_come_from_the_settings(store, monkeypatch):
    record_session(store, 2)
    monkeypatch.setenv("RECTO_HEALTH__ALERTS__BLOAT", "1.0")
    assert json.loads(called("--store", str(store), "health", "--json").stdout)["alerts"] == []


def test_an_exported_and_imported_session_has_the_same_health(store, tmp_path):
    turns = record_session(store)
    file, other = tmp_path / "out.jsonl", tmp_path / "b.db"
    assert called("--store", str(store), "session", "export", "-o", str(file)).returncode == 0
    assert called("--store", str(other), "import", str(file)).returncode == 0
    before, after = (json.loads(called("--store", str(at), "health", "--json").stdout) for at in (store, other))
    assert after == before
    assert len(after["turns"]) == min(len(turns), 20)


def test_a_session_without_prompts_is_reported_as_unmeasured(store, tmp_path):
    (tmp_path / "s.json").write_text('[{"role": "user", "content": "6 x 7?"}, {"role": "assistant", "content": "42"}]')
    called("--store", str(store), "import", str(tmp_path / "s.json"), "--session", "agent:default:main")
    shown = called("--store", str(store), "health")
    assert shown.returncode == 0
    assert "no turn of this session was measured" in shown.stdout


def test_a_missing_session_is_a_usage_error_with_a_suggestion(store):
    record_session(store, 1)
    shown = called("--store", str(store), "health", "--session", "agent:default:mian")
    assert shown.returncode == 2
    assert "agent:default:main" in shown.stderr


def test_a_model_name_cannot_control_the_terminal(store):
    numbers = dict.fromkeys(("tokens", "room", "prefix", "results", "protected", "recalled", "tools", "lag"), 9)
    with recto.open(store, model="gpt-4o", recall={"enabled": False}) as session:
        session.append({"role": "assistant", "content": "Hi"}, meta={"prompt": {**numbers, "model": "evil\x1b[31m"}})
    shown = called("--store", str(store), "health").stdout
    assert "evil" in shown
    assert "\x1b" not in shown


def test_a_sparkline_spans_lowest_to_highest_and_leaves_gaps():
    assert sparkline([0, 1, None, 7.9]) == "▁▂ █"
    assert sparkline([-1.0, 0.0, 1.0]) == "▁▄█"
    assert sparkline([0.0, 0.0]) == "▁▁"
