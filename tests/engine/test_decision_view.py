"""The view of a decision: exactly the messages it evicted or shortened, before and after."""

from __future__ import annotations

import json

import pytest
from tests.engine.test_window_view import opened, work

from recto.context.window.state import seqs_in
from recto.engine.decision_view import decision_view
from recto.engine.projection import DECISIONS
from recto.errors import InputError
from recto.formats import entry_text


@pytest.mark.parametrize("mode", ["sliding_window", "auto_compact", "zones"])
def test_a_decision_shows_exactly_the_messages_that_it_evicted_or_shortened(mode):
    with opened(mode=mode) as session:
        work(session)
        decisions = [entry for entry in session.read() if entry.kind in DECISIONS]
        assert decisions
        for entry in decisions:
            payload, view = json.loads(entry.content), decision_view(session.window, entry.seq)
            actions = {shown.seq: shown.action for shown in view.messages}
            evicted = seqs_in(payload["left"])
            assert [seq for seq, action in actions.items() if action == "evicted"] == evicted
            assert {seq for seq, action in actions.items() if action == "trimmed"} == set(map(int, payload["shrunk"]))
            assert view.tokens_before > view.tokens_after
            for shown in view.messages:
                stored = next(iter(session.read(shown.seq, shown.seq)))
                assert entry_text(stored).startswith(shown.text)
                assert shown.tokens == stored.tokens
                assert (shown.shorter_tokens < shown.tokens) or shown.action != "trimmed"
                assert bool(shown.shorter) == (shown.action == "trimmed")
            assert bool(view.summary) == ("summary" in payload)


def test_an_undone_decision_is_marked_and_a_message_is_not_a_decision():
    with opened() as session:
        work(session)
        seq = next(entry.seq for entry in session.read() if entry.kind in DECISIONS)
        assert not decision_view(session.window, seq).decision.undone
        session.restore(seq)
        assert decision_view(session.window, seq).decision.undone
        with pytest.raises(InputError, match="entry 1 is no decision"):
            decision_view(session.window, 1)
