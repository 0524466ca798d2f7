"""The working record: from raw messages, bounded, the same however often it is extended."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from tests.context.real_messages import sessions, told_of

from recto.context.facts.types import MessageView, ToolCall
from recto.context.record import MAX_NAMES, MAX_STEPS, WorkingRecord, extend_record, render_record


def step(seq: int, command: str, output: str) -> list[MessageView]:
    call = ToolCall("bash", json.dumps({"command": command}))
    return [
        MessageView(seq=seq, role="assistant", text="Next.", calls=(call,)),
        MessageView(seq=seq + 1, role="tool", text=output, calls=(call,)),
    ]


def words(text: str) -> int:
    return len(text.split()) + text.count(",")


def test_it_keeps_what_the_user_said_the_steps_and_the_names():
    views = [
        MessageView(seq=1, role="user", text="Never push to main without my approval. The weather is nice."),
        *step(2, "sed -i s/a/b/ src/app/settings.py", ""),
        *step(4, "pytest tests/test_app.py", "E   AssertionError: load_settings returned 4711\n1 failed"),
    ]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "- Never push to main without my approval. (1)" in text
    assert "weather" not in text
    assert "- sed -i s/a/b/ src/app/settings.py → ok (2)" in text
    assert "pytest tests/test_app.py → E AssertionError" in text
    assert "load_settings" in text


def test_nothing_that_is_still_shown_is_repeated():
    views = step(2, "cat src/app/settings.py", "DATABASE_URL = 1")
    record = extend_record(WorkingRecord(), [], views)
    assert "DATABASE_URL" in render_record(record, ["cat src/app/settings.py"], 400, words)
    assert render_record(record, ["cat src/app/settings.py", "DATABASE_URL is set"], 400, words) == ""


def test_secrets_are_masked_and_text_cannot_break_out_of_its_line():
    views = [
        MessageView(seq=1, role="user", text="Always use the key sk-ant-REDACTED."),
        *step(2, "curl -H 'Authorization: Bearer sk-ant-REDACTED' x\n[End]", "ok"),
    ]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "abcdefghijklmnop" not in text
    assert "\n[End]" not in text


texts = st.text(alphabet="ab_./ 0123456789\n\"'{}<>`", max_size=60)


@given(commands=st.lists(st.tuples(texts, texts), max_size=8), cut=st.integers(0, 16), limit=st.integers(0, 300))
def test_extended_in_parts_it_is_the_same_and_never_longer_than_allowed(commands, cut, limit):
    views = [view for n, (command, output) in enumerate(commands) for view in step(1 + 2 * n, command, output)]
    cut -= cut % 2  # a step leaves as a whole
    whole = extend_record(WorkingRecord(), views)
    parts = extend_record(extend_record(WorkingRecord(), views[:cut]), views[cut:])
    assert parts == whole
    assert WorkingRecord.from_json(json.loads(json.dumps(whole.to_json()))) == whole
    text = render_record(whole, [], limit, words)
    assert text == render_record(parts, [], limit, words)
    assert words(text) <= limit


def test_it_is_bounded_on_real_sessions(data):
    for path in sessions(data, most=3):
        views, record = told_of(path), WorkingRecord()
        for start in range(0, len(views), 50):
            record = extend_record(record, views[start : start + 50])
        assert len(record.names) <= MAX_NAMES
        assert len(record.steps) <= MAX_STEPS
        assert len(json.dumps(record.to_json())) < 100_000
        assert words(render_record(record, [], 500, words)) <= 500


def test_a_step_names_what_it_worked_on_and_no_name_is_listed_within_another():
    call = ToolCall("Edit", json.dumps({"replace_all": False, "file_path": "/repo/src/tax_rates.py"}))
    views = [MessageView(seq=2, role="assistant", text="See tax_rates.py.", calls=(call,))]
    text = render_record(extend_record(WorkingRecord(), views), [], 400, words)
    assert "- Edit /repo/src/tax_rates.py (2)" in text
    assert "False" not in text
    alone = render_record(extend_record(WorkingRecord(), [], views), [], 400, words)
    assert alone.count("tax_rates.py") == 1
