"""`recto lab trial`: a table, JSON or a page, without session content unless requested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.calling import called, called_at
from tests.hostile_texts import MARKUP
from tests.lab.test_html_report import WORDS_OF_ELEMENTS, WORDS_OF_PAGES, Looked
from tests.lab.test_response_likelihood import echo
from tests.lab.test_trial import run_messages
from tests.models.serving import serving

import recto
from recto.lab.moments import EQUAL, SEARCH, WHOLE
from recto.lab.variants import MODES

COMMAND = ("lab", "trial", "secret_plan.json", "other.json", "--window", "4k", "--model", "gpt-4o", "--moments", "2")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("tried")
    (home / "secret_plan.json").write_text(json.dumps(run_messages()))
    (home / "other.json").write_text(json.dumps(run_messages(22, "cat src/part_1.py")))
    (home / "short.json").write_text(json.dumps(run_messages(1)))
    return home


@pytest.fixture(scope="module")
def result(home):
    return json.loads(called_at(home, *COMMAND, "--json"))


def test_every_arm_is_counted_in_every_window(result):
    assert [row["arm"] for row in result["arms"]] == [WHOLE, *MODES, EQUAL, SEARCH]
    arms = {row["arm"]: row for row in result["arms"]}
    assert arms[WHOLE]["all"]["value"] == arms[WHOLE]["old"]["value"] == 1
    assert arms[EQUAL]["old"]["value"] == 0
    assert arms["sliding_window"]["old"]["part"] > 0
    assert (result["runs"], result["model"], arms[WHOLE]["moments"]) == (2, None, 4)
    assert all(row["likelihood"] is None for row in result["arms"])
    assert arms[EQUAL]["gain"] is None


def test_several_processes_give_the_same_result(home, result):
    assert json.loads(called_at(home, *COMMAND, "--json", "--jobs", "2")) == result


def test_the_text_output_has_a_table_per_window_with_the_selected_modes(home):
    shown = called_at(home, *COMMAND, "--window", "6k", "--mode", "zones")
    assert "window of 4,000, 4 moments" in shown
    assert "window of 6,000" in shown
    assert "zones" in shown
    assert "auto_compact" not in shown
    assert "old: of those that trimming to the window has lost" in shown


def test_histories_that_fit_have_nothing_to_compare(home):
    shown = called_at(home, "lab", "trial", "short.json", "--window", "32k", "--model", "gpt-4o", "--html", "fit.html")
    assert "Every history fits these windows" in shown
    assert "Every history fits these windows" in (home / "fit.html").read_text()


def test_the_page_and_the_json_contain_no_session_content_unless_requested(home, result):
    called_at(home, *COMMAND, "--html", "a.html")
    page = (home / "a.html").read_text()
    for text in (page, json.dumps(result)):
        for content in ("secret_plan", "part_0", "first_name", "value_"):
            assert content not in text
    assert page.count("<svg") > 2
    looked = Looked(page)
    assert looked.open == []
    assert looked.elements <= set(WORDS_OF_PAGES.split())
    assert looked.attributes <= set(WORDS_OF_ELEMENTS.split())
    called_at(home, *COMMAND, "--html", "a.html", "--with-names")
    assert "secret_<wbr>plan.json" in (home / "a.html").read_text()
    assert "secret_plan.json" in called_at(home, *COMMAND, "--json", "--with-names")


def test_a_trial_of_a_stored_session_writes_nothing_to_it(tmp_path):
    store = tmp_path / "a.db"
    with recto.open(store, model="gpt-4o") as session:
        session.append_all(run_messages())
        before = len(session)
    command = ("lab", "trial", "agent:default:main", "--window", "4k", "--mode", "zones", "--json")
    shown = called("--store", str(store), *command)
    assert json.loads(shown.stdout)["arms"][0]["moments"] == 4
    with recto.open(store, model="gpt-4o") as session:
        assert len(session) == before
    assert called("--store", str(store), "lab", "trial", "agent:unknown:main").returncode != 0


@pytest.fixture
def model_home(home, tmp_path, monkeypatch):
    """Returns a home whose settings name a server that returns log-probabilities."""
    with serving(monkeypatch) as server:
        server.answers.append(echo)
        for file in home.glob("*.json"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        (tmp_path / "model.yaml").write_text(
            json.dumps({"compress": {"model": {"use": "openai", "url": server.url, "model": "tiny"}}})
        )
        yield tmp_path, server


def test_with_a_model_every_arm_gets_a_verdict_and_a_second_trial_sends_no_request(model_home):
    home, server = model_home
    command = ("--config", "model.yaml", *COMMAND, "--likelihood", "--keep", "scores.jsonl")
    first = json.loads(called_at(home, *command, "--json"))
    request_count = len(server.asked)
    assert request_count > 10
    judged = {row["arm"]: row["likelihood"] for row in first["arms"]}
    assert judged[WHOLE] is None
    assert judged[EQUAL]["moments"] == 4
    assert judged[EQUAL]["verdict"] in ("equivalent", "better", "no worse", "worse", "undecided")
    assert judged[EQUAL]["value"] >= judged["sliding_window"]["value"] >= 0
    assert (first["model"], first["margin"]) == ("tiny", 0.05)
    assert json.loads(called_at(home, *command, "--json")) == first
    shown = called_at(home, *command, "--html", "scored.html", "--margin", "5")
    assert len(server.asked) == request_count
    assert "equivalent" in shown
    assert "the margin of 5" in (home / "scored.html").read_text()


def test_a_server_without_log_probabilities_is_reported_with_its_message_escaped(model_home):
    home, server = model_home
    hostile = MARKUP[3] + "\x1b[31m"
    server.answers[:] = [lambda handler, body: handler.give({"error": {"message": hostile}}, 400)]
    shown = called_at(home, "--config", "model.yaml", *COMMAND, "--likelihood", "--html", "failed.html")
    assert "4 prompts were not scored: it answered 400" in shown
    assert "\x1b" not in shown
    assert "loss" not in shown


def test_likelihood_without_a_model_names_the_setting(home):
    assert "compress.model.use" in called_at(home, *COMMAND, "--likelihood", code=2)


def test_a_file_of_another_kind_is_not_read_as_cached_scores(home):
    assert "no kept score" in called_at(home, *COMMAND, "--keep", "other.json", code=3)
    assert json.loads((home / "other.json").read_text())


def test_real_runs_can_be_tried(data, tmp_path):
    files = sorted(data.glob("agent_sessions/*/*.jsonl"), key=lambda file: file.stat().st_size)[4:6]
    command = ("--window", "8k", "--mode", "sliding_window", "--json")
    shown = called_at(tmp_path, "lab", "trial", *map(str, files), *command)
    arms = {row["arm"]: row for row in json.loads(shown)["arms"]}
    assert arms[WHOLE]["all"]["value"] == 1
    assert arms["sliding_window"]["all"]["value"] >= arms[EQUAL]["all"]["value"]
    assert Path(files[0]).stem not in shown
