"""Reading messages of each format, and the errors for bytes that are not messages."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.format_strategies import ITEMS, MESSAGES

from recto.errors import InputError, MalformedJson, MalformedMessage
from recto.formats import FORMATS, detect, read, render
from recto.formats.message import Message

CHAT, RESPONSES, ANTHROPIC = "openai.chat", "openai.responses", "anthropic.messages"


def message(wire: str, **fields) -> Message:
    return read(json.dumps(fields).encode(), wire)


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("developer", "system"),
        ("system", "system"),
        ("user", "user"),
        ("assistant", "assistant"),
        ("tool", "tool"),
        ("function", "tool"),
        ("critic", "user"),
    ],
)
def test_roles_are_mapped_to_recto_roles(role, expected):
    assert message(CHAT, role=role, content="x").role == expected


def test_a_chat_call_carries_name_arguments_id_and_the_weight_of_its_signature():
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "ls", "arguments": '{"path": "."}'},
        "extra_content": {"google": {"thought_signature": "S" * 500}},
    }
    custom = {"id": "c2", "type": "custom", "custom": {"name": "sh", "input": "pwd"}}
    first, second = message(CHAT, role="assistant", content=None, tool_calls=[call, custom]).calls
    assert (first.name, first.text, first.call_id) == ("ls", '{"path": "."}', "c1")
    assert first.weight >= 500
    assert (second.name, second.text, second.call_id) == ("sh", "pwd", "c2")


def test_a_chat_tool_message_is_a_result_of_its_call():
    read_back = message(CHAT, role="tool", tool_call_id="c1", name="ls", content=[{"type": "text", "text": "a\nb"}])
    (part,) = read_back.parts
    assert (read_back.role, part.kind, part.call_id, part.name, part.text) == ("tool", "result", "c1", "ls", "a\nb")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_of_vendors_is_thinking(field):
    parts = message(CHAT, role="assistant", content="42", **{field: "six by seven"}).parts
    assert [(part.kind, part.text) for part in parts] == [("thinking", "six by seven"), ("text", "42")]


def test_reasoning_repeated_in_two_fields_counts_once_and_sealed_reasoning_by_weight():
    details = [{"type": "reasoning.text", "text": "hm"}, {"type": "reasoning.encrypted", "data": "x" * 900}]
    parts = message(CHAT, role="assistant", content="", reasoning="hm", reasoning_details=details).parts
    thinking = [part for part in parts if part.kind == "thinking"]
    assert [part.text for part in thinking] == ["hm", ""]
    assert thinking[1].weight == 900
    both = message(CHAT, role="assistant", content="", reasoning="hm", reasoning_content="hm").parts
    assert [part.text for part in both if part.kind == "thinking"] == ["hm"]


def test_an_anthropic_user_message_with_a_result_has_the_tool_role():
    blocks = [
        {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "done"}]},
        {"type": "text", "text": "and go on"},
    ]
    result = message(ANTHROPIC, role="user", content=blocks)
    assert result.role == "tool"
    assert [(part.kind, part.text) for part in result.parts] == [("result", "done"), ("text", "and go on")]
    assert message(ANTHROPIC, role="user", content="hello").role == "user"


def test_anthropic_thinking_carries_the_weight_of_its_sealed_data():
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s" * 300},
        {"type": "redacted_thinking", "data": "d" * 200},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
    ]
    thinking, redacted, call = message(ANTHROPIC, role="assistant", content=blocks).parts
    assert (thinking.text, thinking.weight, redacted.kind, redacted.weight) == ("hm", 300, "thinking", 200)
    assert (call.kind, call.name, call.call_id, json.loads(call.text)) == ("call", "Bash", "t1", {"command": "ls"})


@pytest.mark.parametrize(
    ("item", "role", "kind"),
    [
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "assistant", "call"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "x"}, "assistant", "call"),
        ({"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}, "assistant", "call"),
        ({"type": "function_call_output", "call_id": "c", "output": "x"}, "tool", "result"),
        ({"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x"}]}, "tool", "result"),
        ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}, "assistant", "thinking"),
        ({"type": "web_search_call", "id": "w", "action": {"query": "x"}}, "assistant", "other"),
        ({"type": "mcp_call", "id": "m", "name": "f", "arguments": "{}", "output": "x"}, "assistant", "other"),
        ({"type": "compaction", "encrypted_content": "x" * 99}, "assistant", "other"),
        ({"type": "acme:new_thing", "whatever": [1, "x"]}, "assistant", "other"),
        ({"role": "developer", "content": "be brief"}, "system", "text"),
        ({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}, "user", "text"),
    ],
)
def test_items_of_responses_are_read_by_their_type(item, role, kind):
    found = message(RESPONSES, **item)
    assert (found.role, found.parts[0].kind) == (role, kind)
    assert found.parts[0].text or found.parts[0].weight


def test_encrypted_reasoning_is_weighed():
    assert message(RESPONSES, type="reasoning", summary=[], encrypted_content="e" * 4000).parts[0].weight == 4000


@pytest.mark.parametrize("wire", FORMATS)
def test_an_unknown_block_is_read_in_full_and_an_unknown_member_is_weighed(wire):
    found = message(wire, role="assistant", content=[{"type": "hologram", "caption": "a cat"}], vendor_note="n" * 70)
    assert "a cat" in found.text
    assert "nnn" not in found.text
    assert sum(part.weight for part in found.parts) >= 70


@pytest.mark.parametrize("wire", FORMATS)
@pytest.mark.parametrize(
    "raw", [b"[]", b"null", b'"user"', b"3", b"{}", b'{"content": "x"}', b'{"role": 3}', b'{"role": null}']
)
def test_json_that_is_not_a_message_is_refused_with_a_reason(wire, raw):
    with pytest.raises(MalformedMessage, match="not a message: it"):
        read(raw, wire)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"role": NaN}', b'{"role": "user", "role": "user"}', b"\xff{}", b"[" * 100_000]
)
def test_invalid_json_is_refused(raw):
    with pytest.raises(MalformedJson):
        read(raw, CHAT)


def test_an_unknown_format_is_refused_by_name():
    with pytest.raises(MalformedMessage, match=r"'gemini' is not a wire format; known are openai\.chat"):
        read(b'{"role": "user", "content": ""}', "gemini")


@pytest.mark.parametrize(
    ("fields", "wire"),
    [
        ({"role": "user", "content": "x"}, CHAT),
        ({"role": "assistant", "content": None, "tool_calls": []}, CHAT),
        ({"role": "tool", "tool_call_id": "c", "content": "x"}, CHAT),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}, CHAT),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}, ANTHROPIC),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "x"}]}, ANTHROPIC),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}, ANTHROPIC),
        ({"role": "assistant", "type": "message", "content": [], "stop_reason": "end_turn"}, ANTHROPIC),
        ({"type": "function_call", "call_id": "c"}, RESPONSES),
        ({"type": "function_call_output", "call_id": "c"}, RESPONSES),
        ({"type": "reasoning", "summary": []}, RESPONSES),
        ({"type": "message", "role": "user", "content": "x"}, RESPONSES),
        ({"role": "user", "content": [{"type": "input_text", "text": "x"}]}, RESPONSES),
    ],
)
def test_the_format_of_a_message_is_detected_from_its_members(fields, wire):
    assert detect(json.dumps(fields).encode()) == wire


@given(fields=MESSAGES | ITEMS, wire=st.sampled_from(sorted(FORMATS)), indent=st.sampled_from([None, 0, 3]))
def test_every_message_with_a_role_is_read_whatever_else_it_holds(fields, wire, indent):
    raw = json.dumps(fields, indent=indent).encode()
    found = read(raw, wire)
    assert isinstance(found, Message)
    assert isinstance(found.text, str)
    assert read(raw, wire) == found
    assert detect(raw) in FORMATS
    assert json.loads(render([raw, raw])) == [fields, fields]


@given(raw=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="surrogatepass")))
def test_any_bytes_give_a_message_or_an_input_error(raw):
    for wire in FORMATS:
        try:
            read(raw, wire)
        except InputError:
            continue


def test_rendering_joins_the_exact_bytes_into_an_array():
    odd = [b'{"role":"user" ,"content":"\\u00e9 \xc3\xa9"}', b'{ "role": "assistant", "content": 1e2 }']
    assert render(odd) == b"[" + odd[0] + b", " + odd[1] + b"]"
    assert render([]) == b"[]"
