"""What left the prompt is recorded with the entry where it lives, and what is kept is not called lost."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.context.compaction.fidelity import Loss, find_losses
from recto.context.facts.types import MessageView, ToolCall


def edit(path):
    return ToolCall("Edit", json.dumps({"file_path": path}))


LEFT = [
    MessageView(seq=3, role="user", text="Look at src/app/upload.py and at ABC-412; it takes 4812 ms."),
    MessageView(
        seq=4,
        role="assistant",
        text="I'll use a stream instead of a copy because it is smaller.",
        calls=(edit("/w/src/app/upload.py"),),
    ),
    MessageView(
        seq=5, role="tool", text="done in 77123 ns, see build/out_of_tree.log", calls=(edit("/w/src/app/upload.py"),)
    ),
    MessageView(seq=6, role="assistant", text="Now config/limits.toml holds 65536."),
    MessageView(seq=9, role="assistant", text="src/app/upload.py is done."),
]


def test_what_left_is_told_with_the_entry_where_it_stands_last():
    losses = find_losses(LEFT, [])
    assert losses.paths[0] == Loss("path", "app/upload.py", 9)
    assert Loss("path", "config/limits.toml", 6) in losses.paths
    assert Loss("number", "4812", 3) in losses.numbers
    assert Loss("id", "ABC-412", 3) in losses.ids
    assert losses.decisions == (Loss("decision", "I'll use a stream instead of a copy because it is smaller.", 4),)
    assert losses.more == {}


def test_what_is_kept_is_not_lost():
    kept = "upload.py (ABC-412) took 4,812 ms. I'll use a stream\ninstead of a copy because it is smaller."
    losses = find_losses(LEFT, [kept])
    assert [loss.text for loss in losses.paths] == ["config/limits.toml", "build/out_of_tree.log"]
    assert [loss.text for loss in losses.numbers] == ["65536", "77123"]
    assert losses.ids == losses.decisions == ()


def test_it_does_not_matter_in_which_text_something_is_kept():
    kept = ["config/limits.toml", "I'll use a stream instead", "of a copy because it is smaller. 4812", "", "ABC-412"]
    assert find_losses(LEFT, kept) == find_losses(LEFT, ["\n".join(kept)])
    assert find_losses(LEFT, kept).decisions == ()


def test_no_more_are_told_than_asked_for_and_the_rest_is_counted():
    names = " ".join(f"src/part_{at}/module_{at}.py handle_{at}_now {10_000 + at}" for at in range(200))
    losses = find_losses([MessageView(seq=1, role="assistant", text=names)], [], max_losses=40)
    assert len(losses.all) == 40
    assert {kind: losses.to_json()["counts"][kind] for kind in ("path", "id", "number")} == {
        "path": 200,
        "id": 200,
        "number": 200,
    }
    assert all((losses.paths, losses.ids, losses.numbers))
    assert find_losses(LEFT, [], max_losses=0).all == ()


def test_the_record_can_be_written_down():
    record = json.loads(json.dumps(find_losses(LEFT, []).to_json()))
    assert record["counts"]["decision"] == 1
    assert {"kind": "path", "text": "app/upload.py", "seq": 9} in record["told"]


def test_what_people_say_comes_before_what_tools_show():
    losses = find_losses(LEFT, [])
    assert [loss.text for loss in losses.numbers][-1] == "77123"
    assert [loss.text for loss in losses.paths][-1] == "build/out_of_tree.log"


def test_a_secret_is_not_recorded():
    left = [MessageView(seq=1, role="user", text="password = hunter2hunter2 for src/a.py")]
    assert "hunter2hunter2" not in json.dumps(find_losses(left, []).to_json())
    assert [loss.text for loss in find_losses(left, []).all] == ["src/a.py"]


@settings(max_examples=60)
@given(st.lists(st.text(max_size=80), max_size=4), st.text(max_size=80), st.integers(0, 10))
def test_nothing_that_stands_in_what_is_kept_is_lost(texts, kept, most):
    left = [MessageView(seq=seq, role="user", text=text) for seq, text in enumerate(texts, 1)]
    losses = find_losses(left, [kept], most)
    assert len(losses.all) <= most
    assert find_losses(left, texts, most).all == ()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a/", "1.", "x_", "a.b ", "\ud800", "/a"])
def test_a_hostile_text_takes_linear_time(piece):
    text = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    find_losses([MessageView(seq=1, role="tool", text=text), MessageView(seq=2, role="user", text=text)], [text])
    assert time.process_time() - begun < 5
