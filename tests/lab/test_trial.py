"""Moments of recorded runs: what each arm sends, and which referents of the next action its prompt contains."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

import recto
from recto.config import Settings
from recto.formats.message import Message, Part
from recto.lab.moments import (
    EQUAL,
    SEARCH,
    WHOLE,
    Choice,
    RecordedRun,
    action_text,
    evenly,
    moments_of,
    newest_within,
    referents,
    search,
    used_referents,
)
from recto.lab.trial import Support, TrialTask, summarize_trial, try_run
from recto.lab.variants import MODES
from recto.stores.memory import MemoryStore
from recto.transcript.entries import MESSAGE

CHOICE = Choice(windows=(4_000,), modes=MODES, count=3)


def run_messages(steps=30, last="cat src/part_0.py src/part_29.py never_seen"):
    """Returns a run of an agent that writes commands as text; its last action needs its first and its newest file."""
    messages = [{"role": "system", "content": "You fix bugs."}, {"role": "user", "content": "Fix first_name."}]
    for step in range(steps):
        messages.append({"role": "assistant", "content": f"Look.\n```bash\ncat src/part_{step}.py\n```"})
        output = "\n".join(f"line {step} {line} of the file value_{step}" for line in range(40))
        messages.append({"role": "user", "content": f"<output>\n{output}\n</output>"})
    return [*messages, {"role": "assistant", "content": f"Done.\n```bash\n{last}\n```"}]


def entries_of(messages):
    with recto.open(MemoryStore(), model="gpt-4o", recall={"enabled": False}) as session:
        session.append_all(messages)
        return [entry for entry in session.read() if entry.kind == MESSAGE]


@pytest.fixture(scope="module")
def entries():
    return entries_of(run_messages())


@pytest.fixture(scope="module")
def moments(entries):
    return list(moments_of(RecordedRun("a", entries), Settings(), CHOICE, model="gpt-4o"))


def test_moments_are_calls_whose_history_does_not_fit_including_the_last(moments):
    assert [moment.call for moment in moments] == sorted({moment.call for moment in moments})
    assert moments[-1].call == 31
    for moment in moments:
        assert [prompt.arm for prompt in moment.arms] == [WHOLE, *MODES, EQUAL, SEARCH]
        whole, *others = moment.arms
        assert whole.tokens > 4_000 * 0.9
        assert all(prompt.tokens < whole.tokens for prompt in others)


def test_a_longest_history_leaves_out_later_moments(entries):
    short = Choice(windows=(4_000,), modes=MODES[:1], count=3, longest=8_000)
    found = list(moments_of(RecordedRun("a", entries), Settings(), short, model="gpt-4o"))
    assert found
    assert all(moment.arms[0].tokens <= 8_000 for moment in found)
    assert found[-1].call < 31


def test_the_referents_of_an_action_are_in_the_whole_history_and_old_ones_not_after_trimming(moments):
    last = moments[-1]
    assert last.referents == {"src/part_0.py", "src/part_29.py"}
    assert last.old == {"src/part_0.py"}
    contained = {prompt.arm: {name for name in last.referents if name in prompt.text} for prompt in last.arms}
    assert contained[WHOLE] == last.referents
    assert contained[EQUAL] == {"src/part_29.py"}
    assert contained["sliding_window"] == last.referents


def test_trimming_and_search_use_as_many_tokens_as_the_first_mode_and_keep_the_task(moments):
    for moment in moments:
        prompts = {prompt.arm: prompt for prompt in moment.arms}
        first = prompts[MODES[0]]
        for arm in (EQUAL, SEARCH):
            assert 0.8 * first.tokens < prompts[arm].tokens <= first.tokens
            assert [message.text for message in prompts[arm].messages[:2]] == ["You fix bugs.", "Fix first_name."]
        assert moment.arms[0].messages[-1].text == prompts[EQUAL].messages[-1].text


def test_search_finds_the_passages_that_share_rare_words():
    texts = ["nothing of interest\n" * 30, "alpha\n" * 12 + "the port of billing_server is 8731\n", "beta words"]
    assert "8731" in search(texts, "which port has billing_server")[0]
    assert search(texts, "zebra") == []
    assert search([], "zebra") == []


def test_trimming_keeps_the_end_of_an_oversized_message():
    long = [*run_messages(2), {"role": "user", "content": "x_start " + "filler words " * 4_000 + " x_end"}]
    run = RecordedRun("a", entries_of([*long, {"role": "assistant", "content": "cat x_start x_end"}]))
    (moment,) = moments_of(run, Settings(), Choice(windows=(4_000,), modes=MODES[:1], count=9), model="gpt-4o")
    trimmed = next(prompt for prompt in moment.arms if prompt.arm == EQUAL)
    assert "x_end" in trimmed.text
    assert "x_start" not in trimmed.text
    assert moment.old == {"x_start"}


def test_evenly_selects_up_to_the_count_including_the_last():
    assert evenly(range(10), 3) == [3, 6, 9]
    assert evenly([4, 5], 9) == [4, 5]
    assert evenly([], 3) == []
    assert all(earlier < later for earlier, later in pairwise(evenly(range(100), 7)))


def test_trimming_keeps_the_head_and_the_newest_that_fit():
    assert newest_within([5, 5, 10, 10, 10], 2, 5, 30) == [0, 1, 3, 4]
    assert newest_within([5, 5, 10, 10, 10], 2, 5, 3) == [0, 1]
    assert newest_within([5, 5, 10, 10, 10], 2, 5, 100) == [0, 1, 2, 3, 4]


def test_an_action_is_the_arguments_of_calls_or_the_commands_or_the_text():
    call = Part(kind="call", name="Edit", text=json.dumps({"path": "a/b.py", "new": ["\nname_a", 123], "type": "x"}))
    text = Part(kind="text", text="I look.\n```bash\nls src_dir\n```\n")
    assert action_text([Message(role="assistant", parts=(text, call))]) == "a/b.py\n\nname_a\n123"
    assert action_text([Message(role="assistant", parts=(text,))]) == "ls src_dir\n"
    assert action_text([Message(role="assistant", parts=(Part(kind="text", text="No command."),))]) == "No command."
    odd = Part(kind="call", name="Edit", text="not JSON some_name")
    assert action_text([Message(role="assistant", parts=(odd,))]) == "not JSON some_name"
    assert referents("sed -n '120,140p' src/app.py ab a.b userName") == {"120", "src/app.py", "userName"}
    assert used_referents("see_this and that_one", ["before: see_this"]) == {"see_this"}


def test_the_same_run_gives_the_same_counts_and_counts_are_additive(entries):
    task = TrialTask(name="a", entries=tuple(entries), settings=Settings(), choice=CHOICE, model="gpt-4o")
    steps = []
    first = try_run(task, steps.append)
    assert first == try_run(task, lambda by: None)
    assert sum(steps) == task.size
    results = {result.arm: result for result in summarize_trial([first, first])}
    assert results[WHOLE].support.all == results[WHOLE].support.old == 1
    assert results[EQUAL].support.old == 0
    assert results[EQUAL].gain is None
    assert results["sliding_window"].gain.value > 0
    assert results["sliding_window"].support.moments == 2 * CHOICE.count
    assert results[WHOLE].likelihood is None


def test_a_refused_prompt_contains_no_referent():
    huge = [{"role": role, "content": "Fix first_name. " + "other words " * 9_000} for role in ("system", "user")]
    entries = entries_of([*huge, {"role": "assistant", "content": "cat first_name"}])
    choice = Choice(windows=(4_000,), modes=MODES[:1], count=1)
    task = TrialTask(name="a", entries=tuple(entries), settings=Settings(), choice=choice, model="gpt-4o")
    counts = try_run(task, lambda by: None).support[4_000, MODES[0]]
    assert (counts.moments, counts.refused, counts.tokens) == (1, 1, 0)
    assert (counts.needed, counts.found) == (1, 0)
    assert Support().all is None
    assert Support().old is None
