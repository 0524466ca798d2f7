"""A text that can never fit is refused before it is stored; one that can be shortened is stored and shortened."""

from __future__ import annotations

from dataclasses import replace

import pytest

import recto
from recto.engine import session as session_module
from recto.errors import WindowOverflow

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


def test_only_as_much_of_it_is_counted_as_shows_that():
    counted = []
    with opened() as session:
        exact = session.meter.count
        session.meter = replace(session.meter, count=lambda text: counted.append(len(text)) or exact(text))
        with pytest.raises(WindowOverflow):
            session.append({"role": "user", "content": TEXT * 4})
        assert 0 < sum(counted) <= session.window.budget.input_budget * 8


def test_a_large_result_or_an_old_large_message_is_stored_and_leaves_or_is_shortened():
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    with opened() as session:
        session.append({"role": "user", "content": "Read it."})
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        session.append({"role": "tool", "tool_call_id": "c1", "content": TEXT})
        assert session.prompt().tokens <= session.window.budget.input_budget
        old = [{"role": "user", "content": TEXT}, {"role": "assistant", "content": "I see."}]
        session.append_all([*old, {"role": "user", "content": "Go on."}])
        assert session.prompt().tokens <= session.window.budget.input_budget


def test_without_the_check_it_would_be_stored_and_refused_afterwards(monkeypatch):
    monkeypatch.setattr(session_module, "_LARGE_MESSAGE", 10**12)
    with opened() as session:
        session.append({"role": "user", "content": TEXT})
        with pytest.raises(WindowOverflow, match="Everything is stored"):
            session.prompt()
        assert session.head.seq >= 1
