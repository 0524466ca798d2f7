"""An empty Chat message is not sent, however it is written; a message with any content is."""

from __future__ import annotations

import pytest

from recto.formats import format_named
from recto.formats.openai_chat import CHAT


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role": "assistant", "content": null}',
        b'{"role": "assistant", "content": []}',
        b'{"role": "assistant"}',
        b'{"content":null,"role":"assistant","name":"content"}',
        b'{"role": "assistant", "x": {"content": "words"}}',
    ],
)
def test_an_empty_assistant_message_is_left_out(raw):
    assert format_named(CHAT).edits.settle([raw]) == []


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role": "assistant", "content": "words"}',
        b'{ "role":"assistant" , "content" : "", "refusal": null}',
        b'{"role": "user", "content": []}',
        b'{"content": "words", "role": "assistant"}',
        b'{"role": "assistant", "content": null, "tool_calls": [{"id": "a"}]}',
    ],
)
def test_every_other_message_stays_unchanged(raw):
    assert format_named(CHAT).edits.settle([raw]) == [raw]
