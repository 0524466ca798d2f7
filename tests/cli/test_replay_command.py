"""Recorded sessions gone through again, and what this machine can do."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from calling import called_at

from recto.testing import scripted_session

MODES = ["sliding_window", "auto_compact", "zones"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    home = tmp_path_factory.mktemp("recorded")
    for seed in (1, 2):
        messages = list(scripted_session(seed=seed, exchanges=5))
        (home / f"{seed}.json").write_text(json.dumps(messages))
    return home


def rows(home, *arguments: str, code: int = 0) -> list[dict]:
    return [json.loads(line) for line in called_at(home, "replay", *arguments, "--json", code=code).splitlines()]


def test_every_mode_keeps_every_prompt_within_the_window(recorded):
    found = rows(recorded, "1.json", "--window", "4k", "--model", "gpt-4o")
    assert [one["mode"] for one in found] == MODES
    turns = sum(1 for one in scripted_session(seed=1, exchanges=5) if one["role"] == "assistant")
    for one in found:
        assert (one["turns"], one["over"], one["refused"]) == (turns, 0, 0)
        assert 0 < one["largest"] <= 4_000
        assert one["decisions"] > 0
        assert 0 < one["share"] < 1
        assert one["dollars"] > 0
    assert not (recorded / ".recto").exists()


def test_the_same_file_comes_to_the_same_and_files_are_added_up(recorded):
    asked = ("--window", "8k", "--mode", "sliding_window")
    first, second = rows(recorded, "1.json", "2.json", *asked), rows(recorded, "1.json", "2.json", *asked)
    assert first == second
    assert first[0]["dollars"] is None
    shown = called_at(recorded, "replay", "1.json", "2.json", *asked)
    assert f"{sum(one['tokens'] for one in first):,}" in shown
    assert "2 files" in shown


def test_what_must_not_leave_and_does_not_fit_is_counted_and_told(recorded):
    long = {"role": "user", "content": "word " * 4_000}
    messages = [long, {"role": "assistant", "content": "Yes."}, *islice(scripted_session(exchanges=1), 1, None)]
    (recorded / "long.json").write_text(json.dumps(messages))
    (one,) = rows(recorded, "long.json", "--window", "2k", "--mode", "zones", code=1)
    assert one["refused"] > 0
    assert one["over"] == 0


@pytest.mark.parametrize("size", ["12", "32x", "-5k"])
def test_a_window_that_is_no_size_is_a_mistake(recorded, size):
    assert "number of tokens" in called_at(recorded, "replay", "1.json", f"--window={size}", code=2)


def test_the_machine_is_measured_and_nothing_is_left_behind(tmp_path):
    (tmp_path / ".recto").mkdir()
    lines = called_at(tmp_path, "bench", "--quick", "--json").splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["unit"] for one in found] == ["MB/s", "per second", "ms p50", "ms p99"]
    assert all(one["value"] > 0 for one in found)
    assert list((tmp_path / ".recto").iterdir()) == []
