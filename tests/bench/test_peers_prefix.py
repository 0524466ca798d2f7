"""Sessions reach the peers as they were, and what the peers' prompts are worth is added up right."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from bench import peers_prefix as prefix

USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}
SESSION = [
    ("user", "question"),
    ("assistant", [{"type": "thinking", "thinking": "hm", "signature": "s"}]),
    ("assistant", [{"type": "text", "text": "I look."}]),
    ("assistant", [USE, USE | {"id": "c2"}]),
    ("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "one"}]),
    ("user", [{"type": "tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": "two"}]}]),
    ("assistant", "answer"),
    ("user", "never answered"),
]


def written(folder: Path) -> Path:
    lines = [{"type": "meta", "session_id": "s"}]
    lines += [{"type": "message", "role": role, "content": content} for role, content in SESSION]
    file = folder / "session.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def replayed(*prompts: list[int], **more) -> dict:
    told = {"variant": "peer", "budget": 32_000, "calls": len(prompts), "tokens": [3_000, 2_000, 1_000]}
    return told | {"prompts": list(prompts), "wrong": {"bad": 0, "over": 0}} | more


def test_a_session_is_cut_at_the_calls_of_the_model_and_what_one_answer_said_is_one_message(tmp_path):
    calls = [["c1", "look", '{"at": 1}'], ["c2", "look", '{"at": 1}']]
    assert prefix.steps_of(written(tmp_path)) == [
        [["user", "question", [], None, None, "m000000"]],
        [
            ["assistant", "I look.", calls, None, None, "m000001"],
            ["tool", "one", [], "c1", "look", "m000002"],
            ["tool", "two", [], "c2", "look", "m000003"],
        ],
    ]


def test_a_knob_that_counts_is_given_the_mean_of_what_it_counts():
    calls = [["c1", "a", "b"], ["c2", "a", "b"]]
    step = [["assistant", "", calls], ["tool", "a", []], ["tool", "a", []], ["user", "a", []]]
    assert prefix.mean_tokens([[step]]) == {"messages": 7 / 3, "items": 7 / 5}


def test_only_what_stands_before_the_first_change_is_read_from_the_cache():
    (row,) = prefix.summed([replayed([0, 1], [0, 1, 2], [1, 2]), replayed([0, 1])])
    assert (row["calls"], row["tokens"], row["unchanged"]) == (4, 5_000 + 6_000 + 3_000 + 5_000, 5_000)
    read, written = 5_000 * 300_000, (5_000 + 1_000 + 3_000 + 5_000) * 3_750_000
    assert row["picodollars"] == read + written
    assert prefix.line(row)[1] == "26.3 %"


def test_a_prompt_that_is_bad_in_two_ways_is_counted_once():
    first = replayed([0], wrong={"bad": 1, "over": 1, "no_user": 1})
    (row,) = prefix.summed([first, replayed([0], [0], wrong={"bad": 1, "over": 0, "refused": 1})])
    assert prefix.wrongs(row) == "2 of 3: 1 over, 1 no user, 1 refused"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            subprocess.CalledProcessError(1, ["python"], stderr="Trace\nImportError: gone\n"),
            "failed: ImportError: gone",
        ),
        (subprocess.TimeoutExpired(["python"], prefix.LONGEST), f"took over {prefix.LONGEST} s"),
    ],
)
def test_a_peer_that_fails_is_told_and_not_dropped(error, said, monkeypatch, tmp_path):
    def refuse(*_):
        raise error

    monkeypatch.setattr(prefix, "told", refuse)
    monkeypatch.setattr(prefix, "DATA", tmp_path)
    folder = tmp_path / "agent_sessions" / "some"
    folder.mkdir(parents=True)
    written(folder)
    report = prefix.measured(tmp_path, tmp_path, {"llamaindex": tmp_path / "python"})
    assert (report["sessions"], report["calls"]) == (1, 1)
    assert prefix.failures(report) == [f"llamaindex Mem, unchanged prefix: {said}"]
