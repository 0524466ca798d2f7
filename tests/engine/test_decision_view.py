"""A decision with its messages: those that it evicted or shortened and no others, before and after."""

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
        made = [entry for entry in session.read() if entry.kind in DECISIONS]
        assert made
        for entry in made:
            payload, view = json.loads(entry.content), decision_view(session.window, entry.seq)
            actions = {one.seq: one.action for one in view.messages}
            evicted = seqs_in(payload["left"])
            assert [seq for seq, action in actions.items() if action == "evicted"] == evicted
            assert {seq for seq, action in actions.items() if action == "trimmed"} == set(map(int, payload["shrunk"]))
            assert view.tokens_before > view.tokens_after
            for one in view.messages:
                stored = next(iter(session.read(one.seq, one.seq)))
                assert entry_text(stored).startswith(one.text)
                assert one.tokens == stored.tokens
                assert (one.shorter_tokens < one.tokens) or one.action != "trimmed"
                assert bool(one.shorter) == (one.action == "trimmed")
            assert bool(view.summary) == ("summary" in payload)


def test_a_decision_that_was_undone_says_so_and_a_message_is_no_decision():
    with opened() as session:
        work(session)
        seq = next(entry.seq for entry in session.read() if entry.kind in DECISIONS)
        assert not decision_view(session.window, seq).decision.undone
        session.restore(seq)
        assert decision_view(session.window, seq).decision.undone
        with pytest.raises(InputError, match="entry 1 is no decision"):
            decision_view(session.window, 1)
