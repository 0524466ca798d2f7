"""Checks by words, without a model, whether a prompt contains what a question needs.

A case is a question and what must be in the prompt to answer it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from recto.errors import InputError
from recto.transcript.session_keys import parse_pointer

Where = Literal["prompt", "summary", "recalled", "not"]
"""In the messages, in a summary or handoff, in what was recalled for the question, or nowhere."""
PLACES: tuple[Where, ...] = get_args(Where)
_KEYS = ("ask", "expect", "evidence", "answer", "weight")
_MAX_CASES = 1_000
"""Questions in one file."""
_MAX_CHARACTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question and what it needs."""

    ask: str
    expect: tuple[tuple[str, ...], ...] = ()
    """What must be in the prompt; each is a tuple of alternatives."""
    evidence: tuple[int, ...] = ()
    """Entries that must be readable in full."""
    answer: str = ""
    """The right answer, for a judge."""
    weight: float = 1.0

    @property
    def needs(self) -> int:
        """The number of things it needs."""
        return len(self.expect) + len(self.evidence)

    @property
    def known_answer(self) -> str:
        """The right answer, as far as it is known."""
        return self.answer or "; ".join(alternatives[0] for alternatives in self.expect)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """The result of a question."""

    score: float | None
    """The share of its needs that was readable, from 0 to 1, or the judge's score; None if unknown."""
    where: Where
    """The last place where one of its needs was; `not` if one was missing."""
    tokens: int
    """Size of the prompt."""
    missing: tuple[str, ...] = ()
    trouble: str = ""


def parse_cases(tree: object) -> tuple[Case, ...]:
    """Parses a file of questions.

    Raises:
        InputError: The file is malformed; the message names the question.
    """
    questions = tree.get("questions") if isinstance(tree, Mapping) else tree
    if not isinstance(questions, Sequence) or isinstance(questions, str) or not 1 <= len(questions) <= _MAX_CASES:
        raise InputError(f"a set of questions is a list of 1 to {_MAX_CASES:,} under 'questions'")
    return tuple(_case(f"question {place}", question) for place, question in enumerate(questions, 1))


def _case(where: str, question: object) -> Case:
    if not isinstance(question, Mapping) or not isinstance(question.get("ask"), str) or not question["ask"].strip():
        raise InputError(f"{where}: it needs 'ask', a text")
    unknown_keys = [str(name) for name in question if name not in _KEYS]
    if unknown_keys:
        raise InputError(f"{where}: there is no '{unknown_keys[0]:.40}' in a question; it has {', '.join(_KEYS)}")
    weight, answer = question.get("weight", 1), question.get("answer", "")
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= 1e6:
        raise InputError(f"{where}: 'weight' is a number above 0")
    case = Case(
        ask=question["ask"][:_MAX_CHARACTERS],
        expect=tuple(_alternatives(where, item) for item in _list(question.get("expect"))),
        evidence=tuple(_evidence(where, item) for item in _list(question.get("evidence"))),
        answer=str(answer)[:_MAX_CHARACTERS],
        weight=float(weight),
    )
    if not case.needs and not case.answer:
        raise InputError(f"{where}: say what it needs: 'expect' (words), 'evidence' (entries), or an 'answer'")
    return case


def _list(value: Any) -> list[Any]:  # noqa: ANN401  # any value of the file
    return [] if value is None else value if isinstance(value, list) else [value]


def _alternatives(where: str, value: object) -> tuple[str, ...]:
    alternatives = tuple(str(item)[:_MAX_CHARACTERS] for item in _list(value) if isinstance(item, str | int | float))
    if (
        not alternatives
        or len(alternatives) != len(_list(value))
        or not all(alternative.strip() for alternative in alternatives)
    ):
        raise InputError(f"{where}: 'expect' holds texts, or lists of texts of which one is enough")
    return alternatives


def _evidence(where: str, value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str):
        return parse_pointer(value)[1]
    raise InputError(f"{where}: 'evidence' holds numbers of entries, or pointers")


def contains_words(words: str, text: str) -> bool:
    """Returns whether a text contains words, ignoring case and spacing; never as part of other words."""
    pieces = [re.escape(piece) for piece in words.casefold().split()]
    before = r"(?<!\w)" if words.strip()[:1].isalnum() else ""
    after = r"(?!\w)" if words.strip()[-1:].isalnum() else ""
    return bool(pieces) and re.search(before + r"\s+".join(pieces) + after, text.casefold()) is not None


def score_case(case: Case, parts: Mapping[Where, str], entries: Mapping[int, Where], tokens: int) -> ProbeOutcome:
    """Scores a question against a prompt: `parts` is the prompt's text by place, `entries` the place of each entry."""
    found_in: list[Where] = []
    missing: list[str] = []
    for alternatives in case.expect:
        place = next(
            (
                candidate
                for candidate in PLACES[:-1]
                if any(contains_words(alternative, parts.get(candidate, "")) for alternative in alternatives)
            ),
            None,
        )
        found_in += [place] if place else []
        missing += [] if place else [alternatives[0]]
    for seq in case.evidence:
        place = entries.get(seq, "not")
        found_in += [] if place == "not" else [place]
        missing += [f"entry {seq}"] if place == "not" else []
    last_place: Where = max(found_in, key=PLACES.index) if found_in and not missing else "not"
    score = len(found_in) / case.needs if case.needs else None
    return ProbeOutcome(score=score, where=last_place, tokens=tokens, missing=tuple(missing))


def weighted_score(cases: Sequence[Case], outcomes: Sequence[ProbeOutcome]) -> float | None:
    """Returns the weighted mean of the known scores; None if there is none."""
    scored = [
        (case.weight, outcome.score) for case, outcome in zip(cases, outcomes, strict=True) if outcome.score is not None
    ]
    total = sum(weight for weight, _ in scored)
    return sum(weight * score for weight, score in scored) / total if total else None
