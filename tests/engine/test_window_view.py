"""The window after any entry: its blocks cover the prompt, its spans cover the transcript, and each has a reason."""

from __future__ import annotations

import random

import pytest

import recto
from recto.engine.prompt_diff import prompt_after
from recto.engine.window_view import MAX_BLOCKS, entry_history, window_view
from recto.errors import InputError
from recto.testing import scripted_session

SMALL = {"gpt-4o": {"window": 8_000, "max_input": 8_000, "max_output": 1_000}}
TOOLS = [{"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}}]


def opened(models=SMALL, **window):
    recall = {"embedder": {"use": "none"}, "background": False}
    return recto.open("memory:", model="gpt-4o", models=models, recall=recall, window=window)


def work(session, exchanges=30, seed=3):
    for message in scripted_session(exchanges=exchanges, seed=seed):
        session.append(message)
        if message["role"] in ("user", "tool"):
            session.prompt(tools=TOOLS)


def texts_of(prompt):
    return "\n".join(raw.decode() for raw in (*prompt.system, *prompt.messages))


@pytest.mark.parametrize("mode", ["sliding_window", "auto_compact", "zones"])
def test_blocks_add_up_to_the_prompt_and_spans_cover_every_entry_once(mode):
    with opened(mode=mode) as session:
        work(session)
        last = len(session)
        for at in (*random.Random(5).sample(range(1, last), 12), None):
            view = window_view(session.window, at)
            assert sum(block.tokens for block in view.blocks) == view.counted
            covered = [seq for span in view.spans for seq in range(span.first, span.last + 1)]
            assert covered == list(range(1, view.at + 1))
            assert view.at == (at or last)
            assert view.last == last


def test_messages_of_a_past_window_are_those_of_the_past_prompt_in_its_order():
    with opened() as session:
        work(session)
        for at in random.Random(6).sample(range(1, len(session)), 8):
            sent = texts_of(prompt_after(session.window, at))
            view = window_view(session.window, at)
            shown = [
                block for block in view.blocks if block.what == "message" and not block.cut and len(block.text) > 8
            ]
            places = [sent.find(block.text.splitlines()[0][:40].replace('"', '\\"')) for block in shown]
            found = [place for place in places if place >= 0]
            assert len(found) > len(places) / 2
            assert [block.seq for block in shown] == sorted(block.seq for block in shown)


def test_every_block_says_why_it_is_in_the_prompt():
    with opened(min_recent_messages=4) as session:
        session.append({"role": "system", "content": "You fix bugs."})
        work(session)
        old = next(entry.seq for entry in session.read() if entry.role == "assistant" and entry.seq > 20)
        session.pin(old)
        question = session.append({"role": "user", "content": "What now?"})
        session.prompt(tools=TOOLS)
        reasons = {block.seq: block.reason for block in window_view(session.window).blocks if block.seq}
        assert reasons[1] == "system"
        assert reasons[session.window.state.task_seq] == "task"
        assert reasons[old] == "pinned"
        assert reasons[question.seq] == "question"
        assert reasons[session.window.state.answered] == "answered"
        assert "recent" in reasons.values()
        kinds = {block.what: block.reason for block in window_view(session.window).blocks if block.seq is None}
        assert kinds["tools"] == "client"
        assert kinds["marker"] == kinds["record"] == "written"
        places = {seq: span.place for span in window_view(session.window).spans for seq in (span.first, span.last)}
        assert places[old] == "pinned"


def test_a_trimmed_result_shows_its_stored_size_and_what_is_not_in_the_prompt_is_evicted():
    with opened() as session:
        work(session)
        view, state = window_view(session.window), session.window.state
        trimmed = {block.seq for block in view.blocks if block.stored_tokens > block.tokens}
        assert trimmed == set(state.shortened)
        place_of = {seq: span.place for span in view.spans for seq in range(span.first, span.last + 1)}
        messages = [entry.seq for entry in session.read() if entry.kind == "message"]
        assert state.evicted_messages
        for seq in messages:
            assert (place_of[seq] in ("evicted", "summarized", "recalled")) == (seq not in state.messages)


def test_a_recalled_block_names_its_sources():
    with opened() as session:
        session.append({"role": "user", "content": "Look at the servers."})
        session.append({"role": "assistant", "content": "The staging server listens on port 8471 and nowhere else."})
        work(session)
        session.append({"role": "user", "content": "Which port does the staging server listen on?"})
        prompt = session.prompt(tools=TOOLS)
        sources = {hit.seq for hit in prompt.recalled}
        assert sources
        view = window_view(session.window)
        recalled = next(block for block in view.blocks if block.what == "recalled")
        assert set(recalled.sources) == sources
        assert {seq for span in view.spans if span.place == "recalled" for seq in (span.first, span.last)} <= sources


def test_the_history_of_an_entry_names_the_decisions_that_trimmed_and_evicted_it():
    with opened() as session:
        work(session)
        decisions = [entry for entry in session.read() if entry.kind == "context_window_pruned"]
        evicted = window_view(session.window).spans
        seq = next(span.first for span in evicted if span.place == "evicted")
        history = entry_history(session.window, seq)
        made = history.decisions[0]
        assert history.entry.place in ("out", "recalled")
        assert made.action == "evicted"
        assert made.decision.seq in {entry.seq for entry in decisions}
        assert made.tokens_before > made.tokens_after
        assert not made.decision.undone
        session.restore(made.decision.seq)
        assert entry_history(session.window, seq).decisions[0].decision.undone
        assert entry_history(session.window, seq).entry.place == "in"
        with pytest.raises(InputError, match="no entry 999999"):
            entry_history(session.window, 999_999)


def test_the_oldest_messages_of_a_very_long_prompt_are_left_out():
    with opened(models={"gpt-4o": {"window": 900_000, "max_input": 900_000, "max_output": 1_000}}) as session:
        for place in range(MAX_BLOCKS // 2 + 15):
            session.append({"role": "user", "content": f"Message {place}."})
            session.append({"role": "assistant", "content": f"Answer {place}."})
            if place % 100 == 0:
                session.prompt()
        view = window_view(session.window)
        assert len(view.blocks) == MAX_BLOCKS
        assert view.more == view.messages + 1 - MAX_BLOCKS
        assert [block.role for block in view.blocks[-2:]] == ["assistant", "user"]
        assert view.blocks[-1].what == "frame"
