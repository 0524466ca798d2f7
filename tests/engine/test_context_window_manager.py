"""The manager: one object with a hook for each point of an agent's loop, blocking and async, in every wire format."""

from __future__ import annotations

import asyncio
import inspect
import json
from string import ascii_lowercase

import numpy as np
import pytest

import recto
from recto.context.compaction.protocols import ModelRequest
from recto.engine.context_window_manager import AsyncContextWindowManager, ContextWindowManager
from recto.errors import (
    HookOutOfOrder,
    InputError,
    MalformedMessage,
    SettingsError,
    UnknownCall,
    WindowOverflow,
    WrongSession,
)
from recto.formats import FORMATS, format_named, problems, read
from recto.models import weights
from recto.models.chat import SMALL, ChatChoice, embedded_model_for
from recto.stores.memory import MemoryStore
from recto.testing import ScriptedModel

TASK = "Find out why the invoice total is wrong, and fix it."
CRITERIA = ["The test test_total passes."]
CONSTRAINTS = ["Never touch migrations/."]
TOOLS = [{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]
NO_RECALL = {"enabled": False}
MODELS = {
    "openai.chat": "gpt-4o",
    "openai.responses": "gpt-4o",
    "anthropic.messages": "claude-sonnet-4-5",
    "google.gemini": "gemini-2.5-pro",
}


def chat(text=None, *calls, usage=None):
    """A response of Chat Completions."""
    listed = [
        {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id, name, arguments in calls
    ]
    message = {"role": "assistant", "content": text} | ({"tool_calls": listed} if listed else {})
    choice = {"index": 0, "finish_reason": "tool_calls" if listed else "stop", "message": message}
    return {"id": "r", "object": "chat.completion", "choices": [choice]} | ({"usage": usage} if usage else {})


def responses(text=None, *calls):
    """A response of the Responses API."""
    items = [
        {"type": "function_call", "id": f"fc_{id}", "call_id": id, "name": name, "arguments": json.dumps(arguments)}
        for id, name, arguments in calls
    ]
    message = {"type": "message", "id": "m", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
    return {"object": "response", "status": "completed", "output": items or [message]}


def messages(text=None, *calls):
    """A response of the Messages API."""
    blocks = [{"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in calls]
    blocks = blocks or [{"type": "text", "text": text}]
    stop = "tool_use" if calls else "end_turn"
    return {"type": "message", "role": "assistant", "content": blocks, "stop_reason": stop}


def gemini(text=None, *calls):
    """A response of Gemini, whose calls have no ids."""
    parts = [{"functionCall": {"name": name, "args": arguments}} for _, name, arguments in calls] or [{"text": text}]
    return {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP"}]}


WIRES = {"openai.chat": chat, "openai.responses": responses, "anthropic.messages": messages, "google.gemini": gemini}
TWO_CALLS = (None, ("c1", "read", {"path": "a.py"}), ("c2", "read", {"path": "b.py"}))


def run(tool) -> str:
    return f"content of {tool.arguments['path']}"


def loop(manager, call, question="Please begin.") -> list[recto.Prompt]:
    """Runs the program of the documentation."""
    prompts = []
    while True:
        prompt = manager.on_turn_start(question)
        prompts.append(prompt)
        reply = manager.on_turn_end(call(prompt.messages, prompt.tools))
        for tool in reply.calls:
            manager.on_tool_result(tool.name, run(tool), id=tool.id)
        if not reply.calls:
            break
    return prompts


async def loop_async(manager, call, question="Please begin.") -> list[recto.Prompt]:
    prompts = []
    while True:
        prompt = await manager.on_turn_start(question)
        prompts.append(prompt)
        reply = await manager.on_turn_end(call(prompt.messages, prompt.tools))
        await asyncio.gather(*(manager.on_tool_result(tool.name, run(tool), id=tool.id) for tool in reply.calls))
        if not reply.calls:
            break
    return prompts


def scripted(*answers):
    remaining = iter(answers)
    return lambda messages, tools: next(remaining)


def kinds(manager) -> list[str]:
    return [entry.kind for entry in manager.session.read()]


def roles(session) -> list[str]:
    return [entry.role for entry in session.read() if entry.kind == "message"]


def text_of(prompt) -> str:
    return prompt.system + "".join(raw.decode() for raw in prompt.raw)


def opened(**more):
    return recto.manager("memory:", **{"model": "gpt-4o", "recall": NO_RECALL, **more})


# -- the program ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.requirement("manager.one-object")
def test_the_documented_program_runs_in_every_format_blocking_and_async(wire, tmp_path):
    answer = WIRES[wire]
    script = [answer(*TWO_CALLS), answer(None, ("c3", "read", {"path": "c.py"})), answer("It was the rounding.")]

    def check(prompts, session):
        assert len(prompts) == 3
        assert all(problems(prompt.raw, prompt.built.wire) == [] for prompt in prompts)
        assert prompts[-1].built.wire == wire
        assert prompts[-1].tools == TOOLS
        for text in ("content of a.py", "content of b.py", "content of c.py", TASK, *CRITERIA, *CONSTRAINTS):
            assert text_of(prompts[-1]).count(text) == 1
        assert roles(session).count("user") == 1
        assert session.verify().ok

    arguments = {"model": MODELS[wire], "goal": TASK, "success_criteria": CRITERIA, "constraints": CONSTRAINTS}
    arguments |= {"tools": TOOLS, "recall": NO_RECALL}
    with recto.manager(tmp_path / "blocking.db", **arguments) as manager:
        check(loop(manager, scripted(*script)), manager.session)
        assert manager.on_task_complete().checkpoint.is_complete

    async def awaited():
        async with await recto.manager_async(tmp_path / "async.db", **arguments) as manager:
            prompts = await loop_async(manager, scripted(*script))
            check(prompts, manager.session.session)
            return await manager.on_task_complete()

    assert asyncio.run(awaited()).checkpoint.is_complete


def test_the_documented_program_runs_with_the_embedded_model(tmp_path):
    """Blocking and async; the model runs in this process."""
    if weights.find(SMALL) is None:
        pytest.skip(f"the weights are not here; 'recto models get {SMALL}' fetches them")
    model = embedded_model_for(ChatChoice(use="embedded", context=1024, seconds=250))

    def call(messages, tools):
        system, text = (
            "\n".join(message["content"] for message in messages if message["role"] == role)
            for role in ("system", "user")
        )
        return chat(model.complete(ModelRequest(system=system, text=text, max_tokens=4, seconds=250)).text)

    arguments = {"model": "gpt-4o", "max_context_tokens": 1024, "goal": "Answer briefly.", "recall": NO_RECALL}

    async def awaited():
        async with await recto.manager_async(tmp_path / "async.db", **arguments) as manager:
            await loop_async(manager, call, "And which one is the largest?")
            return await manager.on_task_complete()

    try:
        with recto.manager(tmp_path / "agent.db", **arguments) as manager:
            (prompt,) = loop(manager, call, "Which planet is the red one?")
            assert "Answer briefly." in text_of(prompt)
            assert manager.on_task_complete().turns == 1
            assert roles(manager.session) == ["user", "assistant"]
        assert asyncio.run(awaited()).turns == 1
    finally:
        model.close()


def test_a_response_may_be_an_sdk_object():
    openai = pytest.importorskip("openai.types.chat")
    anthropic = pytest.importorskip("anthropic.types")
    body = chat(None, ("c1", "read", {"path": "a.py"}), usage={"prompt_tokens": 9, "completion_tokens": 2})
    body |= {"created": 0, "model": "gpt-4o"}
    body["usage"]["total_tokens"] = 11
    with opened() as manager:
        manager.on_turn_start("Read it.")
        reply = manager.on_turn_end(openai.ChatCompletion.model_validate(body))
        assert [(call.name, call.id, call.arguments) for call in reply.calls] == [("read", "c1", {"path": "a.py"})]
        assert (reply.usage.prompt, reply.stop_reason) == (9, "tool_calls")
        assert "usage_reported" in kinds(manager)
    answer = messages("Done.") | {"id": "m", "model": "claude", "usage": {"input_tokens": 9, "output_tokens": 2}}
    with opened(model="claude-sonnet-4-5") as manager:
        manager.on_turn_start("Read it.")
        reply = manager.on_turn_end(anthropic.Message.model_validate(answer))
        assert (reply.text, reply.usage.prompt, reply.entries[0].wire) == ("Done.", 9, "anthropic.messages")


@pytest.mark.parametrize(
    "response", ["Done.", {"role": "assistant", "content": "Done."}, [{"role": "assistant", "content": "Done."}]]
)
def test_a_response_may_be_a_text_a_message_or_a_list_of_messages(response):
    with opened() as manager:
        manager.on_turn_start("Read it.")
        assert manager.on_turn_end(response).text == "Done."
        assert roles(manager.session) == ["user", "assistant"]


def test_a_tool_result_may_be_any_value():
    whole = {"role": "tool", "tool_call_id": "c4", "content": [{"type": "text", "text": "as the provider wants it"}]}
    results = {"c1": {"rows": [1, 2]}, "c2": ValueError("no such file"), "c3": b"bytes", "c4": whole}
    with opened() as manager:
        manager.on_turn_start("Read it.")
        reply = manager.on_turn_end(chat(None, *((id, "read", {}) for id in results)))
        for call in reply.calls:
            manager.on_tool_result(call.name, results[call.id], id=call.id)
        contents = [message["content"] for message in manager.on_turn_start().messages if message["role"] == "tool"]
    assert contents == ['{"rows": [1, 2]}', "ValueError: no such file", "bytes", whole["content"]]


@pytest.mark.parametrize("wire", WIRES)
def test_results_may_arrive_in_any_order(wire):
    with opened(model=MODELS[wire]) as manager:
        manager.on_turn_start("Read both.")
        for call in reversed(manager.on_turn_end(WIRES[wire](*TWO_CALLS)).calls):
            manager.on_tool_result(call.name, run(call), id=call.id)
        prompt = manager.on_turn_start()
        assert problems(prompt.raw, prompt.built.wire) == []
        results = [part for raw in prompt.raw for part in read(raw, wire).results]
        assert all(f"content of {'a' if part.call_id in ('c1', 'read#0') else 'b'}.py" in part.text for part in results)
        assert len(results) == 2


def test_a_result_without_an_id_answers_the_first_open_call_of_the_tool():
    with opened() as manager:
        manager.on_turn_start("Read both.")
        manager.on_turn_end(chat(*TWO_CALLS))
        manager.on_tool_result("read", "first")
        manager.on_tool_result("read", "second")
        sent = [message for message in manager.on_turn_start().messages if message["role"] == "tool"]
    assert [(message["tool_call_id"], message["content"]) for message in sent] == [("c1", "first"), ("c2", "second")]


# -- tasks and resume -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("manager.task")
def test_the_task_survives_every_eviction():
    with opened(goal=TASK, constraints=CONSTRAINTS, max_context_tokens=6_000, policy="fifo") as manager:
        for turn in range(30):
            prompt = manager.on_turn_start(f"Question {turn}: " + "word " * 300)
            manager.on_turn_end("answer " * 200)
            assert TASK in text_of(prompt)
            assert CONSTRAINTS[0] in text_of(prompt)
            assert prompt.tokens <= manager.session.window.budget.input_budget
        assert manager.get_audit_trail()
        manager.session.resume()
        assert TASK in text_of(manager.on_turn_start("And now?"))


@pytest.mark.requirement("checkpoint.resume")
def test_a_killed_program_resumes_where_it_stopped(tmp_path):
    path = tmp_path / "agent.db"
    first = recto.manager(path, model="gpt-4o", goal=TASK, success_criteria=CRITERIA, recall=NO_RECALL)
    first.on_turn_start("Please begin.")
    first.on_turn_end(chat(*TWO_CALLS))
    first.on_tool_result("read", "content of a.py", id="c1")
    first.session.store.close()  # simulates a killed process: nothing is closed properly

    with recto.manager(path, model="gpt-4o", recall=NO_RECALL) as second:
        assert second.resumed is not None
        assert (second.task.goal, list(second.task.success_criteria)) == (TASK, CRITERIA)
        assert [call.id for call in second.calls] == ["c2"]
        prompt = second.on_turn_start("Please begin.")
        assert problems(prompt.raw, prompt.built.wire) == []
        text = text_of(prompt)
        assert text.count("Please begin.") == 1
        assert "content of a.py" in text
        assert "[No result: the program ended" in text
        assert "[Handoff: the work goes on" in text
        assert TASK in text
        second.on_turn_end("Fixed.")
        assert second.on_task_complete().goal == TASK

    with recto.manager(path, model="gpt-4o", recall=NO_RECALL) as third:
        assert third.resumed is None
        assert not third.task
        assert TASK not in third.on_turn_start("Another question.").system
        assert "[Handoff" not in text_of(third.on_turn_start("Another question."))


def test_results_for_calls_of_an_earlier_process_are_accepted(tmp_path):
    path = tmp_path / "agent.db"
    first = recto.manager(path, model="gpt-4o", recall=NO_RECALL)
    first.on_turn_start("Please begin.")
    first.on_turn_end(chat(*TWO_CALLS))
    first.session.store.close()
    with recto.manager(path, model="gpt-4o", recall=NO_RECALL) as second:
        for call in second.calls:
            second.on_tool_result(call.name, run(call), id=call.id)
        prompt = second.on_turn_start("Please begin.")
        assert [message["role"] for message in prompt.messages] == ["user", "assistant", "tool", "tool"]


def test_a_new_goal_starts_a_new_task(tmp_path):
    path = tmp_path / "agent.db"
    with recto.manager(path, model="gpt-4o", goal=TASK, success_criteria=CRITERIA, recall=NO_RECALL) as manager:
        loop(manager, scripted(chat("Not yet.")))
    with recto.manager(path, model="gpt-4o", goal="Write the release notes.", recall=NO_RECALL) as manager:
        assert manager.resumed is None
        prompt = manager.on_turn_start("Go.")
        assert "Write the release notes." in text_of(prompt)
        assert CRITERIA[0] not in text_of(prompt)
        assert manager.session.checkpoints.newest().success_criteria == ()


def test_a_program_that_ends_early_saves_a_checkpoint(tmp_path):
    path = tmp_path / "agent.db"

    def fail(messages, tools):
        raise RuntimeError("out of memory")

    with recto.manager(path, model="gpt-4o", goal=TASK, recall=NO_RECALL) as manager, pytest.raises(RuntimeError):
        loop(manager, fail)
    with recto.manager(path, model="gpt-4o", goal=TASK, recall=NO_RECALL) as manager:
        assert manager.resumed.reason == "the program ends"


@pytest.mark.requirement("manager.complete")
def test_the_end_of_a_task_archives_its_checkpoint_and_records_trends(tmp_path):
    folder = tmp_path / "state"
    continuity = {"folder": str(folder), "environment": False}
    with opened(goal=TASK, continuity=continuity) as manager:
        loop(manager, scripted(chat(*TWO_CALLS), chat("It was the rounding.")))
        waits = list(folder.glob("*/checkpoint.json"))
        assert len(waits) == 1
        done = manager.on_task_complete()
        event = json.loads(done.entry.content)
        assert kinds(manager)[-1] == "task_completed"
        assert (event["turns"], event["windows"], event["checkpoint"]) == (1, 1, done.checkpoint.version)
        assert event["trends"]["utilization"].keys() == {"now", "delta", "direction", "worse"}
        assert "It was the rounding." in done.summary
        assert done.health.trends
        assert list(folder.glob("*/checkpoint.json")) == []
        assert len(list(folder.glob("*/archive/checkpoint-*.json"))) == 1
        manager.on_task_start("Write the release notes.")
        assert len(list(folder.glob("*/checkpoint.json"))) == 1
        assert "Write the release notes." in text_of(manager.on_turn_start("Go."))


def test_checkpoints_of_a_new_task_contain_nothing_of_a_completed_one():
    with opened(goal=TASK, success_criteria=CRITERIA) as manager:
        loop(manager, scripted(chat("It was the rounding.")))
        manager.session.checkpoint(done=["Fix the rounding"])
        assert [task.text for task in manager.on_task_complete().checkpoint.subtasks] == ["Fix the rounding"]
        manager.session.checkpoint()
        after = manager.session.checkpoints.newest()
        assert (after.given.goal, after.success_criteria, after.subtasks) == ("", (), ())


# -- overflow, status, settings ---------------------------------------------------------------------------------------


class TooLong(Exception):
    body = None


@pytest.mark.requirement("manager.overflow")
def test_an_overflow_can_be_handled_in_the_except_block_of_the_call():
    refuse = [TooLong("This model's maximum context length is 4000 tokens. However, you requested 9000."), None]
    changes = []
    with opened(max_context_tokens=16_000) as manager:
        manager.on_status_change(lambda before, after: changes.append((before, after)))
        for turn in range(6):
            manager.on_turn_start(f"Question {turn}: " + "word " * 300)
            manager.on_turn_end("answer " * 300)
        prompt = manager.on_turn_start("And now?")
        before = prompt.tokens
        try:
            raise refuse[0]
        except TooLong as error:
            prompt = manager.on_overflow(error)
        assert prompt.tokens < min(before, 4_000)
        assert manager.status == "emergency"
        assert manager.on_turn_end("Shorter.").text == "Shorter."
        assert changes[-1][0] == "emergency"
        assert manager.status != "emergency"


def test_an_unrelated_exception_is_re_raised():
    with opened() as manager:
        manager.on_turn_start("Go.")
        with pytest.raises(ConnectionError, match="reset"):
            manager.on_overflow(ConnectionError("reset by peer"))
        assert manager.status == "healthy"
        assert manager.on_turn_end("Well.").text == "Well."


@pytest.mark.requirement("manager.status")
def test_the_status_follows_the_pressure_and_is_reported():
    changes = []
    with opened(max_context_tokens=8_000, on_status_change=lambda *change: changes.append(change)) as manager:
        assert manager.status == "healthy"
        for turn in range(16):
            manager.on_turn_start(f"Question {turn}: " + "word " * 300)
            manager.on_turn_end("answer " * 300)
        assert {after for _, after in changes} == {"preparing", "active"}, "kept full on purpose: no emergency"
        assert all(before != after for before, after in changes)
        report = manager.get_status_report()
        assert (report.status, report.turn, report.windows) == (manager.status, 16, 1)
        assert report.utilization == report.report.reading.utilization
        assert report.decisions == len(manager.get_audit_trail()) > 0
        assert report.calls == ()


@pytest.mark.requirement("evict.switch")
def test_a_policy_can_be_changed_by_its_settings_name():
    with opened(max_context_tokens=6_000, window={"shorten_outputs": False, "min_recent_messages": 2}) as manager:
        for policy in ("fifo", "lru", "hybrid", "prune"):
            manager.use(policy=policy)
            for turn in range(10):
                manager.on_turn_start(f"Question {turn}: " + "word " * 300)
                manager.on_turn_end("answer " * 200)
            latest = manager.get_audit_trail()[0].policy
            assert latest == ("prune" if policy == "prune" else f"evict.{policy}")
        rules = manager.session.window.rules
        for wrong in ({"policy": "fifoo"}, {"polcy": "fifo"}, {"ceiling_percent": 400}, {"policy": 7}):
            with pytest.raises(SettingsError):
                manager.use(**wrong)
        assert manager.session.window.rules == rules


@pytest.mark.parametrize("limit", [4_000, 8_000, 40_000])
@pytest.mark.parametrize("window", [{}, {"reserve": 3_000}, {"profile": "research"}])
def test_a_limit_learned_from_a_refusal_gives_the_same_budget_as_a_configured_one(limit, window):
    with opened(max_context_tokens=100_000, window=window) as refused:
        refused.on_turn_start("Go.")
        refused.on_overflow(f"maximum context length is {limit} tokens")
        with opened(max_context_tokens=limit, window=window) as known:
            assert refused.session.window.budget == known.session.window.budget
            assert refused.session.window.rules.input_budget == known.session.window.rules.input_budget


def test_a_limit_below_the_output_reserve_of_the_settings_halves_the_window():
    with opened(max_context_tokens=100_000, window={"reserve": 9_000}) as manager:
        manager.on_turn_start("Go.")
        manager.on_overflow("maximum context length is 8000 tokens")
        assert manager.session.window.budget.input_budget == 4_000


def test_a_window_learned_from_the_provider_has_the_rules_of_a_configured_one():
    with opened(max_context_tokens=8_000) as manager:
        small = manager.session.window
    with opened(max_context_tokens=1_000_000) as manager:
        manager.on_turn_start("Go.")
        manager.on_overflow("maximum context length is 8000 tokens")
        window = manager.session.window
        assert window.budget == small.budget
        for name in ("input_budget", "ceiling", "floor", "record_tokens", "thresholds", "policies", "compact"):
            assert getattr(window.rules, name) == getattr(small.rules, name), name


def test_a_budget_lowered_by_a_refusal_stays_low_when_settings_change():
    with opened(max_context_tokens=16_000) as manager:
        manager.on_turn_start("Go.")
        manager.on_overflow("maximum context length is 9000 tokens")
        lowered = manager.session.window.budget.input_budget
        manager.use(mode="zones")
        assert manager.session.window.budget.input_budget == lowered
        assert manager.session.window.rules.input_budget == lowered


@pytest.mark.requirement("manager.one-object")
def test_a_manager_can_be_opened_from_a_settings_file(tmp_path):
    file = tmp_path / "context.yaml"
    store = tmp_path / "own.db"
    file.write_text(f"store: {store}\nmodel: gpt-4o\nwindow: {{policy: lru}}\nrecall: {{enabled: false}}\n")
    with recto.manager(file, goal=TASK) as manager:
        manager.on_turn_start("Go.")
        assert manager.session.window.rules.policies[-1].name == "evict.lru"
    assert store.exists()
    with recto.manager(tmp_path / "other.db", config=file) as manager:
        assert manager.session.window.rules.policies[-1].name == "evict.lru"
    with pytest.raises(SettingsError, match="both settings files"):
        recto.manager(file, config=file)


# -- parts ------------------------------------------------------------------------------------------------------------


class Newest:
    """A custom scorer that evicts the newest first."""

    name = "newest"

    def score(self, features):
        return [{"total": float(-place)} for place, _ in enumerate(features.view.eligible)]


class Letters:
    """A custom embedder that counts letters."""

    name, dims, weight = "letters", 26, 0.5

    def __init__(self):
        self.texts = []

    def documents(self, texts):
        self.texts += texts
        counts = [[text.lower().count(letter) for letter in ascii_lowercase] for text in texts]
        rows = np.asarray(counts, dtype=np.float32)
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def query(self, text):
        return self.documents([text])


class Measures:
    """A custom sink that records turns."""

    def __init__(self):
        self.turns = []

    def turn(self, session, turn):
        self.turns.append(turn)

    def alert(self, alert): ...

    def event(self, entry): ...


def characters(text: str) -> int:
    """A custom token counter."""
    return len(text) // 4 + 1


@pytest.mark.requirement("manager.replaceable")
def test_every_part_can_be_replaced():
    store, sink, embedder, writer = MemoryStore(), Measures(), Letters(), ScriptedModel(["- The total was wrong."] * 99)
    with recto.manager(
        store,
        model="gpt-4o",
        max_context_tokens=6_000,
        policy=Newest(),
        token_counter=characters,
        embedder=embedder,
        writer=writer,
        sinks=[sink],
        window={"min_recent_messages": 2, "shorten_outputs": False},
    ) as manager:
        for turn in range(12):
            manager.on_turn_start(f"Question {turn}: " + "word " * 300)
            manager.on_turn_end("answer " * 200)
        assert manager.session.meter.name == "own/characters"
        assert manager.get_audit_trail()[0].policy == "evict.newest"
        assert len(sink.turns) == 12
        assert manager.session.recall("Question 3").hits
        assert embedder.texts
        manager.use(mode="auto_compact")
        manager.session.compact()
        assert writer.requests
    assert store.head("agent:default:main").seq > 24  # the caller's store stays open


# -- out of order, unknown calls, the wrong session -------------------------------------------------------------------


@pytest.mark.requirement("manager.errors")
def test_hooks_out_of_order_are_refused_and_nothing_is_lost():
    with opened(goal=TASK) as manager:

        def refused(hook, *args, **kwargs):
            before = [entry.id for entry in manager.session.read() if entry.kind == "message"]
            with pytest.raises(HookOutOfOrder, match=hook) as caught:
                getattr(manager, hook)(*args, **kwargs)
            assert caught.value.hook == hook
            assert [entry.id for entry in manager.session.read() if entry.kind == "message"] == before

        refused("on_turn_start")
        refused("on_turn_end", "Too early.")
        manager.on_turn_start("Go.")
        refused("on_task_complete")
        manager.on_turn_end(chat(*TWO_CALLS))
        refused("on_turn_end", "Twice.")
        refused("on_turn_start", "Impatient.")
        refused("on_task_complete")
        manager.on_tool_result("read", "content of a.py", id="c1")
        refused("on_turn_start")
        manager.on_tool_result("read", "content of b.py", id="c2")
        manager.on_turn_start()
        manager.on_turn_end("Done.")
        manager.on_task_complete()
        assert roles(manager.session) == ["user", "assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.requirement("manager.errors")
def test_a_result_for_an_unknown_call_is_refused_and_the_others_are_accepted(wire):
    with opened(model=MODELS[wire]) as manager:
        with pytest.raises(UnknownCall, match="Calls without a result: none"):
            manager.on_tool_result("read", "too early")
        manager.on_turn_start("Go.")
        reply = manager.on_turn_end(WIRES[wire](*TWO_CALLS))
        first, second = reply.calls
        for name, id in (("write", None), ("read", "c9"), ("write", first.id)):
            with pytest.raises(UnknownCall) as caught:
                manager.on_tool_result(name, "no", id=id)
            assert [id for _, id in caught.value.waiting] == [first.id, second.id]
        manager.on_tool_result("read", "content of a.py", id=first.id)
        with pytest.raises(UnknownCall, match="has a result already"):
            manager.on_tool_result("read", "again", id=first.id)
        manager.on_tool_result("read", "content of b.py", id=second.id)
        prompt = manager.on_turn_start()
        assert problems(prompt.raw, prompt.built.wire) == []
        assert text_of(prompt).count("content of ") == 2


@pytest.mark.parametrize(
    "response", [None, 7, iter(()), {"error": {"message": "overloaded"}}, {"role": "user", "content": "hi"}, []]
)
def test_an_invalid_response_is_refused_and_the_prompt_still_awaits_one(response):
    with opened() as manager:
        manager.on_turn_start("Go.")
        with pytest.raises(MalformedMessage):
            manager.on_turn_end(response)
        assert roles(manager.session) == ["user"]
        assert manager.on_turn_end("Done.").text == "Done."


def test_an_unawaited_coroutine_is_named_in_the_error():
    async def call():
        return "Done."

    with opened() as manager:
        manager.on_turn_start("Go.")
        unawaited = call()
        with pytest.raises(MalformedMessage, match="not awaited"):
            manager.on_turn_end(unawaited)
        unawaited.close()


@pytest.mark.requirement("manager.errors")
def test_each_manager_accepts_only_its_own_kind_of_session(tmp_path):
    async def meet():
        async with await recto.open_async(tmp_path / "a.db", model="gpt-4o") as session:
            with pytest.raises(WrongSession, match=r"AsyncContextWindowManager takes what recto.open_async"):
                ContextWindowManager(session)
            with pytest.raises(WrongSession, match=r"ContextWindowManager takes what recto.open returns"):
                AsyncContextWindowManager(session.session)
            async with AsyncContextWindowManager(session, goal=TASK) as manager:
                await manager.on_turn_start("Go.")
                await manager.on_turn_end("Done.")
                return [entry.role async for entry in session.read() if entry.kind == "message"]

    assert asyncio.run(meet()) == ["user", "assistant"]


def test_an_oversized_question_is_refused_and_the_turn_before_is_intact():
    with opened(max_context_tokens=4_000) as manager:
        loop(manager, scripted(chat("Hello.")))
        with pytest.raises(WindowOverflow):
            manager.on_turn_start("word " * 20_000)
        assert roles(manager.session)[:2] == ["user", "assistant"]


@pytest.mark.parametrize("wrong", [{"constraints": "one text"}, {"success_criteria": [7]}, {"goal": 7}])
def test_a_task_must_consist_of_texts(wrong):
    with pytest.raises(InputError):
        opened(**wrong)


# -- parity -----------------------------------------------------------------------------------------------------------


def public(kind) -> dict[str, object]:
    return {name: member for name, member in inspect.getmembers(kind) if not name.startswith("_")}


def test_the_async_manager_has_every_hook_with_the_same_parameters():
    blocking, awaited = public(ContextWindowManager), public(AsyncContextWindowManager)
    for name, member in blocking.items():
        assert name in awaited, f"AsyncContextWindowManager lacks {name}"
        if isinstance(member, property):
            assert isinstance(awaited[name], property)
        else:
            expected, actual = (
                list(inspect.signature(method).parameters.values())[1:] for method in (member, awaited[name])
            )
            assert [(parameter.name, parameter.kind, parameter.default) for parameter in expected] == [
                (parameter.name, parameter.kind, parameter.default) for parameter in actual
            ], name
    assert awaited.keys() - blocking.keys() <= {"over", "tools", "wire"}
    initial = [list(inspect.signature(kind).parameters) for kind in (ContextWindowManager, AsyncContextWindowManager)]
    assert initial[0] == initial[1]
    openers = [list(inspect.signature(opener).parameters) for opener in (recto.manager, recto.manager_async)]
    assert openers[0] == openers[1]


def test_every_format_is_covered():
    assert set(WIRES) == set(FORMATS)
    assert all(format_named(wire) for wire in WIRES)
