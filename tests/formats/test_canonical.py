"""Which messages have the same canonical form, and which do not."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.formats.format_strategies import ITEMS, MESSAGES

from recto.errors import InputError
from recto.formats import FORMATS, canonical, fingerprint

CHAT, RESPONSES, ANTHROPIC = "openai.chat", "openai.responses", "anthropic.messages"
MARK = {"type": "ephemeral"}


def same(wire: str, *messages: dict) -> bool:
    return len({fingerprint(json.dumps(message).encode(), wire) for message in messages}) == 1


@pytest.mark.parametrize("wire", FORMATS)
def test_a_text_and_a_single_text_block_are_the_same(wire):
    blocks = [{"type": "text", "text": "hi"}]
    assert same(wire, {"role": "user", "content": "hi"}, {"content": blocks, "role": "user"})
    assert not same(wire, {"role": "user", "content": "hi"}, {"role": "user", "content": "ho"})
    assert not same(wire, {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"})
    assert not same(wire, {"role": "user", "content": "hi"}, {"role": "user", "content": blocks * 2})


def test_cache_marks_do_not_matter_but_data_of_the_same_name_does():
    plain = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]}
    marked = {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "t",
                "cache_control": MARK,
                "content": [{"type": "text", "text": "x", "cache_control": MARK}],
            }
        ],
    }
    assert same(ANTHROPIC, plain, marked)
    part = {"type": "text", "text": "x"}
    broken = {**part, "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert same(CHAT, {"role": "user", "content": [part]}, {"role": "user", "content": [broken]})
    call = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    other = {**call, "input": {"cache_control": MARK}}
    assert not same(ANTHROPIC, {"role": "assistant", "content": [call]}, {"role": "assistant", "content": [other]})


def test_nulls_and_empty_lists_of_a_reply_do_not_matter():
    reply = {"role": "assistant", "content": "x", "refusal": None, "annotations": [], "audio": None, "tool_calls": []}
    assert same(CHAT, {"role": "assistant", "content": "x"}, reply)


def test_members_only_in_anthropic_replies_do_not_matter():
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": "x",
        "usage": {"input_tokens": 1},
    }
    assert same(ANTHROPIC, {"role": "assistant", "content": "x"}, reply)


def test_easy_and_full_messages_of_responses_are_the_same():
    easy = {"role": "assistant", "content": "x"}
    full = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}],
    }
    assert same(RESPONSES, easy, full)
    user = {"role": "user", "content": "x"}
    assert same(RESPONSES, user, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]})


def test_an_items_own_id_does_not_matter_but_its_call_id_does():
    call = {
        "type": "function_call",
        "id": "fc_1",
        "status": "completed",
        "call_id": "c1",
        "name": "f",
        "arguments": "{}",
    }
    sent = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    assert same(RESPONSES, call, sent)
    assert not same(RESPONSES, call, {**sent, "call_id": "c2"})
    reference = {"type": "item_reference", "id": "a"}
    assert not same(RESPONSES, reference, {**reference, "id": "b"})


def test_lone_surrogates_and_numbers_beyond_floats_have_a_canonical_form():
    raw = b'{"role": "user", "content": "\\ud800"}'
    assert canonical(raw, CHAT) == canonical(raw.replace(b": ", b":"), CHAT)
    big = [b'{"role": "user", "content": "", "n": 1e400}', b'{"role": "user", "content": "", "n": 1e401}']
    assert fingerprint(big[0], CHAT) != fingerprint(big[1], CHAT)


def shuffled(value, chance: random.Random):
    if isinstance(value, dict):
        items = [(key, shuffled(inner, chance)) for key, inner in value.items()]
        chance.shuffle(items)
        return dict(items)
    return [shuffled(inner, chance) for inner in value] if isinstance(value, list) else value


@given(fields=MESSAGES | ITEMS, wire=st.sampled_from(sorted(FORMATS)), chance=st.randoms(use_true_random=False))
def test_key_order_spaces_and_escapes_do_not_matter(fields, wire, chance):
    raw = json.dumps(fields).encode()
    again = json.dumps(shuffled(fields, chance), indent=2, ensure_ascii=False).encode(errors="surrogatepass")
    assert fingerprint(raw, wire) == fingerprint(again, wire)
    assert len(fingerprint(raw, wire)) == 32


@given(fields=MESSAGES, wire=st.sampled_from(sorted(FORMATS)))
def test_the_canonical_form_is_its_own_canonical_form(fields, wire):
    once = canonical(json.dumps(fields).encode(), wire)
    assert canonical(once, wire) == once


def test_a_value_that_is_not_a_message_has_no_canonical_form():
    with pytest.raises(InputError):
        canonical(b"[1]", CHAT)
