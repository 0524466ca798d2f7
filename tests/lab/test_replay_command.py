"""Replays of recorded sessions in several variants, and the benchmark of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from itertools import islice

import pytest
from tests.cli.calling import called_at

from recto.lab.report import short_number
from recto.testing import scripted_session

MODES = ["sliding_window", "auto_compact", "zones"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    home = tmp_path_factory.mktemp("recorded")
    for seed in (1, 2):
        messages = list(scripted_session(seed=seed, exchanges=3))
        (home / f"{seed}.json").write_text(json.dumps(messages))
    return home


def rows(home, *arguments: str, code: int = 0) -> list[dict]:
    return [json.loads(line) for line in called_at(home, "lab", "replay", *arguments, "--json", code=code).splitlines()]


def test_every_mode_keeps_every_prompt_within_the_window(recorded):
    found = rows(recorded, "1.json", "--window", "4k", "--model", "gpt-4o")
    assert [row["mode"] for row in found] == MODES
    turns = sum(1 for message in scripted_session(seed=1, exchanges=3) if message["role"] == "assistant")
    for row in found:
        assert (row["turns"], row["over"], row["refused"]) == (turns, 0, 0)
        assert 0 < row["largest"] <= 4_000
        assert row["decisions"] > 0
        assert 0 < row["share"] < 1
        assert row["dollars"] > 0
        assert row["regret"] == row["fetched_again"] + row["referred"] == row["met"] + row["missed"]
        assert 0 <= row["survival"] <= 1
    assert not (recorded / ".recto").exists()


def test_one_and_two_processes_give_the_same_results(recorded):
    arguments = ("1.json", "2.json", "--window", "4k", "--model", "gpt-4o", "--mode", "zones", "--against", "trim")
    ways = []
    for jobs in ("1", "2"):
        output = called_at(
            recorded, "lab", "replay", *arguments, "--jobs", jobs, "--json", "--html", f"jobs-{jobs}.html"
        )
        ways.append([line for line in output.splitlines() if line.startswith("{")])
    assert ways[0] == ways[1]
    assert [(row["file"], row["way"]) for row in map(json.loads, ways[0])] == [
        (file, way) for file in ("1.json", "2.json") for way in ("trim", "zones")
    ]
    assert (recorded / "jobs-1.html").read_bytes() == (recorded / "jobs-2.html").read_bytes()


def test_files_are_summed_and_missing_prices_are_explained(recorded):
    arguments = ("1.json", "2.json", "--window", "8k", "--mode", "sliding_window")
    found = rows(recorded, *arguments)
    assert [row["dollars"] for row in found] == [None, None]
    shown = called_at(recorded, "lab", "replay", *arguments)
    assert short_number(sum(row["tokens"] for row in found)) in shown
    assert f"2 files, {sum(row['turns'] for row in found):,} turns" in shown
    assert "–" in shown
    assert "--model NAME" in shown
    assert "--model NAME" not in called_at(recorded, "lab", "replay", *arguments, "--model", "gpt-4o")


@pytest.mark.requirement("evict.tuned")
def test_modes_are_combined_with_policies_and_a_mode_without_policies_runs_once(recorded):
    arguments = ("--window", "4k", "--model", "gpt-4o", "--policy", "prune", "--policy", "lru", "--policy", "prune")
    found = rows(recorded, "1.json", *arguments)
    assert [(row["way"], row["mode"], row["policy"]) for row in found] == [
        ("sliding_window, prune", "sliding_window", "prune"),
        ("sliding_window, lru", "sliding_window", "lru"),
        ("auto_compact", "auto_compact", None),
        ("zones, prune", "zones", "prune"),
        ("zones, lru", "zones", "lru"),
    ]
    (plain,) = rows(recorded, "1.json", *arguments[:4], "--mode", "sliding_window")
    results = [{name: value for name, value in row.items() if name != "way"} for row in (found[0], plain)]
    assert results[0] == results[1]
    assert "is not one of" in called_at(recorded, "lab", "replay", "1.json", "--policy", "oldest", code=2)


def test_a_scorer_setting_is_not_passed_to_another_scorer(recorded):
    (recorded / "hybrid.yaml").write_text("window:\n  policy: hybrid\n  scorer: {weights: {lru: 1.0}}\n")
    arguments = ("--window", "4k", "--model", "gpt-4o", "--mode", "zones", "--policy", "hybrid", "--policy", "lru")
    output = called_at(recorded, "--config", "hybrid.yaml", "lab", "replay", "1.json", *arguments, "--json")
    assert [json.loads(line)["policy"] for line in output.splitlines()] == ["hybrid", "lru"]


def test_a_window_that_is_never_full_sends_the_whole_history(recorded):
    arguments = ("--window", "900k", "--model", "gpt-4o", "--mode", "sliding_window", "--against", "none")
    none, ours = rows(recorded, "1.json", *arguments)
    assert (none["way"], none["mode"], none["over"]) == ("none", None, 0)
    assert "against" not in none
    assert set(ours["against"].values()) == {0}
    assert ours["regret"] == 0


def test_a_baseline_may_go_over_budget_and_the_others_report_their_difference(recorded):
    arguments = ("--window", "4k", "--model", "gpt-4o", "--mode", "zones")
    none, zones = rows(recorded, "1.json", *arguments, "--against", "none")
    assert none["over"] > 0
    assert none["largest"] > 4_000 >= zones["largest"]
    assert zones["against"]["tokens"] == zones["tokens"] - none["tokens"] < 0
    assert zones["against"]["over"] == -none["over"]
    assert zones["against"]["dollars"] == pytest.approx(zones["dollars"] - none["dollars"], abs=1e-5)
    trim, again = rows(recorded, "1.json", *arguments, "--against", "trim")
    assert (trim["over"], trim["refused"]) == (0, 0)
    assert {name: again[name] for name in again if name != "against"} == {
        name: zones[name] for name in zones if name != "against"
    }
    shown = called_at(recorded, "lab", "replay", "1.json", *arguments, "--against", "none")
    assert f"−{none['over']}" in shown
    assert "the difference to 'none'" in shown


def test_other_settings_can_be_the_baseline(recorded):
    (recorded / "other.yaml").write_text("window: {mode: zones, policy: fifo}\n")
    arguments = ("--window", "4k", "--model", "gpt-4o", "--mode", "zones", "--policy", "fifo")
    other, ours = rows(recorded, "1.json", *arguments, "--against", "other.yaml")
    assert (other["way"], other["mode"], other["policy"]) == ("other.yaml", "zones", "fifo")
    assert set(ours["against"].values()) == {0}
    assert "neither 'none' nor 'trim'" in called_at(recorded, "lab", "replay", "1.json", "--against", "nothing", code=2)


def test_protected_messages_over_budget_are_counted_and_reported(recorded):
    long = {"role": "user", "content": "word " * 4_000}
    messages = [long, {"role": "assistant", "content": "Yes."}, *islice(scripted_session(exchanges=1), 1, None)]
    (recorded / "long.json").write_text(json.dumps(messages))
    (row,) = rows(recorded, "long.json", "--window", "2k", "--mode", "zones", code=1)
    assert row["refused"] > 0
    assert row["over"] == 0


def test_an_unreadable_file_ends_the_replay_with_any_number_of_processes(recorded):
    (recorded / "odd.json").write_text('{"no": "messages"')
    for jobs in ("1", "2"):
        output = called_at(recorded, "lab", "replay", "odd.json", "odd.json", "--window", "4k", "--jobs", jobs, code=3)
        assert "odd.json" in output


def test_a_page_never_overwrites_a_session(recorded):
    before = (recorded / "1.json").read_bytes()
    arguments = ("lab", "replay", "tiny.json", "--window", "8k", "--mode", "zones", "--html")
    (recorded / "tiny.json").write_text(json.dumps(list(islice(scripted_session(exchanges=1), 3))))
    assert "is no page" in called_at(recorded, *arguments, "1.json", code=2)
    assert (recorded / "1.json").read_bytes() == before
    assert "no folder" in called_at(recorded, *arguments, "nowhere/page.html", code=2)
    for _ in range(2):  # an earlier page is replaced
        assert "written to page.html" in called_at(recorded, *arguments, "page.html")


def test_a_name_of_a_file_or_of_settings_cannot_act_on_a_terminal(recorded):
    name = "\x1b[31mred\x07[bold]\u202e{0}.json"
    (recorded / name).write_text(json.dumps(list(islice(scripted_session(exchanges=1), 3))))
    (recorded / f"{name}.yaml").write_text("window: {policy: lru}\n")
    arguments = ("--window", "8k", "--mode", "zones", "--against", f"{name}.yaml", "--html", f"{name}.html")
    shown = called_at(recorded, "lab", "replay", name, name, *arguments)
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert "[bold]" in shown
    (baseline, _, *_) = rows(recorded, name, *arguments[:6])
    assert baseline["file"] == name


def test_an_interrupted_replay_leaves_no_process_running(recorded):
    files = [recorded / f"again-{number}.json" for number in range(60)]
    for file in files:
        file.write_bytes((recorded / "1.json").read_bytes())
    # Restore the handler of a terminal: a shell makes background processes ignore Ctrl-C.
    program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    program += "from recto.cli.main import main; main()"
    arguments = ["lab", "replay", *map(str, files), "--window", "4k", "--jobs", "2", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "HOME": str(recorded)},
    )
    assert json.loads(process.stdout.readline())["file"] == "again-0.json"
    os.killpg(process.pid, signal.SIGINT)  # like a terminal, which signals the whole process group
    _, complained = process.communicate(timeout=60)  # returns once all processes, workers included, closed it
    assert process.returncode == 130, complained
    assert "Traceback" not in complained


@pytest.mark.parametrize("size", ["12", "32x", "-5k"])
def test_an_invalid_window_size_is_a_usage_error(recorded, size):
    assert "number of tokens" in called_at(recorded, "lab", "replay", "1.json", f"--window={size}", code=2)


def test_the_machine_is_measured_without_leaving_files(tmp_path):
    (tmp_path / ".recto").mkdir()
    lines = called_at(tmp_path, "lab", "bench", "--quick", "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert [row["unit"] for row in found] == ["MB/s", "per second", "ms p50", "ms p99"]
    assert all(row["value"] > 0 for row in found)
    assert list((tmp_path / ".recto").iterdir()) == []
