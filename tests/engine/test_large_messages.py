"""A text that can never fit is refused before it is stored; one that can be shortened is stored and shortened."""

from __future__ import annotations

import gc
import json
import tracemalloc

import pytest
from msgspec.structs import replace

import recto
from recto.engine import session as session_module
from recto.errors import WindowOverflow
from recto.text import truncation

TEXT = "the quick brown fox jumps over the lazy dog and runs away. " * 25_000
SMALL = {"gpt-4o": {"window": 16_000, "max_input": 16_000}}


def opened():
    return recto.open("memory:", model="gpt-4o", models=SMALL, recall={"inject": False})


def test_a_user_message_that_can_never_fit_is_refused_before_it_is_stored():
    with opened() as session:
        session.append({"role": "user", "content": "hello"})
        session.append({"role": "assistant", "content": "hi"})
        with pytest.raises(WindowOverflow, match="Nothing was stored"):
            session.append({"role": "user", "content": TEXT})
        assert session.head.seq == 2
        session.append({"role": "user", "content": "shorter"})
        assert [message["content"] for message in session.prompt().messages] == ["hello", "hi", "shorter"]


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "gemini-2.5-pro"])
def test_a_large_result_that_a_message_has_twice_is_shortened_as_one(model):
    text, sizes = "line of output number\n" * 1_000, []
    for times in (1, 2):
        if model.startswith("gemini"):
            call = {"role": "model", "parts": [{"functionCall": {"id": "a", "name": "run", "args": {}}}]}
            answer = {"functionResponse": {"id": "a", "name": "run", "response": {"output": text}}}
            messages = [
                {"role": "user", "parts": [{"text": "read it"}]},
                call,
                {"role": "user", "parts": [answer] * times},
            ]
        else:
            call = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "run", "input": {}}]}
            answer = {"type": "tool_result", "tool_use_id": "a", "content": text}
            messages = [{"role": "user", "content": "read it"}, call, {"role": "user", "content": [answer] * times}]
        with recto.open("memory:", model=model, models={model: {"window": 4_000, "max_input": 4_000}}) as session:
            session.append_all(messages)
            sizes.append(session.prompt().tokens)
    assert sizes[1] <= sizes[0] + 50


def test_an_oversized_message_is_counted_only_until_it_exceeds_the_budget():
    counted = []
    with opened() as session:
        exact = session.meter.count
        session.meter = replace(session.meter, count=lambda text: counted.append(len(text)) or exact(text))
        with pytest.raises(WindowOverflow):
            session.append({"role": "user", "content": TEXT * 4})
        assert 0 < sum(counted) <= session.window.budget.input_budget * 8


def test_a_large_result_or_an_old_large_message_is_stored_and_evicted_or_shortened():
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    with opened() as session:
        session.append({"role": "user", "content": "Read it."})
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        session.append({"role": "tool", "tool_call_id": "c1", "content": TEXT})
        assert session.prompt().tokens <= session.window.budget.input_budget
        old = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "I see."}]
        session.append_all([*old, {"role": "user", "content": "Go on."}])
        assert session.prompt().tokens <= session.window.budget.input_budget


def test_without_the_check_an_oversized_message_is_stored_and_refused_afterwards(monkeypatch):
    monkeypatch.setattr(session_module, "_LARGE_MESSAGE", 10**12)
    with opened() as session:
        session.append({"role": "user", "content": TEXT})
        with pytest.raises(WindowOverflow, match="Everything is stored"):
            session.prompt()
        assert session.head.seq >= 1


KINDS = {
    "words": lambda size: ("the quick brown fox " * (size // 20 + 1))[:size],
    "one word": lambda size: ("abcdefghij" * (size // 10 + 1))[:size],
    "lines": lambda size: ("value=12345\n" * (size // 12 + 1))[:size],
    "cjk": lambda size: ("漢字仮名交文章節" * (size // 8 + 1))[:size],
    "base64": lambda size: ("QUJDREVGR0hJSktMTU5PUA/+" * (size // 24 + 1))[:size],
    "json": lambda size: ('{"id": 17, "tags": ["a", "b"], "ok": true}, ' * (size // 44 + 1))[:size],
    "keys": lambda size: ("sk-password=" * (size // 12 + 1))[:size],
    "rules": lambda size: ("Please always use tabs and never touch main. " * (size // 45 + 1))[:size],
}
CALL = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def session_with_result(text: str):
    """Returns a session that ends with a result of this text, and a list of the lengths counted from then on."""
    session, counted = opened(), []
    session.append_all(
        [{"role": "user", "content": "Read it."}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
    )
    session.append({"role": "tool", "tool_call_id": "c1", "content": text})
    meter = session.window.messages.meter
    exact = meter.count
    session.window.messages.meter = replace(meter, count=lambda text: counted.append(len(text)) or exact(text))
    return session, counted


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_for_one_text_does_not_grow_with_its_length(kind):
    """Terms, facts and counted characters of 3 MB are those of 1.5 MB, though every character is stored."""
    work = []
    for size in (1_500_000, 3_000_000):
        text = KINDS[kind](size)
        session, counted = session_with_result(text)
        with session:
            entry = session.tail(1)[0]
            assert session.prompt().tokens <= session.window.budget.input_budget
            facts = session.facts()
            work.append((len(entry.terms), len(facts), sum(len(fact.text) for fact in facts)))
            assert text.encode() in entry.content.replace(b"\\n", b"\n").replace(b'\\"', b'"')
            assert sum(counted) < 1_500_000
    assert work[0][0] <= 1_200_000
    assert work[1][0] - work[0][0] <= 0.1 * work[0][0] + 200
    assert work[1][1:] == work[0][1:]


def test_without_the_bound_the_whole_text_is_counted_again(monkeypatch):
    monkeypatch.setattr(truncation, "_LONG_CHARS", 10**12)
    session, counted = session_with_result(KINDS["words"](1_500_000))
    with session:
        session.prompt()
        assert sum(counted) > 2_900_000


def test_words_at_both_ends_of_a_long_text_are_found():
    with opened() as session:
        session.append({"role": "user", "content": "Read it."})
        session.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
        text = f"zanzibar {KINDS['words'](3_000_000)} quetzalcoatl"
        session.append({"role": "tool", "tool_call_id": "c1", "content": text})
        for word in ("zanzibar", "quetzalcoatl"):
            assert [hit.seq for hit in session.recall(word).hits] == [3]


@pytest.mark.parametrize("kind", ["words", "cjk", "json"])
def test_a_long_text_uses_memory_in_proportion_to_its_size_and_releases_it(kind):
    """Peak and remaining memory of a turn with a text of 3 MB, as multiples of the text."""
    session_with_result("warm up")[0].close()
    text = KINDS[kind](3_000_000 if kind != "cjk" else 1_000_000)
    size = len(text.encode())
    raw = recto_json({"role": "tool", "tool_call_id": "c1", "content": text})
    del text
    with opened() as session:
        session.append_all(
            [{"role": "user", "content": "Read it."}, {"role": "assistant", "content": None, "tool_calls": [CALL]}]
        )
        session.prompt()
        gc.collect()
        tracemalloc.start()
        try:
            session.append(raw)
            session.prompt()
            gc.collect()
            remaining, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 8 * size
    assert remaining < 3 * size


def recto_json(message: dict) -> bytes:
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
