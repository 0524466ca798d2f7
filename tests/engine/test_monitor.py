"""Turns reported live equal those computed from the transcript later, whoever wrote or reopened the session."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path

import pytest

import recto
from recto.engine.context_window_manager import ContextWindowManager
from recto.engine.monitor import COMPOSITION, STATE_INTERVAL, STATE_LOOKBACK, composition_in, health_of, health_report
from recto.engine.projection import DECISIONS
from recto.errors import InputError, StoreUnavailable, WindowOverflow
from recto.formats.session_files import read_file
from recto.health.alerts import ALERT_KINDS
from recto.health.metrics import PromptComposition
from recto.stores.memory import MemoryStore
from recto.stores.sqlite import SqliteStore
from recto.testing import scripted_session
from recto.transcript.entries import MESSAGE

SMALL = {"gpt-4o": {"window": 8_000, "max_input": 8_000}}
TINY = {"gpt-4o": {"window": 2_000, "max_input": 2_000}}
REAL_MOST = 60
"""Messages replayed of each of the 42 real sessions: enough for each to outgrow its window. A release replays all."""


class RecordingSink:
    """A sink that records every turn, alert and event."""

    def __init__(self):
        self.turns, self.alerts, self.events = [], [], []

    def turn(self, session, turn):
        self.turns.append(turn)

    def alert(self, alert):
        self.alerts.append(alert)

    def event(self, entry):
        self.events.append(entry)


class Broken:
    def turn(self, session, turn):
        raise RuntimeError("no")

    alert = event = lambda self, item: 1 / 0


def opened(store="memory:", sink=None, models=SMALL, **options):
    session = recto.open(store, model="gpt-4o", models=models, **{"recall": {"enabled": False}, **options})
    if sink is not None:
        session.health.watch(sink)
    return session


def replay(session):
    rules = session.monitor.rules if session.monitor else None
    found = list(health_of(session.store, session.key, rules=rules))
    return [turn for turn, _ in found], [alert for _, alerts in found for alert in alerts]


def say(session, text="yes", **meta):
    """Runs one turn: a question, its prompt, the answer."""
    session.append({"role": "user", "content": "Go on, please."})
    session.prompt()
    return session.append({"role": "assistant", "content": text}, **meta)


def real(file: Path, most: int):
    with file.open("rb") as lines:  # only as far as it is needed
        return list(islice((entry for entry in read_file(lines, file.name) if entry.kind == MESSAGE), most))


def run_session(messages, mode):
    """Replays a real session in a window it outgrows, reopened now and then; returns it with what the sink recorded."""
    sink, store = RecordingSink(), MemoryStore()
    session = opened(store, sink, window={"mode": mode})
    for place, entry in enumerate(messages):
        if entry.role == "assistant":
            with suppress(WindowOverflow):
                session.prompt()
        session.append_all([entry.content], wire=entry.wire)
        if place % 37 == 36:
            session.close()
            session = opened(store, sink, window={"mode": mode})
    return session, sink


@pytest.mark.parametrize("part", range(3))
@pytest.mark.requirement("health.turn")
def test_the_transcript_of_every_real_session_replays_what_was_reported_live(data, part, scale):
    turns = decided = 0
    for number, file in enumerate(sorted(data.glob("agent_sessions/*/*.jsonl"))[part::3]):
        session, sink = run_session(
            real(file, scale(REAL_MOST, release=10**9)), "zones" if number == 5 else "sliding_window"
        )
        assert replay(session) == (sink.turns, sink.alerts)
        report = session.health.report(7)
        assert report.turns == tuple(sink.turns[-7:])
        assert {alert.name for alert in report.alerts} == still_raised(sink.alerts)
        turns += len(sink.turns)
        decided += sum(turn.evicted > 0 for turn in sink.turns)
        session.close()
    assert turns > 200
    assert decided > 5


def still_raised(alerts):
    return {
        alert.name
        for alert in alerts
        if not alert.ended and alert is [later for later in alerts if later.name == alert.name][-1]
    }


def work(session, exchanges, seed=7):
    for message in scripted_session(seed=seed, exchanges=exchanges):
        if message["role"] == "assistant":
            session.prompt()
        session.append(message)


def test_recall_hits_and_misses_are_replayed_too(tmp_path):
    sink = RecordingSink()
    pruned = {"shorten_outputs": False, "record_percent": 0}
    with opened(tmp_path / "a.db", sink, recall={"background": False}, window=pruned) as session:
        work(session, 10)
        assert replay(session) == (sink.turns, sink.alerts)
        assert sum(turn.recall_hits + turn.recall_misses for turn in sink.turns) > 0
        assert sum(turn.regret for turn in sink.turns) > 0
        assert {entry.kind for entry in sink.events} >= {"context_window_pruned", "zone_changed"}


def test_two_concurrent_writers_together_report_each_turn_once(tmp_path):
    first, second = RecordingSink(), RecordingSink()
    with closing(SqliteStore(tmp_path / "a.db")) as ours, closing(SqliteStore(tmp_path / "a.db")) as theirs:
        session, other = opened(ours, first), opened(theirs, second)
        for number in range(50):
            say(session if number % 3 else other, f"answer {number}")
        session.append({"role": "user", "content": "Both of you?"})
        session.prompt()
        other.prompt()
        session.append({"role": "assistant", "content": "me"})
        other.append({"role": "assistant", "content": "me too"})
        reported = sorted(first.turns + second.turns, key=lambda turn: turn.seq)
        assert reported == replay(session)[0]
        assert [turn.turn for turn in reported] == list(range(1, 53))
        third = RecordingSink()
        with opened(theirs, third) as late:
            say(late)
        assert third.turns == replay(session)[0][-1:]


def test_only_an_answer_to_a_prompt_is_a_turn():
    sink = RecordingSink()
    with opened(sink=sink) as session:
        session.append({"role": "user", "content": "Hello"})
        session.append({"role": "assistant", "content": "never asked for"})
        session.append({"role": "user", "content": "Hello?"})
        session.prompt()
        session.prompt()
        session.append_all(
            [{"role": "assistant", "content": "asked for"}, {"role": "assistant", "content": "and more"}]
        )
        session.append({"role": "assistant", "content": "and more still"})
        assert [turn.seq for turn in sink.turns] == [4]
        assert [entry.seq for entry in session.read() if composition_in(entry)] == [4]
        assert replay(session)[0] == sink.turns


def test_metadata_of_the_caller_is_stored_and_takes_precedence():
    sink = RecordingSink()
    with opened(sink=sink) as session:
        entry = say(session, meta={"trace": "t1"})
        assert entry.metadata["trace"] == "t1"
        assert PromptComposition.from_json(entry.metadata[COMPOSITION]).tokens == sink.turns[0].tokens
        assert say(session, meta={COMPOSITION: "mine"}).metadata == {COMPOSITION: "mine"}
        assert len(sink.turns) == 1
        assert replay(session)[0] == sink.turns


def test_a_retry_under_its_key_stores_nothing_and_is_reported_once():
    sink = RecordingSink()
    with opened(sink=sink) as session:
        first = say(session, key="k")
        session.prompt()
        assert session.append({"role": "assistant", "content": "yes"}, key="k") == first
        session.append({"role": "assistant", "content": "another"})
        assert [turn.seq for turn in sink.turns] == [first.seq, first.seq + 1]
        assert replay(session)[0] == sink.turns


@pytest.mark.parametrize("measured", [True, False])
def test_a_long_unmeasured_session_starts_again_at_turn_one(measured):
    sink, store = RecordingSink(), MemoryStore()
    with opened(store, health={"enabled": measured}) as session:
        say(session)
        say(session)
        session.append_all([{"role": "user", "content": "x"}] * (STATE_LOOKBACK + 5))
    with opened(store, sink) as session:
        say(session)
        say(session)
        assert [turn.turn for turn in sink.turns] == [1, 2]
        assert sink.turns[0].burn == 0
        assert [turn.turn for turn in replay(session)[0]] == [1, 2, 1, 2]
        assert replay(session)[0][2:] == sink.turns
        assert session.health.report().turns == tuple(sink.turns)


def test_health_can_be_switched_off_and_is_still_computed_from_the_transcript():
    with opened(health={"enabled": False}) as session:
        say(session)
        with pytest.raises(InputError, match=r"health\.enabled"):
            session.health.on_alert(print)
        assert len(session.health.report().turns) == 1


def test_reopening_reads_only_a_few_entries():
    store = MemoryStore()
    with opened(store) as session:
        for _ in range(60):
            say(session)
    sink, read = RecordingSink(), []
    original = store.read
    store.read = lambda key, start=1, stop=None: read.append((start, stop)) or original(key, start, stop)
    with opened(store, sink) as session:
        entry = session.append({"role": "assistant", "content": "no prompt, no turn"})
        assert read == []
        session.monitor.meta_for(
            PromptComposition(tokens=1, room=1, prefix=0, results=0, protected=0, recalled=0, tools=0, lag=0, model=""),
            {},
        )
    assert min(start for start, _ in read) >= entry.seq - 3 * STATE_INTERVAL


def test_a_reopened_session_continues_its_alerts():
    sink, store = RecordingSink(), MemoryStore()
    for number in range(4):
        with opened(store, sink) as session:
            if not number:
                session.record("fidelity_judged", {"score": 0.2})
            for _ in range(STATE_INTERVAL):
                say(session)
            assert [alert.name for alert in session.health.report(1).alerts] == ["fidelity"]
            assert replay(session) == (sink.turns, sink.alerts)
    with opened(store, sink) as session:
        session.record("fidelity_judged", {"score": 0.99})
        say(session)
    assert [(alert.name, alert.ended) for alert in sink.alerts] == [("fidelity", False), ("fidelity", True)]


def test_a_failing_listener_does_not_fail_the_turn():
    sink = RecordingSink()
    with opened(sink=Broken()) as session:
        session.health.watch(sink)
        session.health.on_alert(lambda alert: 1 / 0)
        work(session, 4)
        assert replay(session)[0] == sink.turns
        assert session.health.report().sinks_failed > len(sink.turns)


def test_a_store_failure_while_turns_are_followed_does_not_fail_the_turn():
    sink, store = RecordingSink(), MemoryStore()
    with opened(store, sink) as session:
        say(session)
        with opened(store) as other:
            say(other)
        original, store.read = store.read, lambda *args: (_ for _ in ()).throw(StoreUnavailable("away", "later"))
        entry = session.append({"role": "user", "content": "There?"})
        store.read = original
        assert entry.seq == 5
        assert session.monitor.failures == 1
        say(session)
        assert replay(session)[0][-1] == sink.turns[-1]


def test_a_listener_may_use_the_session():
    with opened() as session:
        session.health.on_alert(lambda alert: session.note("learnings", f"{alert.name} at turn {alert.turn}"))
        work(session, 3)
        assert any("bloat" in note.text for note in session.notes)


def big(tokens):
    return " ".join(f"w{number}" for number in range(tokens // 2))


def call(name, arguments, id):
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}],
    }


def test_repeating_a_call_whose_result_was_evicted_is_regret():
    sink = RecordingSink()
    with opened(sink=sink, window={"min_recent_messages": 2}) as session:
        session.append({"role": "user", "content": "Look at the files."})
        for number in range(8):
            session.prompt()
            session.append(call("read", {"path": f"f{number}.py", "from": 1}, f"c{number}"))
            session.append({"role": "tool", "tool_call_id": f"c{number}", "content": big(1200)})
        session.prompt()
        gone = [seq for entry in session.read() if entry.kind in DECISIONS for seq in json.loads(entry.content)["gone"]]
        assert gone
        session.append(call("read", {"from": 1, "path": "f0.py"}, "again"))
        session.append({"role": "tool", "tool_call_id": "again", "content": "short"})
        session.prompt()
        session.append(call("read", {"path": "new.py"}, "other"))
        assert [turn.regret for turn in sink.turns][-2:] == [1, 0]
        assert replay(session)[0] == sink.turns


def test_an_undone_decision_and_a_pin_of_an_evicted_entry_are_regret():
    sink = RecordingSink()
    with opened(sink=sink, window={"min_recent_messages": 2}) as session:
        for number in range(12):
            session.append({"role": "user", "content": f"{number} {big(900)}"})
            session.prompt()
            session.append({"role": "assistant", "content": "noted"})
        decision = next(entry for entry in session.read() if entry.kind in DECISIONS)
        late = [entry for entry in session.read() if entry.kind in DECISIONS][-1]
        session.pin(json.loads(late.content)["left"][0][0])
        session.restore(decision.seq)
        with suppress(WindowOverflow):
            session.prompt()
        session.append({"role": "assistant", "content": "back"})
        assert replay(session)[0] == sink.turns
        assert sum(turn.regret for turn in sink.turns) >= 1


def test_usage_reported_with_an_answer_belongs_to_its_turn():
    sink = RecordingSink()
    with opened(sink=sink) as session:
        manager = ContextWindowManager(session)
        prompt = manager.on_turn_start({"role": "user", "content": "Hello there, who are you?"})
        usage = {"input_tokens": prompt.tokens, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 5}
        manager.on_turn_end({"role": "assistant", "content": "Me."}, usage=usage)
        (turn,) = sink.turns
        assert (turn.cache_read, turn.cache_write) == (40, 5)
        assert turn.estimate_error == round((prompt.tokens + 45) / prompt.tokens - 1, 4)
        assert manager.get_health_report().last == turn


def driven(name, session):
    """Drives a session until one alert is raised, and then until it ends."""
    compress = {"policy": "compact", "reason": "", "left": [], "shrunk": {}, "frees": 10}

    def compressed(to, score):
        made = {"style": "s", "engine": "e", "tokens_from": 1000, "tokens_to": to, "fidelity": {"score": score}}
        session.record("compaction", compress | {"compression": made})
        say(session)

    if name in ("fidelity", "ratio"):
        compressed(*((100, 0.5) if name == "fidelity" else (900, 0.9)))
        compressed(100, 0.99)
    elif name == "evictions":
        for left in (*[7] * 5, *[0] * 5):
            session.record("units_evicted", compress | {"left": [[1, left]] if left else []})
            say(session)
    elif name == "bloat":
        session.append({"role": "user", "content": "Read it."})
        session.append(call("read", {}, "c1"))
        session.append({"role": "tool", "tool_call_id": "c1", "content": big(6000)})
        session.prompt()
        session.append({"role": "assistant", "content": big(1200)})
        for _ in range(10):
            say(session, big(1200))
    elif name == "loop":
        repeat(session, ["a.py"] * 6 + ["b.py", "c.py"])
    elif name == "burn":
        for size in (60, 60, 60, 60, 3000, 60, 60):
            say(session, big(size))
    else:
        say(session, big(4000))
        session.window.configure(at_most=session.window.builder.prompt_tokens(session.window.state) + 100)
        for _ in range(3):
            say(session)
        budget, rules = driven.roomy
        session.window.configure(budget=budget, rules=rules)


def repeat(session, paths, result="no such file", start=0):
    """An agent's loop: one call for each path, and its result."""
    session.append({"role": "user", "content": "Find the bug."})
    for number, path in enumerate(paths, start):
        session.prompt()
        session.append(call("read", {"path": path}, f"r{number}"))
        content = result(number) if callable(result) else result
        session.append({"role": "tool", "tool_call_id": f"r{number}", "content": content})
    session.prompt()
    session.append({"role": "assistant", "content": "I stop here."})


@pytest.mark.requirement("health.loop")
@pytest.mark.parametrize("paths", [["a.py"] * 5, ["a.py", "b.py"] * 4, ["a.py", "b.py", "c.py"] * 4])
def test_repeated_calls_with_equal_results_raise_one_alert_even_if_they_alternate(paths):
    sink = RecordingSink()
    with opened(sink=sink) as session:
        repeat(session, paths)
        (alert,) = sink.alerts
        assert (alert.name, alert.ended, alert.threshold) == ("loop", False, 3)
        assert "4 times in a row" in alert.says
        assert replay(session) == (sink.turns, sink.alerts)


@pytest.mark.requirement("health.loop")
def test_different_results_different_calls_and_repeated_user_requests_are_not_a_loop():
    sink = RecordingSink()
    with opened(sink=sink) as session:
        repeat(session, ["a.py"] * 8, result=lambda number: f"line {number}")
        repeat(session, ["a.py", "b.py", "a.py", "c.py", "a.py", "d.py", "a.py", "e.py"], start=10)
        for number in range(5):
            repeat(session, ["a.py", "a.py"], start=20 + 2 * number)
        assert [alert.name for alert in sink.alerts] == []
        assert max(turn.loop for turn in sink.turns) == 2


@pytest.mark.requirement("health.loop")
def test_screenshots_do_not_count_as_equal_results():
    sink = RecordingSink()
    with opened(sink=sink, models={"gpt-4o": {"window": 100_000, "max_input": 100_000}}) as session:
        session.append({"role": "user", "content": "Watch the page."})
        for number in range(6):
            session.prompt(wire="anthropic.messages")
            used = {"type": "tool_use", "id": f"s{number}", "name": "screenshot", "input": {}}
            session.append_all([{"role": "assistant", "content": [used]}], wire="anthropic.messages")
            image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
            result = {"type": "tool_result", "tool_use_id": f"s{number}", "content": [image]}
            session.append_all([{"role": "user", "content": [result]}], wire="anthropic.messages")
        assert (sink.alerts, max(turn.loop for turn in sink.turns)) == ([], 1)


@pytest.mark.requirement("health.loop")
def test_a_loop_continues_in_a_reopened_session_and_its_threshold_can_be_set():
    sink, store = RecordingSink(), MemoryStore()
    limits = {"health": {"alerts": {"loop": 30}}}
    session = opened(store, sink, models={"gpt-4o": {"window": 64_000, "max_input": 64_000}}, **limits)
    session.append({"role": "user", "content": "Find the bug."})
    for number in range(40):
        session.prompt()
        session.append(call("read", {"path": "a.py"}, f"r{number}"))
        session.append({"role": "tool", "tool_call_id": f"r{number}", "content": "no such file"})
        if number in (20, 33):
            session.close()
            session = opened(store, sink, models={"gpt-4o": {"window": 64_000, "max_input": 64_000}}, **limits)
    assert [(alert.name, alert.value) for alert in sink.alerts] == [("loop", 31)]
    session.close()


@pytest.mark.requirement("health.bloat")
def test_results_that_dominate_a_short_prompt_raise_no_alert():
    sink = RecordingSink()
    with opened(sink=sink, models={"gpt-4o": {"window": 100_000, "max_input": 100_000}}) as session:
        session.append({"role": "user", "content": "Read it."})
        session.append(call("read", {}, "c1"))
        session.append({"role": "tool", "tool_call_id": "c1", "content": big(6000)})
        prompt = session.prompt()
        session.append({"role": "assistant", "content": "Read."})
        (turn,) = sink.turns
        assert 0.05 < turn.utilization < 0.1
        assert turn.bloat < turn.utilization
        assert prompt.tokens * 0.9 < turn.bloat * turn.room
        assert sink.alerts == []


@pytest.mark.parametrize("name", sorted(ALERT_KINDS))
def test_each_alert_is_raised_and_ended_in_a_real_session(name):
    called_back = []
    with opened(models={"gpt-4o": {"window": 16_000, "max_input": 16_000}}) as session:
        driven.roomy = session.window.budget, session.window.rules
        session.health.on_alert(called_back.append)
        driven(name, session)
        say(session)
        mine = [alert for alert in called_back if alert.name == name]
        assert [alert.ended for alert in mine] == [False, True]
        assert mine[0].session == session.key
        assert replay(session)[1] == called_back


def test_the_async_api_reports_the_same_turns():
    async def run():
        async with await recto.open_async(
            "memory:", model="gpt-4o", models=SMALL, recall={"enabled": False}
        ) as session:
            sink, alerts = RecordingSink(), []
            session.health.watch(sink)
            session.health.on_alert(alerts.append)
            await session.append({"role": "user", "content": "Hello"})
            await session.prompt()
            await session.append({"role": "assistant", "content": "Hi"})
            return sink.turns, (await session.health.report(1)).turns, alerts

    turns, reported, alerts = asyncio.run(run())
    assert (len(turns), tuple(turns), alerts) == (1, reported, [])


def test_foreign_events_with_names_like_ours_change_nothing():
    sink = RecordingSink()
    with opened(sink=sink) as session:
        say(session)
        for kind in ("fidelity_judged", "recall_injected", "pinned_by_me", "usage_reported_by_me"):
            session.record(kind, {"other": True})
        say(session)
        assert replay(session)[0] == sink.turns
        assert health_report(session.store, session.key).turns == tuple(sink.turns)
