"""Prompt composition: the pieces add up to its tokens and do not depend on how the prompt grew."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

import recto
from recto.context.window.report import PromptPiece
from recto.engine.composition import SentTally, total_of
from recto.testing import scripted_session


def interrupted(exchanges: int) -> list[dict]:
    """A session whose first call has no result, so each of its prompts contains a placeholder result."""
    call = {"id": "lost", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    unanswered = [{"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "user", "content": "Stop."}]
    first, *others = scripted_session(exchanges=exchanges)
    return [first, {"role": "user", "content": "Begin."}, *unanswered, *others]


def test_the_pieces_of_an_interrupted_session_add_up_in_every_prompt():
    with recto.open("memory:", model="gpt-4o") as session:
        for message in interrupted(8):
            if message["role"] == "assistant":
                prompt = session.prompt()
                made = session.window.last.composition
                assert total_of(made.pieces) == made.tokens == prompt.tokens
            session.append(message)


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40), st.sampled_from("ab")), min_size=1, max_size=6))
def test_incremental_pieces_equal_those_of_a_prompt_counted_from_scratch(prompts):
    history = list(interrupted(6))
    with recto.open("memory:", model="gpt-4o") as session:
        meter = session.meter
    grown = SentTally(meter, "openai.chat")
    for size, place, note in prompts:
        messages = history[:size]
        messages.insert(place, {"role": "user", "content": note})  # the same text may also be the user's own
        raws = [json.dumps(message).encode() for message in messages]
        costs = [10 + len(raw) // 4 for raw in raws]
        generated = {note: [PromptPiece(kind="recalled", name="", tokens=place)]} if place % 3 else {}
        found = grown.pieces(raws, costs, generated)
        assert found == SentTally(meter, "openai.chat").pieces(raws, costs, generated)
