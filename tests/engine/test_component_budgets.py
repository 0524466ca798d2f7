"""Component budgets: relief reduces a component to its own floor, rarely, and reports limits it cannot meet."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recto
from recto.context.window.state import lasting_tokens
from recto.errors import SettingsError
from recto.formats import problems
from recto.testing import scripted_session

MODES = ("sliding_window", "auto_compact", "zones")


def opened(window=32_000, **settings):
    models = {"gpt-4o": {"window": window, "max_input": window}}
    recall = settings.pop("recall", {"inject": False})
    return recto.open(
        "memory:", model="gpt-4o", models=models, window={"enforced": "per_component"} | settings, recall=recall
    )


def call(number, tool="read_file"):
    function = {"name": tool, "arguments": json.dumps({"path": f"src/module_{number}.py"})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def result(number, lines):
    text = "\n".join(f"line {line} of file {number}: value = {line * number}" for line in range(lines))
    return {"role": "tool", "tool_call_id": f"c{number}", "content": text}


def events(session, *kinds):
    return [json.loads(entry.content) for entry in session.read() if entry.kind in kinds]


def exceeded(session):
    """Returns the components above their hard limit that protected messages do not explain."""
    window = session.window
    rules, found = window.rules, []
    for usage in session.report().components:
        if usage.component in rules.component_rules and usage.used > usage.hard:
            generated = window.builder.marker_cost(window.state) if usage.component == "history" else 0
            if lasting_tokens(window.state, rules.protection, usage.component) + generated <= usage.hard:
                found.append(usage)
    return found


@pytest.mark.requirement("budget.floors")
@pytest.mark.parametrize("mode", MODES)
def test_results_stay_within_their_limit_in_a_long_tool_loop_with_few_edits(mode):
    """Relief to the limit alone would edit 187 of the 200 prompts, with results at 1.24 times their limit."""
    with opened(mode=mode) as session:
        session.append({"role": "user", "content": "Find out why the build is slow."})
        edits, most = 0, 0.0
        for number in range(200):
            edits += bool(session.prompt().decisions)
            usage = {usage.component: usage for usage in session.report().components}
            most = max(most, usage["results"].used / usage["results"].hard)
            session.append_all([call(number), result(number, lines=25)])
        assert most <= 1.0
        assert edits <= 40
        assert events(session, "tool_results_trimmed")
        assert not events(session, "budget_violation")


@pytest.mark.requirement("budget.floors")
def test_relief_reduces_a_component_to_its_configurable_floor():
    edits = {}
    for floor in (50, 90):
        with opened(floors={"results": floor}) as session:
            limit = session.window.budget.limits["results"]
            assert limit.floor == pytest.approx(limit.hard * floor / 100, abs=1)
            session.append({"role": "user", "content": "Find out why the build is slow."})
            edits[floor] = 0
            for number in range(80):
                if session.prompt().decisions:
                    edits[floor] += 1
                    used = {usage.component: usage.used for usage in session.report().components}
                    assert used["results"] <= limit.floor
                session.append_all([call(number), result(number, lines=25)])
    assert edits[50] < edits[90] / 2


@pytest.mark.requirement("budget.floors")
def test_history_above_its_limit_is_evicted_to_its_floor():
    with opened(shares={"history": 20, "results": 60}) as session:
        limit = session.window.budget.limits["history"]
        edits = 0
        for number in range(120):
            session.append({"role": "user", "content": f"Question {number}: " + "which module is slow? " * 20})
            edits += bool(session.prompt().decisions)
            session.append({"role": "assistant", "content": f"Module {number}. " + "It waits for the disk. " * 20})
            used = {usage.component: usage.used for usage in session.report().components}["history"]
        session.prompt()
        used = {usage.component: usage.used for usage in session.report().components}["history"]
        assert used <= limit.hard
        assert 0 < edits <= 30
        assert session.prompt().reading.utilization < 0.3  # the prompt as a whole did not need relief


@pytest.mark.requirement("budget.floors")
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 1000),
    window=st.sampled_from([8_000, 16_000, 32_000]),
    mode=st.sampled_from(MODES),
    floors=st.fixed_dictionaries({}, optional={"results": st.integers(5, 95), "history": st.integers(5, 95)}),
    recent=st.sampled_from([0, 4, 24]),
)
def test_prompts_are_bounded_valid_and_stable_and_components_keep_their_limits(seed, window, mode, floors, recent):
    with opened(window, mode=mode, floors=floors, min_recent_messages=recent) as session:
        before = ()
        for message in scripted_session(seed=seed, exchanges=12):
            if message["role"] == "assistant":
                prompt = session.prompt()
                assert prompt.tokens <= session.window.budget.input_budget
                assert problems(prompt.raw, prompt.built.wire) == []
                assert exceeded(session) == []
                if not prompt.decisions:
                    assert prompt.raw[: len(before)] == before or events(session, "handoff_replayed")
                before = prompt.raw
            session.append(message)


@pytest.mark.requirement("budget.reported")
def test_protected_messages_above_a_limit_are_reported_once_and_edits_stay_rare():
    with opened(32_000) as session:
        session.append_all([{"role": "user", "content": "Read all of it."}, call(0)])
        pinned = session.append(result(0, lines=400))
        session.pin(pinned.seq)
        edits = 0
        for number in range(1, 101):
            session.append_all([call(number), result(number, lines=12)])
            edits += bool(session.prompt().decisions)
        over = events(session, "budget_violation")
        assert [event["component"] for event in over] == ["results"]
        assert over[0]["protected"] > over[0]["limit"]
        assert 0 < edits <= 20
        assert pinned.seq in session.window.state.messages


@pytest.mark.requirement("budget.reported")
def test_tools_and_system_text_above_their_limits_are_reported_once():
    tools = [
        {"type": "function", "function": {"name": f"tool_{number}", "description": "word " * 200, "parameters": {}}}
        for number in range(20)
    ]
    with opened() as session:
        for number in range(3):
            session.append({"role": "user", "content": f"Question {number}"})
            session.prompt(tools)
            session.append({"role": "assistant", "content": "Yes."})
        for number in range(60):
            session.append_all([{"role": "user", "content": "Go on."}, call(number), result(number, lines=60)])
            session.prompt(tools)
        assert events(session, "tool_results_trimmed")
        assert [event["component"] for event in events(session, "budget_violation")] == ["tools"]


@pytest.mark.requirement("budget.reported")
def test_a_prompt_with_tokens_to_spare_reports_no_budget_violation():
    with opened(128_000, enforced="globally") as session:
        session.append({"role": "user", "content": "Read all of it."})
        for number in range(10):
            session.append_all([call(number), result(number, lines=150)])
            prompt = session.prompt()
        usage = {usage.component: usage for usage in session.report().components}
        assert usage["results"].level == "violation"
        assert prompt.reading.zone == "green"
        assert not events(session, "budget_violation", "budget_warning")


@pytest.mark.requirement("budget.memory")
def test_recall_above_its_budget_raises_the_relevance_threshold_and_stays_within_its_limit():
    thresholds, question = {}, "When is the invoice of that customer due?"
    for share in (1, 8):
        recall = {"tokens": 8_000, "threshold": 0.05, "embedder": {"use": "none"}}
        with recto.open(
            "memory:",
            model="gpt-4o",
            models={"gpt-4o": {"window": 32_000, "max_input": 32_000}},
            window={"enforced": "per_component", "shares": {"memory": share}, "min_recent_messages": 2},
            recall=recall,
        ) as session:
            for number in range(60):
                text = (
                    " ".join(question.split()[: 1 + number % 7])
                    + f" {number}. "
                    + "Other words about the ledger. " * 30
                )
                session.append({"role": "user", "content": text})
                session.append({"role": "assistant", "content": "Noted."})
                session.prompt()
            session.window.compact(below=2_000)
            session.append({"role": "user", "content": question})
            session.prompt()
            usage = {usage.component: usage for usage in session.report().components}["memory"]
            assert 0 < usage.used <= usage.hard
            thresholds[share] = events(session, "recall_injected")[-1]["threshold"]
    assert thresholds[1] > thresholds[8] >= 0.05


@pytest.mark.requirement("budget.refused")
@pytest.mark.parametrize("floors", [{"tools": 50}, {"results": 0}, {"history": 100}, {"memory": True}])
def test_invalid_floors_are_refused(floors):
    with pytest.raises(SettingsError, match="floors"):
        opened(floors=floors)
