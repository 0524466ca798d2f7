"""Probes recall quality with held-out questions made from stored messages.

Each question is made by rule from some words of one message, and that message should be found. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recto.context.facts.claims import fold_words
from recto.context.facts.types import MessageView
from recto.context.facts.user_text import user_sentences
from recto.recall.types import Query

if TYPE_CHECKING:
    from recto.recall.recall import RecallService

MOST = 20
"""Maximum questions per session."""
TOP = 5
_MIN_WORDS = 6
_MIN_WORD_LENGTH = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A question, and the entry that answers it."""

    question: str
    seq: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHealth:
    """The result of a probe."""

    asked: int
    found: int
    missed: tuple[int, ...]
    """Entries that were not found."""

    @property
    def share(self) -> float:
        """Share of questions that found the right entry among the first five; 1 if there were none."""
        return self.found / self.asked if self.asked else 1.0


def held_out(messages: Sequence[MessageView], most: int = MOST) -> list[HeldOut]:
    """Build questions about these messages, evenly spread: every other significant word of a sentence."""
    questions = []
    for message in messages:
        sentences = user_sentences(message.text) if message.role in ("user", "assistant") else []
        for sentence in sentences[:3]:
            words = [word for word in dict.fromkeys(fold_words(sentence).split()) if len(word) >= _MIN_WORD_LENGTH]
            if len(words) >= _MIN_WORDS:
                questions.append(HeldOut(question=" ".join(words[::2]), seq=message.seq, sentence=sentence))
                break
    step = max(len(questions) / most, 1.0)
    return [questions[int(place * step)] for place in range(min(most, len(questions)))]


def health_of(recall: RecallService, questions: Sequence[HeldOut], now: int) -> RecallHealth:
    """Run the questions and count how often the right entry, or one with the same sentence, is found."""
    found, missed = 0, []
    for question in questions:
        hits = recall.search(Query(text=question.question, now=now), limit=TOP, scope="session").hits[:TOP]
        sentence = fold_words(question.sentence)
        if any(hit.seq == question.seq or sentence in fold_words(hit.text) for hit in hits):
            found += 1
        else:
            missed.append(question.seq)
    return RecallHealth(asked=len(questions), found=found, missed=tuple(missed))
