"""What belongs to a message that was found: the question it answers, its answer, the output of its call.

It goes by what the index knows of a session, and reads no entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from recto.recall.index.attributes import ROLES, AttributeTable
from recto.recall.index.bm25 import WordScores
from recto.recall.ranking import Candidate, Ranked

_MAX_QUESTION_DISTANCE = 16
"""Entries before a message in which its question is looked for: one that is further away says little about it."""
_MAX_LOOK_AHEAD = 64
"""Messages after it in which what belongs to it is looked for."""
_MIN_OUTPUT_SHARE = 0.25
"""What an output must say of the question, as a share of what the request says that led to it."""


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """One session as a search has found it."""

    facts: AttributeTable
    scored: WordScores
    upto: int
    """What came after this entry does not count, so that the same question finds the same again."""

    def context_of(self, one: Candidate, hidden: Collection[int]) -> tuple[int, ...]:
        """The question of an answer or of an output, the answer to a question; nothing that is hidden."""
        if one.role == "user":
            exchange = list(self._after(one.seq))
            if not 0 < len(exchange) < _MAX_LOOK_AHEAD:
                return ()
            last, role = exchange[-1]
            return (last,) if role == "assistant" and last not in hidden else ()
        is_near = 0 < one.exchange < one.seq <= one.exchange + _MAX_QUESTION_DISTANCE
        return (one.exchange,) if is_near and one.exchange not in hidden else ()

    def output_of(self, one: Candidate, hidden: Collection[int]) -> int | None:
        """The output that belongs to a message and is not hidden: of a tool that it calls, or that it had called.

        What a request led to may be about anything, so that it must say something of the question itself.
        """
        found: list[int] = []
        for seq, role in self._after(one.seq) if one.role in {"user", "assistant"} else ():
            if role == "tool":
                found.append(seq)
            elif one.role == "assistant":
                break
        best = max((seq for seq in found if seq not in hidden), key=self._words_of, default=None)
        if best is None or (one.role == "user" and self._words_of(best) <= _MIN_OUTPUT_SHARE * one.bm25):
            return None
        return best

    def along(self, parent: Ranked, seq: int, own: Ranked | None) -> Ranked | None:
        """An output as high up as the message it comes with; `own` is how it was found by itself."""
        if own is None:
            known = self.facts.of(seq)
            if known is None:
                return None
            session, exchange = parent.candidate.session, parent.candidate.exchange
            one = Candidate(
                session=session, seq=seq, ts=known.ts, role=known.role, marks=known.marks, exchange=exchange
            )
            own = Ranked(candidate=one, score=0.0, chance=0.0, parts={})
        parts = {**own.parts, "comes along": parent.score - own.score}
        # Given and not added up: the same to the last bit, so that their order hangs on nothing else.
        return replace(own, score=parent.score, chance=max(own.chance, parent.chance), parts=parts)

    def _after(self, seq: int) -> Iterator[tuple[int, str]]:
        """What comes after a message in its exchange, as far as one looks."""
        start = int(self.facts.seqs.searchsorted(seq, side="right"))
        end = start + _MAX_LOOK_AHEAD
        for later, role in zip(self.facts.seqs[start:end].tolist(), self.facts.roles[start:end].tolist(), strict=True):
            if ROLES[role] == "user" or later > self.upto:
                return
            yield later, ROLES[role]

    def _words_of(self, seq: int) -> float:
        return self.scored.of(seq)[0]
