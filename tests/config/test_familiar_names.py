"""Configuration under the names of other documents loads, has its effect, and contradicts nothing in silence."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from itertools import pairwise

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.calling import called_at

import recto
from recto.config import Settings, load
from recto.config.familiar_names import FAMILIAR
from recto.config.loader import override, parse_settings, read_layers
from recto.engine.projection import DECISIONS
from recto.errors import SettingsError

SLIDING = """
{
  "contextManagement": {
    "mode": "sliding_window",
    "ceilingPercent": 92,
    "floorPercent": 70,
    "minRecentMessages": 24,
    "preserveTranscript": true
  }
}
"""
CONSTANTS = """
MAX_CONTEXT_TOKENS: 128000
CONTEXT_THRESHOLD: 0.8
MIN_HISTORY_TURNS: 3
"""
WHOLE = """
max_context_tokens: 128000
pressure:
  thresholds: {yellow: 0.50, orange: 0.75, red: 0.90}
  velocity_window: 5
eviction:
  policy: hybrid
  weights: {recency: 0.30, priority: 0.25, type_ttl: 0.20, reference_freq: 0.15, semantic_duplication: 0.10}
  type_ttl: {tool_result: 8, thinking: 2, memory_injection: 20}
  protected_types: [system_prompt]
compression:
  summarization_threshold_tokens: 500
  compaction_utilization_threshold: 0.85
  cascade:
    0.75: tool_result_summarization
    0.85: progressive
    0.92: conversation_compaction
    0.95: sub_agent
  notes_file: agent_notes.md
budget:
  allocations:
    system_prompt: 0.06
    tool_definitions: 0.04
    message_history: 0.65
    tool_results: 0.12
    memory_injection: 0.08
    output_reserved: 0.05
  soft_limit_pct: 0.80
cross_window:
  state_file: agent_state.json
  progress_file: agent_progress.md
  auto_save_threshold: 0.85
health_monitoring:
  metrics: [utilization, eviction_rate, compression_ratio, burn_rate, fidelity_score, tool_result_bloat]
  alerts:
    utilization_critical: 0.90
    eviction_rate_warning: 5
    fidelity_warning: 0.75
    compression_ratio_min: 2.0
    tool_bloat_warning: 0.30
"""
BY_HAND = {
    "window": {
        "mode": "zones",
        "max_tokens": 128_000,
        "yellow_percent": 50,
        "orange_percent": 75,
        "red_percent": 90,
        "velocity_turns": 5,
        "thinking_turns": 2,
        "policy": "hybrid",
        "scorer": {
            "weights": {"fifo": 0.30, "priority": 0.25, "type_ttl": 0.20, "lru": 0.15, "semantic_merge": 0.10},
            "settings": {"type_ttl": {"tool": 8}},
        },
        "cascade": ["summarise_results", "trim", "evict", "progressive", "compact", "delegate"],
        "cascade_percents": {"summarise_results": 75, "progressive": 85, "compact": 92, "delegate": 95},
        "shares": {"system": 6, "tools": 4, "history": 65, "results": 12, "memory": 8, "reserve": 5},
        "soft_percent": 80,
        "checkpoint_warning_percent": 85,
    },
    "compress": {"result_tokens": 500},
    "continuity": {
        "folder": ".",
        "state_file": "agent_state.json",
        "progress_file": "agent_progress.md",
        "notes_file": "agent_notes.md",
        "milestones": "always",
    },
    "health": {"alerts": {"utilization": 0.9, "evictions": 5, "fidelity": 0.75, "ratio": 2.0, "bloat": 0.3}},
}


@pytest.fixture
def file(tmp_path):
    """Writes a settings file and returns its path."""

    def written(text, name="context.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return written


def turn(session, number, words=100):
    session.append({"role": "user", "content": f"Question {number}: what about part {number}?"})
    prompt = session.prompt()
    session.append({"role": "assistant", "content": f"Answer {number}: " + f"part{number} " * words})
    return prompt


def tool_turn(session, number, lines=90):
    session.append({"role": "user", "content": f"Read page {number}."})
    call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    session.append({"role": "assistant", "content": None, "tool_calls": [call]})
    text = "\n".join(f"line {line} of page {number} of the ledger" for line in range(lines))
    session.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    prompt = session.prompt()
    session.append({"role": "assistant", "content": f"Page {number} is in order."})
    return prompt


def policies_of(session):
    return [json.loads(entry.content)["policy"] for entry in session.read() if entry.kind in DECISIONS]


# The samples


@pytest.mark.requirement("configuration.samples")
def test_the_sliding_window_in_json_begins_at_its_ceiling_and_goes_to_its_floor(file):
    small = {"max_context_tokens": 16_000, "recall": {"inject": False}}
    with recto.open("memory:", model="gpt-4o", config=file(SLIDING, "context.json"), **small) as session:
        prompts = [turn(session, number) for number in range(160)]
        levels = [
            (before.reading.utilization, after.reading.utilization)
            for before, after in pairwise(prompts)
            if after.decisions
        ]
        assert levels
        assert all(0.80 < reached <= 0.92 and relieved <= 0.71 for reached, relieved in levels)
        assert all(len(prompt.messages) >= 24 for prompt in prompts[12:])


@pytest.mark.requirement("configuration.samples")
def test_the_constants_cap_any_model_and_prune_above_four_fifths_with_three_turns_kept(file):
    path = file(CONSTANTS.replace("128000", "6000"))
    for model in ("gpt-4o", "claude-sonnet-4-5", "nobody-knows-it"):
        with recto.open("memory:", model=model, config=path, recall={"inject": False}) as session:
            for number in range(30):
                prompt = turn(session, number, words=80)
            assert session.window.budget.window == 6_000
            assert policies_of(session)
            assert prompt.reading.utilization <= 0.8
            kept = [message["content"] for message in prompt.messages if message["role"] == "user"]
            assert [f"Question {number}" in str(kept) for number in (27, 28, 29)] == [True] * 3
    whole = load(path=file(CONSTANTS), environ={})
    assert (whole.window.max_tokens, whole.window.ceiling_percent, whole.window.min_recent_messages) == (128_000, 80, 6)


def test_a_cap_never_makes_a_window_larger_than_the_model_has(file):
    with recto.open("memory:", model="gpt-4o", config=file("max_context_tokens: 1000000")) as session:
        assert session.window.budget.window == 128_000


@pytest.mark.requirement("configuration.samples")
def test_one_file_with_every_group_loads_and_is_what_one_would_write_by_hand(file):
    assert load(path=file(WHOLE), environ={}) == override(Settings(), BY_HAND)


@pytest.mark.requirement("configuration.samples")
def test_the_one_file_drives_a_manager_through_its_cascade_and_writes_its_files(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = file(WHOLE.replace("max_context_tokens: 128000", "max_context_tokens: 16000"))
    with recto.manager("memory:", model="gpt-4o", goal="Check the ledger.", config=path) as manager:
        session = manager.session
        relieved = []
        for number in range(40):
            before = session.window.measure().utilization
            if tool_turn(session, number).decisions:
                relieved.append(before)
        assert relieved
        assert min(relieved) > 0.60
        first = policies_of(session)[0]
        assert first == "summarise_results"
        state = json.loads(next(tmp_path.glob("*/agent_state.json")).read_text())
        assert state["goal"] == "Check the ledger."
        assert next(tmp_path.glob("*/agent_progress.md")).read_text()
        session.note("bugs", "Page 7 is out of balance.")
        assert "Page 7 is out of balance." in next(tmp_path.glob("*/agent_notes.md")).read_text()
        assert not list(tmp_path.glob("*/checkpoint.*"))


@pytest.mark.requirement("configuration.samples")
def test_the_command_line_takes_the_same_file_and_shows_our_names_with_the_line_and_the_name_in_it(file, tmp_path):
    shown = called_at(tmp_path, "--config", str(file(WHOLE)), "config", "--json").splitlines()
    found = {setting["key"]: setting for setting in (json.loads(line) for line in shown if line.startswith("{"))}
    ceiling = found["window.orange_percent"]
    assert (ceiling["value"], ceiling["line"], ceiling["given_as"]) == (75.0, 4, "pressure.thresholds.orange")
    assert found["window.mode"]["given_as"] == "compression.cascade"
    assert found["window.ceiling_percent"]["origin"] == "default"


# Each group has its effect


@pytest.mark.requirement("configuration.settable")
def test_a_velocity_window_of_one_turn_follows_the_last_turn_and_five_turns_smooth_it():
    def velocity(turns):
        with recto.open("memory:", model="gpt-4o", pressure={"velocity_window": turns}) as session:
            for words in (20, 20, 20, 20, 20, 900):
                turn(session, 0, words)
            session.append({"role": "user", "content": "And now?"})
            return session.prompt().reading.velocity

    assert velocity(1) > 3 * velocity(5)
    assert velocity(20) <= velocity(5)


@pytest.mark.requirement("configuration.settable")
def test_a_higher_spike_factor_takes_a_larger_turn_for_a_spike():
    def spikes(factor):
        with recto.open("memory:", model="gpt-4o", pressure={"spike_multiplier": factor}) as session:
            for lines in (20, 20, 20, 20, 400):
                tool_turn(session, 0, lines)
            return [entry for entry in session.read() if entry.kind == "velocity_spike"]

    assert spikes(3.0)
    assert not spikes(40.0)


def evicted(**groups):
    """How many messages of each kind were evicted, of one long loop of pages and remarks."""
    settings = {"min_recent_messages": 2, "shorten_outputs": False, "cache_aware": False, "record_percent": 0}
    small = {"max_context_tokens": 8_000, "window": settings, "recall": {"inject": False}}
    with recto.open("memory:", model="gpt-4o", **small, **groups) as session:
        session.append({"role": "user", "content": "Read all pages of the ledger."})
        for number in range(30):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
            session.append({"role": "assistant", "content": None, "tool_calls": [call]})
            session.append({"role": "tool", "tool_call_id": call["id"], "content": f"page {number} " * 90})
            session.append({"role": "assistant", "content": f"remark {number} " * 90})
            prompt = session.prompt()
        shown = str([message.get("content") for message in prompt.messages])
    return {
        "tool": sum(f"page {number} page" not in shown for number in range(28)),
        "assistant": sum(f"remark {number} remark" not in shown for number in range(28)),
    }


@pytest.mark.requirement("configuration.settable")
def test_kinds_that_are_protected_stay_while_others_are_evicted():
    def kept(**groups):
        settings = {"min_recent_messages": 2, "shorten_outputs": False, "cache_aware": False, "record_percent": 0}
        with recto.open(
            "memory:", model="gpt-4o", max_context_tokens=8_000, window=settings, recall={"inject": False}, **groups
        ) as session:
            for number in range(30):
                prompt = tool_turn(session, number)
            return [message["role"] for message in prompt.messages].count("user")

    assert kept(eviction={"protected_types": ["system_prompt", "user_message"]}) >= 30
    assert kept(eviction={"protected_types": ["system_prompt"]}) < 30


@pytest.mark.parametrize("policy", [{"policy": "type_based"}, {"policy": "hybrid", "weights": {"type": 1}}])
@pytest.mark.requirement("configuration.settable")
def test_what_outlives_its_time_is_evicted_first_and_the_time_of_each_kind_can_be_set(policy):
    short = evicted(eviction={**policy, "type_ttl": {"tool_result": 1, "assistant_response": 1_000}})
    long = evicted(eviction={**policy, "type_ttl": {"tool_result": 1_000, "assistant_response": 1}})
    assert short["tool"] > long["tool"]
    assert short["assistant"] < long["assistant"]


@pytest.mark.requirement("configuration.settable")
def test_the_time_to_live_of_thinking_can_be_set_with_any_policy():
    def thinking(**groups):
        window = {"min_recent_messages": 2, "cache_aware": False, "record_percent": 0}
        small = {"max_context_tokens": 16_000, "window": window, "recall": {"inject": False}}
        with recto.open("memory:", model="claude-sonnet-4-5", **small, **groups) as session:
            most = 0
            for number in range(12):
                session.append({"role": "user", "content": f"Question {number}"})
                prompt = session.prompt()
                if prompt.decisions:
                    most = max(most, str(prompt.messages).count("'thinking':"))
                thought = {"type": "thinking", "thinking": f"thought {number} " * 400, "signature": "s" * 40}
                answer = {"type": "text", "text": f"Answer {number}"}
                session.append({"role": "assistant", "content": [thought, answer]})
            return most

    assert thinking(eviction={"type_ttl": {"thinking": 2}}) < thinking(eviction={"type_ttl": {"thinking": 6}})


@pytest.mark.requirement("configuration.settable")
def test_the_order_and_the_thresholds_of_the_cascade_can_be_set():
    def first(**groups):
        small = {"max_context_tokens": 16_000, "recall": {"inject": False}}
        with recto.open("memory:", model="gpt-4o", **small, **groups) as session:
            for number in range(40):
                before = session.window.measure().utilization
                if tool_turn(session, number).decisions:
                    return policies_of(session)[0], before
        return None

    usual, _ = first(window={"mode": "zones"})
    other, at = first(compression={"strategies": ["conversation_compaction", "tool_result_summarization"]})
    late = {"mode": "zones", "cascade": ["summarise_results"], "cascade_percents": {"summarise_results": 90}}
    _, later = first(window=late)
    assert usual == "summarise_results"
    assert other != "summarise_results"
    assert at < 0.75
    assert later > 0.8


def test_a_component_is_reported_from_the_soft_limit_that_is_set():
    def warned(soft):
        budget = {"allocations": {"message_history": 0.65}, "soft_limit_pct": soft}
        with recto.open("memory:", model="gpt-4o", max_context_tokens=16_000, budget=budget) as session:
            for number in range(100):
                turn(session, number)
                found = [entry for entry in session.read() if entry.kind == "budget_warning"]
                if found:
                    return session.window.measure().utilization
        return None

    assert warned(0.3) < warned(0.8)


def test_results_above_their_limit_are_taken_to_the_floor_that_is_set():
    def lowest(floor):
        budget = {"enforced": "per_component", "floors": {"tool_results": floor}, "allocations": {"tool_results": 0.2}}
        window = {"min_recent_messages": 2, "cache_aware": False}
        with recto.open("memory:", model="gpt-4o", max_context_tokens=32_000, window=window, budget=budget) as session:
            limit = session.window.budget.limits["results"].hard
            used = [
                session.window.state.components()["results"] / limit
                for number in range(40)
                if tool_turn(session, number, lines=40).decisions
            ]
        return min(used)

    assert lowest(0.3) < 0.5 < lowest(0.8)


def test_an_alert_is_raised_at_the_threshold_that_is_set():
    def raised(threshold):
        health = {"alerts": {"utilization_critical": threshold}}
        alerts = []
        with recto.manager(
            "memory:", model="gpt-4o", max_context_tokens=16_000, health=health, on_alert=alerts.append
        ) as manager:
            for number in range(30):
                manager.on_turn_start(f"Question {number}")
                manager.on_turn_end({"role": "assistant", "content": "word " * 150})
        return [alert.name for alert in alerts]

    assert "utilization" in raised(0.1)
    assert "utilization" not in raised(0.9)


@pytest.mark.requirement("configuration.settable")
def test_a_checkpoint_is_written_at_the_percent_that_is_set(tmp_path):
    def reached(percent):
        groups = {"cross_window": {"warning_percent": percent, "state_file": str(tmp_path / f"{percent}/state.json")}}
        with recto.open("memory:", model="gpt-4o", max_context_tokens=16_000, **groups) as session:
            for number in range(100):
                turn(session, number)
                if list(tmp_path.glob(f"{percent}/*/state.json")):
                    return session.window.measure().utilization
        return None

    assert reached(30) < 0.4
    assert reached(60) > 0.55


def test_the_transcript_is_always_kept_and_the_file_says_so(file):
    path = file(SLIDING, "context.json")
    notes = [note for layer in read_layers(path=path, environ={}) for note in layer.translation.notes]
    assert len(notes) == 1
    assert notes[0].startswith(f"{path}, line 8: contextManagement.preserveTranscript: always on")
    with pytest.raises(SettingsError, match=r"line 8: .*the transcript is always kept.*remove the line"):
        load(path=file(SLIDING.replace("true", "false")), environ={})


def test_what_has_no_counterpart_is_answered_with_a_note_and_shown(file, tmp_path):
    path = file(WHOLE)
    notes = "\n".join(parse_settings(path, path.read_bytes()).notes)
    assert "compaction_utilization_threshold: not used: the cascade in the same file begins compaction at 92 %" in notes
    assert "recalled memory is quoted for one turn" in notes
    assert "written to a folder of its own for each session" in notes
    shown = called_at(tmp_path, "--config", str(path), "config", "window.mode")
    assert "begins compaction at 92 %" in shown


@pytest.mark.parametrize("mode", ["auto_compact", "zones"])
def test_a_ceiling_in_a_mode_that_begins_elsewhere_is_answered_with_a_note(file, mode):
    path = file(f"contextManagement: {{mode: {mode}, ceilingPercent: 92}}")
    [note] = parse_settings(path, path.read_bytes()).notes
    assert "not used in this mode, where relief begins at" in note
    path = file("contextManagement: {mode: sliding_window, ceilingPercent: 92}")
    assert not parse_settings(path, path.read_bytes()).notes


def test_variables_of_the_environment_may_have_the_familiar_names():
    environ = {"RECTO_CONTEXT_THRESHOLD": "0.8", "RECTO_PRESSURE__VELOCITY_WINDOW": "7"}
    window = load(environ=environ).window
    assert (window.ceiling_percent, window.velocity_turns) == (80, 7)


# Bad input


@pytest.mark.requirement("configuration.refused")
@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("contextManagement:\n  ceilingPercent: 92\nwindow:\n  ceiling_percent: 90\n", 4, "keep one of the two"),
        ("window:\n  ceiling_percent: 90\ncontext_threshold: 0.9\n", 3, "'window.ceiling_percent' (line 2) already"),
        ("CONTEXT_THRESHOLD: 0.8\ncontextManagement:\n  ceilingPercent: 80\n", 3, "'CONTEXT_THRESHOLD' (line 1)"),
        ("window:\n  mode: zones\n  mode: auto_compact\n", 3, "is set in line 2 already; keep one of the two"),
        ("budget:\n  shares: {history: 50}\n  allocations: {history: 0.5}\n", 3, "keep one of the two"),
        ("eviction:\n  policy: lru\nwindow:\n  policy: fifo\n", 4, "'eviction.policy' (line 2)"),
        ("contextManagement:\n  ceilingPercent: 80\n  floorPercent: 92\n", 3, "lower the floor or raise the ceiling"),
        ("window:\n  ceiling_percent: 80\n  floor_percent: 80\n", 3, "lower the floor or raise the ceiling"),
        ("pressure:\n  thresholds:\n    yellow: 0.8\n    orange: 0.7\n", 4, "zones begin at ascending percents"),
        ("window:\n  yellow_percent: 60\n  red_percent: 50\n", 3, "must be above window.yellow_percent"),
        ("compression:\n  cascade:\n    0.9: progressive\n    0.8: compaction\n", 2, "thresholds must ascend"),
        ("window:\n  cascade_percents: {trim: 90, compact: 80}\n", 2, "trim comes first in the cascade"),
        ("budget:\n  allocations: {message_history: 0.8, tool_results: 0.3}\n", 2, "110 percent.*lower some"),
        ("model: gpt-4o\nwindow:\n  shares: {history: 80, results: 30}\n", 3, "and are 110: lower some"),
        ("budget:\n  allocations: {message_history: 65, tool_results: 0.12}\n", 2, "write all of them the same way"),
        ("contextManagement:\n  ceilingPercent: 0.92\n", 2, "write 92 instead of 0.92"),
        ("window:\n  mode: auto_compact\ncompression:\n  strategies: [progressive]\n", 4, "needs 'window.mode: zones'"),
        ("eviction:\n  weights: {recency: 1}\n", 2, "add 'policy: hybrid'"),
        ("eviction:\n  policy: fifo\n  type_ttl: {tool_result: 8}\n", 3, "add 'policy: hybrid'"),
        ("eviction:\n  policy: hybrid\n  weights: {recncy: 1}\n", 3, "'recncy' is none of recency"),
        ("eviction:\n  policy: hybrid\n  weights: {recency: -1}\n", 3, "must not be below zero"),
        ("eviction:\n  policy: hybrid\n  weights: {recency: 0.5, fifo: 0.5}\n", 3, "both mean 'fifo'"),
        ("eviction:\n  protected_types: [thinking_hard]\n", 2, "'thinking_hard' is none of tool_result"),
        ("budget:\n  floors: {tool_results: 0.5}\n", 2, "add 'enforced: per_component'"),
        (
            "budget:\n  enforced: per_component\n  floors: {system_prompt: 0.5}\n",
            3,
            "window.floors: 'system' is none of",
        ),
        ("budget:\n  hard_limit_pct: 0.9\n", 2, "change the share in 'budget.allocations'"),
        ("health_monitoring:\n  metrics: [temperature]\n", 2, "'temperature' is none of utilization"),
        ("cross_window:\n  state_file: a/state.json\n  progress_file: b/page.md\n", 3, "keep one of the two"),
        ("cross_window:\n  state_file: same.md\n  progress_file: same.md\n", 2, "different names of files"),
        ("max_context_tokens: many\n", 1, "expects a whole number"),
        ("pressure: 5\n", 1, "expects a group of settings"),
        ("context_management:\n  vectorizeBeforePrune: false\n", 2, "'recall.enabled: false' switches recall off"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_with_its_line_and_the_cure(file, text, line, says):
    path = file(text)
    with pytest.raises(SettingsError, match=says.replace("(", r"\(").replace(")", r"\)")) as caught:
        load(path=path, environ={})
    assert str(caught.value).startswith(f"{path}, line {line}: setting '")


@pytest.mark.requirement("configuration.refused")
@pytest.mark.parametrize(
    ("text", "nearest"),
    [
        ("evction: {policy: lru}", "eviction"),
        ("eviction: {polcy: lru}", "eviction.policy"),
        ("contextManagment: {mode: zones}", "context_management"),
        ("contextManagement: {cielingPercent: 90}", "contextManagement.ceiling_percent"),
        ("health: {alerts: {utilisation_critical: 0.9}}", "health.alerts.utilization_critical"),
        ("ceiling_percent: 90", "window.ceiling_percent"),
        ("window: {velocity_turn: 5}", "window.velocity_turns"),
        ("temperature: 1", None),
    ],
)
def test_the_name_that_was_meant_is_suggested_whether_it_is_ours_or_familiar(file, text, nearest):
    with pytest.raises(SettingsError) as caught:
        load(path=file(text), environ={})
    assert caught.value.nearest == nearest


def test_a_file_in_a_working_folder_may_not_name_files_under_a_familiar_name_either(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "recto.yaml").write_text("pressure: {velocity_window: 7}\n")
    assert load(environ={}).window.velocity_turns == 7
    (tmp_path / "recto.yaml").write_text("cross_window: {state_file: /tmp/elsewhere/state.json}\n")
    with pytest.raises(SettingsError, match="recto trust"):
        load(environ={})


def test_aliases_that_multiply_do_not_take_long(file):
    bomb = "a0: &a0 {window: {mode: zones}}\n" + "".join(
        f"a{n}: &a{n} {{{', '.join(f'k{key}: *a{n - 1}' for key in range(9))}}}\n" for n in range(1, 12)
    )
    with pytest.raises(SettingsError, match="there is no such setting"):
        load(path=file(bomb), environ={})


# A translated file is the same settings written by hand

PERCENTS = st.integers(1, 99)


@st.composite
def written_twice(draw):
    """The same settings under familiar names, and under ours."""
    yellow, orange, red = sorted(draw(st.sets(PERCENTS, min_size=3, max_size=3)))
    floor, ceiling = sorted(draw(st.sets(PERCENTS, min_size=2, max_size=2)))
    turns, factor = draw(st.integers(1, 20)), draw(st.integers(2, 9))
    tokens, alert = draw(st.integers(1_000, 10**6)), draw(PERCENTS)
    in_percent = draw(st.booleans())

    def fraction(percent):
        return percent if in_percent and percent > 1 else percent / 100

    zones = {"yellow": fraction(yellow), "orange": fraction(orange), "red": fraction(red)}
    familiar = {
        "pressure": {"thresholds": zones, "velocity_window": turns, "spike_multiplier": factor},
        "contextManagement": {"ceilingPercent": ceiling, "floorPercent": floor},
        "max_context_tokens": tokens,
        "budget": {"soft_limit_pct": fraction(alert)},
        "health_monitoring": {"alerts": {"tool_bloat_warning": fraction(alert)}},
    }
    ours = {
        "window": {
            "yellow_percent": yellow,
            "orange_percent": orange,
            "red_percent": red,
            "velocity_turns": turns,
            "spike_factor": float(factor),
            "ceiling_percent": ceiling,
            "floor_percent": floor,
            "max_tokens": tokens,
            "soft_percent": alert,
        },
        "health": {"alerts": {"bloat": alert / 100}},
    }
    names = draw(st.permutations(list(familiar)))
    return {name: familiar[name] for name in names}, ours


@given(written_twice())
@pytest.mark.requirement("configuration.samples")
def test_a_translated_file_is_the_same_settings_written_by_hand(both):
    familiar, ours = both
    made, by_hand = load(environ={}, arguments=familiar), load(environ={}, arguments=ours)
    for group in ("window", "health"):
        _assert_alike(getattr(made, group), getattr(by_hand, group))
    text = yaml.safe_dump(familiar).encode()
    assert load(environ={}, arguments=parse_settings("context.yaml", text).tree) == made


def _assert_alike(one, other):
    for field in fields(one):
        mine, yours = getattr(one, field.name), getattr(other, field.name)
        if is_dataclass(mine):
            _assert_alike(mine, yours)
        else:
            assert mine == (pytest.approx(yours) if isinstance(yours, float) else yours), field.name


def test_every_familiar_name_leads_to_settings_that_exist():
    ours = {name for name, _ in _leaves(Settings(), "")}
    for name, familiar in FAMILIAR.items():
        named = [part for part in familiar.setting.split("`")[1::2] if "." in part]
        assert all(part.partition(":")[0] in ours for part in named), name


def _leaves(tree, path):
    for field in fields(tree):
        value = getattr(tree, field.name)
        if is_dataclass(value):
            yield from _leaves(value, f"{path}{field.name}.")
        else:
            yield f"{path}{field.name}", value
