"""The loss report: names lost from the prompt are recorded with their entry; names that remain are not."""

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


EVICTED = [
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


def test_losses_name_the_last_entry_that_contains_them():
    losses = find_losses(EVICTED, [])
    assert losses.paths[0] == Loss("path", "app/upload.py", 9)
    assert Loss("path", "config/limits.toml", 6) in losses.paths
    assert Loss("number", "4812", 3) in losses.numbers
    assert Loss("id", "ABC-412", 3) in losses.ids
    assert losses.decisions == (Loss("decision", "I'll use a stream instead of a copy because it is smaller.", 4),)
    assert losses.more == {}


def test_text_that_remains_is_not_lost():
    remaining = "upload.py (ABC-412) took 4,812 ms. I'll use a stream\ninstead of a copy because it is smaller."
    losses = find_losses(EVICTED, [remaining])
    assert [loss.text for loss in losses.paths] == ["config/limits.toml", "build/out_of_tree.log"]
    assert [loss.text for loss in losses.numbers] == ["65536", "77123"]
    assert losses.ids == losses.decisions == ()


def test_losses_do_not_depend_on_how_the_remaining_text_is_divided():
    remaining = [
        "config/limits.toml",
        "I'll use a stream instead",
        "of a copy because it is smaller. 4812",
        "",
        "ABC-412",
    ]
    assert find_losses(EVICTED, remaining) == find_losses(EVICTED, ["\n".join(remaining)])
    assert find_losses(EVICTED, remaining).decisions == ()


def test_listed_losses_are_limited_and_the_rest_is_counted():
    names = " ".join(f"src/part_{at}/module_{at}.py handle_{at}_now {10_000 + at}" for at in range(200))
    losses = find_losses([MessageView(seq=1, role="assistant", text=names)], [], max_losses=40)
    assert len(losses.all) == 40
    assert {kind: losses.to_json()["counts"][kind] for kind in ("path", "id", "number")} == {
        "path": 200,
        "id": 200,
        "number": 200,
    }
    assert all((losses.paths, losses.ids, losses.numbers))
    assert find_losses(EVICTED, [], max_losses=0).all == ()


def test_the_report_can_be_serialised():
    record = json.loads(json.dumps(find_losses(EVICTED, []).to_json()))
    assert record["counts"]["decision"] == 1
    assert {"kind": "path", "text": "app/upload.py", "seq": 9} in record["told"]


def test_losses_from_messages_come_before_those_from_tool_output():
    losses = find_losses(EVICTED, [])
    assert [loss.text for loss in losses.numbers][-1] == "77123"
    assert [loss.text for loss in losses.paths][-1] == "build/out_of_tree.log"


def test_a_secret_is_not_recorded():
    evicted = [MessageView(seq=1, role="user", text="password = hunter2hunter2 for src/a.py")]
    assert "hunter2hunter2" not in json.dumps(find_losses(evicted, []).to_json())
    assert [loss.text for loss in find_losses(evicted, []).all] == ["src/a.py"]


@settings(max_examples=60)
@given(st.lists(st.text(max_size=80), max_size=4), st.text(max_size=80), st.integers(0, 10))
def test_nothing_in_the_remaining_text_is_lost(texts, remaining, most):
    evicted = [MessageView(seq=seq, role="user", text=text) for seq, text in enumerate(texts, 1)]
    losses = find_losses(evicted, [remaining], most)
    assert len(losses.all) <= most
    assert find_losses(evicted, texts, most).all == ()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("piece", ["a/", "1.", "x_", "a.b ", "\ud800", "/a"])
def test_a_hostile_text_takes_linear_time(piece):
    text = piece * (1_000_000 // len(piece))
    begun = time.process_time()
    find_losses([MessageView(seq=1, role="tool", text=text), MessageView(seq=2, role="user", text=text)], [text])
    assert time.process_time() - begun < 5
