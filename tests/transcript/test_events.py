"""Events: what is written is read back, and what JSON cannot express is refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from recto.errors import MalformedMessage
from recto.testing import FakeClock
from recto.transcript.entries import event, payload_of


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"bytes", {1, 2}, datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_value_that_json_cannot_express_is_refused_and_not_changed(value):
    with pytest.raises(MalformedMessage):
        event(FakeClock(), "noted", {"value": value})


@pytest.mark.parametrize("value", ["\ud800", "é\x00\x7f", 2**70, -0.5, [1, None, True], {"a": {"b": []}}])
def test_a_payload_is_read_as_it_was_written(value):
    assert payload_of(event(FakeClock(), "noted", {"value": value}).content) == {"value": value}
