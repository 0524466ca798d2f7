"""A history that somebody else keeps: stored once, sent as a working set, never overwritten."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest

import recto
from recto.errors import SettingsError
from recto.formats import problems
from recto.formats.openai_chat import CHAT
from recto.testing import scripted_session
from recto.transcript.entries import MESSAGE

WINDOW = 5_000
NO_MODEL = {"embedder": {"use": "none"}}


@dataclass(frozen=True)
class Boxed:
    """A message of a host of our own: an answer's results come together in one."""

    messages: tuple[dict[str, Any], ...]


def following(store: Any = "memory:", **more: Any) -> recto.Conversations:
    return recto.follow(store, model="gpt-4o", max_tokens=WINDOW, recall=NO_MODEL, **more)


def spoken(session: recto.Session) -> list[dict[str, Any]]:
    return [json.loads(entry.content) for entry in session.read() if entry.kind == MESSAGE]


def calls_of(history: list[dict[str, Any]]) -> list[int]:
    """Where a host asks its model: before each message of the assistant."""
    return [place for place, message in enumerate(history) if message["role"] == "assistant"]


@pytest.mark.parametrize("mode", ["sliding_window", "auto_compact", "zones"])
@pytest.mark.requirement("session.full-history")
def test_every_prompt_of_a_growing_list_is_valid_and_fits_and_everything_is_stored_once(mode):
    history = list(scripted_session(seed=3, exchanges=14))
    with following(window={"mode": mode}) as conversations:
        conversation = conversations.of("thread-1")
        for place in calls_of(history):
            sent = conversation.fitted(history[:place])
            assert problems([json.dumps(one).encode() for one in sent], CHAT) == []
            assert conversation.session.count(sent) <= WINDOW
            assert sent[0] == history[0]
        conversation.store(history)
        assert spoken(conversation.session) == history[1:]
        assert conversation.session.verify().ok
        assert conversation.session.report().left_messages > 0


def test_what_is_unchanged_comes_back_as_the_hosts_own_object():
    history = list(scripted_session(seed=5, exchanges=14))
    boxes: list[Boxed] = []
    for message in history:
        if message["role"] == "tool" and boxes and boxes[-1].messages[0]["role"] == "tool":
            boxes[-1] = Boxed((*boxes[-1].messages, message))
        else:
            boxes.append(Boxed((message,)))
    with following(window={"mode": "zones"}) as conversations:
        sent = conversations.of().working_set(boxes, lambda box: box.messages, lambda made: [Boxed(tuple(made))])
    own = {id(box) for box in boxes}
    flat = [message for box in sent for message in box.messages]
    assert problems([json.dumps(one).encode() for one in flat], CHAT) == []
    made = [box for box in sent if id(box) not in own]
    assert made
    assert len(sent) > len(made)
    assert all(any(message not in history for message in box.messages) for box in made)
    assert sent[-1] is boxes[-1]


def test_a_system_text_that_changes_with_every_call_makes_no_branch_and_is_written_down():
    history = list(scripted_session(seed=3, exchanges=3))[1:]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        for place in calls_of(history):
            clock = {"role": "system", "content": f"It is {place} o'clock."}
            sent = conversation.fitted([clock, *history[:place]])
            assert sent[0] == clock
        assert conversation.session.key == "agent:default:thread-1"
        told = [entry for entry in conversation.session.read() if entry.kind == "system_told"]
        assert len(told) == len(calls_of(history))
        assert spoken(conversation.session) == history[: calls_of(history)[-1]]


def test_an_edited_history_goes_on_in_a_branch_and_the_first_stays_as_it_was():
    history = list(scripted_session(seed=3, exchanges=4))[1:]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted(history)
        first = conversation.session.key
        edited = [*history[:3], {"role": "user", "content": "No, the other file."}]
        conversation.fitted(edited)
        assert conversation.session.key != first
        assert spoken(conversation.session) == edited
        with recto.open(conversation.session.store, session=first) as before:
            assert spoken(before) == history


def test_an_edit_is_seen_also_where_the_beginning_was_said_again_at_the_end():
    greeted = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    edited = [*greeted, {"role": "user", "content": "Where is my order?"}]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted([*greeted, *greeted])
        conversation.fitted(edited)
        assert conversation.session.key != "agent:default:thread-1"
        assert spoken(conversation.session) == edited


def test_an_answer_that_is_asked_for_again_is_told_in_a_branch():
    question = [{"role": "user", "content": "What is 6 x 7?"}]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted(question)
        conversation.heard({"role": "assistant", "content": "41"})
        conversation.fitted(question)
        conversation.heard({"role": "assistant", "content": "42"})
        assert [one["content"] for one in spoken(conversation.session)] == ["What is 6 x 7?", "42"]


def test_the_same_call_again_stores_nothing_and_an_answer_that_was_heard_is_not_stored_twice():
    question = {"role": "user", "content": "What is 6 x 7?"}
    with following() as conversations:
        conversation = conversations.of()
        assert conversation.fitted([question]) == conversation.fitted([question]) == [question]
        conversation.heard({"role": "assistant", "content": "42"}, usage={"prompt_tokens": 12, "completion_tokens": 1})
        told_again = {"role": "assistant", "content": [{"type": "text", "text": "42"}], "annotations": []}
        conversation.fitted([question, told_again, {"role": "user", "content": "And 7 x 7?"}])
        assert [one["role"] for one in spoken(conversation.session)] == ["user", "assistant", "user"]
        assert conversation.session.usage.calibration.apply(100) >= 100


def test_another_process_goes_on_where_the_first_one_was_in_its_branch_too(tmp_path):
    history = list(scripted_session(seed=3, exchanges=4))[1:]
    edited = [*history[:3], {"role": "user", "content": "No, the other file."}]
    with following(tmp_path / "a.db") as conversations:
        conversations.of("thread-1").fitted(history)
        conversations.of("thread-1").fitted(edited)
        branch = conversations.of("thread-1").session.key
    later = [*edited, {"role": "assistant", "content": "Done."}, {"role": "user", "content": "Thanks."}]
    with following(tmp_path / "a.db") as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted(later)
        assert conversation.session.key == branch
        assert spoken(conversation.session) == later


def test_a_host_that_let_go_of_the_beginning_goes_on_in_the_same_session():
    history = list(scripted_session(seed=3, exchanges=6))[1:]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted(history[:-4])
        conversation.fitted(history[5:])
        assert conversation.session.key == "agent:default:thread-1"
        assert spoken(conversation.session) == history


def test_many_conversations_at_once_and_two_processes_in_turn_lose_and_double_nothing(tmp_path):
    names = [f"thread-{number}" for number in range(4)]
    histories = {name: list(scripted_session(seed=at, exchanges=4))[1:] for at, name in enumerate(names)}
    with following(tmp_path / "a.db") as one, following(tmp_path / "a.db") as other:

        def work(name: str) -> None:
            for turn, place in enumerate(calls_of(histories[name])):
                (one, other)[turn % 2].of(name).fitted(histories[name][:place])
            one.of(name).store(histories[name])

        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in names:
        with recto.open(tmp_path / "a.db", session=f"agent:default:{name}") as session:
            assert spoken(session) == histories[name]


def test_what_is_pinned_by_the_hosts_own_rule_never_leaves():
    history = list(scripted_session(seed=3, exchanges=14))[1:]
    rule = {"role": "user", "content": "RULE: amounts are in cents, always."}
    with following(pin=lambda message: str(message.get("content", "")).startswith("RULE")) as conversations:
        sent = conversations.of().fitted([history[0], rule, *history[1:]])
        assert rule in sent


def test_answers_to_questions_that_were_asked_at_once_are_stored_behind_their_questions():
    questions = [[{"role": "user", "content": f"What is {number} x 7?"}] for number in (1, 2)]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        for question in questions:
            conversation.fitted(question)
        for number, question in enumerate(questions, 1):
            conversation.heard({"role": "assistant", "content": f"{number * 7}"}, after=question)
            assert [one["content"] for one in spoken(conversation.session)] == [question[0]["content"], f"{number * 7}"]


def test_a_trigger_alone_is_enough_and_relief_goes_some_way_below_it():
    with following(trigger=("fraction", 0.5), keep=("messages", 6)) as known:
        window = known.settings.window
        assert (window.ceiling_percent, window.floor_percent, window.min_recent_messages) == (50.0, 37.5, 6)


def test_names_that_people_know_are_settings_of_the_window():
    with following(
        trigger=("fraction", 0.5), keep=("tokens", 1_000), preserve_recent=4, exclude_tools=["read_file"]
    ) as known:
        window = known.settings.window
        assert (window.ceiling_percent, window.min_recent_messages) == (50.0, 4)
        assert window.floor_percent == pytest.approx(100 * 1_000 / known.of().session.window.budget.input_budget)
        assert window.keep_tools == window.trim.exclude_tools == ("read_file",)
    with following(placeholder="[cleared]", clear_at_least=500) as known:
        trim = known.settings.window.trim
        assert (known.settings.window.mode, trim.placeholder, trim.clear_at_least) == ("zones", "[cleared]", 500)
    with pytest.raises(SettingsError, match="tokens or a fraction"):
        following(trigger=("messages", 20))


def test_a_placeholder_of_ones_own_still_says_where_the_result_is():
    history = list(scripted_session(seed=5, exchanges=14))
    own = {"placeholder": "[cleared]", "clear_at_least": 1, "preserve_recent": 4}
    with following(**own, compress={"result_tokens": 100_000}) as conversations:
        sent = [one for place in calls_of(history) for one in conversations.of("t").fitted(history[:place])]
    cleared = [one["content"] for one in sent if one["role"] == "tool" and "[cleared]" in str(one["content"])]
    assert cleared
    assert all("recto://agent:default:t/" in text for text in cleared)


def test_a_function_can_count_and_a_function_can_write_the_summary():
    history = list(scripted_session(seed=3, exchanges=14))
    asked: list[str] = []

    def write(text: str) -> str:
        asked.append(text)
        raise RuntimeError("no model today")

    def by_letters(text: str) -> int:
        return len(text) // 3

    with following(token_counter=by_letters, summarizer=write) as conversations:
        sent = conversations.of().fitted(history)
        assert conversations.settings.window.mode == "auto_compact"
        assert conversations.of().session.meter.name == "own/by_letters"
    assert asked
    assert len(sent) < len(history)


@pytest.mark.parametrize("name", ["a/b c", "~", " x", "ü" * 300, "line\nbreak", "agent:default:mine"])
def test_any_id_of_a_host_names_a_session_and_the_same_one_again(name):
    with following() as conversations:
        conversation = conversations.of(name)
        conversation.fitted([{"role": "user", "content": "hi"}])
        assert conversations.of(name) is conversation
        assert conversation.session.key.startswith("agent:default:")


def test_an_answer_that_is_asked_for_again_and_again_is_found_in_its_own_branch(tmp_path):
    question = [{"role": "user", "content": "What is 6 x 7?"}]
    with following(tmp_path / "a.db") as conversations:
        for answer in range(12):
            conversations.of("thread-1").fitted(question)
            conversations.of("thread-1").heard({"role": "assistant", "content": str(answer)})
        last = conversations.of("thread-1").session.key
    later = [*question, {"role": "assistant", "content": "11"}, {"role": "user", "content": "And 7 x 7?"}]
    with following(tmp_path / "a.db") as conversations:
        conversations.of("thread-1").fitted(later)
        assert conversations.of("thread-1").session.key == last
        assert spoken(conversations.of("thread-1").session) == later


def test_what_is_new_in_a_list_is_told_without_storing_it_and_a_list_that_parts_is_told_apart():
    history = list(scripted_session(seed=3, exchanges=3))
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.store(history[:-2])
        assert conversation.new_in(history) == history[-2:]
        assert conversation.new_in(history[:-2]) == []
        assert conversation.new_in([*history[:3], {"role": "user", "content": "No."}]) is None
        assert spoken(conversation.session) == history[1:-2]


def test_a_conversation_that_somebody_holds_is_not_let_go_for_others(monkeypatch):
    monkeypatch.setattr("recto.adapters.conversations._OPEN", 2)
    with following() as conversations:
        held = conversations.of("held")
        others = [weakref.ref(conversations.of(f"other{number}")) for number in range(5)]
        gc.collect()
        assert [one() is None for one in others] == [True, True, True, False, False]
        assert conversations.of("held") is held
