"""Request bodies and replies: parsed and rebuilt byte for byte except for the edited parts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.format_strategies import ITEMS, JSON, MESSAGES

from recto.errors import InputError, MalformedJson, MalformedMessage
from recto.formats import FORMATS, open_body, read_reply

CHAT, RESPONSES, ANTHROPIC = "openai.chat", "openai.responses", "anthropic.messages"
KEY = {CHAT: "messages", RESPONSES: "input", ANTHROPIC: "messages", "google.gemini": "contents"}


def test_a_body_of_each_format_is_parsed():
    anthropic = open_body(
        b'{"model": "claude", "system": [ {"type":"text","text":"s"} ], "tools" :[{"name": "f"}], "max_tokens": 5,\n'
        b'"messages": [ {"role":"user","content":"a"} , {"role":"assistant","content":"b"} ]}',
        ANTHROPIC,
    )
    assert anthropic.model == "claude"
    assert anthropic.system == b'[ {"type":"text","text":"s"} ]'
    assert anthropic.tools == b'[{"name": "f"}]'
    assert anthropic.messages == (b'{"role":"user","content":"a"}', b'{"role":"assistant","content":"b"}')
    responses = open_body(b'{"instructions": "be brief", "input": [{"role":"user","content":"a"}]}', RESPONSES)
    assert (responses.system, responses.tools, responses.model) == (b'"be brief"', None, "")


def test_only_the_array_changes_and_unedited_messages_keep_their_bytes_and_spacing():
    messages = '[\n  {"role":"user", "content":"ü"},\n  {"role":"assistant","content":"b"}\n]'
    raw = f'{{"x": 1e2, "messages": {messages}, "y": "\\u00fc"}}'.encode()
    body = open_body(raw, CHAT)
    new = b'{"role":"user","content":"c"}'
    assert body.with_messages(body.messages) == raw
    grown = body.with_messages([*body.messages, new])
    assert grown == raw.replace(b"\n]", b",\n  " + new + b"]")
    assert body.with_messages(body.messages[:1]) == raw[: raw.index(b",\n  {")] + b"]" + raw[raw.index(b', "y"') :]
    assert open_body(body.with_messages([new, body.messages[1]]), CHAT).messages == (new, body.messages[1])
    assert open_body(body.with_messages([]), CHAT).messages == ()


def test_a_text_as_input_is_read_as_a_user_message():
    raw = b'{"model": "m", "input": "hi \\u00e9", "stream": true}'
    body = open_body(raw, RESPONSES)
    assert body.messages == (b'{"role": "user", "content": "hi \\u00e9"}',)
    assert body.with_messages(body.messages) == raw
    more = body.with_messages([*body.messages, b'{"role": "user", "content": "x"}'])
    assert more == b'{"model": "m", "input": [%s, {"role": "user", "content": "x"}], "stream": true}' % body.messages[0]


@pytest.mark.parametrize("raw", [b"{}", b' { "previous_response_id" : "r" } '])
def test_input_can_be_added_to_a_responses_body_without_input(raw):
    body = open_body(raw, RESPONSES)
    assert body.messages == ()
    assert body.with_messages([]) == raw
    with_input = body.with_messages([b'{"role":"user","content":"x"}'])
    assert json.loads(with_input) == {"input": [{"role": "user", "content": "x"}], **json.loads(raw)}


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (b"{}", MalformedMessage),
        (b'{"messages": "x"}', MalformedMessage),
        (b'{"messages": {}}', MalformedMessage),
        (b"[]", MalformedJson),
        (b'{"messages": []} x', MalformedJson),
        (b'{"messages": []', MalformedJson),
        (b'{"messages": [], "messages": [1]}', MalformedJson),
    ],
)
def test_an_invalid_body_is_refused(raw, error):
    with pytest.raises(error):
        open_body(raw, CHAT)


@given(
    wire=st.sampled_from(sorted(FORMATS)),
    messages=st.lists(MESSAGES | ITEMS, max_size=4),
    extra=st.dictionaries(st.text(max_size=5).filter(lambda key: key not in KEY.values()), JSON, max_size=3),
    indent=st.sampled_from([None, 1]),
    place=st.integers(0, 4),
    ascii_only=st.booleans(),
)
def test_an_unedited_body_is_identical_and_an_edited_body_differs_only_in_the_edit(
    wire, messages, extra, indent, place, ascii_only
):
    fields = {**extra, KEY[wire]: messages}
    raw = json.dumps(fields, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    try:
        body = open_body(raw, wire)
    except InputError:
        assert not ascii_only  # a lone surrogate cannot stand in UTF-8
        return
    assert body.with_messages(body.messages) == raw
    assert [json.loads(message) for message in body.messages] == messages
    changed = [*body.messages[:place], b'{"role":"user","content":"new"}', *body.messages[place + 1 :]]
    touched = body.with_messages(changed)
    assert open_body(touched, wire).messages == tuple(changed)
    rest = {key: value for key, value in json.loads(touched).items() if key != KEY[wire]}
    assert json.dumps(rest) == json.dumps({key: value for key, value in fields.items() if key != KEY[wire]})


def test_a_reply_of_chat_gives_its_message_exactly():
    raw = (
        b'{"id":"x","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant" ,"content":null,'
        b'"reasoning_content":"hm"}}],"usage":{"prompt_tokens":9,"completion_tokens":2,'
        b'"prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":3}}}'
    )
    reply = read_reply(raw, CHAT)
    assert reply.messages == (b'{"role":"assistant" ,"content":null,"reasoning_content":"hm"}',)
    assert reply.stop_reason == "tool_calls"
    assert (reply.usage.prompt, reply.usage.output, reply.usage.cache_read, reply.usage.cache_write) == (9, 2, 4, 3)


@pytest.mark.parametrize(
    ("wire", "before", "message", "behind"),
    [
        (CHAT, b'{"x": "\\ud83d", "choices": [ ', b'{"role": "assistant" , "content": "\\ud83d"}', b"}]}"),
        (ANTHROPIC, b'{"\\ud83d": 1, "content": ', b'[ {"type": "text", "text": "\\ud83d"} ]', b"}"),
        (RESPONSES, b'{"output": [ ', b'{"type": "message", "content": "\\ud83d" }', b" ]}"),
    ],
)
def test_a_reply_with_half_a_character_is_returned_exactly(wire, before, message, behind):
    inside = b'{"message": ' if wire == CHAT else b""
    reply = read_reply(before + inside + message + behind, wire)
    assert reply.messages == (b'{"role": "assistant", "content": %s}' % message if wire == ANTHROPIC else message,)


def test_a_reply_of_anthropic_gives_its_content_exactly_and_the_whole_prompt_as_usage():
    raw = (
        b'{"type":"message","role":"assistant","content":[ {"type":"text","text":"\\u00e9"} ],"stop_reason":"end_turn",'
        b'"usage":{"input_tokens":5,"cache_read_input_tokens":100,"cache_creation_input_tokens":20,"output_tokens":7}}'
    )
    reply = read_reply(raw, ANTHROPIC)
    assert reply.messages == (b'{"role": "assistant", "content": [ {"type":"text","text":"\\u00e9"} ]}',)
    assert (reply.usage.prompt, reply.usage.output, reply.stop_reason) == (125, 7, "end_turn")


def test_a_reply_of_responses_gives_every_item_exactly():
    raw = (
        b'{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"output":[{"type":"reasoning" },'
        b'{"type":"message","role":"assistant","content":[]}],"usage":{"input_tokens":5,"output_tokens":1,'
        b'"input_tokens_details":{"cached_tokens":2}}}'
    )
    reply = read_reply(raw, RESPONSES)
    assert reply.messages == (b'{"type":"reasoning" }', b'{"type":"message","role":"assistant","content":[]}')
    assert (reply.stop_reason, reply.usage.prompt, reply.usage.cache_read) == ("max_output_tokens", 5, 2)


@pytest.mark.parametrize("wire", FORMATS)
def test_an_error_in_place_of_a_reply_is_reported(wire):
    with pytest.raises(MalformedMessage, match="the provider says: too long"):
        read_reply(b'{"error": {"message": "too long"}}', wire)
    for raw in (b'{"choices": []}', b'{"choices": 1}', b'{"choices": [[]]}', b'{"output": {}, "content": 3}', b"[]"):
        with pytest.raises(InputError):
            read_reply(raw, wire)
