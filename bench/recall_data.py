"""Reads the two public data sets that recall is measured on, and defines the measures.

LongMemEval: 500 questions over 940 chat sessions. BEAM: 20 long conversations with 20 questions each. They are read in
place. The measures say whether a ranking contains the labelled evidence, and how early; they take rankings as lists of
names, best first, and evidence as sets of the same names.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log2
from pathlib import Path
from typing import Any

DATA = Path(os.environ.get("RECTO_TEST_DATA", "../shared/data"))
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message of a chat."""

    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One session of LongMemEval."""

    name: str
    ts: int
    """When it was held, in microseconds since 1970."""
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatQuestion:
    """A question of LongMemEval with its haystack of 48 sessions."""

    name: str
    text: str
    ts: int
    haystack: tuple[str, ...]
    answer_sessions: frozenset[str]
    said_by_user: frozenset[tuple[str, int]]
    """The user's turns that hold evidence: session and place."""
    evidence: frozenset[tuple[str, int]]
    """The same of both speakers."""

    @property
    def strict(self) -> bool:
        """Whether any of its evidence was said by the user: one of the 419, else only of the 470."""
        return bool(self.said_by_user)

    @property
    def sessions(self) -> frozenset[str]:
        """The sessions to be found."""
        return frozenset(name for name, _ in self.said_by_user) & self.answer_sessions or self.answer_sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamQuestion:
    """A question about one long conversation."""

    kind: str
    text: str
    gold: frozenset[int]
    """Places of the messages that hold the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """One conversation of BEAM, with the questions that have evidence."""

    name: str
    turns: tuple[Turn, ...]
    exchanges: tuple[int, ...]
    """For each message the place of the user message that opened its exchange."""
    questions: tuple[BeamQuestion, ...]


def chats() -> dict[str, Chat]:
    """The sessions of LongMemEval by name."""
    found: dict[str, Chat] = {}
    for asked in _read("longmemeval_oracle/longmemeval_oracle.json"):
        parts = (asked["haystack_session_ids"], asked["haystack_dates"], asked["haystack_sessions"])
        for name, date, turns in zip(*parts, strict=True):
            if name not in found:
                said = tuple(Turn(role=turn["role"], text=turn["content"]) for turn in turns)
                found[name] = Chat(name=name, ts=moment(date), turns=said)
    return found


def chat_questions() -> list[ChatQuestion]:
    """The 470 questions that can be answered."""
    haystacks = _read("longmemeval_oracle/lme48_haystacks.json")
    found = []
    for asked in _read("longmemeval_oracle/longmemeval_oracle.json"):
        if asked["question_id"] not in haystacks:
            continue
        evidence = {
            (name, place): turn["role"]
            for name, turns in zip(asked["haystack_session_ids"], asked["haystack_sessions"], strict=True)
            for place, turn in enumerate(turns)
            if turn.get("has_answer")
        }
        found.append(
            ChatQuestion(
                name=asked["question_id"],
                text=asked["question"],
                ts=moment(asked["question_date"]),
                haystack=tuple(haystacks[asked["question_id"]]["haystack"]),
                answer_sessions=frozenset(asked["answer_session_ids"]),
                said_by_user=frozenset(turn for turn, role in evidence.items() if role == "user"),
                evidence=frozenset(evidence),
            )
        )
    return found


def conversations() -> list[Conversation]:
    """The conversations of BEAM; questions without evidence are left out."""
    folders = [folder for folder in (DATA / "beam_100K").iterdir() if folder.name.isdigit()]
    return [_conversation(folder) for folder in sorted(folders, key=lambda folder: int(folder.name))]


def _conversation(folder: Path) -> Conversation:
    batches = json.loads((folder / "chat.json").read_text(encoding="utf-8"))
    said = {message["id"]: message for batch in batches for turn in batch["turns"] for message in turn}
    numbers = sorted(said)
    exchanges: list[int] = []
    for place, number in enumerate(numbers):
        opens = said[number]["role"] == "user" or not exchanges
        exchanges.append(place if opens else exchanges[-1])
    asked = json.loads((folder / "probing_questions.json").read_text(encoding="utf-8"))
    place_of = {number: place for place, number in enumerate(numbers)}
    questions = []
    for kind, some in asked.items():
        for one in some if kind != "abstention" else ():
            gold = frozenset(place_of[number] for number in _numbers(one.get("source_chat_ids")) if number in place_of)
            if gold:
                questions.append(BeamQuestion(kind=kind, text=one["question"], gold=gold))
    return Conversation(
        name=folder.name,
        turns=tuple(Turn(role=said[number]["role"], text=said[number]["content"]) for number in numbers),
        exchanges=tuple(exchanges),
        questions=tuple(questions),
    )


def _numbers(tree: Any) -> Iterator[int]:  # noqa: ANN401  # any JSON
    match tree:
        case bool():
            return
        case int():
            yield tree
        case Mapping():
            for value in tree.values():
                yield from _numbers(value)
        case list():
            for value in tree:
                yield from _numbers(value)


def moment(date: str) -> int:
    """A date as LongMemEval writes it, `2023/04/10 (Mon) 17:50`, in microseconds."""
    day, _, time = date.split(" ")
    return int(datetime.strptime(f"{day} {time}", "%Y/%m/%d %H:%M").replace(tzinfo=UTC).timestamp()) * 1_000_000


def _read(name: str) -> Any:  # noqa: ANN401  # any JSON
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def recall_all(order: Sequence[object], gold: Collection[object], most: int) -> float:
    """Whether all the evidence is among the first."""
    return float(bool(gold) and set(gold) <= set(order[:most]))


def recall_any(order: Sequence[object], gold: Collection[object], most: int) -> float:
    """Whether any of it is."""
    return float(not set(gold).isdisjoint(order[:most]))


def share(order: Sequence[object], gold: Collection[object], most: int) -> float:
    """How much of it is."""
    return len(set(gold).intersection(order[:most])) / len(gold)


def ndcg(order: Sequence[object], gold: Collection[object], most: int) -> float:
    """How early it comes: every piece gains 1, less from the third place on."""
    gain = sum(_discount(place) for place, one in enumerate(order[:most]) if one in gold)
    ideal = sum(_discount(place) for place in range(min(most, len(gold))))
    return gain / ideal if ideal else 0.0


def _discount(place: int) -> float:
    return 1.0 if place < 2 else 1.0 / log2(place + 1)


def interval(differences: Sequence[float], seed: int = 4) -> tuple[float, float]:
    """The middle 95 % of the mean when the questions are drawn anew."""
    drawn = random.Random(seed)
    means = sorted(sum(drawn.choices(differences, k=len(differences))) / len(differences) for _ in range(_RESAMPLES))
    return means[round(_RESAMPLES * 0.025)], means[round(_RESAMPLES * 0.975) - 1]
