"""The parts of the likelihood trial that need no model: the arms of a moment, and the table of kept scores."""

from __future__ import annotations

import json

import pytest
from bench.likelihood import Score, cost, lost_names, recto_prompts, table, trim, with_tool_calls

TASK = [{"role": "system", "content": "Answer with one bash block."}, {"role": "user", "content": "Mend the parser."}]


def steps(number: int) -> list[dict]:
    """A run of an agent that writes commands as text."""
    made = list(TASK)
    for step in range(number):
        made.append({"role": "assistant", "content": f"Next.\n\n```bash\ncat src/part_{step}.py\n```"})
        output = "\n".join(f"value_{step}_{line} = {line}" for line in range(60))
        made.append({"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{output}\n</output>"})
    return made


def test_trimming_keeps_the_task_and_the_newest_that_fit():
    history = steps(10)
    kept = trim(history, 2_000, len)
    assert kept[:2] == TASK
    assert kept[2:] == history[-len(kept[2:]) :]
    assert cost(kept, len) <= 2_000 < cost(kept, len) + cost(history[: -len(kept[2:])][-1:], len)


def test_lost_names_are_those_that_trimming_has_lost():
    history = steps(10)
    target = "Now both.\n\n```bash\ncat src/part_0.py src/part_9.py src/unheard_of.py\n```"
    ranges = lost_names(target, history, trim(history, 2_000, len))
    assert [target[start:end] for start, end in ranges] == ["src/part_0.py"]


def test_commands_become_tool_calls_at_the_same_places():
    messages = steps(3)
    converted = with_tool_calls(messages)
    assert [one["role"] for one in converted] == ["system", "user", *["assistant", "tool"] * 3]
    call = converted[2]["tool_calls"][0]
    assert json.loads(call["function"]["arguments"]) == {"command": "cat src/part_0.py"}
    assert converted[3]["tool_call_id"] == call["id"]


@pytest.mark.parametrize("as_calls", [False, True])
def test_prompts_of_both_forms_read_alike(as_calls):
    messages = [*steps(20), {"role": "assistant", "content": "Done."}]
    prompts = recto_prompts(with_tool_calls(messages) if as_calls else messages, [42], 8_000, "sliding_window")
    [(step, prompt)] = prompts
    assert step == 42
    assert {one["role"] for one in prompt} <= {"system", "user", "assistant"}
    assert "```bash\ncat src/part_19.py\n```" in prompt[-2]["content"]


def test_the_table_shows_what_each_prompt_loses():
    scores = [
        Score("run", step, arm, loss, {"16": [old, 2], "8": [0.0, 0]}, 100)
        for step in (1, 2)
        for arm, loss, old in (("whole history", 0.5, 1.0), ("plain trimming, 16 K", 0.5 + step / 25, 3.0))
    ]
    [row] = table(scores)
    assert row["what"] == "plain trimming, 16 K"
    assert row["figures"]["loss"] == pytest.approx(0.06)
    assert row["figures"]["within .05"] == 0.5
    assert row["figures"]["old names"] == pytest.approx(1.0)
