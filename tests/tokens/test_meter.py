"""What messages, tool schemas, images and prompts cost beyond their words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.formats.message import Message, Part
from recto.tokens._images import FORMULAS, image_tokens
from recto.tokens.meter import FRAMES, MAX_FRAME, Frame, Meter, frame_of

words = Meter(name="words", count=lambda text: len(text.split()), frame=Frame(message=4, prompt=3, name=1))


def text(said: str, role: str = "user", name: str = "") -> Message:
    return Message(role=role, parts=(Part(kind="text", text=said),), name=name)


def test_a_message_costs_its_words_and_its_frame():
    assert words.message(text("one two three")) == 7


def test_a_message_without_parts_costs_its_frame():
    assert words.message(Message(role="assistant", parts=())) == 4


def test_a_message_of_the_assistant_costs_its_own_frame_too():
    meter = Meter(name="words", count=words.count, frame=Frame(message=4, prompt=3, assistant=2))
    assert meter.message(text("hi", "assistant")) == meter.message(text("hi")) + 2


def test_a_speakers_name_costs_its_tokens_and_one():
    assert words.message(text("hi", name="ada")) == words.message(text("hi")) + 2


def test_a_prompt_costs_its_messages_its_tools_and_the_priming():
    messages = [text("a b", "system"), text("c"), text("d", "assistant")]
    assert words.prompt(messages) == 3 + 3 * 4 + 4
    assert words.prompt(messages, '[{"name": "f"}]') == words.prompt(messages) + words.tools('[{"name": "f"}]')


def test_a_call_and_its_result_cost_more_than_the_same_words_as_text():
    call = Message(role="assistant", parts=(Part(kind="call", name="read", text='{"path": "a"}', call_id="1"),))
    result = Message(role="tool", parts=(Part(kind="result", text="a b c", call_id="1"),))
    assert words.message(call) >= words.message(text('read {"path": "a"}')) + 16
    assert words.message(result) >= words.message(text("a b c")) + 6


def test_claude_pays_for_each_argument_of_a_call():
    claude = Meter(name="words", count=words.count, frame=frame_of("claude"))
    one = Part(kind="call", name="f", text='{"a":1}')
    two = Part(kind="call", name="f", text='{"a":1,"b":2}')
    broken = Part(kind="call", name="f", text='{"a":1')
    costs = [claude.message(Message(role="assistant", parts=(part,))) for part in (one, two, broken)]
    assert costs[1] - costs[0] == costs[0] - costs[2] == 13


def test_a_family_that_quotes_results_counts_the_escapes():
    quoting = Meter(name="chars", count=len, frame=Frame(message=0, prompt=0, result=0, quotes_results=True))
    plain = Meter(name="chars", count=len, frame=Frame(message=0, prompt=0, result=0))
    result = Message(role="tool", parts=(Part(kind="result", text='say "hi"\n'),))
    assert plain.message(result) == 9
    assert quoting.message(result) == 9 + 2 + 3


def test_opaque_bytes_are_not_free():
    bare = Message(role="assistant", parts=(Part(kind="thinking", text="hm"),))
    signed = Message(role="assistant", parts=(Part(kind="thinking", text="hm", weight=1000),))
    assert words.message(signed) - words.message(bare) == 300


def test_an_images_bytes_are_not_counted_as_text():
    meter = Meter(name="words", count=words.count, images="openai-tiles")
    small = Message(role="user", parts=(Part(kind="image", size=(512, 512), weight=10),))
    heavy = Message(role="user", parts=(Part(kind="image", size=(512, 512), weight=10_000_000),))
    assert meter.message(small) == meter.message(heavy) == MAX_FRAME.message + 85 + 170


@pytest.mark.requirement("tokens.media")
def test_media_is_counted_by_its_bytes():
    assert words.message(Message(role="user", parts=(Part(kind="media", weight=4000),))) == 4 + 1000


def test_no_tools_cost_nothing():
    assert [words.tools(none) for none in ("", "  ", "[]", "null")] == [0, 0, 0, 0]


def test_tools_cost_their_json_and_a_margin():
    schemas = json.dumps([{"name": "f", "parameters": {"type": "object"}}] * 3)
    assert words.tools(schemas) == words.count(schemas) + 100 + 3 * 4


def test_tools_are_counted_as_the_template_writes_them():
    schemas = '[{"name":"f","parameters":{"type":"object"}}]'
    lined = Meter(name="lines", count=lambda text: text.count("\n"), frame=Frame(message=0, prompt=0, indent=4))
    assert lined.tools(schemas) == 100 + 4 + json.dumps(json.loads(schemas), indent=4).count("\n")


def test_tools_that_are_not_json_are_counted_as_they_are():
    assert words.tools("a b c") == 103
    assert words.tools("[" * 100_000) == 101


def test_an_unknown_family_gets_the_widest_frame():
    assert frame_of("nobody") is MAX_FRAME
    for frame in FRAMES.values():
        assert MAX_FRAME.message >= frame.message
        assert MAX_FRAME.prompt >= frame.prompt
        assert MAX_FRAME.tools >= frame.tools
        assert MAX_FRAME.call + MAX_FRAME.result >= frame.call + frame.result


@pytest.mark.parametrize(
    ("formula", "size", "detail", "tokens"),
    [
        ("openai-tiles", (1024, 1024), "high", 85 + 170 * 4),
        ("openai-tiles", (2048, 4096), "high", 85 + 170 * 6),
        ("openai-tiles", (4096, 8192), "low", 85),
        ("openai-tiles", (512, 512), "", 85 + 170),
        ("openai-tiles", None, "auto", 85 + 170 * 8),
        ("openai-tiles-mini", (512, 512), "high", 2833 + 5667),
        ("openai-patches-162", (1024, 1024), "", 1659),
        ("openai-patches-162", (1800, 2400), "", 2489),
        ("openai-patches-large", (1600, 1600), "high", 3000),
        ("openai-patches-large", (6000, 6000), "original", 12000),
        ("claude", (1000, 1000), "", 36 * 36),
        ("claude", (200, 200), "", 64),
        ("claude", (8000, 8000), "", 1600),
        ("claude-4.7", (8000, 8000), "", 4784),
        ("claude-4.7", None, "", 4784),
        ("gemini", (384, 384), "", 258),
        ("gemini", (960, 540), "", 258 * 6),
        ("gemini-3", (4000, 4000), "", 1120),
        ("gemini-3", (10, 10), "MEDIA_RESOLUTION_LOW", 280),
        ("nobody", (280, 280), "", 100),
    ],
)
@pytest.mark.requirement("tokens.media")
def test_images_cost_what_the_vendors_publish(formula, size, detail, tokens):
    assert image_tokens(formula, size, detail) == tokens


@pytest.mark.parametrize("formula", FORMULAS)
@given(size=st.tuples(st.integers(-5, 20_000), st.integers(-5, 20_000)), detail=st.sampled_from(["", "low", "high"]))
def test_no_image_is_free_or_fails(formula, size, detail):
    assert image_tokens(formula, size, detail) >= 1


@pytest.mark.parametrize("formula", sorted(set(FORMULAS) - {"gemini", "unknown"}))
@given(size=st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)))
def test_an_image_of_unknown_size_costs_the_most_its_formula_can_give(formula, size):
    assert image_tokens(formula, None) >= image_tokens(formula, size)
