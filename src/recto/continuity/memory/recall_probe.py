"""Whether recall brings the right thing back: questions made from what was said, and how often the answer comes first.

The questions are held out: each is made of some of the words of one message, by rule, and the message is what should be
found. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recto.context.facts.grounding import fold_words
from recto.context.facts.types import MessageView
from recto.context.facts.user_text import user_sentences
from recto.recall.types import Query

if TYPE_CHECKING:
    from recto.recall.recall import RecallService

MOST = 20
"""Questions of one session."""
TOP = 5
_LEAST_WORDS = 6
_SHORT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOut:
    """A question, and the entry that answers it."""

    question: str
    seq: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHealth:
    """How well recall finds."""

    asked: int
    found: int
    missed: tuple[int, ...]
    """Entries that did not come back."""

    @property
    def share(self) -> float:
        """Of the questions, how many brought the right entry back among the first five; 1 where none was asked."""
        return self.found / self.asked if self.asked else 1.0


def held_out(told: Sequence[MessageView], most: int = MOST) -> list[HeldOut]:
    """Questions about these messages, evenly spread over them: every other telling word of a sentence."""
    made = []
    for one in told:
        sentences = user_sentences(one.text) if one.role in ("user", "assistant") else []
        for sentence in sentences[:3]:
            words = [word for word in dict.fromkeys(fold_words(sentence).split()) if len(word) >= _SHORT]
            if len(words) >= _LEAST_WORDS:
                made.append(HeldOut(question=" ".join(words[::2]), seq=one.seq, sentence=sentence))
                break
    step = max(len(made) / most, 1.0)
    return [made[int(place * step)] for place in range(min(most, len(made)))]


def health_of(recall: RecallService, questions: Sequence[HeldOut], now: int) -> RecallHealth:
    """Asks the questions, and counts how often the right entry, or one that says the same, comes back."""
    found, missed = 0, []
    for one in questions:
        hits = recall.search(Query(text=one.question, now=now), limit=TOP, scope="session").hits[:TOP]
        says = fold_words(one.sentence)
        if any(hit.seq == one.seq or says in fold_words(hit.text) for hit in hits):
            found += 1
        else:
            missed.append(one.seq)
    return RecallHealth(asked=len(questions), found=found, missed=tuple(missed))
