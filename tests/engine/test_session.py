"""The session API: messages are stored exactly, counted once, and durable."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest
from anthropic.types import Message as AnthropicMessage
from anthropic.types import TextBlock, ToolUseBlock
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessage
from openai.types.chat.chat_completion_chunk import ChoiceDelta
from openai.types.responses import Response

import recto
from recto.engine.session import Session
from recto.errors import (
    AppendConflict,
    InputError,
    KeyReused,
    MalformedMessage,
    SettingsError,
    StoreUnavailable,
    TooLarge,
)
from recto.formats import entry_text
from recto.testing import FakeClock, scripted_session
from recto.transcript.entries import EMPTY_HEAD, new_id

USER = {"role": "user", "content": "hi"}
ASSISTANT = {"role": "assistant", "content": "hello"}


@pytest.fixture(params=["memory:", "file"])
def session(request, tmp_path):
    store = "memory:" if request.param == "memory:" else tmp_path / "a.db"
    with recto.open(store, session="agent:test:main", model="gpt-4o") as opened:
        yield opened


@pytest.mark.requirement("transcript.exact")
def test_a_message_is_stored_byte_for_byte(session):
    raw = b'{ "content" : "caf\\u00e9",\n "role":"user", "x_vendor": [1e2, 1.0, -0] }'
    entry = session.append(raw)
    assert entry.content == raw
    assert session.tail(1)[0] == entry
    assert session.get(entry.id) == entry
    assert entry_text(entry) == "café"


def test_a_dict_is_stored_as_the_json_it_is(session):
    entry = session.append({"role": "user", "content": "日本"})
    assert entry.content == '{"role":"user","content":"日本"}'.encode()


def test_a_lone_surrogate_in_a_dict_is_stored(session):
    entry = session.append({"role": "user", "content": "\ud800"})
    assert json.loads(entry.content) == {"role": "user", "content": "\ud800"}


def test_every_entry_names_the_counter_of_its_tokens(session):
    entry = session.append(USER)
    assert (entry.counter, entry.tokens) == ("o200k", session.count(USER))
    assert entry.tokens > session.count("hi") > 0


def test_a_prompt_counts_its_messages_its_tools_and_its_frame(session):
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    alone = session.count([USER, ASSISTANT])
    assert alone > session.count(USER) + session.count(ASSISTANT)
    assert session.count([USER, ASSISTANT], tools=tools) > alone


def test_reported_usage_calibrates_the_count_of_prompts_and_is_remembered(tmp_path):
    prompt = [USER, ASSISTANT, USER]
    with recto.open(tmp_path / "a.db", model="claude-sonnet-4-5") as session:
        raw = session.count(prompt)
        for _ in range(3):
            session.observe(prompt, {"input_tokens": raw // 2, "cache_read_input_tokens": raw // 4, "output_tokens": 9})
        lower = session.count(prompt)
        assert raw * 0.7 < lower < raw
        with pytest.raises(InputError, match="no prompt tokens"):
            session.observe(prompt, {"output_tokens": 1})
    with recto.open(tmp_path / "a.db", model="claude-sonnet-4-5") as session:
        assert session.count(prompt) == lower
        session.observe(prompt, {"input_tokens": raw * 2})
        assert session.count(prompt) > 2 * raw
    with recto.open(tmp_path / "a.db", model="gpt-4o") as session:
        assert session.usage.calibration.ratios == ()


def test_an_exact_counter_is_never_lowered_by_reports():
    with recto.open("memory:", model="gpt-4o") as session:
        raw = session.count([USER])
        for _ in range(5):
            session.observe([USER], {"prompt_tokens": raw // 2})
        assert session.count([USER]) == raw


def test_a_batch_is_stored_in_its_order(session):
    entries = session.append_all([USER, ASSISTANT, USER])
    assert [entry.seq for entry in entries] == [1, 2, 3]
    assert list(session.read(2)) == entries[1:]
    assert len(session) == 3


def test_a_batch_with_one_bad_message_stores_nothing(session):
    with pytest.raises(InputError):
        session.append_all([USER, b"[]"])
    assert session.head == EMPTY_HEAD


def test_a_retry_under_its_key_stores_nothing(session):
    first = session.append_all([USER, ASSISTANT], key="turn")
    assert session.append_all([USER, ASSISTANT], key="turn") == first
    assert session.find("turn") == first[0]
    assert session.find("other") is None
    assert len(session) == 2


def test_a_key_cannot_be_reused_for_another_message(session):
    session.append(USER, key="k")
    with pytest.raises(KeyReused):
        session.append(ASSISTANT, key="k")


def test_expect_refuses_to_write_past_what_the_caller_knows(session):
    session.append(USER, expect=0)
    with pytest.raises(AppendConflict) as conflict:
        session.append(USER, expect=0)
    assert (conflict.value.expected, conflict.value.actual) == (0, 1)
    assert len(session) == 1


@pytest.mark.parametrize(
    "bad", [b"", b"{", b"[]", b'"text"', b"{}", b'{"role":7}', b'{"role":"user","content":NaN}', b"\xff"]
)
def test_an_invalid_message_is_refused_and_not_stored(session, bad):
    with pytest.raises(InputError):
        session.append(bad)
    assert len(session) == 0


@pytest.mark.parametrize(
    ("bad", "missing"),
    [
        ({"role": "user"}, "content"),
        ({"role": "user", "name": "ada"}, "content"),
        ({"role": "user", "content": None}, "content"),
        ({"type": "message", "role": "user"}, "content"),
        ({"role": "user", "parts": None}, "parts"),
    ],
)
def test_a_message_without_content_is_refused_and_not_stored(session, bad, missing):
    with pytest.raises(MalformedMessage, match=f"it has no '{missing}'. Nothing was stored"):
        session.append_all([USER, bad])
    assert len(session) == 0


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": ""},
        {"role": "system", "content": None},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "assistant", "content": None, "refusal": "no"},
        {"role": "assistant", "content": []},
        {"role": "tool", "tool_call_id": "c1", "content": ""},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": ""},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {}}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
        {"parts": [{"text": ""}]},
    ],
)
def test_a_message_that_is_complete_without_text_is_stored(session, message):
    session.append(message)
    assert len(session) == 1


@pytest.mark.parametrize("content", [3, True, {"text": "hi"}, [3], ["hi"]], ids=repr)
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_content_that_no_provider_accepts_is_refused_and_not_stored(session, role, content):
    with pytest.raises(MalformedMessage, match=r"neither a text nor a list of parts\. Nothing was stored"):
        session.append({"role": role, "content": content})
    assert len(session) == 0


def test_half_of_a_surrogate_pair_is_stored_and_replaced_in_the_prompt(session):
    raw = b'{"role":"user","content":"a \\ud83d b \\ud83d\\ude00 c \\\\ud83d \\uDE00"}'
    assert session.append(raw).content == raw
    (message,) = session.prompt().messages
    assert message["content"] == "a \ufffd b 😀 c \\ud83d \ufffd"
    assert json.dumps(message, ensure_ascii=False).encode()


def test_orphaned_results_alone_do_not_make_a_prompt(session):
    session.append({"role": "tool", "tool_call_id": "c1", "content": "x"})
    with pytest.raises(InputError, match=r"entry 1 for call 'c1'.*They are stored"):
        session.prompt()
    session.append(USER)
    assert session.prompt().messages == [USER]


@pytest.mark.parametrize("bad", [{"role": "user", "content": object()}, {"role": "user", "content": float("nan")}])
def test_a_dict_that_is_not_json_is_refused(session, bad):
    with pytest.raises(MalformedMessage):
        session.append(bad)


def test_a_message_over_the_limit_is_refused():
    with recto.open("memory:", model="gpt-4o", limits={"message_bytes": 100}) as session:
        with pytest.raises(TooLarge, match=r"limits\.message_bytes"):
            session.append({"role": "user", "content": "x" * 100})
        assert len(session) == 0


def test_a_message_of_a_hundred_megabytes_is_stored_exactly(tmp_path):
    raw = b'{"role":"tool","tool_call_id":"c","content":"' + b"0123456789" * 10_000_000 + b'"}'
    with recto.open(tmp_path / "a.db", model="gpt-4o") as session:
        session.append(raw)
        assert session.tail(1)[0].content == raw
        assert session.verify().ok


def test_an_event_is_recorded_and_costs_no_tokens(session):
    entry = session.record("note", {"text": "remember"})
    assert (entry.role, entry.kind, entry.tokens) == ("event", "note", 0)
    assert session.verify().ok


@pytest.mark.requirement("session.name")
def test_the_alias_and_the_key_name_the_same_session(tmp_path):
    with recto.open(tmp_path / "a.db", session="recto", model="gpt-4o") as session:
        session.append(USER)
    with recto.open(tmp_path / "a.db", session="agent:default:main", model="gpt-4o") as session:
        assert len(session) == 1


@pytest.mark.parametrize("name", ["", " a", "a\n", "a\x00b", "x" * 300, "\ud800", "a\u202eb"])
def test_an_ambiguous_session_key_is_refused(name):
    with pytest.raises(InputError):
        recto.open("memory:", session=name, model="gpt-4o")


def test_a_store_passed_by_the_caller_stays_open(tmp_path):
    with recto.open(tmp_path / "a.db", model="gpt-4o") as first:
        with recto.open(first.store, session="agent:other:main", model="gpt-4o") as second:
            second.append(USER)
        first.append(USER)
        assert {summary.session for summary in first.store.sessions()} == {"agent:default:main", "agent:other:main"}


def test_a_closed_store_is_reported_as_unavailable(tmp_path):
    session = recto.open(tmp_path / "a.db", model="gpt-4o")
    session.close()
    with pytest.raises(StoreUnavailable):
        session.append(USER)


def test_unknown_settings_are_refused_by_open():
    with pytest.raises(SettingsError, match="Did you mean 'limits'"):
        recto.open("memory:", limit={})


@pytest.mark.requirement("transcript.reopen")
def test_a_reopened_session_has_every_entry(tmp_path):
    messages = list(scripted_session(exchanges=10))
    with recto.open(tmp_path / "a.db", model="gpt-4o") as session:
        head = session.append_all(messages)[-1]
    with recto.open(tmp_path / "a.db", model="gpt-4o") as session:
        assert [json.loads(entry.content) for entry in session.read()] == messages
        assert session.head.hash == head.hash
        assert session.verify(session.head).ok


def test_ids_sort_by_time_and_never_repeat():
    clock = FakeClock()
    ids = [new_id(clock) for _ in range(1000)]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("time", [-(10**18), 0, 2**63 - 10**7])
def test_a_wrong_clock_does_no_harm(time):
    with recto.open("memory:", model="gpt-4o") as opened:
        session = Session(
            opened.store, "agent:t:m", meter=opened.meter, clock=FakeClock(time=time, step=-1), max_message_bytes=1000
        )
        session.append_all([USER, ASSISTANT])
        assert [entry.role for entry in session.read()] == ["user", "assistant"]


@given(
    st.text(), st.dictionaries(st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(), max_size=3)
)
@pytest.mark.requirement("transcript.exact")
def test_any_text_and_any_unknown_field_survive(text, extra):
    with recto.open("memory:", model="gpt-4o") as session:
        message = {"x_" + key: value for key, value in extra.items()} | {"role": "user", "content": text}
        entry = session.append(message)
        assert json.loads(entry.content) == message
        assert session.verify().ok


def test_the_async_api_does_the_same(tmp_path):
    async def work() -> None:
        async with await recto.open_async(tmp_path / "a.db", session="agent:a:b", model="gpt-4o") as session:
            first = await session.append(USER, key="one")
            assert await session.append(USER, key="one") == first
            await session.append_all([ASSISTANT, USER])
            await session.record("note", {"text": "x"})
            assert [entry.seq async for entry in session.read()] == [1, 2, 3, 4]
            assert [entry.seq for entry in await session.tail(2)] == [3, 4]
            assert await session.get(first.id) == first == await session.find("one")
            assert (await session.head()).seq == 4
            assert await session.count(USER) == first.tokens
            assert (await session.verify()).ok
            assert session.key == "agent:a:b"

    asyncio.run(work())


def test_many_tasks_append_to_one_session_without_losing_order_or_entries(tmp_path):
    async def work() -> None:
        async with await recto.open_async(tmp_path / "a.db", model="gpt-4o") as session:
            await asyncio.gather(*(session.append(USER, key=str(number)) for number in range(100)))
            entries = [entry async for entry in session.read()]
            assert [entry.seq for entry in entries] == list(range(1, 101))
            assert len({entry.key for entry in entries}) == 100

    asyncio.run(work())


def test_threads_share_a_session(session):
    def write(name: str) -> None:
        for number in range(20):
            session.append(USER, key=f"{name}-{number}")

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session) == 160
    assert session.verify().ok


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ASKS = ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": [CALL]})
CHAT_TURN = [USER, ASKS, {"role": "tool", "tool_call_id": "c1", "content": "7"}]
BLOCKS = [TextBlock(type="text", text="Let me look."), ToolUseBlock(type="tool_use", id="t1", name="look", input={})]
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "7"}]}
MESSAGES_TURN = [USER, {"role": "assistant", "content": BLOCKS}, RESULT]


@pytest.mark.parametrize("turn", [CHAT_TURN, MESSAGES_TURN], ids=["openai", "anthropic"])
def test_message_objects_of_sdk_clients_are_accepted(turn, session):
    stored = session.append_all(turn)
    assert [entry.role for entry in stored] == ["user", "assistant", "tool"]
    assert len(session.prompt().messages) == 3
    assert recto.fit(turn, 4_000, model="gpt-4o") == turn
    assert recto.count(turn, model="gpt-4o") > recto.count(turn[:2], model="gpt-4o")
    with recto.follow("memory:", model="gpt-4o") as conversations:
        assert conversations.of("a").fitted(CHAT_TURN) == CHAT_TURN


def test_only_the_message_of_a_whole_sdk_response_is_sent(session):
    envelope = {"id": "m", "type": "message", "model": "claude", "usage": {"input_tokens": 1, "output_tokens": 1}}
    response = envelope | {"role": "assistant", "content": BLOCKS, "stop_reason": "tool_use"}
    session.append(USER)
    session.append_all([AnthropicMessage.model_validate(response), RESULT])
    assert set(session.prompt().messages[1]) == {"role", "content"}


@pytest.mark.parametrize("bad", [3, None, ["agent:a:b"]], ids=repr)
def test_a_pointer_or_a_session_that_is_no_text_is_refused(session, bad):
    session.append(USER)
    with pytest.raises(InputError, match="is not a pointer"):
        session.window.read(bad)
    with pytest.raises(InputError, match="a key is 1 to 256 printable characters"):
        session.fork(bad)


@pytest.mark.parametrize("bad", ["hi", None, [USER], 3, object(), {"role": "user", "content": object()}, {}])
def test_a_non_message_is_refused_with_an_example(session, bad):
    with pytest.raises(MalformedMessage, match=r"Nothing was stored\.$") as refused:
        session.append(bad)
    assert bad == {} or '{"role": "user", "content": "Hello"}' in str(refused.value)
    assert len(session) == 0


WRONG_ENTRIES = {
    "none": (),
    "zero": (0,),
    "missing": (9,),
    "event": (2,),
    "list": ([1],),
    "true": (True,),
    "None": (None,),
}


@pytest.mark.parametrize("entries", WRONG_ENTRIES.values(), ids=WRONG_ENTRIES)
def test_only_messages_of_the_session_can_be_pinned(session, entries):
    session.append(USER)
    session.record("note_of_mine", {})
    with pytest.raises(InputError, match="Nothing was changed"):
        session.pin(*entries)
    assert len(session) == 2


def test_a_folder_is_not_accepted_as_a_store(tmp_path):
    with pytest.raises(StoreUnavailable, match="this is a folder; name a file in it"):
        recto.open(tmp_path, model="gpt-4o")


def test_undo_and_redo_of_other_entries_explain_what_they_accept(session):
    session.append(USER)
    with pytest.raises(InputError, match=r"entry 1 is not a decision \(message\): 'recto context detail'"):
        session.restore(1)
    with pytest.raises(InputError, match=r"there is no entry 9: .*'restore' returned the entry that 'redo' takes"):
        session.redo(9)


def test_a_decision_is_undone_once():
    with recto.open("memory:", model="gpt-4o", window={"max_tokens": 2_000}) as session:
        for number in range(80):
            session.append_all([{"role": "user", "content": f"{number} " + "word " * 20}, ASSISTANT])
        decision = session.prompt().decisions[0]
        before = len(session)
        undone = session.restore(decision.seq)
        assert session.restore(decision.seq) == undone == session.restore(decision.id)
        assert len(session) == before + 1
        session.redo(undone.seq)
        assert session.restore(decision.seq).seq > undone.seq


@pytest.mark.parametrize("part", [{"type": "text"}, {"type": "text", "text": None}, {"type": "input_text", "text": 3}])
def test_a_text_part_without_a_text_is_refused_before_it_is_stored(part):
    # Every provider refuses it, and with it every later prompt of the session.
    with recto.open("memory:", model="gpt-4o") as session:
        with pytest.raises(MalformedMessage, match="of type 'text' and has no text"):
            session.append({"role": "user", "content": [part]})
        assert len(session) == 0


def test_an_empty_list_of_tool_calls_is_stored_and_not_sent():
    # As a loop writes it that collects a stream. OpenAI refuses the empty list, and with it every later prompt.
    answer = {"role": "assistant", "content": "Hello.", "tool_calls": []}
    with recto.open("memory:", model="gpt-4o") as session:
        session.append({"role": "user", "content": "Hi."})
        entry = session.append(answer)
        assert json.loads(entry.content) == answer
        session.append({"role": "user", "content": "Go on."})
        assert session.prompt().messages[1] == {"role": "assistant", "content": "Hello."}


def test_parts_of_a_stream_and_streams_are_refused_with_what_to_do():
    # The first part of a stream has a role: it was stored as an empty answer.
    delta = ChoiceDelta(role="assistant", content="")
    chunk = ChatCompletionChunk.model_construct(object="chat.completion.chunk", choices=[])
    with recto.open("memory:", model="gpt-4o") as session:
        for part in (delta, chunk, iter([delta])):
            with pytest.raises(MalformedMessage, match="collect it and pass what it adds up to"):
                session.append(part)
        assert len(session) == 0


def test_a_response_with_several_items_is_refused_with_how_to_append_them():
    items = [{"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"} for number in range(2)]
    response = Response.model_construct(object="response", output=items)
    with recto.open("memory:", model="gpt-4o") as session:
        with pytest.raises(MalformedMessage, match=r"has 2 messages: .* append_all\(response\.output\)"):
            session.append(response)
        assert [entry.seq for entry in session.append_all(response.output)] == [1, 2]
