"""A small window stays nearly full and still fits the messages recalled for a question."""

from __future__ import annotations

from statistics import fmean

import pytest

import recto
from recto.config.factory import make_alert_rules
from recto.config.loader import load
from recto.recall.recall import RecallService
from recto.recall.types import Confirmation

SMALL, LARGE = 16_000, 32_000
ARCHIVES = ("north", "south", "east", "west", "upper", "lower", "old", "new")
QUESTION = "What are the access codes of the archives?"


def opened(size=SMALL, *, inject=False, **window):
    limits = {"gpt-4o": {"window": size, "max_input": size}}
    settings = {"cache_aware": False, "look_ahead": False} | window
    recall = {"inject": inject, "background": False, "embedder": {"use": "none"}}
    return recto.open("memory:", model="gpt-4o", models=limits, window=settings, recall=recall)


def read_pages(session, steps):
    """Runs a tool loop with small outputs; returns the utilization of the prompt of each step."""
    fills = []
    for step in range(steps):
        fills.append(session.prompt().tokens / session.window.budget.input_budget)
        call = {"id": f"c{step}", "type": "function", "function": {"name": "read", "arguments": f'{{"page": {step}}}'}}
        session.append({"role": "assistant", "content": None, "tool_calls": [call]})
        text = "\n".join(f"line {line} of page {step} of the ledger" for line in range(25))
        session.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return fills


def fills_once_full(session, steps):
    session.append({"role": "user", "content": "Look at the ledger."})
    fills = read_pages(session, steps)
    return fills[next(place for place, fill in enumerate(fills) if fill > 0.93) :]


def text_of(prompt):
    return "\n".join(str(message.get("content")) for message in prompt.messages)


def test_a_small_window_stays_nearly_full():
    with opened() as session:
        fills = fills_once_full(session, 160)
    assert fmean(fills) > 0.91
    assert max(fills) <= 1


@pytest.mark.parametrize("window", [{"floor_percent": 70}, {"ceiling_percent": 80}])
def test_a_configured_floor_or_ceiling_is_respected(window):
    with opened(**window) as session:
        session.append({"role": "user", "content": "Look at the ledger."})
        fills = read_pages(session, 160)
    assert min(fills[fills.index(max(fills)) :]) < 0.8


def test_an_eviction_in_a_large_window_frees_many_tokens():
    with opened(LARGE) as session:
        fills = fills_once_full(session, 400)
    assert min(fills) < 0.8


def alerts_of_turns(session, text, turns=60):
    alerts = []
    session.health.on_alert(alerts.append)
    for turn in range(turns):
        session.append({"role": "user", "content": f"Question {turn}: {text}"})
        session.prompt()
        session.append({"role": "assistant", "content": f"Answer {turn}: {text}"})
    return {alert.name for alert in alerts}


def test_a_window_that_is_full_by_configuration_raises_no_alert():
    with opened() as session:
        assert "utilization" not in alerts_of_turns(session, "It matters. " * 60)
        assert session.prompt().tokens > 0.93 * session.window.budget.input_budget


@pytest.mark.parametrize(
    ("size", "window", "utilization"),
    [(SMALL, {}, 0.98), (SMALL, {"floor_percent": 70}, 0.9), (SMALL, {"ceiling_percent": 80}, 0.9), (128_000, {}, 0.9)],
)
def test_the_utilization_alert_follows_the_ceiling_of_a_small_window(size, window, utilization):
    arguments = {"model": "gpt-4o", "models": {"gpt-4o": {"window": size, "max_input": size}}, "window": window}
    assert make_alert_rules(load(arguments=arguments)).utilization == utilization


def full_window_without_the_codes(session):
    """Fills the window after early messages with codes were evicted; returns the number of free tokens."""
    session.append({"role": "user", "content": "Look at the ledger."})
    for archive in ARCHIVES:
        note = f"The access code of the {archive} archive is {code(archive)}; it is asked for at the door. " * 3
        session.append({"role": "assistant", "content": "Go on."})
        session.append({"role": "user", "content": f"A note about the {archive} archive. {note}"})
    budget, pages = session.window.budget.input_budget, 0
    while pages < 100 or session.prompt().tokens < 0.96 * budget:
        session.append({"role": "assistant", "content": f"Page {pages} is in order, as far as can be seen. " * 30})
        session.append({"role": "user", "content": f"Then read what follows page {pages}."})
        session.prompt()
        pages += 1
    session.append({"role": "assistant", "content": "All pages are read."})
    prompt = session.prompt()
    assert not quoted(prompt)
    session.append({"role": "user", "content": QUESTION})
    return budget - prompt.tokens


def code(archive):
    return f"Quebec-{archive}-4711"


def quoted(prompt):
    text = text_of(prompt)
    return [archive for archive in ARCHIVES if code(archive) in text]


def test_relief_frees_tokens_for_recalled_messages():
    with opened(inject=True, record_percent=0) as session:
        free = full_window_without_the_codes(session)
        prompt = session.prompt()
        assert len(quoted(prompt)) > len(ARCHIVES) / 2
        assert session.window.builder.extras.recalled.tokens > free
        assert prompt.decisions
        assert prompt.tokens <= session.window.budget.input_budget


def test_recalled_messages_are_left_out_if_relief_cannot_free_tokens(monkeypatch):
    with opened(inject=True, record_percent=0) as session:
        full_window_without_the_codes(session)
        unconfirmed = Confirmation(words=False, vectors=True, reason="no room is left on the disk")
        monkeypatch.setattr(RecallService, "confirm", lambda self, seqs: unconfirmed)
        prompt = session.prompt()
        assert not quoted(prompt)
        assert not prompt.recalled
        assert prompt.tokens <= session.window.budget.input_budget
