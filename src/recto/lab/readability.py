"""Whether what a question needs can be read in a prompt: by its words, without a model.

A case is a question and what must stand in the prompt for it to be answered. Where the prompt comes from is not known
here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from recto.errors import InputError
from recto.transcript.session_keys import parse_pointer

Where = Literal["prompt", "summary", "recalled", "not"]
"""In the messages, in what was written in their place, in what came back for the question, or nowhere."""
PLACES: tuple[Where, ...] = get_args(Where)
_MEMBERS = ("ask", "expect", "evidence", "answer", "weight")
_MOST = 1_000
"""Questions of one set."""
_LONGEST = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A question, and what it needs."""

    ask: str
    expect: tuple[tuple[str, ...], ...] = ()
    """What must stand in the prompt; of several ways to say one thing, one."""
    evidence: tuple[int, ...] = ()
    """Entries that must be readable in full."""
    answer: str = ""
    """The right answer, for a judge."""
    weight: float = 1.0

    @property
    def needs(self) -> int:
        """How many things it needs."""
        return len(self.expect) + len(self.evidence)

    @property
    def known_answer(self) -> str:
        """What must be answered, as far as it is known."""
        return self.answer or "; ".join(ways[0] for ways in self.expect)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOutcome:
    """How a question fared."""

    score: float | None
    """The share of what it needs, from 0 to 1, or what a judge said; None where nobody could tell."""
    where: Where
    """The last place where something of it was found; `not` where something was not."""
    tokens: int
    """What the prompt cost."""
    missing: tuple[str, ...] = ()
    trouble: str = ""


def cases_of(tree: object) -> tuple[Case, ...]:
    """A set of questions as a file has it. Raises `InputError` that names the question."""
    given = tree.get("questions") if isinstance(tree, Mapping) else tree
    if not isinstance(given, Sequence) or isinstance(given, str) or not 1 <= len(given) <= _MOST:
        raise InputError(f"a set of questions is a list of 1 to {_MOST:,} under 'questions'")
    return tuple(_case(f"question {place}", one) for place, one in enumerate(given, 1))


def _case(where: str, given: object) -> Case:
    if not isinstance(given, Mapping) or not isinstance(given.get("ask"), str) or not given["ask"].strip():
        raise InputError(f"{where}: it needs 'ask', a text")
    unknown = [str(name) for name in given if name not in _MEMBERS]
    if unknown:
        raise InputError(f"{where}: there is no '{unknown[0]:.40}' in a question; it has {', '.join(_MEMBERS)}")
    weight, answer = given.get("weight", 1), given.get("answer", "")
    if not isinstance(weight, int | float) or isinstance(weight, bool) or not 0 < weight <= 1e6:
        raise InputError(f"{where}: 'weight' is a number above 0")
    case = Case(
        ask=given["ask"][:_LONGEST],
        expect=tuple(_ways(where, one) for one in _list(given.get("expect"))),
        evidence=tuple(_entry(where, one) for one in _list(given.get("evidence"))),
        answer=str(answer)[:_LONGEST],
        weight=float(weight),
    )
    if not case.needs and not case.answer:
        raise InputError(f"{where}: say what it needs: 'expect' (words), 'evidence' (entries), or an 'answer'")
    return case


def _list(given: Any) -> list[Any]:  # noqa: ANN401  # whatever the file holds
    return [] if given is None else given if isinstance(given, list) else [given]


def _ways(where: str, given: object) -> tuple[str, ...]:
    ways = tuple(str(one)[:_LONGEST] for one in _list(given) if isinstance(one, str | int | float))
    if not ways or len(ways) != len(_list(given)) or not all(way.strip() for way in ways):
        raise InputError(f"{where}: 'expect' holds texts, or lists of texts of which one is enough")
    return ways


def _entry(where: str, given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and given > 0:
        return given
    if isinstance(given, str):
        return parse_pointer(given)[1]
    raise InputError(f"{where}: 'evidence' holds numbers of entries, or pointers")


def stands(words: str, text: str) -> bool:
    """Whether words stand in a text, whatever their case and the space between them; never inside other words."""
    pieces = [re.escape(piece) for piece in words.casefold().split()]
    before = r"(?<!\w)" if words.strip()[:1].isalnum() else ""
    after = r"(?!\w)" if words.strip()[-1:].isalnum() else ""
    return bool(pieces) and re.search(before + r"\s+".join(pieces) + after, text.casefold()) is not None


def outcome(case: Case, parts: Mapping[Where, str], entries: Mapping[int, Where], tokens: int) -> ProbeOutcome:
    """How a question fares with a prompt: `parts` is what the prompt says, by place; `entries` where entries are."""
    found: list[Where] = []
    missing: list[str] = []
    for ways in case.expect:
        place = next((one for one in PLACES[:-1] if any(stands(way, parts.get(one, "")) for way in ways)), None)
        found += [place] if place else []
        missing += [] if place else [ways[0]]
    for seq in case.evidence:
        place = entries.get(seq, "not")
        found += [] if place == "not" else [place]
        missing += [f"entry {seq}"] if place == "not" else []
    last: Where = max(found, key=PLACES.index) if found and not missing else "not"
    score = len(found) / case.needs if case.needs else None
    return ProbeOutcome(score=score, where=last, tokens=tokens, missing=tuple(missing))


def overall(cases: Sequence[Case], outcomes: Sequence[ProbeOutcome]) -> float | None:
    """The mean of what could be told, by weight; None where nothing could."""
    told = [(case.weight, one.score) for case, one in zip(cases, outcomes, strict=True) if one.score is not None]
    whole = sum(weight for weight, _ in told)
    return sum(weight * score for weight, score in told) / whole if whole else None
