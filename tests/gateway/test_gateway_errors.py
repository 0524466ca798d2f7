"""What a refusal says to a client: whether its prompt is at fault, or whether it should ask again."""

import json

import pytest

from recto.errors import WindowOverflow
from recto.formats import format_named
from recto.formats.anthropic import ANTHROPIC
from recto.formats.openai_chat import CHAT
from recto.formats.openai_responses import RESPONSES
from recto.gateway.errors import error_response


@pytest.mark.parametrize("wire", [CHAT, RESPONSES, ANTHROPIC])
def test_protected_content_that_does_not_fit_is_an_overflow(wire):
    answer = error_response(WindowOverflow(20_000, 12_000, [("entry 1 (user)", 20_000)]), format_named(wire), "req_1")
    assert answer.status_code == 400
    assert b"12000" in answer.body or b"12,000" in answer.body


@pytest.mark.parametrize(("wire", "status"), [(CHAT, 503), (RESPONSES, 503), (ANTHROPIC, 529)])
def test_what_only_waits_for_the_index_is_worth_asking_again_and_no_overflow(wire, status):
    late = WindowOverflow(20_000, 12_000, [("entry 1 (user)", 20_000)], "the words index was not ready in time")
    answer = error_response(late, format_named(wire), "req_1")
    assert answer.status_code == status
    assert "context_length_exceeded" not in answer.body.decode()
    assert "the words index was not ready in time" in json.dumps(json.loads(answer.body))
