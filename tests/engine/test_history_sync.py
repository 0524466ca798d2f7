"""History sync: the history of a host is stored once, sent as a working set, and never overwritten."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest

import recto
from recto.errors import InputError, SettingsError
from recto.formats import problems
from recto.formats.openai_chat import CHAT
from recto.testing import scripted_session
from recto.transcript.entries import MESSAGE

WINDOW = 5_000
NO_MODEL = {"embedder": {"use": "none"}}


@dataclass(frozen=True)
class Boxed:
    """A message type of a host that combines all results of an answer."""

    messages: tuple[dict[str, Any], ...]


def following(store: Any = "memory:", **more: Any) -> recto.Conversations:
    return recto.follow(store, model="gpt-4o", max_tokens=WINDOW, recall=NO_MODEL, **more)


def stored_messages(session: recto.Session) -> list[dict[str, Any]]:
    return [json.loads(entry.content) for entry in session.read() if entry.kind == MESSAGE]


def calls_of(history: list[dict[str, Any]]) -> list[int]:
    """Returns the positions at which a host calls its model: before each assistant message."""
    return [index for index, message in enumerate(history) if message["role"] == "assistant"]


@pytest.mark.parametrize("mode", ["sliding_window", "auto_compact", "zones"])
@pytest.mark.requirement("session.full-history")
def test_every_prompt_of_a_growing_list_is_valid_and_fits_and_all_is_stored_once(mode):
    history = list(scripted_session(seed=3, exchanges=14))
    with following(window={"mode": mode}) as conversations:
        conversation = conversations.of("thread-1")
        for index in calls_of(history):
            sent = conversation.fitted(history[:index])
            assert problems([json.dumps(message).encode() for message in sent], CHAT) == []
            assert conversation.session.count(sent) <= WINDOW
            assert sent[0] == history[0]
        conversation.store(history)
        assert stored_messages(conversation.session) == history[1:]
        assert conversation.session.verify().ok
        assert conversation.session.report().left_messages > 0


def test_unchanged_messages_are_returned_as_the_objects_of_the_host():
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
    assert problems([json.dumps(message).encode() for message in flat], CHAT) == []
    made = [box for box in sent if id(box) not in own]
    assert made
    assert len(sent) > len(made)
    assert all(any(message not in history for message in box.messages) for box in made)
    assert sent[-1] is boxes[-1]


def test_a_system_text_that_changes_on_every_call_is_logged_without_a_branch():
    history = list(scripted_session(seed=3, exchanges=3))[1:]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        for index in calls_of(history):
            clock = {"role": "system", "content": f"It is {index} o'clock."}
            sent = conversation.fitted([clock, *history[:index]])
            assert sent[0] == clock
        assert conversation.session.key == "agent:default:thread-1"
        logged = [entry for entry in conversation.session.read() if entry.kind == "system_told"]
        assert len(logged) == len(calls_of(history))
        assert stored_messages(conversation.session) == history[: calls_of(history)[-1]]


def test_an_edited_history_continues_in_a_branch_and_the_original_is_unchanged():
    history = list(scripted_session(seed=3, exchanges=4))[1:]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted(history)
        first = conversation.session.key
        edited = [*history[:3], {"role": "user", "content": "No, the other file."}]
        conversation.fitted(edited)
        assert conversation.session.key != first
        assert stored_messages(conversation.session) == edited
        with recto.open(conversation.session.store, session=first) as before:
            assert stored_messages(before) == history


def test_an_edit_is_detected_even_if_the_beginning_is_repeated_at_the_end():
    greeted = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    edited = [*greeted, {"role": "user", "content": "Where is my order?"}]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted([*greeted, *greeted])
        conversation.fitted(edited)
        assert conversation.session.key != "agent:default:thread-1"
        assert stored_messages(conversation.session) == edited


def test_a_regenerated_answer_is_stored_in_a_branch():
    question = [{"role": "user", "content": "What is 6 x 7?"}]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted(question)
        conversation.heard({"role": "assistant", "content": "41"})
        conversation.fitted(question)
        conversation.heard({"role": "assistant", "content": "42"})
        assert [message["content"] for message in stored_messages(conversation.session)] == ["What is 6 x 7?", "42"]


def test_a_repeated_call_stores_nothing_and_an_answer_is_stored_only_once():
    question = {"role": "user", "content": "What is 6 x 7?"}
    with following() as conversations:
        conversation = conversations.of()
        assert conversation.fitted([question]) == conversation.fitted([question]) == [question]
        conversation.heard({"role": "assistant", "content": "42"}, usage={"prompt_tokens": 12, "completion_tokens": 1})
        resent = {"role": "assistant", "content": [{"type": "text", "text": "42"}], "annotations": []}
        conversation.fitted([question, resent, {"role": "user", "content": "And 7 x 7?"}])
        assert [message["role"] for message in stored_messages(conversation.session)] == ["user", "assistant", "user"]
        assert conversation.session.usage.calibration.apply(100) >= 100


def test_another_process_continues_in_the_branch_of_the_first(tmp_path):
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
        assert stored_messages(conversation.session) == later


def test_a_host_that_drops_the_beginning_stays_in_the_same_session():
    history = list(scripted_session(seed=3, exchanges=6))[1:]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.fitted(history[:-4])
        conversation.fitted(history[5:])
        assert conversation.session.key == "agent:default:thread-1"
        assert stored_messages(conversation.session) == history


def test_concurrent_conversations_in_two_processes_lose_and_duplicate_nothing(tmp_path):
    names = [f"thread-{number}" for number in range(4)]
    histories = {name: list(scripted_session(seed=at, exchanges=4))[1:] for at, name in enumerate(names)}
    with following(tmp_path / "a.db") as first, following(tmp_path / "a.db") as second:

        def work(name: str) -> None:
            for turn, place in enumerate(calls_of(histories[name])):
                (first, second)[turn % 2].of(name).fitted(histories[name][:place])
            first.of(name).store(histories[name])

        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name in names:
        with recto.open(tmp_path / "a.db", session=f"agent:default:{name}") as session:
            assert stored_messages(session) == histories[name]


def test_messages_pinned_by_a_rule_of_the_host_are_never_evicted():
    history = list(scripted_session(seed=3, exchanges=14))[1:]
    rule = {"role": "user", "content": "RULE: amounts are in cents, always."}
    with following(pin=lambda message: str(message.get("content", "")).startswith("RULE")) as conversations:
        sent = conversations.of().fitted([history[0], rule, *history[1:]])
        assert rule in sent


def test_answers_to_concurrent_questions_are_stored_after_their_questions():
    questions = [[{"role": "user", "content": f"What is {number} x 7?"}] for number in (1, 2)]
    with following() as conversations:
        conversation = conversations.of("thread-1")
        for question in questions:
            conversation.fitted(question)
        for number, question in enumerate(questions, 1):
            conversation.heard({"role": "assistant", "content": f"{number * 7}"}, after=question)
            assert [message["content"] for message in stored_messages(conversation.session)] == [
                question[0]["content"],
                f"{number * 7}",
            ]


def test_a_trigger_alone_sets_the_ceiling_and_a_lower_floor():
    with following(trigger=("fraction", 0.5), keep=("messages", 6)) as known:
        window = known.settings.window
        assert (window.ceiling_percent, window.floor_percent, window.min_recent_messages) == (50.0, 37.5, 6)


def test_familiar_parameter_names_map_to_window_settings():
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


RELIEF = {
    "sliding_window": {},
    "auto_compact": {"summarizer": lambda text: "The shelves were checked."},
    "zones": {"placeholder": "[cleared]", "clear_at_least": 500},
}


@pytest.mark.parametrize(("mode", "options"), RELIEF.items(), ids=RELIEF)
@pytest.mark.parametrize("percent", [30, 60, 95, 100])
def test_relief_starts_at_the_trigger_in_every_mode(mode, options, percent):
    with following(trigger=("fraction", percent / 100), **options) as known:
        rules = known.of().session.window.rules
        assert known.settings.window.mode == mode
        assert rules.ceiling == pytest.approx(percent / 100)
        assert rules.floor < rules.ceiling
        assert rules.warning < rules.ceiling
        assert all(rules.ceiling < start <= 1 for start in rules.policy_starts.values())


@pytest.mark.parametrize("options", RELIEF.values(), ids=RELIEF)
def test_the_first_relief_comes_soon_after_the_trigger(options):
    history = list(scripted_session(seed=3, exchanges=14))
    with following(trigger=("tokens", 1_500), window={"cache_aware": False}, **options) as conversations:
        conversation = conversations.of()
        before = 0
        for place in calls_of(history):
            sent = conversation.session.count(conversation.fitted(history[:place]))
            if conversation.session.report().decisions:
                break
            before = sent
        assert 500 < before <= 1_500


def test_a_compaction_at_a_low_trigger_keeps_the_newest_messages():
    with following(trigger=("tokens", 1_000), summarizer=lambda text: "Checked.") as known:
        assert known.of().session.window.rules.compact.keep_recent_tokens == 400
    with following(trigger=("tokens", 1_000), keep=("tokens", 600), summarizer=lambda text: "Checked.") as known:
        assert known.of().session.window.rules.compact.keep_recent_tokens == 600


@pytest.mark.parametrize("options", [{"summarizer": lambda text: "Checked."}, {"window": {"mode": "auto_compact"}}])
@pytest.mark.parametrize("kept", [{"preserve_recent": 20}, {"keep": ("messages", 20)}])
def test_a_number_of_messages_to_keep_is_refused_where_it_has_no_effect(options, kept):
    with pytest.raises(SettingsError, match="keep_tokens") as refused:
        following(**options, **kept)
    assert refused.value.key in kept
    with following(**kept) as known:
        assert known.of().session.window.rules.protection.min_recent_messages == 20
    with following(**{**options, "window": {"mode": "zones"}}, **kept) as known:
        assert known.of().session.window.rules.protection.min_recent_messages == 20


def test_a_setting_given_by_its_own_name_overrides_the_trigger():
    with following(
        trigger=("fraction", 0.5), summarizer=lambda text: "Checked.", window={"compact_target_percent": 90}
    ) as known:
        assert known.settings.window.compact_target_percent == 90
    with following(
        trigger=("fraction", 0.5), window={"mode": "zones", "cascade_percents": {"progressive": 85}}
    ) as known:
        assert known.settings.window.cascade_percents == {"progressive": 85}


@pytest.mark.parametrize(
    "size", [0.8, 4_000, "tokens", ("tokens",), ("tokens", "4000"), ("fraction", 80), ("words", 9)]
)
@pytest.mark.parametrize("option", ["trigger", "keep"])
def test_a_wrong_size_is_refused_with_how_one_is_written(option, size):
    with pytest.raises(SettingsError, match=rf"'{option}': is \(\"tokens\", 4000\) or \(\"fraction\", 0\.8\)"):
        following(**{option: size})


def test_an_id_of_a_conversation_that_is_no_text_is_refused():
    with following() as conversations, pytest.raises(InputError, match=r"not 4711; pass str\(id\)"):
        conversations.of(4711)


def test_a_custom_placeholder_still_points_to_the_result():
    history = list(scripted_session(seed=5, exchanges=14))
    own = {"placeholder": "[cleared]", "clear_at_least": 1, "preserve_recent": 4}
    with following(**own, compress={"result_tokens": 100_000}) as conversations:
        sent = [message for place in calls_of(history) for message in conversations.of("t").fitted(history[:place])]
    cleared = [
        message["content"] for message in sent if message["role"] == "tool" and "[cleared]" in str(message["content"])
    ]
    assert cleared
    assert all("recto://agent:default:t/" in text for text in cleared)


def test_functions_can_serve_as_token_counter_and_summarizer():
    history = list(scripted_session(seed=3, exchanges=14))
    requests: list[str] = []

    def write(text: str) -> str:
        requests.append(text)
        raise RuntimeError("no model today")

    def by_letters(text: str) -> int:
        return len(text) // 3

    with following(token_counter=by_letters, summarizer=write) as conversations:
        sent = conversations.of().fitted(history)
        assert conversations.settings.window.mode == "auto_compact"
        assert conversations.of().session.meter.name == "own/by_letters"
    assert requests
    assert len(sent) < len(history)


@pytest.mark.parametrize("name", ["a/b c", "~", " x", "ü" * 300, "line\nbreak", "agent:default:mine"])
def test_any_host_id_always_maps_to_the_same_session(name):
    with following() as conversations:
        conversation = conversations.of(name)
        conversation.fitted([{"role": "user", "content": "hi"}])
        assert conversations.of(name) is conversation
        assert conversation.session.key.startswith("agent:default:")


def test_an_answer_regenerated_many_times_is_found_in_its_own_branch(tmp_path):
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
        assert stored_messages(conversations.of("thread-1").session) == later


def test_new_messages_are_returned_without_storing_them_and_a_diverging_list_is_detected():
    history = list(scripted_session(seed=3, exchanges=3))
    with following() as conversations:
        conversation = conversations.of("thread-1")
        conversation.store(history[:-2])
        assert conversation.new_in(history) == history[-2:]
        assert conversation.new_in(history[:-2]) == []
        assert conversation.new_in([*history[:3], {"role": "user", "content": "No."}]) is None
        assert stored_messages(conversation.session) == history[1:-2]


def test_a_conversation_in_use_is_not_evicted_from_the_cache(monkeypatch):
    monkeypatch.setattr("recto.adapters.conversations._OPEN", 2)
    with following() as conversations:
        in_use = conversations.of("held")
        others = [weakref.ref(conversations.of(f"other{number}")) for number in range(5)]
        gc.collect()
        assert [reference() is None for reference in others] == [True, True, True, False, False]
        assert conversations.of("held") is in_use


@pytest.mark.parametrize("wrong", [None, "Hello.", {"role": "user", "content": "Hello."}])
def test_what_is_no_list_of_messages_is_refused_by_name(wrong):
    with following() as conversations:
        conversation = conversations.of("thread-1")
        for call in (conversation.fitted, conversation.store):
            with pytest.raises(InputError, match="'messages' is a list of messages, not"):
                call(wrong)


def test_an_iterator_of_messages_is_fitted_as_a_list():
    messages = [{"role": "user", "content": "Hello."}]
    with following() as conversations:
        assert conversations.of("thread-1").fitted(iter(messages)) == messages
