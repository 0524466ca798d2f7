"""Answers of a fixed reader model, scored by rule if the answer is a value."""

from __future__ import annotations

import json

import pytest
from tests.cli.calling import called_at
from tests.models.serving import serving

from recto.config import Settings
from recto.context.compaction.protocols import ModelReply
from recto.errors import InputError, ModelFailed
from recto.lab.moments import EQUAL, SEARCH, WHOLE, Choice
from recto.lab.question_sets import (
    AnswerValue,
    QuestionedConversation,
    ValueQuestion,
    numbers_in,
    read_questions,
    value_of,
)
from recto.lab.reader import ReaderAnswer, ask_reader, summarize_answers
from recto.lab.variants import MODES

CHOICE = Choice(windows=(4_000,), modes=MODES[:1], count=5)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (2, "number", "2"),
        ("$400,000", "number", "$400,000"),
        ("about two hours", "number", "two hours"),
        ("April 5, 2024", "date", "April 5, 2024"),
        ("Wednesday.", "name", "Wednesday"),
        ("the Data Analysis webinar", "name", "Data Analysis webinar"),
        ("@jessica_poole", "name", "@jessica_poole"),
    ],
)
def test_numbers_dates_and_names_are_values(answer, kind, text):
    assert value_of(answer) == AnswerValue(kind=kind, text=text)


@pytest.mark.parametrize(
    "answer",
    ["", None, True, "You did not mention this information at all.", "some lower words", "a, b and c of many more"],
)
def test_sentences_are_not_values(answer):
    value = value_of(answer)
    assert value is None or answer is None


@pytest.mark.parametrize(
    ("answer", "reply", "right"),
    [
        ("Five days", "It takes 5 days.", True),
        ("5 days", "It takes fifteen days.", False),
        ("$6,200", "The budget is 6200 dollars", True),
        ("April 22 at 11 AM", "on April 22, 11 AM", True),
        ("April 22", "on May 22", False),
        ("Blue Horizon Studios", "at blue  horizon studios, in 2019", True),
        ("Johnson", "Johnsonville", False),
        ("5.5 weeks", "5.5 weeks.", True),
        ("5.5 weeks", "5 weeks", False),
    ],
)
def test_a_reply_is_correct_if_it_states_the_value(answer, reply, right):
    assert value_of(answer).is_in(reply) is right


def test_numbers_are_read_in_digits_and_in_words():
    assert numbers_in("Twelve of 1,000, or 3.5.") == {"12", "1000", "3.5"}


def beam(folder):
    """Writes a conversation in BEAM's layout: the port is stated once, early, and much text follows."""
    filler = "We talked about gardens, rivers and many other things at great length. " * 20
    texts = ["Hello.", "The port of the billing server is 8731."] + [
        f"{filler} Topic {number}." for number in range(40)
    ]
    turns = []
    for number, text in enumerate(texts):
        turns.append(
            [
                {"id": 2 * number, "role": "user", "content": text},
                {"id": 2 * number + 1, "role": "assistant", "content": "I see."},
            ]
        )
    questions = {
        "abstention": [{"question": "What else?", "rubric": ["LLM response should state: 5"]}],
        "information_extraction": [
            {"question": "What is the port of the billing server?", "rubric": ["LLM response should state: 8731"]},
            {"question": "Why?", "rubric": ["LLM response should state: a long story about many other things"]},
        ],
    }
    folder.mkdir()
    (folder / "chat.json").write_text(json.dumps([{"turns": turns}]))
    (folder / "probing_questions.json").write_text(json.dumps(questions))


class Repeats:
    """A reader that answers from its prompt."""

    name, window = "repeats", 0

    def __init__(self):
        self.requests = []

    def complete(self, request, cancelled=None):
        self.requests.append(request)
        return ModelReply(text="8731" if "8731" in request.text else "unknown", ending="stop")

    def close(self):
        """Has nothing to close."""


class Refuses(Repeats):
    """A reader that refuses long prompts."""

    def complete(self, request, cancelled=None):
        if len(request.text) > 40_000:
            raise ModelFailed(self.name, "too long")
        return super().complete(request)


def test_beam_is_read_with_only_its_value_questions(tmp_path):
    beam(tmp_path / "1")
    (conversation,) = read_questions(tmp_path)
    assert [question.value.text for question in conversation.questions] == ["8731"]
    assert len(conversation.messages) == 84
    assert list(read_questions(tmp_path / "1")) == [conversation]


def test_longmemeval_is_read_with_its_dates(tmp_path):
    turns = [{"role": "user", "content": "I moved in March."}, {"role": "assistant", "content": "Noted."}]
    question = {
        "question_id": "a1",
        "question": "How long did it take?",
        "answer": "5 hours",
        "question_date": "2023/05/30",
        "haystack_dates": ["2023/03/01", "2023/03/02"],
        "haystack_sessions": [turns, []],
    }
    others = [{**question, "question_id": "a2_abs"}, {**question, "answer": "It is a long sentence about many things"}]
    (tmp_path / "lme.json").write_text(json.dumps([question, *others]))
    (conversation,) = read_questions(tmp_path / "lme.json")
    assert conversation.messages[0] == ("user", "[2023/03/01] I moved in March.")
    assert conversation.questions[0].ask == "[2023/05/30] How long did it take?"


@pytest.mark.parametrize("content", ["[1]", "{}x", '[{"answer": "5"}]', "null"])
def test_a_file_of_something_else_is_refused(tmp_path, content):
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(InputError, match=r"odd\.json"):
        list(read_questions(tmp_path / "odd.json"))
    with pytest.raises(InputError, match="no questions"):
        list(read_questions(tmp_path))


def test_every_arm_gets_the_same_question_and_recall_answers_what_trimming_lost(tmp_path):
    beam(tmp_path / "1")
    reader = Repeats()
    answers, failures = ask_reader(reader, list(read_questions(tmp_path)), Settings(), CHOICE, model="gpt-4o")
    assert failures == {}
    assert [answer.arm for answer in answers] == [WHOLE, MODES[0], EQUAL, SEARCH]
    assert all(request.text.endswith("user: What is the port of the billing server?") for request in reader.requests)
    right = {answer.arm: answer.right for answer in answers}
    assert right[WHOLE]
    assert right[MODES[0]]
    assert not right[EQUAL]


def test_a_prompt_refused_by_the_reader_is_counted_and_left_out(tmp_path):
    beam(tmp_path / "1")
    answers, failures = ask_reader(Refuses(), list(read_questions(tmp_path)), Settings(), CHOICE, model="gpt-4o")
    assert WHOLE not in {answer.arm for answer in answers}
    assert failures == {"too long": 1}


def test_a_refused_prompt_has_no_answer_and_is_not_sent_to_the_reader():
    value = AnswerValue(kind="number", text="8731")
    question = ValueQuestion(ask="Which port? " + "other words " * 9_000, value=value)
    messages = (("system", "The port is 8731. " + "other words " * 9_000),)
    conversation = QuestionedConversation(name="a", messages=messages, questions=(question,))
    reader = Repeats()
    answers, _ = ask_reader(reader, [conversation], Settings(), CHOICE, model="gpt-4o")
    right = {answer.arm: answer.right for answer in answers}
    assert (right[WHOLE], right[MODES[0]]) == (True, False)
    assert len(reader.requests) == len(answers) - 1


def test_answers_are_compared_with_trimming_by_conversation():
    answers = [
        ReaderAnswer(conversation=name, window=8, arm=arm, right=right)
        for name in "abc"
        for arm, right in (("zones", name != "a"), (EQUAL, False))
    ]
    zones, trimmed = summarize_answers(answers)
    assert (zones.right, zones.questions, trimmed.share) == (2, 3, 0.0)
    assert zones.gain.value == pytest.approx(2 / 3)
    assert trimmed.gain is None
    assert summarize_answers([]) == []


def test_the_command_asks_a_server_and_shows_no_content(tmp_path, monkeypatch):
    def reply(handler, body):
        text = "8731" if "8731" in body["messages"][-1]["content"] else "unknown"
        handler.give({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]})

    beam(tmp_path / "1")
    given = ("lab", "trial", "--questions", "1", "--window", "4k", "--mode", "sliding_window", "--model", "gpt-4o")
    assert "compress.model.use" in called_at(tmp_path, *given, code=2)
    assert "name sessions" in called_at(tmp_path, "lab", "trial", code=2)
    with serving(monkeypatch) as server:
        server.answers.append(reply)
        model = {"use": "openai", "url": server.url, "model": "tiny"}
        (tmp_path / "model.yaml").write_text(json.dumps({"compress": {"model": model}}))
        shown = called_at(tmp_path, "--config", "model.yaml", *given, "--html", "a.html")
        result = json.loads(called_at(tmp_path, "--config", "model.yaml", *given, "--json"))
    page = (tmp_path / "a.html").read_text()
    assert "answers in a window of 4,000" in shown
    assert "Right answers, by arm" in page
    for text in (shown, page, json.dumps(result)):
        assert "8731" not in text
        assert "billing" not in text
    right = {row["arm"]: row["right"] for row in result["answers"]}
    assert (right[WHOLE], right["sliding_window"], right[EQUAL]) == (1, 1, 0)
    assert result["runs"] == 0


def test_the_published_sets_are_read(data):
    beam_sets = list(read_questions(data / "beam_100K"))
    assert sum(len(conversation.questions) for conversation in beam_sets) > 50
    chats = list(read_questions(data / "longmemeval_oracle" / "longmemeval_oracle.json"))
    assert len(chats) > 200
