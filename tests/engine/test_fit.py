"""`recto.fit` counts only what may remain, and returns what counting everything would return."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recto
from recto.config import load
from recto.config.factory import make_meter
from recto.context.policies.eviction import Prune
from recto.context.policies.planner import ReliefRules, plan_relief
from recto.context.window.state import Protection, WindowState
from recto.context.window.units import WindowMessage
from recto.engine import fit
from recto.engine.fit import fit_messages
from recto.engine.prompt_builder import MessageCache, PromptBuilder, PromptExtras
from recto.errors import InputError, MalformedMessage, RectoError, WindowOverflow
from recto.formats import detect
from recto.formats.session_files import read_file
from recto.tokens.meter import Meter
from recto.transcript.entries import MESSAGE, to_json

MARKER = "[{count} earlier messages are not shown here, to keep within the context window.]"


def reference(
    messages: Sequence[Any], *, max_tokens: int, meter: Meter, threshold: float, keep_turns: int
) -> list[Any]:
    """Reference implementation: counts every message on every call."""
    cache = MessageCache(meter=meter, pointer_of=lambda seq: f"message {seq}", knows_parts=False)
    builder = PromptBuilder(
        messages=cache,
        marker_of=lambda state: MARKER.replace("{count}", f"{state.evicted_messages:,}"),
        extras=PromptExtras(frame=meter.frame.prompt),
    )
    lines, originals = list[WindowMessage](), dict[bytes, Any]()
    for seq, message in enumerate(messages, 1):
        raw = message if isinstance(message, bytes) else to_json(message)
        originals[raw] = message
        lines.append(cache.take(seq, str(seq), raw, detect(raw)))
    state = WindowState.of(lines)
    questions = [seq for seq, line in state.messages.items() if line.role == "user"]
    recent = len(messages) + 1 - questions[-min(keep_turns, len(questions))] if keep_turns and questions else 0
    rules = ReliefRules(
        input_budget=max_tokens,
        ceiling=threshold,
        floor=threshold * 0.875,
        protection=Protection(min_recent_messages=recent, answered=False),
        policies=(Prune(),),
    )
    relief = plan_relief(state, rules, builder)
    if relief.after > max_tokens:
        raise builder.overflow(relief.state, max_tokens, stored=None)
    built = builder.build(relief.state)
    as_bytes = bool(messages) and isinstance(messages[0], bytes)
    prompt = (*built.system, *built.messages)
    return [originals[raw] if raw in originals else raw if as_bytes else json.loads(raw) for raw in prompt]


def outcome(call, *args: Any, **kwargs: Any) -> Any:
    try:
        return call(*args, **kwargs)
    except RectoError as error:
        return type(error), str(error)


@pytest.fixture(autouse=True, params=["long lists", "short lists"])
def fresh_memo(request, monkeypatch):
    """Starts each test with an empty memo; with "short lists", most of a short list is merged into one message too."""
    monkeypatch.setattr(fit, "_MEMO", fit._Memo())
    if request.param == "short lists":
        monkeypatch.setattr(fit, "_MANY", 2)
        monkeypatch.setattr(fit, "_MARGIN_TOKENS", 30)


METERS = {name: make_meter(load(environ={}, arguments={"model": name})) for name in ("gpt-4o", "claude-sonnet-4-5")}
words = st.integers(1, 30).map(lambda count: "word " * count)


@st.composite
def exchanges(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A chat of up to sixty exchanges, where calls may lack their results, and results may come late or twice."""
    messages: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 60))):
        odd = draw(st.sampled_from([*[""] * 6, "system", "unanswered", "orphan", "late", "twice", "reused"]))
        if odd == "system" or (number == 0 and draw(st.booleans())):
            messages.append({"role": "system", "content": f"rule {number} {draw(words)}"})
        messages.append({"role": "user", "content": f"{number} {draw(words)}"})
        late: list[dict[str, Any]] = []
        for step in range(draw(st.integers(0, 3))):
            ids = [f"call-{number}-{step}-{n}" for n in range(draw(st.integers(1, 2)))]
            ids = [f"call-{step}"] if odd == "reused" else ids
            function = {"name": "read", "arguments": '{"n": 1}'}
            calls = [{"id": id, "type": "function", "function": function} for id in ids]
            messages.append({"role": "assistant", "content": None, "tool_calls": calls})
            results = [{"role": "tool", "tool_call_id": id, "content": draw(words)} for id in ids]
            if odd == "unanswered" and step == 1:
                results = results[1:]
            if odd == "orphan":
                results.append({"role": "tool", "tool_call_id": f"none-{number}-{step}", "content": "x"})
            if odd == "twice":
                results += results[:1]
            (late if odd == "late" else messages).extend(results)
        messages.append({"role": "assistant", "content": f"answer {number} {draw(words)}"})
        messages += late
    return messages


def as_anthropic(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same messages in the format of Anthropic."""
    written = []
    for message in messages:
        if message.get("tool_calls"):
            ids = [call["id"] for call in message["tool_calls"]]
            blocks = [{"type": "tool_use", "id": id, "name": "read", "input": {"n": 1}} for id in ids]
            written.append({"role": "assistant", "content": blocks})
        elif message["role"] == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            written.append({"role": "user", "content": [block]})
        else:
            written.append(message)
    return written


@settings(max_examples=80, deadline=None)
@given(
    exchanges(),
    st.integers(150, 3_000),
    st.sampled_from([0.5, 0.8, 1.0]),
    st.integers(0, 4),
    st.sampled_from(list(METERS)),
    st.sampled_from(["dicts", "bytes", "anthropic"]),
    st.lists(st.integers(1, 200), max_size=4),
)
@pytest.mark.requirement("fit.keeps")
def test_it_returns_what_counting_everything_returns(messages, max_tokens, threshold, keep_turns, model, form, cuts):
    if form == "anthropic":
        messages = as_anthropic(messages)
    sent = [to_json(message) for message in messages] if form == "bytes" else messages
    for length in (*sorted(cuts), len(sent), *cuts):
        rules = {"max_tokens": max_tokens, "meter": METERS[model], "threshold": threshold, "keep_turns": keep_turns}
        expected = outcome(reference, sent[:length], **rules)
        assert outcome(fit_messages, sent[:length], **rules) == expected


@settings(max_examples=40, deadline=None)
@given(exchanges(), st.integers(300, 2_000), st.data())
def test_a_message_changed_in_place_is_counted_again(messages, max_tokens, data):
    rules = {"max_tokens": max_tokens, "meter": METERS["gpt-4o"], "threshold": 0.8, "keep_turns": 2}
    outcome(fit_messages, messages, **rules)
    for _ in range(3):
        place = data.draw(st.integers(max(0, len(messages) - 30), len(messages) - 1))
        if isinstance(messages[place]["content"], str):
            messages[place]["content"] = data.draw(words)
        messages.append({"role": "user", "content": data.draw(words)})
        expected = outcome(reference, messages, **rules)
        assert outcome(fit_messages, messages, **rules) == expected


@pytest.mark.parametrize(("model", "max_tokens"), [("gpt-4o", 4_000), ("claude-sonnet-4-5", 16_000)])
@pytest.mark.requirement("fit.keeps")
def test_real_sessions_are_fitted_as_if_everything_were_counted(data, model, max_tokens):
    files = sorted(data.glob("agent_sessions/*/*.jsonl"))[:8]
    rules = {"max_tokens": max_tokens, "meter": METERS[model], "threshold": 0.8, "keep_turns": 3}
    compared = 0
    for file in files:
        with file.open("rb") as lines:
            messages = (entry.content for entry in read_file(lines, file.name) if entry.kind == MESSAGE)
            entries = list(islice(messages, 1_500))
        for length in (len(entries) // 2, len(entries) - 1, len(entries)):
            assert outcome(fit_messages, entries[:length], **rules) == outcome(reference, entries[:length], **rules)
            compared += length > 0
    assert compared


class Counting:
    """Makes a meter that records how many texts it counted."""

    def __init__(self) -> None:
        self.texts = 0

    def meter(self) -> Meter:
        return Meter(name="counting", count=self._count)

    def _count(self, text: str) -> int:
        self.texts += 1
        return len(text) // 4


def chat(length: int) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[n % 2], "content": f"{n} " + "word " * 20} for n in range(length)]


def test_only_messages_that_fill_the_budget_are_counted_and_later_calls_count_only_new_ones():
    counting, messages = Counting(), chat(5_000)
    fit_messages(messages, max_tokens=2_000, meter=counting.meter())
    assert counting.texts < 200
    counting.texts = 0
    grown = [*messages, {"role": "user", "content": "and now?"}]
    fit_messages(grown, max_tokens=2_000, meter=counting.meter())
    assert counting.texts < 10
    counting.texts = 0
    fit_messages(deepcopy(grown), max_tokens=2_000, meter=counting.meter())  # equal, but other objects
    assert counting.texts < 10


def test_only_the_end_of_a_list_that_grew_a_lot_is_counted():
    counting, messages = Counting(), chat(5_000)
    fit_messages(messages[:1_000], max_tokens=2_000, meter=counting.meter())
    counting.texts = 0
    fit_messages(messages, max_tokens=2_000, meter=counting.meter())
    assert counting.texts < 200


def test_equal_values_with_another_json_are_not_the_same_message():
    messages = [*chat(20), {"role": "user", "content": [{"type": "text", "text": "a", "n": 1}]}]
    other = [*chat(20), {"role": "user", "content": [{"type": "text", "text": "a", "n": True}]}]
    read = fit._ReadList(METERS["gpt-4o"])
    read.extend(messages)
    read.state(100, 1)
    assert read.common(messages) == 21
    assert read.common(other) == 20
    messages[-1]["content"][0] = {"text": "a", "type": "text", "n": 1}
    assert read.common(messages) == 20


def tool_chat(exchanges: int) -> list[dict[str, Any]]:
    """Exchanges of a question, a call, its result and an answer."""
    messages: list[dict[str, Any]] = []
    for number in range(exchanges):
        call = {"id": f"call-{number}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        messages += [
            {"role": "user", "content": f"question {number} " + "word " * 20},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call-{number}", "content": f"result {number} " + "word " * 20},
            {"role": "assistant", "content": f"answer {number} " + "word " * 20},
        ]
    return messages


def change_text(message: dict[str, Any]) -> None:
    message["content"] = "other " * 300


def change_call(message: dict[str, Any]) -> None:
    if message.get("tool_calls"):
        message["tool_calls"][0]["function"]["arguments"] = '{"path": "' + "deep/" * 300 + '"}'


def change_order(message: dict[str, Any]) -> None:
    message["role"] = message.pop("role")


def interrupt(message: dict[str, Any]) -> None:
    if message.get("tool_calls"):
        message["tool_calls"][0]["id"] += "-again"


@pytest.mark.parametrize("change", [change_text, change_call, change_order, interrupt])
def test_a_change_anywhere_in_the_merged_part_is_noticed(change):
    messages, more = tool_chat(130), tool_chat(138)[520:]
    rules = {"max_tokens": 9_000, "meter": METERS["gpt-4o"], "threshold": 0.8, "keep_turns": 3}
    merged = 0
    for number, exchange in enumerate(zip(*[iter(more)] * 4, strict=True)):
        if number > 2:
            change(messages[-7 * number - 8])
        messages += exchange
        expected = outcome(reference, messages, **rules)
        assert outcome(fit_messages, messages, **rules) == expected
        merged += fit._MEMO._lists[-1]._layout is not None
    assert merged


def test_a_call_without_a_result_long_ago_does_not_make_later_calls_slow():
    counting, messages = Counting(), tool_chat(1_000)
    del messages[402]
    fit_messages(messages, max_tokens=8_000, meter=counting.meter())
    assert counting.texts < 500
    for exchange in zip(*[iter(tool_chat(1_010)[4_000:])] * 4, strict=True):
        messages += exchange
        fit_messages(messages, max_tokens=8_000, meter=counting.meter())
    read = fit._MEMO._lists[-1]
    assert read._layout is not None
    assert len(read.state(6_400, 3).state.messages) < 120


def test_evicted_messages_are_known_after_the_list_has_changed():
    messages = tool_chat(300)
    fitted = fit_messages(messages, max_tokens=4_000, meter=METERS["gpt-4o"])
    left = messages[: len(messages) - len(fitted) + 2]
    count = fitted.evicted_count
    messages[-1]["content"] = "changed"
    fit_messages([*messages, {"role": "user", "content": "more"}], max_tokens=4_000, meter=METERS["gpt-4o"])
    assert [message for message in left if message not in fitted] == fitted.evicted
    assert len(fitted.evicted) == count


@pytest.mark.requirement("fit.no-database")
def test_the_memo_is_bounded():
    for number in range(30):
        message = {"role": "user", "content": f"{number} {'x' * 4_000_000}"}
        fit_messages([message], max_tokens=10**7, meter=Counting().meter())
        assert len(fit._MEMO._lists) <= 8
        assert sum(read.size for read in fit._MEMO._lists) <= 32 * 1024 * 1024
    fit_messages([{"role": "user", "content": "x" * 40_000_000}], max_tokens=10**8, meter=Counting().meter())
    assert sum(read.size for read in fit._MEMO._lists) <= 32 * 1024 * 1024


def test_threads_do_not_disturb_each_other():
    messages = chat(400)
    rules = {"max_tokens": 1_500, "meter": METERS["gpt-4o"], "threshold": 0.8, "keep_turns": 3}
    expected = {length: reference(messages[:length], **rules) for length in range(300, 400, 10)}
    wrong: list[int] = []

    def work() -> None:
        wrong.extend(n for n in expected for _ in range(5) if fit_messages(messages[:n], **rules) != expected[n])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_an_invalid_message_is_refused_at_any_position():
    messages: list[Any] = chat(3_000)
    messages[5] = {"content": "no role"}
    with pytest.raises(MalformedMessage):
        recto.fit(messages, 2_000, model="gpt-4o")


def test_an_overflow_error_does_not_claim_that_messages_are_stored():
    with pytest.raises(WindowOverflow, match="Shorten what is largest") as refused:
        recto.fit([{"role": "user", "content": "word " * 5_000}], 1_000, model="gpt-4o")
    assert "stored" not in str(refused.value)
    assert "npin" not in str(refused.value)


@pytest.mark.parametrize(
    "bad",
    [
        {"role": "bot", "content": "x"},
        {"role": "user", "content": 3},
        {"role": "user", "content": {"text": "x"}},
        {"role": "user", "content": [3]},
        {"role": "tool", "tool_call_id": "c1", "content": 3},
        {"role": "user"},
        {"content": "no role"},
    ],
    ids=repr,
)
def test_a_message_that_a_session_refuses_is_refused_with_its_position(bad):
    with recto.open("memory:", model="gpt-4o") as session, pytest.raises(MalformedMessage):
        session.append(bad)
    with pytest.raises(MalformedMessage, match="message 3 of 3"):
        recto.fit([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, bad], 2_000, model="gpt-4o")


def test_a_task_that_does_not_fit_is_shortened_as_in_a_session():
    task = {"role": "user", "content": "First. " + "word " * 5_000 + "Last."}
    messages = [task, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "And now?"}]
    fitted = recto.fit(messages, 1_000, model="gpt-4o")
    assert fitted.tokens <= 1_000
    assert fitted[0]["content"].startswith("First.")
    assert fitted[0]["content"].endswith("Last.")
    assert "message 1" in fitted[0]["content"]
    assert fitted[1] is messages[1]
    assert fitted[2] is messages[2]
    with recto.open("memory:", model="gpt-4o", window={"max_tokens": 1_000}) as session:
        session.append_all(messages)
        assert session.prompt().messages[0]["content"].startswith("First.")


def test_half_of_a_surrogate_pair_is_replaced():
    broken = {"role": "user", "content": "a \ud83d b 😀"}
    fitted = recto.fit([broken], 1_000, model="gpt-4o")
    assert fitted == [{"role": "user", "content": "a \ufffd b 😀"}]
    assert broken["content"][2] == "\ud83d"
    assert recto.fit([broken, {"role": "assistant", "content": "c"}], 1_000, model="gpt-4o")[0] == fitted[0]


def test_orphaned_results_alone_do_not_make_a_prompt():
    orphan = {"role": "tool", "tool_call_id": "c1", "content": "x"}
    with pytest.raises(InputError, match="only tool results without their calls"):
        recto.fit([orphan], 1_000, model="gpt-4o")
    question = {"role": "user", "content": "Why?"}
    assert recto.fit([orphan, question], 1_000, model="gpt-4o") == [question]


ORPHANS = {
    "claude-sonnet-4-5": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "42"}]},
    "gemini-2.5-flash": {"role": "user", "parts": [{"functionResponse": {"name": "x", "response": {"output": "42"}}}]},
}


@pytest.mark.parametrize(("model", "orphan"), ORPHANS.items(), ids=ORPHANS)
def test_orphaned_results_alone_are_refused_where_a_prompt_begins_with_the_user(model, orphan):
    with pytest.raises(InputError, match="only tool results without their calls"):
        recto.fit([orphan], 1_000, model=model)
    with recto.open("memory:", model=model) as session:
        session.append(orphan)
        with pytest.raises(InputError, match="only tool results without their calls"):
            session.prompt()


def test_a_list_of_empty_messages_is_refused_where_the_provider_accepts_none():
    empty = {"role": "user", "parts": [{"text": ""}]}
    with pytest.raises(InputError, match="the only message is empty"):
        recto.fit([empty], 1_000)
    with pytest.raises(InputError, match="all messages are empty"):
        recto.fit([empty, empty], 1_000)
    with recto.open("memory:", model="gemini-2.5-pro") as session:
        session.append(empty)
        with pytest.raises(InputError, match="the only message is empty"):
            session.prompt()
    assert recto.fit([], 1_000) == []


@pytest.mark.parametrize("wire", ["chat", "gemini", "bytes"])
def test_a_list_that_is_fitted_again_and_again_says_how_many_messages_are_gone_in_all(wire):
    def written(role, text):
        if wire == "gemini":
            return {"role": "model" if role == "assistant" else role, "parts": [{"text": text}]}
        message = {"role": role, "content": text}
        return json.dumps(message).encode() if wire == "bytes" else message

    messages, sent = [written("user", "Watch the counter.")], 1
    for step in range(60):
        messages = [
            *messages,
            written("assistant", f"Step {step}. " + "x " * 40),
            written("user", "Read. " + "y " * 40),
        ]
        sent += 2
        messages = recto.fit(messages, max_tokens=1_500, model="gpt-4o")
    assert sent > 4 * len(messages)
    [marker] = [str(message) for message in messages if "earlier messages" in str(message)]
    assert f"[{sent - len(messages) + 1} earlier messages are not shown" in marker


def test_evicting_from_a_fitted_list_counts_the_messages_that_were_gone_before():
    messages = [{"role": "user", "content": "Watch."}, {"role": "user", "content": MARKER.format(count="1,200")}]
    for step in range(12):
        messages += [{"role": "assistant", "content": f"{step} " * 90}, {"role": "user", "content": f"{step} " * 90}]
    left = recto.evict(messages, free=1_000, model="gpt-4o")
    evicted = 1_200 + left.evicted_count - 1
    assert left[1]["content"] == MARKER.format(count=f"{evicted:,}")
