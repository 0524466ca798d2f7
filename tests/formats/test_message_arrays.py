"""Arrays of messages are found anywhere in a document or on a line."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.file_checks import REPLY, USER, entries_of, lines, outline
from tests.formats.format_strategies import JSON, MESSAGES

from recto.errors import UnknownFormat
from recto.formats.json_spans import parse
from recto.formats.session_files.message_arrays import find_arrays, looks_like_message


@pytest.mark.parametrize(
    "document",
    [
        [USER, REPLY],
        {"messages": [USER, REPLY]},
        {"model": "m", "data": {"deep": [{"x": [1, {"conversation": [USER, REPLY]}]}]}, "after": [1, 2]},
        [{"batch": 1, "turns": [[USER], [REPLY]]}, {"batch": 2, "turns": []}],
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_an_array_of_messages_is_found_anywhere_in_a_document(document, indent):
    found = entries_of(json.dumps(document, indent=indent).encode())
    assert [(entry.session, entry.role) for entry in found] == [("some.name", "user"), ("some.name", "assistant")]
    assert [json.loads(entry.content) for entry in found] == [USER, REPLY]


@pytest.mark.parametrize("form", ["request", "array", "lines"])
def test_contents_of_gemini_are_messages(form):
    contents = [{"role": "user", "parts": [{"text": "Hi."}]}, {"role": "model", "parts": [{"text": "Hello."}]}]
    document = {"request": {"contents": contents}, "array": contents}.get(form)
    found = entries_of(lines(*contents) if document is None else json.dumps(document).encode())
    assert [(entry.role, entry.kind, entry.wire) for entry in found] == [
        ("user", "message", "google.gemini"),
        ("assistant", "message", "google.gemini"),
    ]


def test_every_conversation_of_a_document_has_its_own_name():
    document = [
        {"task_id": 0, "traj": [USER]},
        {"question_id": "q7", "sessions": [[USER], [REPLY]], "session_ids": ["s1", "s2"]},
        {"question_id": "q7", "sessions": [[USER], [REPLY]], "session_ids": ["s1", "\u0007"]},
    ]
    found = entries_of(json.dumps(document).encode())
    assert [entry.session for entry in found] == [
        "some.name/0/traj",
        "some.name/q7/sessions/s1",
        "some.name/q7/sessions/s2",
        "some.name/q7/sessions/s1~2",
        "some.name",
    ]


def test_lines_are_messages_or_conversations():
    flat = entries_of(lines(USER, REPLY, {"role": "tool", "tool_call_id": "c", "content": "r"}))
    assert [(entry.session, entry.role) for entry in flat] == [
        ("some.name", "user"),
        ("some.name", "assistant"),
        ("some.name", "tool"),
    ]
    tuning = entries_of(lines({"messages": [USER, REPLY]}, {"note": 1}, {"id": "x9", "messages": [USER]}))
    assert [entry.session for entry in tuning] == ["some.name/1", "some.name/1", "some.name", "some.name/x9"]
    assert tuning[2].kind == "imported_line"


def test_a_conversation_has_one_format_although_some_messages_fit_any():
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    for raw in (json.dumps([USER, call, REPLY]).encode(), lines(USER, call, REPLY)):
        assert {entry.wire for entry in entries_of(raw)} == {"anthropic.messages"}


def test_a_value_that_is_not_a_message_in_an_array_becomes_an_event():
    found = entries_of(json.dumps([USER, {"marker": True}, None, REPLY]).encode())
    assert outline(found) == [("user", "message"), ("event", "imported_line"), ("assistant", "message")]


@given(
    document=st.recursive(
        st.lists(MESSAGES, min_size=1, max_size=3) | JSON,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4) | st.just("turns"), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    indent=st.sampled_from([None, 1]),
)
def test_any_document_round_trips_and_every_outermost_array_is_found(document, indent):
    raw = json.dumps(document, indent=indent).encode()
    try:
        found = entries_of(raw)
    except UnknownFormat:
        found = []
    text = raw.decode()
    assert [json.loads(text[start:end]) for array in find_arrays(text) for start, end in array.items] == list(
        arrays_in(parse(text))
    )
    if not (isinstance(document, dict) and looks_like_message(document)):
        assert [json.loads(entry.content) for entry in found] == list(arrays_in(document))


def arrays_in(value):
    """Reference implementation of the search: walks the parsed values."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from arrays_in(inner)
    elif isinstance(value, list):
        objects = [inner for inner in value if isinstance(inner, dict)]
        if any(looks_like_message(inner) for inner in objects):
            yield from objects
        else:
            for inner in value:
                yield from arrays_in(inner)
