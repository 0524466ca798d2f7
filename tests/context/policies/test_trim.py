"""The trim policy: shortens tool results and nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from msgspec.structs import replace
from tests.context.policies.policy_views import conversation, real_views, view_of, views

from recto.context.policies.edits import TrimResults, placeholder
from recto.context.window.units import ToolResult
from recto.tokens.meter import counter_named

LONG = "     1→package main\n" + "\n".join(f"line {number} of the output" for number in range(400))
OUTPUT = "\n\n=====\n  3 failed, 20 passed in 4.2 s\n" + "detail " * 900


def loop(results: int, output: str = LONG):
    steps = [("user", "do it")] + [("assistant", "next"), ("tool", output)] * results
    return conversation(*steps, tokens=1_500)


@pytest.mark.parametrize("style", ["placeholder", "head_tail"])
@given(view=views())
@pytest.mark.requirement("evict.trim")
def test_only_old_results_are_shortened_and_never_twice(style, view):
    plan = TrimResults(style=style, keep_newest=1, min_tokens=0, head_tokens=5, tail_tokens=5).plan(view, 10**9)
    results = sorted(
        line.seq for unit in (*view.eligible, *view.protected) for line in unit.messages if line.role == "tool"
    )
    shrunk = {shrink.seq for shrink in plan.shortens}
    assert shrunk <= set(results[:-1]) - view.shortened
    assert not plan.evicts


def test_the_oldest_results_are_shortened_first_and_the_newest_stay():
    view = view_of(*loop(6))
    assert [shrink.seq for shrink in TrimResults().plan(view, 1).shortens] == [3]
    assert [shrink.seq for shrink in TrimResults().plan(view, 10**9).shortens] == [3, 5, 7]
    assert [shrink.seq for shrink in TrimResults(keep_newest=0).plan(view, 10**9).shortens] == [3, 5, 7, 9, 11, 13]


def test_the_newest_are_counted_over_the_whole_prompt():
    lines, texts = loop(6)
    view = view_of(lines, texts, stays=lambda unit: unit.first > 8)
    assert [shrink.seq for shrink in TrimResults(keep_newest=3).plan(view, 10**9).shortens] == [3, 5, 7]


@pytest.mark.requirement("evict.trim")
def test_results_that_are_excluded_marked_small_or_shortened_are_not_changed():
    lines, texts = loop(6)
    lines[2] = lines[2]._replace(tools=("Ask",))
    lines[4] = lines[4]._replace(marked=True)
    small = {line.seq: 99 if line.seq == 7 else line.tokens for line in lines}
    view = view_of(lines, texts, shortened=frozenset({9}), tokens=small)
    plan = TrimResults(exclude_tools=("Ask",), keep_newest=1).plan(view, 10**9)
    assert [shrink.seq for shrink in plan.shortens] == [11]


def test_trimming_clears_at_least_the_configured_amount_or_nothing():
    view = view_of(*loop(6))
    most = TrimResults().plan(view, 10**9).frees
    assert TrimResults(clear_at_least=most).plan(view, 1).frees == most
    assert not TrimResults(clear_at_least=most + 1).plan(view, 10**9)


@pytest.mark.requirement("evict.placeholder")
def test_a_placeholder_describes_the_result_and_points_to_it():
    result = ToolResult(tool="Bash", arguments='{"command": "pytest -q tests/core"}', output=OUTPUT, turn=12)
    assert placeholder(result, 1_812, "recto://agent:default:main/57") == (
        '[Bash pytest -q tests/core: "3 failed, 20 passed in 4.2 s", 1812 tokens, turn 12: '
        "recto://agent:default:main/57]"
    )


def test_a_placeholder_is_one_short_line_for_any_result():
    hostile = "\u202e\x00\x1b[31m" + "]\r\n" * 10_000
    for output in ("", "{", "<tag>", hostile, "x" * 1_000_000):
        text = placeholder(ToolResult(tool="T" * 999, arguments=hostile, output=output), 10**6, "recto://s/3")
        assert text.isprintable()
        assert len(text) < 260
        assert text.endswith("1000000 tokens: recto://s/3]")


def test_both_ends_of_long_arguments_are_shown():
    arguments = '{"file_path": "/srv/app/' + "deep/" * 400 + 'module/settings.py", "limit": 20}'
    text = placeholder(ToolResult(tool="Read", arguments=arguments, output="x = 1"), 500, "recto://s/3")
    assert "Read /srv/app/d" in text
    assert "odule/settings.py, 20:" in text


def test_a_placeholder_of_a_failed_read_says_why_it_failed():
    result = ToolResult(tool="Read", arguments='{"file_path": "a.py"}', output="Nothing here.\n\nFile is a folder.")
    assert "Nothing here." in placeholder(replace(result, failed=True), 90, "recto://s/3")
    shown = ToolResult(tool="Read", arguments='{"file_path": "a.py"}', output="import os\n\nError: File is a folder.")
    assert "Error: File is a folder." not in placeholder(shown, 90, "recto://s/3")
    assert "Error: File is a folder." in placeholder(replace(shown, failed=True), 90, "recto://s/3")


def test_a_placeholder_names_the_file_of_an_edit_and_none_of_its_text():
    arguments = json.dumps({"replace_all": False, "file_path": "app.py", "old_string": "a\n\tb", "new_string": "c\nd"})
    text = placeholder(ToolResult(tool="Edit", arguments=arguments, output="updated"), 9, "recto://s/3")
    assert text == '[Edit app.py: "updated", 9 tokens: recto://s/3]'
    script = json.dumps({"command": "python - <<E\nprint(1)\nE"})
    text = placeholder(ToolResult(tool="Bash", arguments=script, output="1 row"), 9, "recto://s/3")
    assert text.startswith("[Bash python - <<E print(1) E: ")


@pytest.mark.requirement("evict.placeholder")
@pytest.mark.parametrize(
    ("command", "output", "finding"),
    [
        ("pytest tests", "===== test session starts =====\ncollected 9 items\n\n== 2 failed, 7 passed in 0.4s ==\n", 3),
        ("python -m unittest", "F.\nTraceback (most recent call last):\nKeyError: 'a'\n\nFAILED (failures=1)\n", 4),
        ("cargo test", "running 3 tests\ntest a ... ok\ntest result: ok. 3 passed; 0 failed\n", 2),
        (
            "python app.py",
            "starting\nTraceback (most recent call last):\nModuleNotFoundError: No module named 'x'\n",
            2,
        ),
        ("cat run.log", "first line\n2 failed, 7 passed\n", 0),
        ("pip install x", "Collecting x\nInstalled\n", 0),
        ("make", "<warning>\nThe output was too long.\n</warning>\n<output_head>\ncc -c a.c\n</output_head>\n", 4),
    ],
)
def test_a_placeholder_says_how_its_call_ended(command, output, finding):
    result = ToolResult(tool="Bash", arguments=json.dumps({"command": command}), output=output)
    line = output.splitlines()[finding].strip("= ")
    assert f': "{line}", 500 tokens' in placeholder(result, 500, "recto://s/3")


@pytest.mark.requirement("evict.placeholder")
def test_placeholders_of_real_results_have_few_tokens(data):
    count = counter_named("o200k").count
    sizes = sorted(
        count(shrink.text)
        for view in real_views(data, every=6)
        for shrink in TrimResults(keep_newest=0).plan(view, 10**9).shortens
    )
    assert len(sizes) > 300
    assert sizes[len(sizes) // 2] <= 42
    assert sizes[-1] < 120


def test_head_and_tail_are_quoted_with_a_pointer_between():
    plan = TrimResults(style="head_tail", head_tokens=40, tail_tokens=40).plan(view_of(*loop(4)), 1)
    text = plan.shortens[0].text
    head, between, tail = text.partition("\n[… about ")
    assert between
    assert LONG.startswith(head)
    assert LONG.endswith(tail.split("…]\n")[1])
    assert "recto://agent:default:main/3" in tail


@pytest.mark.parametrize(
    "settings",
    [
        {"keep_newest": -1},
        {"clear_at_least": -1},
        {"min_tokens": -1},
        {"style": "none"},
        {"style": "head_tail", "head_tokens": 0, "tail_tokens": 0},
    ],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(ValueError, match=r"trim\."):
        TrimResults(**settings)
