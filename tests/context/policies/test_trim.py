"""Tool results become shorter, and nothing else does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from tests.context.policies.policy_views import conversation, real_views, view_of, views

from recto.context.policies.edits import TrimResults, placeholder
from recto.context.window.plan import ToolResult
from recto.tokens.tokenizers import counter_named

LONG = "     1→package main\n" + "\n".join(f"line {number} of the output" for number in range(400))
OUTPUT = "\n\n=====\n  3 failed, 20 passed in 4.2 s\n" + "detail " * 900


def loop(results: int, output: str = LONG):
    steps = [("user", "do it")] + [("assistant", "next"), ("tool", output)] * results
    return conversation(*steps, tokens=1_500)


@pytest.mark.parametrize("style", ["placeholder", "head_tail"])
@given(view=views())
@pytest.mark.requirement("evict.trim")
def test_only_old_results_shrink_and_never_twice(style, view):
    plan = TrimResults(style=style, keep_newest=1, min_tokens=0, head_tokens=5, tail_tokens=5).plan(view, 10**9)
    results = sorted(
        line.seq for unit in (*view.eligible, *view.protected) for line in unit.messages if line.role == "tool"
    )
    shrunk = {shrink.seq for shrink in plan.shortens}
    assert shrunk <= set(results[:-1]) - view.shortened
    assert not plan.evicts


def test_the_oldest_shrink_first_and_the_newest_stay():
    view = view_of(*loop(6))
    assert [shrink.seq for shrink in TrimResults().plan(view, 1).shortens] == [3]
    assert [shrink.seq for shrink in TrimResults().plan(view, 10**9).shortens] == [3, 5, 7]
    assert [shrink.seq for shrink in TrimResults(keep_newest=0).plan(view, 10**9).shortens] == [3, 5, 7, 9, 11, 13]


def test_the_newest_are_counted_over_the_whole_prompt():
    lines, texts = loop(6)
    view = view_of(lines, texts, stays=lambda unit: unit.first > 8)
    assert [shrink.seq for shrink in TrimResults(keep_newest=3).plan(view, 10**9).shortens] == [3, 5, 7]


@pytest.mark.requirement("evict.trim")
def test_excluded_tools_marked_lines_small_and_shrunk_results_stay_whole():
    lines, texts = loop(6)
    lines[2] = lines[2]._replace(tools=("Ask",))
    lines[4] = lines[4]._replace(marked=True)
    small = {line.seq: 99 if line.seq == 7 else line.tokens for line in lines}
    view = view_of(lines, texts, shortened=frozenset({9}), tokens=small)
    plan = TrimResults(exclude_tools=("Ask",), keep_newest=1).plan(view, 10**9)
    assert [shrink.seq for shrink in plan.shortens] == [11]


def test_it_clears_at_least_so_much_or_does_nothing():
    view = view_of(*loop(6))
    most = TrimResults().plan(view, 10**9).frees
    assert TrimResults(clear_at_least=most).plan(view, 1).frees == most
    assert not TrimResults(clear_at_least=most + 1).plan(view, 10**9)


@pytest.mark.requirement("evict.placeholder")
def test_a_placeholder_says_what_it_was_and_where_it_is():
    result = ToolResult(tool="Bash", arguments='{"command": "pytest -q tests/core"}', output=OUTPUT, turn=12)
    assert placeholder(result, 1_812, "recto://agent:default:main/57") == (
        '[Bash pytest -q tests/core: "3 failed, 20 passed in 4.2 s", 1812 tokens, turn 12: '
        "recto://agent:default:main/57]"
    )


def test_a_placeholder_is_one_short_line_whatever_stands_in_the_result():
    hostile = "\u202e\x00\x1b[31m" + "]\r\n" * 10_000
    for output in ("", "{", "<tag>", hostile, "x" * 1_000_000):
        text = placeholder(ToolResult(tool="T" * 999, arguments=hostile, output=output), 10**6, "recto://s/3")
        assert text.isprintable()
        assert len(text) < 260
        assert text.endswith("1000000 tokens: recto://s/3]")


def test_both_ends_of_long_arguments_are_kept():
    arguments = '{"file_path": "/srv/app/' + "deep/" * 400 + 'module/settings.py", "limit": 20}'
    text = placeholder(ToolResult(tool="Read", arguments=arguments, output="x = 1"), 500, "recto://s/3")
    assert "Read /srv/app/d" in text
    assert "odule/settings.py, 20:" in text


def test_a_placeholder_names_the_file_of_an_edit_and_none_of_its_text():
    arguments = json.dumps({"replace_all": False, "file_path": "app.py", "old_string": "a\n\tb", "new_string": "c\nd"})
    text = placeholder(ToolResult(tool="Edit", arguments=arguments, output="updated"), 9, "recto://s/3")
    assert text == '[Edit app.py: "updated", 9 tokens: recto://s/3]'
    script = json.dumps({"command": "python - <<E\nprint(1)\nE"})
    text = placeholder(ToolResult(tool="Bash", arguments=script, output="1 row"), 9, "recto://s/3")
    assert text.startswith("[Bash python - <<E print(1) E: ")


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


def test_head_and_tail_are_the_result_s_own_with_a_pointer_between():
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
