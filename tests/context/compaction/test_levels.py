"""Levels of detail: an exchange is summarised in fewer of its own words as it ages."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.context.real_messages import count, exchanges, sessions, views_of

from recto.context.compaction.levels import fit_text, level_for, render_level, title_by_request
from recto.context.facts.types import MessageView, ToolCall

MOST = {"key_points": 120, "one_line": 40, "title": 12}
TEXTS = st.text(max_size=300) | st.lists(
    st.sampled_from(["fix", "the", "42", "tests", "in", "src/mill.py", "now.", "Done!\n"])
).map(" ".join)
EXCHANGES = st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), TEXTS, st.booleans()), max_size=6).map(
    lambda drawn: [
        MessageView(
            seq=seq, role=role, text=text, calls=(ToolCall("Bash", json.dumps({"command": text})),) if calls else ()
        )
        for seq, (role, text, calls) in enumerate(drawn, 1)
    ]
)


@given(EXCHANGES, st.sampled_from([count, len]))
@settings(max_examples=60)
def test_every_level_is_bounded_and_never_longer_than_the_one_before(views, count):
    sizes = [count(render_level(views, level, count)) for level in ("key_points", "one_line", "title")]
    assert all(size <= most for size, most in zip(sizes, MOST.values(), strict=True))
    assert sizes == sorted(sizes, reverse=True)
    assert render_level(views, "key_points", count) == render_level(views, "key_points", count)


LONG_EXCHANGES = st.lists(EXCHANGES, min_size=1, max_size=4).map(
    lambda parts: [view for part in parts for view in part]
)
REQUESTS = st.sampled_from(
    [
        "",
        "yes",
        "Find out why the export is empty.",
        "Please find out why the nightly export has been empty since then.",
    ]
)


@given(REQUESTS, LONG_EXCHANGES, st.integers(1, 8), st.sampled_from([0, 400, 2_000]), st.sampled_from([count, len]))
@settings(max_examples=150, deadline=None)
def test_a_title_found_at_the_beginning_is_the_title_of_the_whole(request_text, following, beginning, padding, count):
    views = [
        MessageView(seq=1, role="tool", text="x " * padding),
        MessageView(seq=2, role="user", text=request_text),
        *following,
    ]
    title = title_by_request(views[:beginning], count)
    assert title in ("", render_level(views, "title", count))


def test_a_long_request_is_the_title_whatever_follows():
    views = [EXCHANGE[0], MessageView(seq=2, role="tool", text="line\n" * 400), *EXCHANGE[1:]]
    assert title_by_request(views[:2], count) == render_level(views, "title", count)
    assert title_by_request(views[1:], count) == ""
    assert title_by_request(EXCHANGE[:1], count) == ""


@given(st.text(max_size=400), st.integers(0, 30))
@settings(max_examples=60)
def test_a_text_is_cut_to_its_beginning(text, most):
    made = fit_text(text, most, count)
    assert count(made) <= most
    assert text.startswith(made.removesuffix("…"))


@pytest.mark.requirement("compress.progressive")
def test_age_decides_the_level():
    ages = {0: "full", 1: "key_points", 5: "key_points", 6: "one_line", 20: "one_line", 21: "title", 999: "title"}
    assert {age: level_for(age) for age in ages} == ages
    assert level_for(3, key_points_turns=2, line_turns=3) == "one_line"


EXCHANGE = [
    MessageView(
        seq=1, role="user", text="Please find out why the nightly export has been empty since Tuesday and mend it."
    ),
    MessageView(
        seq=2,
        role="assistant",
        text="Let me look.",
        calls=(
            ToolCall("Read", json.dumps({"file_path": "/srv/jobs/export.py"})),
            ToolCall("Bash", json.dumps({"command": "python -m jobs.export --dry-run"})),
        ),
    ),
    MessageView(seq=3, role="tool", text="x = 1\n" * 400, calls=(ToolCall("Read", "{}"),)),
    MessageView(
        seq=4,
        role="assistant",
        text="",
        calls=(
            ToolCall("Edit", json.dumps({"file_path": "/srv/jobs/rights.py", "old_string": "a", "new_string": "b"})),
        ),
    ),
    MessageView(seq=5, role="tool", text="PermissionError: [Errno 13] Permission denied: '/var/export/day.csv'"),
    MessageView(
        seq=6,
        role="assistant",
        text="The job ran as `ada`; it now runs as `export` and wrote 1,204 rows. Anything else?",
    ),
]


def test_key_points_are_request_actions_outcome_and_error():
    lines = render_level(EXCHANGE, "key_points", count).splitlines()
    assert lines[0].startswith("Asked: Please find out why the nightly export has been empty since Tuesday")
    assert lines[1].startswith("Done: edited rights.py; ran python -m jobs.export --dry-run; read export.py")
    assert "1,204 rows" in lines[2]
    assert lines[3].startswith("Error: PermissionError: [Errno 13] Permission denied")


def test_no_key_point_crowds_out_another():
    views = [
        MessageView(seq=1, role="user", text="Please mend the export and all that hangs on it, " * 40),
        MessageView(
            seq=2,
            role="assistant",
            text="",
            calls=(ToolCall("Edit", json.dumps({"file_path": "/srv/jobs/rights.py"})),),
        ),
        MessageView(seq=3, role="assistant", text="The export was mended with everything that hangs on it, " * 40),
    ]
    names = [line.partition(":")[0] for line in render_level(views, "key_points", count).splitlines()]
    assert names == ["Asked", "Done", "Came out"]


def test_one_line_has_request_and_outcome_and_the_title_only_the_request():
    line = render_level(EXCHANGE, "one_line", count)
    assert "\n" not in line
    assert line.startswith("Please find out why")
    assert "→ The job ran as `ada`" in line
    assert render_level(EXCHANGE, "title", count).startswith("Please find out why the nightly")


def test_a_short_exchange_is_unchanged_on_one_line():
    views = [MessageView(seq=1, role="user", text="Is it\n done?")]
    assert {render_level(views, level, count) for level in MOST} == {"Is it done?"}


def test_an_uninformative_request_is_titled_with_its_outcome():
    views = [
        MessageView(seq=1, role="user", text="yes"),
        MessageView(seq=2, role="assistant", text="All export tests pass now. " * 9),
    ]
    assert render_level(views, "title", count).startswith("yes → All export")


def test_the_full_level_contains_everything_except_secrets():
    key = "ghp_" + "a1B2c3D4e5" * 3 + "F6g7H8"
    views = [
        MessageView(seq=1, role="user", text=f"use {key}"),
        MessageView(seq=2, role="assistant", text="It is used."),
    ]
    whole = render_level(views, "full", count)
    assert "It is used." in whole
    assert all(key not in render_level(views, level, count) for level in ("full", *MOST))


@pytest.mark.parametrize("text", ["a" * 5_000_000, "<p" * 1_000_000, "\ud800 word. " * 300_000, "\n" * 2_000_000])
def test_hostile_texts_are_processed_quickly(text):
    views = [
        MessageView(seq=1, role="user", text=text),
        MessageView(seq=2, role="tool", text=text),
        MessageView(seq=3, role="assistant", text=text),
    ]
    for level, most in MOST.items():
        assert count(render_level(views, level, count)) <= most


def test_no_number_in_a_level_of_a_real_exchange_is_made_up(data):
    number = re.compile(r"\d+")
    for path in sessions(data, 3):
        for views in exchanges(views_of(path)):
            source = "\n".join(f"{view.text} {' '.join(call.arguments for call in view.calls)}" for view in views)
            known = set(number.findall(source))
            for level, most in MOST.items():
                made = render_level(views, level, count)
                assert count(made) <= most
                assert set(number.findall(made)) <= known
