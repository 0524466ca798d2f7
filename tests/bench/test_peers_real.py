"""Sessions reach the peers as they were, and what the peers' prompts are worth is added up right."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench.peer_judging import texts_of
from bench.peer_means import TRANSCRIPT, found_by_recto, of_recto
from bench.recall_data import Turn

import recto
from bench import peers_real as real
from bench import peers_sessions as sessions

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
NOTHING = {"messages": 0, "whole": 0, "lines": 0, "found": 0, "reached": 0, "read_on": 0}


def written(folder: Path) -> Path:
    lines = [{"type": "meta", "session_id": "s"}]
    lines += [{"type": "message", "role": role, "content": content} for role, content in SESSION]
    file = folder / "session.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def replayed(*prompts: list[int], **more) -> dict:
    told = {"variant": "peer", "durable": "no", "by": "", "search": "", "session": "s", "budget": 32_000}
    told |= {"calls": len(prompts), "tokens": [3_000, 2_000, 1_000], "ms": [1.0] * len(prompts), "looked": []}
    return told | {"prompts": list(prompts), "wrong": {"bad": 0, "over": 0}, "said": 4, "held": 2} | more


def summed(*replays: dict) -> dict:
    (row,) = real.summed(replays, {"s": [0, 0]})
    return row


def test_a_session_is_cut_at_the_calls_of_the_model_and_what_one_answer_said_is_one_message(tmp_path):
    calls = [["c1", "look", '{"at": 1}'], ["c2", "look", '{"at": 1}']]
    assert sessions.steps_of(written(tmp_path)) == [
        [["user", "question", [], None, None, "m000000"]],
        [
            ["assistant", "I look.", calls, None, None, "m000001"],
            ["tool", "one", [], "c1", "look", "m000002"],
            ["tool", "two", [], "c2", "look", "m000003"],
        ],
    ]


def test_questions_come_one_after_the_other_at_the_end_of_a_conversation():
    turns = [Turn(role="user", text="hi"), Turn(role="assistant", text="hello"), Turn(role="user", text="bye")]
    told = sessions.conversation("talk", "conversation", turns, [("first?", ["hi"]), ("second?", ["bye"])])
    assert [[(said[0], said[1]) for said in step] for step in told.steps] == [
        [("user", "hi")],
        [("assistant", "hello"), ("user", "bye")],
        [("assistant", sessions.ANSWER), ("user", "first?")],
        [("assistant", sessions.ANSWER), ("user", "second?")],
    ]
    assert [(need.step, need.query, need.texts) for need in told.questions] == [
        (2, "first?", ("hi",)),
        (3, "second?", ("bye",)),
    ]


def test_a_file_that_is_taken_up_again_was_needed_as_it_was_last_read():
    def called(call: str, tool: str) -> sessions.Said:
        return ["assistant", "", [[call, tool, json.dumps({"file_path": "a.py"})]], None, None, ""]

    old, new = "old " * 60, "new " * 60
    steps = [
        [["user", "go", [], None, None, ""]],
        [called("c1", "Read"), ["tool", old, [], "c1", "Read", ""]],
        [called("c2", "Read"), ["tool", new, [], "c2", "Read", ""]],
        [called("c3", "Edit"), ["tool", "done " * 60, [], "c3", "Edit", ""]],
        [called("c4", "Edit")],
    ]
    needs = [(need.step, need.query, need.texts[0]) for need in sessions.file_needs(steps)]
    assert needs == [(1, "a.py", old), (2, "a.py", new), (3, "a.py", new)]


def test_a_knob_that_counts_is_given_the_mean_of_what_it_counts():
    calls = [["c1", "a", "b"], ["c2", "a", "b"]]
    step = [["assistant", "", calls], ["tool", "a", []], ["tool", "a", []], ["user", "a", []]]
    told = sessions.Told(name="s", kind="agent", steps=[step])
    assert sessions.mean_tokens([told]) == {"messages": 7 / 3, "items": 7 / 5}
    assert sessions.lengths(told) == [7]


def test_only_what_stands_before_the_first_change_is_read_from_the_cache():
    row = summed(replayed([0, 1], [0, 1, 2], [1, 2]), replayed([0, 1]))
    assert (row["calls"], row["tokens"], row["unchanged"]) == (4, 5_000 + 6_000 + 3_000 + 5_000, 5_000)
    read, written = 5_000 * 300_000, (5_000 + 1_000 + 3_000 + 5_000) * 3_750_000
    assert row["picodollars"] == read + written


def test_what_went_wrong_and_what_is_still_there_are_added_up_over_the_sessions():
    first = replayed([0], wrong={"bad": 1, "over": 1, "no_user": 1})
    row = summed(first, replayed([0], [0], wrong={"bad": 1, "over": 0, "refused": 1}))
    assert (row["wrong"]["bad"], row["wrong"]["over"], row["wrong"]["refused"]) == (2, 1, 1)
    assert (row["said"], row["held"]) == (8, 4)
    assert row["files"] == row["questions"] == NOTHING


def test_what_was_needed_is_reached_in_a_prompt_that_can_be_sent_or_by_search():
    looked = [
        {
            "kind": "questions",
            "whole": [True, False],
            "lines": [1.0, 0.5],
            "found": [False, True],
            "read_on": [False, True],
            "sound": True,
        },
        {
            "kind": "files",
            "whole": [False, True],
            "lines": [0.0, 1.0],
            "found": [False, False],
            "read_on": [True, False],
            "sound": False,
        },
    ]
    row = summed(replayed([0], looked=looked))
    assert row["questions"] == {"messages": 2, "whole": 1, "lines": 1.5, "found": 1, "reached": 2, "read_on": 2}
    assert row["files"] == {"messages": 2, "whole": 1, "lines": 1.0, "found": 0, "reached": 0, "read_on": 1}


def test_growth_is_the_last_tenth_over_the_first():
    assert real.growth([[1.0] * 10 + [5.0] * 80 + [3.0] * 10]) == 3.0
    assert real.growth([[1.0, 2.0], [3.0, 6.0]]) == 2.0
    assert real.growth([]) is None


def test_a_window_is_full_from_the_first_turn_at_which_more_was_said_than_it_holds():
    assert real.full_from([5, 9, 11, 20], 10) == 1
    assert real.full_from([11, 12], 10) == 0
    assert real.full_from([1, 2], 10) == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            subprocess.CalledProcessError(1, ["python"], stderr="Trace\nImportError: gone\n"),
            "failed: ImportError: gone",
        ),
        (subprocess.TimeoutExpired(["python"], real.LONGEST), f"took over {real.LONGEST} s"),
    ],
)
def test_a_peer_that_fails_is_told_and_not_dropped(error, said, monkeypatch, tmp_path):
    def refuse(*_):
        raise error

    told = sessions.Told(name="s", kind="agent", steps=sessions.steps_of(written(tmp_path)))
    monkeypatch.setattr(real, "told", refuse)
    monkeypatch.setattr(sessions, "selection", lambda: [told])
    report = real.measured(tmp_path, tmp_path, {"llamaindex": tmp_path / "python"})
    assert [(each["name"], each["calls"]) for each in report["sessions"]] == [("s", 1)]
    assert report["rows"] == [{"variant": "llamaindex MemFile", "error": said}]


def test_recto_gives_back_all_that_was_said_and_finds_a_result_with_its_call():
    call = {"id": "c1", "type": "function", "function": {"name": "Read", "arguments": '{"file_path": "src/ledger.py"}'}}
    said = [
        {"role": "user", "content": "Look at the ledger."},
        {"role": "assistant", "content": "I read src/ledger.py first.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "total = 4711"},
        {"role": "user", "content": "Thanks."},
    ]

    def parts(messages: Iterable[dict]) -> list[tuple[str, ...]]:
        return [("text", each["role"], each["content"]) for each in messages]

    with recto.open("memory:", model="gpt-4o", recall={"embedder": {"use": "none"}}) as session:
        session.append_all(said)
        peer = SimpleNamespace(session=session, parts=parts)
        assert texts_of(of_recto(peer)) == [each["content"] for each in said]
        assert "total = 4711" in found_by_recto(peer, "src/ledger.py")
        assert "Thanks." not in found_by_recto(peer, "src/ledger.py")
        assert "Thanks." in TRANSCRIPT.read_on(peer, "src/ledger.py")
