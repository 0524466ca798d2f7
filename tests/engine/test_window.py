"""The window: bounded, valid, protected and stable; every change is logged and can be undone."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

import recto
from recto.config import load
from recto.config.factory import SystemClock, open_session
from recto.context.policies.eviction import Prune
from recto.context.policies.scorers import SCORERS
from recto.context.window.state import seqs_in
from recto.engine import projection
from recto.engine.context_window_manager import ContextWindowManager
from recto.engine.pagination import entry_page
from recto.engine.projection import DECISIONS
from recto.errors import AppendConflict, InputError, SettingsError, WindowOverflow
from recto.formats import problems
from recto.recall.types import HEADER
from recto.stores.memory import MemoryStore
from recto.testing import FakeClock, scripted_session
from recto.transcript.entries import event

SMALL = {"gpt-4o": {"window": 16_000, "max_input": 16_000}}
TOOLS = [{"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}]


def opened(store="memory:", **window):
    # Automatic recall has its own tests; here it would only take time.
    return recto.open(store, model="gpt-4o", models=SMALL, window=window, recall={"inject": False})


def work(session, exchanges=40, seed=7, **options):
    """Runs a scripted agent; returns every prompt built for it."""
    prompts = []
    for message in scripted_session(seed=seed, exchanges=exchanges):
        if message["role"] == "assistant":
            prompts.append(session.prompt(**options))
        session.append(message)
    return prompts


def kinds(session):
    return [entry.kind for entry in session.read() if entry.kind != "message"]


@pytest.mark.requirement("window.bounded", "protect.system-task")
def test_every_prompt_fits_and_is_valid_and_keeps_system_and_task():
    with opened() as session:
        prompts = work(session, tools=TOOLS)
        first = [entry.content for entry in session.read(1, 2)]
        for prompt in prompts:
            assert prompt.tokens <= session.window.budget.input_budget
            assert prompt.tokens == session.count(list(prompt.raw), tools=TOOLS)
            assert problems(prompt.raw, prompt.built.wire) == []
            assert list(prompt.raw[:2]) == first[: len(prompt.raw)]
        assert "context_window_pruned" in kinds(session)


@pytest.mark.requirement("window.prefix")
def test_between_decisions_the_prompt_only_grows_at_its_tail():
    with opened() as session:
        before = ()
        for prompt in work(session):
            lasting = tuple(raw for raw in prompt.raw if HEADER.encode() not in raw)  # a quotation lasts one turn
            if not prompt.decisions:
                assert lasting[: len(before)] == before
            before = lasting


def test_messages_of_a_prompt_may_be_changed_without_breaking_them_for_others():
    with opened(look_ahead=False) as session:
        work(session, exchanges=6)
        prompt = session.prompt()
        expected = [json.loads(raw) for raw in prompt.raw]
        for _ in range(2):
            messages = prompt.messages
            assert messages == expected
            for message in messages:
                for call in message.get("tool_calls", ()):
                    call["function"]["arguments"] = "broken"
                message["content"] = None
                message["tool_calls"] = [{"id": "broken"}]
            messages.clear()
        assert session.prompt().messages == expected
        session.append({"role": "user", "content": "And now?"})
        assert session.prompt().messages[: len(expected)] == expected


def test_a_prompt_reads_the_head_once_and_never_what_it_appended(tmp_path):
    with opened(tmp_path / "a.db") as session:
        work(session, exchanges=2)
        session.prompt()
        recording_store = _RecordingStore(session.store)
        for part in (session.window._projection, session.window, session.window.events):
            for name in ("store", "_store"):
                if hasattr(part, name):
                    setattr(part, name, recording_store)
        session.store = recording_store
        for number in range(3):
            session.append({"role": "user", "content": f"Question {number}"})
            session.prompt()
            session.append({"role": "assistant", "content": f"Answer {number}"})
        assert recording_store.calls == ["append", "head", "append"] * 3


class _RecordingStore:
    """A store that records the names of its calls."""

    def __init__(self, store):
        self._store = store
        self.calls = []

    def __getattr__(self, name):
        self.calls.append(name)
        return getattr(self._store, name)


def test_entries_of_another_writer_are_in_the_next_prompt_in_order(tmp_path):
    with opened(tmp_path / "a.db") as session, opened(tmp_path / "a.db") as other:
        session.append({"role": "user", "content": "one"})
        session.prompt()
        session.append({"role": "assistant", "content": "two"})
        other.append({"role": "user", "content": "three"})
        session.append({"role": "assistant", "content": "four"})
        other.append({"role": "user", "content": "five"})
        assert [message["content"] for message in session.prompt().messages] == ["one", "two", "three", "four", "five"]
        assert other.prompt().raw == session.prompt().raw
        assert session.window.state == other.window.state


def test_a_session_opens_in_full_if_a_decision_after_its_snapshot_cannot_be_applied(tmp_path):
    with opened(tmp_path / "a.db") as session:
        for number in range(3):
            session.append({"role": "user", "content": f"Question {number}"})
            session.append({"role": "assistant", "content": f"Answer {number}"})
        session.pin(1)  # takes a snapshot
        session.append({"role": "user", "content": "Question 3"})
        torn = event(SystemClock(), "context_window_pruned", {"left": [[3, 4], [9, 9]], "shrunk": "nonsense"})
        session.store.append(session.key, [torn])
        expected = session.prompt()
        assert len(expected.raw) == 7
    with opened(tmp_path / "a.db") as again:
        assert again.prompt().raw == expected.raw


def test_a_session_opens_with_the_same_state_after_evictions_pins_and_restores(tmp_path):
    with opened(tmp_path / "a.db") as session:
        work(session, exchanges=30)
        decision = next(entry for entry in session.read() if entry.kind in DECISIONS)
        session.pin(5)
        work(session, exchanges=3, seed=8)
        session.restore(decision.seq)
        work(session, exchanges=12, seed=9)
        session.prompt()
        state, raw = session.window.state, session.prompt().raw
        assert state.evicted_messages
    with opened(tmp_path / "a.db") as again:
        assert again.window.state == state
        assert again.prompt().raw == raw


@pytest.mark.requirement("window.undo")
def test_a_restore_never_returns_a_result_without_its_call():
    with opened(min_recent_messages=4) as session:
        work(session, exchanges=60)
        decisions = [entry for entry in session.read() if entry.kind in DECISIONS]
        trims = [
            entry
            for entry in decisions
            if any(int(seq) not in session.window.state.messages for seq in json.loads(entry.content)["shrunk"])
        ]
        assert trims, "the test needs a result that was trimmed and then evicted"
        for decision in decisions[-8:] + trims[-4:]:
            before = set(session.window.state.messages)
            undone = session.restore(decision.seq)
            assert set(json.loads(decision.content)["shrunk"]) <= set(map(str, session.window.state.messages))
            window = session.window
            assert window.builder.build(window.state).arrangement.omitted == ()
            session.redo(undone.seq)
            assert set(session.window.state.messages) <= before
            assert window.builder.build(window.state).arrangement.omitted == ()


def test_the_restore_test_detects_incomplete_steps(monkeypatch):
    monkeypatch.setattr(projection.WindowProjection, "rest_of_steps", lambda self, seqs: [])
    with pytest.raises(AssertionError, match="Omitted"):
        test_a_restore_never_returns_a_result_without_its_call()


def test_a_pinned_result_returns_with_its_call_and_unpinned_both_may_be_evicted():
    with opened(min_recent_messages=4) as session:
        work(session, exchanges=60)
        shown = session.window.state.messages
        result = next(entry for entry in session.read() if entry.role == "tool" and entry.seq not in shown)
        session.pin(result.seq)
        assert result.seq in session.window.shown_entries()
        call = json.loads(result.content)["tool_call_id"]
        (caller,) = (line for line in session.window.state.messages.values() if call in line.calls)
        assert set(caller.calls) <= {call for line in session.window.state.messages.values() for call in line.answers}
        session.unpin(result.seq)
        assert session.window.state.pins == set()


def test_a_message_that_is_pinned_already_is_not_pinned_again():
    with opened() as session:
        work(session, exchanges=3)
        first, second = session.pin(1, 3), session.pin(5)
        before, raw = len(session), session.prompt().raw
        assert session.pin(3) == session.pin(1, 3) == first
        assert session.pin(3, 5) == second
        assert (len(session), session.prompt().raw) == (before, raw)
        assert session.window.state.pins == {1, 3, 5}
        session.unpin(3)
        again = session.pin(1, 3)
        assert again.seq > second.seq
        assert session.pin(3) == again


@pytest.mark.parametrize("before", [True, False])
def test_what_a_user_pinned_stays_when_a_restored_decision_is_redone(before):
    with opened(min_recent_messages=4, shorten_outputs=False) as session:
        work(session, exchanges=30)
        decisions = [entry for entry in session.read() if entry.kind in DECISIONS]
        decision = max(decisions, key=lambda entry: len(seqs_in(json.loads(entry.content)["left"])))
        left = seqs_in(json.loads(decision.content)["left"])
        wanted = next(seq for seq in left if next(iter(session.read(seq, seq))).role == "assistant")
        if before:
            session.pin(wanted)
        restored = session.restore(decision.seq)
        if not before:
            pinned = session.pin(wanted)
            assert session.pin(wanted) == pinned != restored
        session.redo(restored.seq)
        state = session.window.state
        assert wanted in state.pins & state.messages.keys()
        assert set(left) - state.messages.keys()
        assert problems(session.prompt().raw, "openai.chat") == []


@pytest.mark.parametrize("mode", ["sliding_window", "zones", "auto_compact"])
def test_redoing_an_old_decision_keeps_what_newer_ones_wrote(mode):
    with opened(mode=mode) as session:
        decisions = []
        for number in range(90):
            rule = "Never push to main without my approval. " if number == 30 else ""
            session.append({"role": "user", "content": f"{rule}Tell me about place {number}."})
            decisions += session.prompt().decisions
            session.append({"role": "assistant", "content": f"Place {number}: " + "a garden and a market. " * 60})
        session.append({"role": "user", "content": "And now?"})
        before = session.prompt().messages
        assert len(decisions) > 1
        assert "Never push to main" in str(before)
        session.redo(session.restore(decisions[0].seq).seq)
        state, now = session.window.state, session.prompt().messages
        assert "Never push to main" in str(now)
        assert [message["content"] for message in now[-3:]] == [message["content"] for message in before[-3:]]
        assert state.record is None or state.record_seq == max(
            entry.seq for entry in session.read() if entry.kind in DECISIONS and b'"record":' in entry.content
        )


def test_an_entry_is_shown_as_in_the_prompt_only_if_the_built_prompt_contains_it():
    with opened() as session:
        session.append({"role": "user", "content": "Read it."})
        session.append({"role": "tool", "tool_call_id": "nobody", "content": "a result without a call"})
        session.append({"role": "assistant", "content": "Done."})
        assert [view.place for view in entry_page(session.window).entries] == ["in", "out", "in"]
        assert b"without a call" not in b"".join(session.prompt().raw)
        hits = session.recall("result without a call").hits
        assert [hit.in_prompt for hit in hits if hit.seq == 2] == [False]


def status_events(session):
    """Grows a session so fast that its next prompt logs a zone change, budgets and a spike."""
    session.append({"role": "user", "content": "Start."})
    session.prompt()
    for number in range(5):
        session.append({"role": "assistant", "content": f"Step {number}."})
        session.append({"role": "user", "content": "word " * (20 if number < 4 else 9_000)})
        if number < 4:
            session.prompt()


@pytest.mark.parametrize("count", [1_000, 1_030, 2_000])
def test_nothing_is_evicted_from_a_long_session_that_fits(count):
    large = {"gpt-4o": {"window": 900_000, "max_input": 900_000, "max_output": 1_000}}
    with recto.open("memory:", model="gpt-4o", models=large, recall={"inject": False}) as session:
        session.append_all([{"role": ("user", "assistant")[n % 2], "content": f"{n}."} for n in range(count)])
        assert len(session.prompt().messages) == count
        assert not session.report().left_messages


def test_tool_definitions_do_not_count_as_growth():
    described = {"name": "look", "description": "word " * 4_000, "parameters": {"type": "object", "properties": {}}}
    with opened() as session:
        for number in range(8):
            session.append({"role": "user", "content": f"Step {number}?"})
            prompt = session.prompt(tools=[{"type": "function", "function": described}])
            session.append({"role": "assistant", "content": f"Step {number}."})
        assert prompt.tokens > 4_000
        assert projection.SPIKE not in kinds(session)


def test_all_status_events_of_a_prompt_are_stored_in_one_commit(tmp_path):
    with opened(tmp_path / "a.db") as session:
        status_events(session)
        commits, store = [], session.window.events.store
        session.window.events.store = _RecordingStore(store)
        session.prompt()
        commits = [name for name in session.window.events.store.calls if name == "append"]
        kinds_logged = [entry.kind for entry in session.tail(4)]
        assert len(kinds_logged[kinds_logged.index("message") + 1 :]) >= 2
        assert len(commits) == 1


def test_deferred_events_are_stored_with_the_answer_in_the_usual_order(tmp_path):
    stored = []
    for defer in (False, True):
        events = []
        with opened(tmp_path / f"{defer}.db") as session:
            status_events(session)
            session.window.listen(lambda entry, events=events: events.append(entry.kind))
            before = len(session)
            session.prompt(defer_events=defer)
            assert (len(session) == before) is defer
            assert bool(events) is not defer
            answer = session.append({"role": "assistant", "content": "Done."})
            assert answer.seq == len(session)
            assert session.verify().ok
            stored.append(([(entry.kind, entry.content) for entry in session.read()], events))
    assert stored[0] == stored[1]
    assert len(stored[0][1]) >= 2


def test_deferred_events_are_not_lost_on_close_on_a_refused_append_or_before_a_decision(tmp_path):
    with opened(tmp_path / "a.db") as session:
        status_events(session)
        session.prompt(defer_events=True)
    with opened(tmp_path / "a.db") as session:
        logged = kinds(session)
        assert "zone_changed" in logged
        first = session.append({"role": "assistant", "content": "Kept."}, key="answer")
        session.append({"role": "user", "content": "word " * 1_000})
        session.prompt(defer_events=True)
        with pytest.raises(AppendConflict):
            session.append({"role": "assistant", "content": "Late."}, expect=first.seq)
        again = session.append({"role": "assistant", "content": "Kept."}, key="answer")
        assert again.seq == first.seq
        session.pin(first.seq)
        assert session.window.events._waiting == []
        assert kinds(session)[len(logged) :][-2] == "pinned"


@pytest.mark.requirement("window.ceiling-floor")
def test_relief_is_rare_and_reaches_the_floor_in_one_step():
    with opened(floor_percent=70, look_ahead=False) as session:
        prompts = work(session, exchanges=80)
        room = session.window.budget.input_budget
        decided = [prompt for prompt in prompts if prompt.decisions]
        assert len(decided) < len(prompts) / 5
        for prompt in decided:
            payload = json.loads(prompt.decisions[-1].content)
            assert payload["tokens_before"] > 0.92 * room
            assert payload["tokens_after"] <= 0.81 * room


@pytest.mark.requirement("window.marker", "window.decisions")
def test_a_decision_names_evicted_and_remaining_entries_and_its_reason():
    with opened(shorten_outputs=False) as session:
        prompt = next(prompt for prompt in work(session) if prompt.decisions)
        payload = json.loads(prompt.decisions[0].content)
        assert payload["policy"] == "prune"
        assert payload["left"]
        assert payload["kept"]
        assert payload["reason"]
        assert payload["tokens_before"] > payload["tokens_after"]
        assert any(b"earlier messages" in raw for raw in prompt.raw)


@pytest.mark.requirement("transcript.reopen")
def test_a_reopened_transcript_builds_the_same_prompt(tmp_path):
    with opened(tmp_path / "a.db") as session:
        work(session, exchanges=80)
        prompt = session.prompt()
    with opened(tmp_path / "a.db") as again:
        assert again.prompt().raw == prompt.raw


def test_a_long_session_opens_from_its_snapshot_and_reads_little_else(tmp_path):
    with opened(tmp_path / "a.db") as session:
        work(session, exchanges=150)
        assert kinds(session).count("window_snapshot") >= 3
        entries = len(session)
        state = session.window.state
        assert set(session.window.messages.raws) == set(state.messages)  # evicted messages are dropped from the cache
    with opened(tmp_path / "a.db") as again:
        assert again.window.state == state
    with opened(tmp_path / "a.db") as again:
        read = []
        original = again.store.read

        def counted(*args):
            for entry in original(*args):
                read.append(entry.seq)
                yield entry

        again.window._projection._store = _CountingStore(again.store, counted)
        again.prompt()
        assert len(read) < entries / 2


class _CountingStore:
    """A store whose reads are counted."""

    def __init__(self, store, read):
        self._store, self.read = store, read

    def __getattr__(self, name):
        return getattr(self._store, name)


def test_a_long_session_without_snapshots_is_read_only_near_its_end():
    with opened() as session:
        for message in scripted_session(exchanges=300):
            session.append(message)
        prompt = session.prompt()
        assert prompt.tokens <= session.window.budget.input_budget
        assert json.loads(prompt.raw[1])["content"] == next(
            m["content"] for m in scripted_session(exchanges=300) if m["role"] == "user"
        )
        assert problems(prompt.raw, prompt.built.wire) == []


@pytest.mark.requirement("protect.pins-marks")
def test_a_pinned_entry_returns_after_eviction_and_stays():
    with opened() as session:
        work(session, exchanges=5)
        early = next(
            entry for entry in session.read() if entry.role == "assistant" and b"tool_calls" not in entry.content
        )
        work(session, exchanges=40, seed=8)
        assert early.content not in session.prompt().raw
        session.pin(early.id)
        work(session, exchanges=40, seed=9)
        assert early.content in session.prompt().raw
        session.unpin(early.seq)
        work(session, exchanges=40, seed=10)
        assert early.content not in session.prompt().raw


@pytest.mark.requirement("protect.pins-marks")
def test_marks_and_tool_rules_protect_entries_too():
    with opened(keep_tools=["ask_human"]) as session:
        marked = session.append({"role": "user", "content": "DO_NOT_EVICT: prices are in cents"})
        call = {"id": "h", "type": "function", "function": {"name": "ask_human", "arguments": "{}"}}
        question = session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        answer = session.append({"role": "tool", "tool_call_id": "h", "content": "yes, ship it"})
        work(session, exchanges=60)
        raw = session.prompt().raw
        assert {marked.content, question.content, answer.content} <= set(raw)


@pytest.mark.requirement("window.undo")
def test_a_decision_can_be_undone_and_redone():
    with opened(shorten_outputs=False) as session:
        decision = next(prompt for prompt in work(session) if prompt.decisions).decisions[0]
        gone = json.loads(decision.content)["left"][0][0]
        content = next(iter(session.read(gone, gone))).content
        assert content not in session.prompt().raw
        restored = session.restore(decision.id)
        assert gone in session.window.state.messages
        session.redo(restored.seq)
        assert gone not in session.window.state.messages
        with pytest.raises(InputError, match="not a decision"):
            session.restore(1)
        with pytest.raises(InputError, match="no entry"):
            session.restore("nothing")


@pytest.mark.requirement("window.in-flight")
def test_a_huge_result_in_flight_is_cut_to_head_and_tail_with_a_pointer():
    with recto.open("memory:", model="gpt-4o") as session:
        task = session.append({"role": "user", "content": "What does the log say?"})
        call = {"id": "c", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        huge = "\n".join(f"line {number}: all is well" for number in range(60_000))
        entry = session.append({"role": "tool", "tool_call_id": "c", "content": huge})
        assert entry.tokens > 400_000
        prompt = session.prompt()
        assert prompt.tokens <= session.window.budget.input_budget
        assert prompt.raw[0] == task.content
        shown = json.loads(prompt.raw[-1])["content"]
        assert shown.startswith("line 0:")
        assert shown.endswith("line 59999: all is well")
        assert f"recto://agent:default:main/{entry.seq}" in shown
        assert next(iter(session.read(entry.seq, entry.seq))).content == entry.content


def step_in_chat(number, output):
    call = {"id": "call_0", "type": "function", "function": {"name": "run", "arguments": json.dumps({"n": number})}}
    yield {"role": "assistant", "content": None, "tool_calls": [call]}
    yield {"role": "tool", "tool_call_id": "call_0", "content": output}


def step_in_gemini(number, output):
    yield {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {"n": number}}}]}
    yield {"role": "user", "parts": [{"functionResponse": {"name": "run", "response": {"output": output}}}]}


@pytest.mark.parametrize("step", [step_in_chat, step_in_gemini])
def test_a_trimmed_result_names_its_own_call_also_where_every_step_has_the_same_call_id(step):
    with recto.open("memory:", model="gpt-4o", models={"gpt-4o": {"window": 3_000, "max_input": 3_000}}) as session:
        session.append({"role": "user", "content": "Run them all."})
        for number in range(10):
            session.append_all(list(step(number, f"result {number} " * 100)))
        shown = b"".join(session.prompt().raw).decode()
        placed = [number for number in range(10) if f'[run {number}: \\"result {number} ' in shown]
        assert len(placed) > 4
        assert shown.count("[run ") == len(placed)


@pytest.mark.requirement("window.in-flight")
@pytest.mark.parametrize("model", ["gpt-4o", "llama3"], ids=["plain", "quoting"])
@pytest.mark.parametrize("results", [1, 12])
@pytest.mark.parametrize("line", ["日本語の行 🚀", 'def f(x):\n\treturn "x"'], ids=["unicode", "code"])
def test_huge_results_are_cut_until_they_fit_whatever_the_template_writes_around_them(model, results, line):
    # Llama's template quotes results as JSON strings, so that they cost more than their text alone.
    calls = [{"type": "tool_use", "id": f"c{number}", "name": "read_log", "input": {}} for number in range(results)]
    huge = f"{line}\n" * 3_000
    outputs = [{"type": "tool_result", "tool_use_id": call["id"], "content": huge} for call in calls]
    with recto.open("memory:", model=model, models={model: {"window": 4_000, "max_input": 4_000}}) as session:
        session.append({"role": "user", "content": "What does the log say?"})
        session.append({"role": "assistant", "content": calls})
        session.append({"role": "user", "content": outputs})
        prompt = session.prompt()
        assert prompt.tokens <= session.window.budget.input_budget
        assert problems(prompt.raw, prompt.built.wire) == []
        assert line.split("\n")[0] in prompt.messages[-1]["content"][0]["content"]


@pytest.mark.requirement("window.bounded")
def test_an_overflow_is_a_typed_error_that_names_the_largest_holders():
    with opened() as session:
        session.append({"role": "user", "content": "word " * 20_000})
        with pytest.raises(WindowOverflow) as caught:
            session.prompt()
        assert caught.value.over > 0
        assert caught.value.holders[0][0] == "entry 1 (user)"
        assert kinds(session)[-1] == "window_overflow"


@pytest.mark.requirement("tokens.tools")
def test_tool_schemas_are_counted():
    with opened() as session:
        session.append({"role": "user", "content": "hi"})
        many = [
            {"type": "function", "function": {"name": f"tool_{n}", "parameters": {"type": "object"}}} for n in range(50)
        ]
        assert session.prompt(many).tokens > session.prompt().tokens + 500


@pytest.mark.parametrize("mode", ["sliding_window", "zones"])
@pytest.mark.parametrize("policy", ["prune", *SCORERS])
def test_every_policy_keeps_every_prompt_bounded_and_valid(mode, policy):
    with opened(mode=mode, policy=policy) as session:
        for prompt in work(session, exchanges=24):
            assert prompt.tokens <= session.window.budget.input_budget
            assert problems(prompt.raw, prompt.built.wire) == []
        assert set(kinds(session)) & {"context_window_pruned", "units_evicted", "units_merged", "tool_results_trimmed"}


@pytest.mark.requirement("compress.cascade")
def test_zones_shorten_old_results_before_anything_is_evicted():
    with opened(mode="zones") as session:
        work(session)
        decisions = [entry for entry in session.read() if entry.kind in DECISIONS]
        assert json.loads(decisions[0].content)["policy"] == "summarise_results"


def test_short_results_stay_beside_a_shortened_one_in_the_same_message():
    model = "claude-sonnet-4-5"
    with recto.open("memory:", model=model, models={model: {"window": 8_000, "max_output": 500}}) as session:
        session.append({"role": "user", "content": "Find the fault."})
        for step in range(8):
            calls = [("run", "1 failed"), ("read_file", f"line {step} " * 400), ("log", f"entry {step} " * 100)]
            used = [{"type": "tool_use", "id": f"{name}{step}", "name": name, "input": {}} for name, _ in calls]
            session.append({"role": "assistant", "content": used})
            results = [{"type": "tool_result", "tool_use_id": f"{name}{step}", "content": out} for name, out in calls]
            session.append({"role": "user", "content": results})
        prompt = session.prompt()
        assert prompt.tokens == session.count(list(prompt.raw))
        assert prompt.tokens <= session.window.budget.input_budget
    answers = [message["content"] for message in prompt.messages if "tool_result" in str(message)]
    shortened = [[block["content"] for block in blocks] for blocks in answers if "recto://" in str(blocks)]
    assert len(shortened) > 3
    for short, largest, other in shortened:
        assert short == "1 failed"
        assert largest.startswith('[read_file: "line ')
        assert other == "[Left out as well: the entry that the other result names has it, too.]"


def test_an_unknown_policy_is_refused():
    with pytest.raises(SettingsError):
        opened(policy="lrru")


@pytest.mark.requirement("window.valid")
def test_missing_late_duplicate_and_orphaned_results_never_break_a_prompt():
    def call(name):
        return {"id": name, "type": "function", "function": {"name": "f", "arguments": "{}"}}

    with opened() as session:
        script = [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "user", "content": "wait"},
            {"role": "tool", "tool_call_id": "b", "content": "late"},
            {"role": "tool", "tool_call_id": "a", "content": "again"},
            {"role": "tool", "tool_call_id": "zzz", "content": "orphan"},
            {"role": "assistant", "content": None, "tool_calls": [call("c")]},
            {"role": "user", "content": "never mind"},
        ]
        for message in script:
            session.append(message)
            prompt = session.prompt()
            assert problems(prompt.raw, prompt.built.wire) == []
        assert len(session.report().omitted) == 2


def test_thinking_bound_to_an_edited_prompt_is_not_sent():
    def step(number):
        use = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}}
        thought = {"type": "thinking", "thinking": f"thought {number}", "signature": "c2ln"}
        yield {"role": "assistant", "content": [thought, use]}
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "word " * 400}
        yield {"role": "user", "content": [result]}

    models = {name: {"window": 16_000, "max_input": 16_000} for name in ("claude-opus-5-5", "claude-opus-4-5")}
    for model, binds in (("claude-opus-5-5", True), ("claude-opus-4-5", False)):
        with recto.open("memory:", model=model, models=models) as session:
            session.append({"role": "user", "content": "go"})
            thoughts = before = None
            for number in range(40):
                for message in step(number):
                    session.append(message)
                prompt = session.prompt()
                assert problems(prompt.raw, prompt.built.wire) == []
                assert prompt.tokens <= session.window.budget.input_budget
                assert b"thought %d" % number in prompt.raw[-2]  # the open step keeps its thinking
                if before and not prompt.decisions:
                    assert prompt.raw[: len(before)] == before
                # The step in flight during an edit loses its thinking one prompt later, once it may be changed.
                before = () if binds and prompt.decisions else prompt.raw
                thoughts = [raw for raw in prompt.raw[2:-2] if b'"thinking"' in raw]
                if prompt.decisions:
                    assert bool(thoughts) is not binds
            assert session.report().decisions


def test_system_text_is_separate_from_the_messages_if_the_model_expects_it():
    script = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    for model, expected in (("claude-sonnet-4-5", "Be brief."), ("gpt-4o", "")):
        with recto.open("memory:", model=model) as session:
            session.append_all(script)
            prompt = session.prompt()
            assert prompt.system == expected
            assert [message["role"] for message in prompt.messages] == (["user"] if expected else ["system", "user"])


def test_two_writers_share_one_window(tmp_path):
    with opened(tmp_path / "a.db") as first, opened(tmp_path / "a.db") as second:
        for number, message in enumerate(scripted_session(exchanges=60)):
            writer, other = (first, second) if number % 2 else (second, first)
            writer.append(message)
            if message["role"] == "user":
                assert writer.prompt().raw == other.prompt().raw
        assert first.verify().ok


def test_a_decision_never_misses_a_concurrent_write(tmp_path):
    with opened(tmp_path / "a.db") as session, opened(tmp_path / "a.db") as other:
        meddled = []

        class Meddling:
            name = "prune"

            def plan(self, view, need):
                if not meddled:
                    meddled.append(other.append({"role": "user", "content": "wait, one more thing"}))
                return Prune().plan(view, need)

        session.window.configure(rules=replace(session.window.rules, policies=(Meddling(),)))
        decision = next(prompt for prompt in work(session, exchanges=60) if prompt.decisions).decisions[0]
        assert decision.seq > meddled[0].seq
        assert meddled[0].seq in seqs_in(json.loads(decision.content)["kept"])


def test_the_report_shows_what_would_be_sent():
    with opened() as session:
        session.append_all(list(scripted_session(exchanges=60)))
        assert session.report().tokens <= session.window.budget.input_budget
        assert "context_window_pruned" not in kinds(session)


def test_the_report_of_a_session_without_prompts_describes_its_next_prompt():
    with opened() as session:
        session.append_all(list(scripted_session(exchanges=40)))
        reading, room = session.report().reading, session.window.budget.input_budget
        assert session.window.state.tokens > 2 * room
        assert session.prompt().tokens <= reading.tokens <= room


def test_the_report_is_of_the_window_as_it_is_now(tmp_path):
    options = {"model": "gpt-4o", "recall": {"enabled": False}}
    store, small = tmp_path / "t.db", {"gpt-4o": {"window": 4_000, "max_input": 4_000}}
    with recto.open(store, models=small, **options) as session:
        for message in scripted_session(exchanges=20):
            if message["role"] == "assistant":
                session.prompt()
            session.append(message)
        before = session.report()
    with recto.open(store, models=small, **options) as session:
        same = session.report()
    with recto.open(store, **options) as session:
        larger = session.report()
        prompt = session.prompt()
    assert before.reading == same.reading
    assert before.candidates
    assert (before.room, same.room) == (before.reading.room, same.reading.room)
    assert (larger.room, larger.reading.room) == (121_600, 121_600)
    assert (larger.reading.zone, larger.candidates, prompt.decisions) == ("green", (), ())
    assert larger.reading.turns_until_red > 10
    with recto.open(store, models={"gpt-4o": {"window": 3_000, "max_input": 3_000}}, **options) as session:
        smaller = session.report()
        assert smaller.reading.room == smaller.room < before.room
        assert smaller.reading.tokens <= smaller.room


def test_a_lower_input_budget_of_the_last_prompt_is_kept_in_the_same_window(tmp_path):
    store = tmp_path / "t.db"
    with recto.open(store, model="gpt-4o") as session:
        session.window.lower_limits(None, at_most=5_000)
        session.append({"role": "user", "content": "Hello?"})
        session.prompt()
        session.append({"role": "assistant", "content": "Hello."})
    with recto.open(store, model="gpt-4o") as session:
        report = session.report()
    assert report.room == report.reading.room == 5_000


@pytest.mark.requirement("pressure.listeners")
@pytest.mark.parametrize("defer_events", [False, True])
def test_a_failing_listener_is_logged_and_fails_no_call(caplog, defer_events):
    heard, changes = [], []

    def fails(*about):
        (heard if len(about) == 1 else changes).append(about)
        raise ValueError("the listener's own fault")

    with opened() as session:
        session.window.listen(fails)
        work(session, defer_events=defer_events)
        stored = [entry.content for entry in session.read() if entry.kind == "message"]
        events = kinds(session)
    assert len(stored) == len(list(scripted_session(seed=7, exchanges=40)))
    assert [about[0].kind for about in heard][: len(events)] == events
    assert "the listener's own fault" in caplog.text
    with recto.manager("memory:", model="gpt-4o", models=SMALL, on_status_change=fails) as manager:
        manager.on_turn_start("word " * 9_000)
        assert manager.on_turn_end("Read.").text == "Read."
    assert changes


def test_a_listener_that_cannot_be_called_is_refused():
    with opened() as session:
        with pytest.raises(InputError, match="a listener is a function, not None"):
            session.window.listen(None)
        with pytest.raises(InputError, match="a listener is a function"):
            ContextWindowManager(session).on_status_change("print")


@pytest.mark.requirement("pressure.listeners")
def test_listeners_receive_zone_changes_and_decisions():
    events = []
    with opened() as session:
        manager = ContextWindowManager(session, tools=TOOLS, on_event=events.append)
        for message in scripted_session(exchanges=40):
            match message["role"]:
                case "system":
                    session.append(message)
                case "user":
                    manager.on_turn_start(message)
                case "tool":
                    manager.on_tool_result("", message, id=message["tool_call_id"])
                case _:
                    assert manager.on_turn_start().tokens <= session.window.budget.input_budget
                    manager.on_turn_end(message)
        assert {"zone_changed", "context_window_pruned"} <= {entry.kind for entry in events}
        trail = manager.get_audit_trail()
        assert {decided.policy for decided in trail} == {"trim", "prune"}
        assert sum(used.used for used in manager.get_status_report().report.components) > 0
        manager.use(policy="lru", shorten_outputs=False)
        work(session, exchanges=40, seed=3)
        latest = next(decided for decided in manager.get_audit_trail() if decided.policy.startswith("evict."))
        assert latest.policy == "evict.lru"
        assert all("total" in parts for parts in latest.scores.values())
        assert latest.scores


@pytest.mark.requirement("window.provider-overflow")
def test_an_overflow_error_of_the_provider_lowers_the_budget():
    with opened() as session:
        manager = ContextWindowManager(session)
        work(session)
        before = session.prompt().tokens
        prompt = manager.on_overflow(
            "This model's maximum context length is 9000 tokens. However, you requested 12000."
        )
        assert prompt.tokens < before
        assert prompt.tokens <= 9000
        tighter = manager.on_overflow("no idea")
        assert session.window.budget.input_budget < 9000
        assert tighter.tokens <= session.window.budget.input_budget


def test_usage_at_the_end_of_a_turn_calibrates():
    with opened() as session:
        manager = ContextWindowManager(session)
        prompt = manager.on_turn_start({"role": "user", "content": "hi"})
        manager.on_turn_end({"role": "assistant", "content": "hello"}, usage={"prompt_tokens": prompt.tokens + 10})
        assert session.usage.calibration.ratios


@pytest.mark.requirement("budget.enforced")
def test_budget_violations_are_logged_and_component_budgets_are_enforced_if_configured():
    with opened() as session:
        work(session)
        violations = [json.loads(entry.content) for entry in session.read() if entry.kind == "budget_violation"]
        assert {violation["component"] for violation in violations} >= {"results"}
    with opened(enforced="per_component") as session:
        for prompt in work(session):
            assert prompt.tokens <= session.window.budget.input_budget
            assert problems(prompt.raw, prompt.built.wire) == []
        used = {usage.component: usage for usage in session.report().components}
        assert used["results"].used <= used["results"].hard + 6_000  # results in flight and recent results stay
        assert "tool_results_trimmed" in kinds(session)


@pytest.mark.requirement("budget.check")
def test_a_message_can_be_checked_before_it_is_added():
    with opened() as session:
        assert session.check({"role": "user", "content": "hi"}).level == "ok"
        verdict = session.check({"role": "tool", "tool_call_id": "c", "content": "word " * 20_000})
        assert (verdict.component, verdict.level) == ("results", "violation")
        assert verdict.over > 0
        assert len(session) == 0


def test_a_provider_report_is_preferred_for_estimates_until_the_prompt_is_edited():
    models = {"claude-sonnet-4-5": {"window": 16_000, "max_input": 16_000}}
    with recto.open("memory:", model="claude-sonnet-4-5", models=models) as session:
        session.append({"role": "user", "content": "word " * 2_000})
        prompt = session.prompt()
        session.observe(list(prompt.raw), {"input_tokens": int(prompt.tokens * 0.7)})
        assert session.window.measure().tokens < prompt.tokens
        work(session, exchanges=30)
        assert session.window.state.reported_tokens == 0


@pytest.mark.requirement("pressure.zones")
def test_zone_thresholds_can_be_set(tmp_path):
    with opened(yellow_percent=1, orange_percent=2, red_percent=3) as session:
        session.append({"role": "user", "content": "word " * 2_000})
        assert session.prompt().reading.zone == "red"
    with pytest.raises(SettingsError):
        opened(yellow_percent=99)


def test_the_hybrid_policy_takes_its_weights_from_the_settings():
    with opened(policy="hybrid", scorer={"weights": {"fifo": 1.0}}) as session:
        work(session)
        assert "units_evicted" in kinds(session)
    with pytest.raises(SettingsError):
        opened(policy="hybrid", scorer={"weihgts": {}})


def test_at_most_four_cache_marks_are_sent_and_move_to_the_marker_on_eviction():
    models = {"claude-sonnet-4-5": {"window": 16_000, "max_input": 16_000}}
    with recto.open("memory:", model="claude-sonnet-4-5", models=models) as session:
        for number in range(60):
            block = {"type": "text", "text": f"{number} " + "word " * 100, "cache_control": {"type": "ephemeral"}}
            session.append({"role": "user", "content": [block]})
            prompt = session.prompt()
            assert problems(prompt.raw, prompt.built.wire) == []
            assert sum(raw.count(b"cache_control") for raw in prompt.raw) <= 4
            use = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}}
            session.append({"role": "assistant", "content": [use]})
            result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "ok"}
            session.append({"role": "user", "content": [result]})
        for _ in range(120):
            session.append({"role": "user", "content": "word " * 100})
            session.append({"role": "assistant", "content": "ok"})
            prompt = session.prompt()
        assert any(b"earlier messages" in raw and b"cache_control" in raw for raw in prompt.raw)


def test_the_report_adds_up():
    with opened() as session:
        work(session, tools=TOOLS)
        report = session.report(TOOLS)
        used = {usage.component: usage.used for usage in report.components}
        whole = sum(used.values()) - used["reserve"]
        assert report.tokens - whole in range(0, 80)  # the marker and the frame
        assert report.left_messages > 0
        assert report.decisions
        assert report.largest[0].tokens >= report.largest[-1].tokens
        assert report.cache is not None
        assert 0 <= report.cache.share <= 1
        before = len(session)
        session.report(TOOLS)
        assert len(session) == before


def test_the_async_api_has_the_window_too(tmp_path):
    async def run() -> None:
        async with await recto.open_async(tmp_path / "a.db", model="gpt-4o", models=SMALL) as session:
            for message in scripted_session(exchanges=40):
                await session.append(message)
                if message["role"] == "user":
                    prompts = await asyncio.gather(*(session.prompt() for _ in range(4)))
                    assert len({prompt.raw for prompt in prompts}) == 1
            first = await session.pin(2)
            await session.unpin(2)
            assert first.kind == "pinned"
            assert (await session.check({"role": "user", "content": "hi"})).component == "history"
            decision = (await session.report()).decisions[0]
            restored = await session.restore(decision.id)
            assert (await session.redo(restored.id)).kind == decision.kind
            assert (await session.verify()).ok

    asyncio.run(run())


class TestFit:
    def test_a_short_list_is_returned_unchanged(self):
        messages = list(scripted_session(exchanges=2))
        assert recto.fit(messages, 100_000, model="gpt-4o") == messages

    def test_a_long_list_fits_keeps_the_task_and_counts_evicted_messages(self):
        messages = list(scripted_session(exchanges=60))
        fitted = recto.fit(messages, 8_000, model="gpt-4o")
        assert fitted[0] is messages[0]
        assert fitted[1] is messages[1]
        assert fitted[-1] is messages[-1]
        assert f"{len(messages) - len(fitted) + 1:,} earlier messages" in fitted[2]["content"]
        raw = [json.dumps(message).encode() for message in fitted]
        assert problems(raw, "openai.chat") == []

    def test_bytes_are_returned_as_bytes(self):
        messages = [json.dumps(message).encode() for message in scripted_session(exchanges=60)]
        fitted = recto.fit(messages, 8_000, model="gpt-4o")
        assert all(isinstance(raw, bytes) for raw in fitted)
        assert set(fitted) - set(messages) == {fitted[2]}

    def test_an_empty_list_stays_empty(self):
        assert recto.fit([], 1_000, model="gpt-4o") == []

    def test_an_oversized_message_raises_an_overflow(self):
        with pytest.raises(WindowOverflow):
            recto.fit([{"role": "user", "content": "word " * 5_000}], 1_000, model="gpt-4o")

    def test_invalid_arguments_are_refused(self):
        with pytest.raises(SettingsError):
            recto.fit([], 0)


FORGED = (
    {},
    {"left": 5, "shrunk": {}},
    {"left": [[1, 2]], "shrunk": {"x": {}}, "policy": 1},
    {"left": [[1, 10**12]], "shrunk": {}},
    {"left": [[3, 1]], "shrunk": {}, "summary": {"text": 5}},
    {"left": [["a", "b"]], "shrunk": [], "cache_mark": 7},
    {"left": [[1, 1]], "shrunk": {}, "summary": {"text": "t", "known": 1, "parts": [{"no": 1}], "facts": 3}},
    {"seqs": "everything"},
    {"seqs": [10**12, -1]},
    {"decision": "x", "left": [[1, 10**12]], "shrunk": {}},
    {"before": 1},
    {"component": [], "level": {}},
    {"in": "all"},
    {"in": [[1, 10**12]]},
    [],
)


@pytest.mark.parametrize(
    "kind",
    sorted(projection.DECISIONS | projection._STATUS | {projection.PINNED, projection.UNPINNED, projection.RESTORED}),
)
def test_a_foreign_event_with_a_known_name_changes_nothing(kind):
    store = MemoryStore()
    with recto.open(store, model="gpt-4o") as session:
        for text in ("one", "two", "three"):
            session.append({"role": "user", "content": text})
        before = session.prompt().messages
        for forged in FORGED:
            store.append(session.key, [event(SystemClock(), kind, forged)])
        assert session.prompt().messages == before
    with recto.open(store, model="gpt-4o") as session:
        assert session.prompt().messages == before


def test_a_foreign_snapshot_is_ignored():
    store = MemoryStore()
    with recto.open(store, model="gpt-4o") as session:
        session.append({"role": "user", "content": "one"})
        before = session.prompt().messages
        for number, forged in enumerate(FORGED, 1):
            store.append(
                session.key, [event(SystemClock(), projection.SNAPSHOT, forged, projection.snapshot_key(number))]
            )
    with recto.open(store, model="gpt-4o") as session:
        assert session.prompt().messages == before


def cut_after_a_pause(pause, ttl, window):
    """Returns the share of the input budget left by the first cut, with `pause` seconds between steps."""
    limits = {"window": window, "max_input": window}
    arguments = {"store": "memory:", "model": "claude-sonnet-4-5", "models": {"claude-sonnet-4-5": limits}}
    clock = FakeClock(step=1)
    mark = {"type": "ephemeral"} | ({"ttl": ttl} if ttl else {})
    task = {"type": "text", "text": "Read the files one by one.", "cache_control": mark}
    with open_session(load(environ={}, arguments=arguments), clock=clock) as session:
        session.append({"role": "user", "content": [task]})
        for step in range(120):
            prompt = session.prompt()
            if prompt.decisions:
                return json.loads(prompt.decisions[0].content)["tokens_after"] / session.window.budget.input_budget
            call = {"type": "tool_use", "id": f"t{step}", "name": "read", "input": {"path": f"src/file_{step}.py"}}
            session.append({"role": "assistant", "content": [call]})
            text = "\n".join(f"value_{step}_{line} = {line}" for line in range(40))
            result = {"type": "tool_result", "tool_use_id": f"t{step}", "content": text}
            session.append({"role": "user", "content": [result]})
            clock.time += int(pause * 1e6)
    raise AssertionError("nothing was cut")


@pytest.mark.parametrize(
    ("pause", "ttl", "is_deep"),
    [(10, None, False), (250, None, True), (250, "5m", True), (250, "1h", False), (3_000, "1h", True)],
)
def test_a_cut_is_deep_if_the_cache_is_cold_or_expires_soon_by_the_ttl_of_the_client(pause, ttl, is_deep):
    for window, floor in ((32_000, 0.7), (16_000, 0.95)):
        share = cut_after_a_pause(pause, ttl, window)
        assert (share <= floor - 0.2) == is_deep
        assert share <= floor


def test_the_answered_message_is_evicted_before_the_question_is_refused():
    with opened() as session:
        session.append({"role": "user", "content": "Which of the two plans is better?"})
        session.append({"role": "assistant", "content": "The second one. " + "Its steps are shorter. " * 500})
        session.append({"role": "user", "content": "Then write it."})
        arguments = json.dumps({"path": "plan.md", "content": "one step after another, " * 2_200})
        call = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": arguments}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        session.append({"role": "tool", "tool_call_id": "c1", "content": "written"})
        prompt = session.prompt()
        assert prompt.tokens <= session.window.budget.input_budget
        assert "Then write it." in [message["content"] for message in prompt.messages]


def test_a_provider_that_counts_more_than_we_do_gets_a_shorter_prompt():
    def filled(ratio):
        """Returns the largest prompt of a session, in the provider's tokens, and the budget."""
        largest = 0
        with opened() as session:
            for message in scripted_session(seed=7, exchanges=14):
                if message["role"] == "assistant":
                    prompt = session.prompt()
                    reported = int(prompt.tokens * ratio)
                    largest = max(largest, reported)
                    session.observe(list(prompt.raw), {"prompt_tokens": reported})
                session.append(message)
            return largest, session.window.budget.input_budget

    plain, budget = filled(1.0)
    assert plain > 0.9 * budget
    corrected, _ = filled(1.3)
    assert 0.9 * budget < corrected <= budget


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gemini-2.5-pro"])
def test_calls_in_the_chat_format_stay_in_that_format_whatever_model_is_named(model):
    # As with a router that offers every model in OpenAI's format. The prompt lacked the call and had its result.
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "It is empty."},
    ]
    with recto.open("memory:", model=model) as session:
        session.append_all(messages)
        prompt = session.prompt()
        assert prompt.messages == messages
        assert problems(prompt.raw, prompt.built.wire) == []


def test_a_session_with_calls_of_two_formats_has_no_prompt_and_the_error_says_what_to_do():
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    use = {"type": "tool_use", "id": "t1", "name": "read", "input": {}}
    with recto.open("memory:", model="gpt-4o") as session:
        session.append({"role": "user", "content": "Read it."})
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        session.append({"role": "assistant", "content": [use]})
        with pytest.raises(InputError, match=r"anthropic\.messages and openai\.chat.*Continue in another session"):
            session.prompt()


def test_the_error_for_a_restore_that_does_not_fit_names_what_takes_it_back():
    with opened() as session:
        work(session)
        restored = []

        def restore_all():
            for decision in session.report().decisions:
                restored.append(session.restore(decision.seq))
                session.prompt()

        with pytest.raises(WindowOverflow, match=r"restored messages take [\d,]+ tokens.*'redo' what was restored"):
            restore_all()
        for event in reversed(restored):
            session.redo(event.seq)
        assert session.prompt().tokens <= session.window.budget.input_budget
