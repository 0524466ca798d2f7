"""Conversations with questions whose answer is a value: LongMemEval and BEAM, read as they are published.

Answers are scored by rule, so only those are taken that are a number, a date or a name; sentences are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from recto.errors import InputError
from recto.lab.readability import contains_words

ValueKind = Literal["number", "date", "name"]
_MAX_WORDS = 5
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_SMALL_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty
"""
_SPELLED = {word: str(number) for number, word in enumerate(_SMALL_NUMBERS.split())}
_MONTHS = tuple(
    "january february march april may june july august september october november december".split()  # noqa: SIM905
)
_ROUND = re.compile(r"^(?:a|an|the|about|around|approximately|on|in|at)\s+", re.IGNORECASE)
_STATED = "LLM response should state:"
"""How BEAM begins what an answer must state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerValue:
    """A value that an answer must contain."""

    kind: ValueKind
    text: str

    def is_in(self, reply: str) -> bool:
        """Returns whether a reply states the value: its numbers, its month and numbers, or its words."""
        if self.kind == "name":
            return contains_words(self.text, reply)
        months = {month for month in _MONTHS if contains_words(month, self.text)}
        return numbers_in(self.text) <= numbers_in(reply) and all(contains_words(month, reply) for month in months)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueQuestion:
    """A question about a conversation."""

    ask: str
    value: AnswerValue


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionedConversation:
    """A conversation and what is asked about it."""

    name: str
    messages: tuple[tuple[str, str], ...]
    """Roles and texts."""
    questions: tuple[ValueQuestion, ...]


def value_of(answer: object) -> AnswerValue | None:
    """Returns the value that an answer is; None if it is more than a value."""
    text = _ROUND.sub("", str(answer).strip().rstrip(".").strip())
    if isinstance(answer, bool) or not text or len(text.split()) > _MAX_WORDS:
        return None
    if numbers_in(text):
        is_date = any(contains_words(month, text) for month in _MONTHS)
        return AnswerValue(kind="date" if is_date else "number", text=text)
    is_name = text[:1].isupper() or len(text.split()) == 1
    return AnswerValue(kind="name", text=text.strip("'\"")) if is_name else None


def numbers_in(text: str) -> frozenset[str]:
    """Returns the numbers of a text, written in digits or as words up to twenty."""
    digits = {found.replace(",", "").rstrip(".") for found in _NUMBER.findall(text)}
    return frozenset(digits | {_SPELLED[word] for word in re.findall(r"[a-z]+", text.lower()) if word in _SPELLED})


def read_questions(path: Path) -> Iterator[QuestionedConversation]:
    """Yields the conversations of LongMemEval (a JSON file) or BEAM (a folder, or a folder of such folders).

    Raises:
        InputError: There is nothing of either.
    """
    try:
        if path.is_file():
            yield from _longmemeval(_read(path))
            return
        folders = [path] if (path / "chat.json").is_file() else sorted(path.iterdir(), key=lambda one: _order(one.name))
        found = [folder for folder in folders if (folder / "probing_questions.json").is_file()]
        if not found:
            raise InputError(f"'{path}' holds no questions of LongMemEval or BEAM")
        for folder in found:
            yield _beam(folder.name, _read(folder / "chat.json"), _read(folder / "probing_questions.json"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(f"'{path}' holds no questions of LongMemEval or BEAM ({type(error).__name__})") from None


def _order(name: str) -> tuple[int, str]:
    return (int(name) if name.isdecimal() else 0, name)


def _read(file: Path) -> Any:  # noqa: ANN401  # any JSON
    return json.loads(file.read_text(encoding="utf-8"))


def _longmemeval(questions: Any) -> Iterator[QuestionedConversation]:  # noqa: ANN401  # any JSON
    for asked in questions:
        value = value_of(asked["answer"])
        if value is None or str(asked["question_id"]).endswith("_abs"):
            continue
        said: list[tuple[str, str]] = []
        for date, turns in zip(asked["haystack_dates"], asked["haystack_sessions"], strict=True):
            texts = [(str(turn["role"]), str(turn["content"])) for turn in turns]
            said += [(texts[0][0], f"[{date}] {texts[0][1]}"), *texts[1:]] if texts else []
        ask = f"[{asked['question_date']}] {asked['question']}"
        yield QuestionedConversation(
            name=str(asked["question_id"]), messages=tuple(said), questions=(ValueQuestion(ask=ask, value=value),)
        )


def _beam(name: str, batches: Any, asked: Mapping[str, Any]) -> QuestionedConversation:  # noqa: ANN401  # any JSON
    messages = {message["id"]: message for batch in batches for turn in batch["turns"] for message in turn}
    questions = []
    for kind, some in asked.items():
        for question in some if kind != "abstention" else ():
            stated = [str(line) for line in question.get("rubric") or () if str(line).startswith(_STATED)]
            value = value_of(stated[0].removeprefix(_STATED)) if len(stated) == 1 else None
            if value is not None:
                questions.append(ValueQuestion(ask=str(question["question"]), value=value))
    return QuestionedConversation(
        name=name,
        messages=tuple((str(messages[id]["role"]), str(messages[id]["content"])) for id in sorted(messages)),
        questions=tuple(questions),
    )
