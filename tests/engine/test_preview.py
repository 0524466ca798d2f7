"""The prompt that would be sent now, as the page and the API show it before anything is sent."""

from __future__ import annotations

import recto
from recto import Session
from recto.engine.report import current_reading, preview
from recto.engine.timeline import timeline
from recto.testing import scripted_session

RULE = "Never push to main without my approval."


def long_session() -> Session:
    """A session that is longer than its window and was never sent, as an import leaves it."""
    session = recto.open("memory:", model="gpt-4o", window={"max_tokens": 16_000}, recall={"embedder": {"use": "none"}})
    session.append({"role": "user", "content": RULE})
    session.append({"role": "assistant", "content": "Understood."})
    session.append_all(list(scripted_session(exchanges=120))[1:])
    return session


def test_the_preview_of_a_history_that_was_never_sent_is_the_prompt_that_is_sent_next():
    with long_session() as session:
        shown = preview(session.window)
        entries = len(session)
        assert RULE in b"".join(shown.messages).decode()
        assert len(session) == entries, "looking stores nothing"
        assert preview(session.window).messages == shown.messages
        sent = session.prompt()
        assert tuple(sent.raw) == tuple(shown.messages)
        assert sent.tokens == shown.tokens


def test_a_shortened_message_that_would_fit_alone_is_not_said_to_be_too_large():
    with long_session() as session:
        session.prompt()
        (compaction,) = session.compact()
        session.restore(compaction.seq)
        session.prompt()
        (clamp,) = [decision for decision in session.report().decisions if decision.policy == "clamp"]
        assert clamp.messages > 1
        assert clamp.reason == "what may not be evicted does not fit the input budget"


def test_the_timeline_reads_the_pressure_of_the_next_prompt_where_its_turns_are_older_than_any_prompt():
    with long_session() as session:
        curve, reading = timeline(session.window), current_reading(session.window)
        assert (curve.utilization, curve.zone) == (reading.utilization, reading.zone)
        assert curve.points[-1].utilization > 1 > curve.utilization


def test_the_reading_of_a_history_that_was_never_sent_is_the_size_of_the_next_prompt():
    with long_session() as session:
        report = session.report()
        assert report.reading.tokens == report.tokens == preview(session.window).tokens
        used = sum(usage.used for usage in report.components if usage.component != "reserve")
        assert 0 <= report.tokens - used <= 16, "all but the frame of the prompt"
