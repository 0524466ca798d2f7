"""Synthetic messages are accepted, edits change only what they should, and every prompt is valid."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.formats.arrangements import (
    ANTHROPIC,
    CHAT,
    EVENTS,
    RESPONSES,
    WIRES,
    fine_conversations,
    lines_of,
    rendered,
    written,
)
from tests.formats.format_strategies import BLOCKS, ITEMS, MESSAGES

from recto.formats import format_named, problems, read
from recto.formats.arrangement import SyntheticResult, arrange
from recto.formats.cache_control import cache_marks, newest_marks, with_cache_mark, without_cache_marks
from recto.formats.prompt_layout import render_arrangement
from recto.formats.session_files import read_file

MARK = b'{ "type" : "ephemeral" }'
EXPLICIT = b'{"mode": "explicit",  "ttl": "30m"}'


@pytest.mark.parametrize("wire", WIRES)
@given(EVENTS)
def test_every_rendered_prompt_is_valid_for_the_provider(wire, events):
    messages, _ = rendered(written(events, wire), wire)
    assert problems(messages, wire) == ([] if messages else ["there is no message"])


@pytest.mark.parametrize("wire", WIRES)
@given(fine_conversations())
def test_a_valid_conversation_is_sent_byte_for_byte(wire, events):
    before = written(events, wire)
    assert problems(before, wire) == []
    after, arrangement = rendered(before, wire)
    assert after == before
    assert not arrangement.omitted


@pytest.mark.parametrize("wire", WIRES)
@given(EVENTS)
def test_a_repaired_prompt_is_not_repaired_again(wire, events):
    once, _ = rendered(written(events, wire), wire)
    again, arrangement = rendered(once, wire)
    assert again == once
    assert not arrangement.omitted


@pytest.mark.parametrize("wire", WIRES)
@given(EVENTS)
def test_no_text_is_lost_or_duplicated(wire, events):
    before = written(events, wire)
    after, arrangement = rendered(before, wire)
    words = [re.findall(rb"(?:user|system|says)-\d+\.", b"".join(messages)) for messages in (before, after)]
    assert sorted(words[0]) == sorted(words[1])
    results_before, results_after = (re.findall(rb"gave-\d+\.", b"".join(messages)) for messages in (before, after))
    assert len(set(results_after)) == len(results_after) == len(results_before) - len(arrangement.omitted)


@pytest.mark.parametrize("wire", [CHAT, RESPONSES])
@given(EVENTS)
def test_with_one_result_per_message_every_message_is_original_or_synthetic(wire, events):
    before = written(events, wire)
    after, arrangement = rendered(before, wire)
    made = [piece for piece in arrangement.pieces if isinstance(piece, SyntheticResult)]
    assert len([raw for raw in after if raw not in before]) == len(made)


def real_sessions(data):
    for file in sorted((data / "agent_sessions").rglob("*.jsonl")):
        yield ANTHROPIC, [entry.content for entry in read_file([file.read_bytes()], file.name) if entry.wire]
    runs: dict[str, list[bytes]] = {}
    file = data / "taubench" / "gpt-4o-airline.json"
    for entry in read_file([file.read_bytes()], file.name):
        runs.setdefault(entry.session, []).append(entry.content)
    yield from ((CHAT, messages) for messages in runs.values())


def test_every_slice_of_every_real_session_makes_a_valid_prompt(data, scale):
    checked = 0
    for wire, messages in real_sessions(data):
        lines = lines_of(messages, wire)
        contents = dict(enumerate(messages, 1))
        rounds = scale(3, release=20)
        for part in range(1, rounds + 1):
            end = len(messages) * part // rounds
            # A session that lost its oldest messages at any point has to render as well.
            for start in {0, end * (part * 7 % 10) // 10}:
                stretch = lines[start:end]
                found = render_arrangement(arrange(stretch, {CHAT: "strict"}.get(wire, "merging")), contents, wire)
                assert problems(found, wire) == []
                checked += 1
    assert checked > 1000


def test_a_late_result_moves_behind_its_call_and_the_user_waits():
    before = written([("user",), ("assistant", ["c1", "c2"], ""), ("results", ["c1"], ""), ("user",)], ANTHROPIC)
    late = written([("results", ["c2"], "")], ANTHROPIC)
    after, _ = rendered(before + late, ANTHROPIC)
    assert after == [*before[:3], *late, before[3]]


def test_text_between_results_moves_behind_them():
    user, calls = written([("user",), ("assistant", ["c1", "c2"], "")], ANTHROPIC)
    words = '{"type":"text" ,"text":"\\u0041"}'
    results = [f'{{"type":"tool_result","tool_use_id":"{call}" }}' for call in ("c1", "c2")]
    message = '{"role":"user","content":[%s]}'
    first = (message % f"{words}, {results[0]}").encode()
    second = (message % results[1]).encode()
    after, _ = rendered([user, calls, first, second], ANTHROPIC)
    assert after == [user, calls, (message % results[0]).encode(), second, (message % words).encode()]


def test_a_result_between_reasoning_and_its_call_goes_before_both():
    before = written([("user",), ("assistant", ["c1"], "thinks"), ("assistant", ["c2"], "thinks")], RESPONSES)
    first, second = written([("results", ["c1", "c2"], "")], RESPONSES)
    after, _ = rendered([*before[:4], first, before[4], second], RESPONSES)
    assert after == [*before[:3], first, *before[3:], second]


def test_empty_messages_and_blank_blocks_are_not_sent():
    blank = '{"role": "user", "content": [{"type": "text", "text": " "}%s]}'
    user = written([("user",)], ANTHROPIC)[0]
    non_blank = b'{"role": "user", "content": [{"type": "text", "text": "x"}]}'
    mixed = (blank % ', {"type": "text", "text": "x"}').encode()
    empty = [(blank % "").encode(), b'{"role": "assistant", "content": ""}', b'{"role": "assistant", "content": []}']
    assert rendered([user, *empty, mixed], ANTHROPIC)[0] == [user, non_blank]


def test_an_entry_without_content_is_skipped_and_a_missing_entry_is_an_error():
    arrangement = arrange(lines_of(written([("user",)] * 2, CHAT), CHAT), "strict")
    assert render_arrangement(arrangement, {1: None, 2: b"{}"}, CHAT) == [b"{}"]
    with pytest.raises(KeyError):
        render_arrangement(arrangement, {1: None}, CHAT)


def test_a_user_message_is_added_where_claude_would_speak_first():
    (first, _), _ = rendered(written([("assistant", [], "speaks")], ANTHROPIC), ANTHROPIC)
    assert read(first, ANTHROPIC).role == "user"


def test_a_message_with_an_orphaned_result_keeps_its_text_exactly():
    raw = (
        b'{"role":"user","content":[ {"type":"tool_result","tool_use_id":"x"} ,\t{"type":"text","text":"\\u0041 go"} ]}'
    )
    assert (
        format_named(ANTHROPIC).edits.only_answers(raw, set())
        == b'{"role":"user","content":[ {"type":"text","text":"\\u0041 go"} ]}'
    )
    assert format_named(ANTHROPIC).edits.only_answers(raw, {"x"}) == raw
    assert format_named(ANTHROPIC).edits.only_answers(raw, set(), rest=False) is None
    assert format_named(ANTHROPIC).edits.only_answers(raw, {"x"}, rest=False) == (
        b'{"role":"user","content":[ {"type":"tool_result","tool_use_id":"x"} ]}'
    )


def test_the_first_of_two_results_for_one_call_in_one_message_stays():
    raw = written([("results", ["c1", "c1"], "")], ANTHROPIC)[0]
    reduced = format_named(ANTHROPIC).edits.only_answers(raw, {"c1"})
    assert b"gave-0." in reduced
    assert b"gave-1." not in reduced


@pytest.mark.parametrize("wire", WIRES)
@given(text=st.text(alphabet=st.characters(exclude_categories=[])), name=st.text(max_size=5))
@example(text="\ud800", name="")
def test_synthetic_messages_carry_their_text_even_lone_surrogates(wire, text, name):
    assert read(format_named(wire).text_message("user", text), wire).parts[0].text == text
    assert read(format_named(wire).text_message("assistant", text), wire).role == "assistant"
    (result,) = read(format_named(wire).edits.result_message("c 1", name, text), wire).results
    assert (result.call_id, result.text) == ("c 1", text)


def test_a_system_message_among_anthropic_messages_becomes_a_user_message():
    assert read(format_named(ANTHROPIC).text_message("system", "x"), ANTHROPIC).role == "user"
    assert read(format_named(CHAT).text_message("system", "x"), CHAT).role == "system"


@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "shell_call", "apply_patch_call"])
def test_a_synthetic_result_has_the_kind_of_its_call(kind):
    call = json.dumps({"type": kind, "call_id": "c1", "name": "look"}).encode()
    (_, made), _ = rendered([call], RESPONSES)
    assert json.loads(made)["type"] == f"{kind}_output"
    assert "still running" in str(json.loads(made)["output"])


def test_calls_that_the_provider_runs_get_no_synthetic_result():
    asks = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    raw = [b'{"role": "user", "content": "go"}', json.dumps({"role": "assistant", "content": [asks]}).encode()]
    lines = lines_of(raw, ANTHROPIC)
    as_read = [lines[0], type(lines[1])(seq=2, id="2", role="assistant", tokens=1, calls=("s1",))]
    assert render_arrangement(arrange(as_read, "merging"), {1: raw[0], 2: raw[1]}, ANTHROPIC) == raw


@pytest.mark.parametrize(
    ("wire", "before", "after"),
    [
        (CHAT, '{"tool_call_id":"c","content" : "long" , "x":1}', '{"tool_call_id":"c","content" : "é" , "x":1}'),
        (CHAT, '{"tool_call_id":"c","content":[{"type":"text"}]}', '{"tool_call_id":"c","content":"é"}'),
        (RESPONSES, '{"type":"function_call_output","call_id":"c","output":[1]}', None),
        (RESPONSES, '{"type":"function_call_output", "call_id":"c","output":"x" }', None),
    ],
)
def test_a_new_text_for_a_result_changes_nothing_around_it(wire, before, after):
    if wire == CHAT:
        before, after = ('{"role":"tool",' + text[1:] for text in (before, after))
    else:
        after = re.sub(r'"output":(\[1\]|"x")', '"output":"é"', before)
    assert format_named(wire).edits.with_results(before.encode(), {"c": "é", "other": "no"}) == after.encode()
    assert format_named(wire).edits.with_results(before.encode(), {"other": "no"}) == before.encode()


def test_a_new_text_for_an_anthropic_result_keeps_its_ties_marks_and_neighbours():
    result = (
        '{"is_error":true,"type":"tool_result","tool_use_id":"c1","content":%s ,"cache_control":{"type":"ephemeral"}}'
    )
    bare = '{"type":"tool_result", "tool_use_id":"c2"}'
    frame = '{"role":"user", "content":[%s,  %s, {"type":"text","text":"\\u00e9"}]}'
    before = frame % (result % '[{"type":"text","text":"long"}]', bare)
    after = frame % (result % '"short"', '{"type":"tool_result", "tool_use_id":"c2", "content": "none"}')
    assert format_named(ANTHROPIC).edits.with_results(before.encode(), {"c1": "short", "c2": "none"}) == after.encode()


def test_a_shell_result_keeps_its_shape_and_a_screenshot_is_left_alone():
    outcome = {"type": "exit", "exit_code": 3}
    shell = {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "x" * 99, "outcome": outcome}]}
    short = json.loads(format_named(RESPONSES).edits.with_results(json.dumps(shell).encode(), {"c": "short"}))
    assert short["output"] == [{"stdout": "short", "stderr": "", "outcome": outcome}]
    screen = b'{"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot"}}'
    assert format_named(RESPONSES).edits.with_results(screen, {"c": "short"}) == screen


def test_thinking_is_removed_and_the_rest_stays_byte_for_byte():
    words = b'{"type":"text" ,"text":"x"}'
    raw = b'{"role":"assistant","content":[{"type":"thinking"}, %s,{"type":"redacted_thinking"}]}' % words
    assert format_named(ANTHROPIC).edits.without_thinking(raw) == b'{"role":"assistant","content":[%s]}' % words
    assert (
        format_named(ANTHROPIC).edits.without_thinking(b'{"role":"assistant","content":[{"type":"thinking"}]}') is None
    )
    assert format_named(ANTHROPIC).edits.without_thinking(b'{"role":"assistant","content":"on thinking"}') is not None
    chat = b'{"role":"assistant","content":"x","reasoning_content":"thinking"}'
    assert format_named(CHAT).edits.without_thinking(chat) == chat


@pytest.mark.parametrize(
    ("wire", "mark", "before", "after"),
    [
        (ANTHROPIC, MARK, '{"content":"é"}', '[{"type": "text", "text": "é", "cache_control": %s}]'),
        (CHAT, EXPLICIT, '{"content":"x"}', '[{"type": "text", "text": "x", "prompt_cache_breakpoint": %s}]'),
        (CHAT, MARK, '{"content":"x"}', '[{"type": "text", "text": "x", "cache_control": %s}]'),
        (RESPONSES, EXPLICIT, '{"output":"x"}', '[{"type": "input_text", "text": "x", "prompt_cache_breakpoint": %s}]'),
        (CHAT, EXPLICIT, '{"content":[{}]}', '[{"prompt_cache_breakpoint": %s}]'),
        (
            ANTHROPIC,
            MARK,
            '{"content":[{"type":"x"},{"type":"text","text":""}]}',
            '[{"type":"x", "cache_control": %s},{"type":"text","text":""}]',
        ),
        (
            ANTHROPIC,
            MARK,
            '{"content":[{"type":"tool_use","input":{"cache_control":1}},{"type":"thinking"}]}',
            '[{"type":"tool_use","input":{"cache_control":1}, "cache_control": %s},{"type":"thinking"}]',
        ),
    ],
)
def test_a_mark_goes_on_the_last_block_that_can_carry_it(wire, mark, before, after):
    marked = with_cache_mark(before.encode(), wire, mark)
    assert marked.decode() == before.partition(":")[0] + ":" + after % mark.decode() + "}"
    assert cache_marks(marked, wire) == [mark]
    assert cache_marks(without_cache_marks(marked, wire), wire) == []
    assert with_cache_mark(marked, wire, mark) == marked


def test_cache_marks_inside_results_are_found_and_removed_completely():
    inner = b'{"cache_control":%s, "type":"text"}' % MARK
    raw = b'{"role":"user","content":[{"type":"tool_result","content":[%s]},{"a":1 , "cache_control":{}}]}' % inner
    assert cache_marks(raw, ANTHROPIC) == [MARK, b"{}"]
    assert without_cache_marks(raw, ANTHROPIC) == (
        b'{"role":"user","content":[{"type":"tool_result","content":[{"type":"text"}]},{"a":1}]}'
    )


def test_marked_assistant_text_becomes_output_text():
    marked = with_cache_mark(b'{"role":"assistant","content":"x"}', RESPONSES, EXPLICIT)
    assert json.loads(marked)["content"][0]["type"] == "output_text"


def test_a_null_mark_is_not_a_mark():
    assert cache_marks(b'{"role":"user","content":[{"type":"text","text":"x","cache_control":null}]}', ANTHROPIC) == []


def test_a_message_that_cannot_carry_a_mark_stays_unchanged():
    for wire, raw in [
        (CHAT, b'{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}'),
        (RESPONSES, b'{"type":"function_call","call_id":"c","arguments":"{}"}'),
        (ANTHROPIC, b'{"role":"assistant","content":[{"type":"thinking"}]}'),
        (ANTHROPIC, b'{"role":"user","content":" "}'),
    ]:
        assert with_cache_mark(raw, wire, MARK) == raw


def test_the_newest_marks_stay_when_there_are_too_many():
    plain = written([("user",)] * 7, ANTHROPIC)
    marked = newest_marks([with_cache_mark(raw, ANTHROPIC, MARK) for raw in plain], ANTHROPIC)
    assert [len(cache_marks(raw, ANTHROPIC)) for raw in marked] == [0, 0, 0, 1, 1, 1, 1]


def test_only_thinking_and_marks_are_removed_from_real_messages(data):
    for wire, messages in real_sessions(data):
        for raw in messages[:: len(messages) // 20 + 1]:
            bare = format_named(wire).edits.without_thinking(raw)
            if bare is not None:
                before, after = json.loads(raw), json.loads(bare)
                blocks = before["content"]
                if wire == ANTHROPIC and isinstance(blocks, list):
                    before["content"] = [block for block in blocks if "thinking" not in block["type"]]
                assert after == before
            assert without_cache_marks(with_cache_mark(raw, wire, MARK), wire).count(b"cache_control") == raw.count(
                b"cache_control"
            )


@pytest.mark.parametrize("wire", WIRES)
@given(fields=MESSAGES | ITEMS, blocks=st.lists(BLOCKS, min_size=1, max_size=3))
def test_no_malformed_message_breaks_an_edit(wire, fields, blocks):
    for content in (fields.get("content"), blocks):
        raw = json.dumps({**fields, "content": content}).encode()
        changed = [
            format_named(wire).edits.with_results(raw, {"": "x"}),
            format_named(wire).edits.only_answers(raw, {""}),
            format_named(wire).edits.without_thinking(raw),
            without_cache_marks(raw, wire),
            with_cache_mark(raw, wire, MARK),
        ]
        assert all(isinstance(json.loads(one), dict) for one in changed if one is not None)
