"""Finds the messages that belong to a hit: the question it answers, its answer, the output of its tool call.

Uses only the attributes in the index and reads no entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from recto.recall.index.attributes import ROLES, AttributeTable
from recto.recall.index.bm25 import WordScores
from recto.recall.ranking import Candidate, Ranked

_MAX_QUESTION_DISTANCE = 16
"""Largest distance of a question from its answer: one that is further away says little about it."""
_MAX_LOOK_AHEAD = 64
"""Messages after a hit that are searched for its answer or output."""
_MIN_OUTPUT_SHARE = 0.25
"""Minimum word score of an output, as a share of the score of the user message that led to it."""


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """The messages of one session around the hits of a search."""

    attributes: AttributeTable
    scores: WordScores
    upto: int
    """Entries after this one are ignored, so that repeating a query gives the same result."""

    def context_of(self, candidate: Candidate, hidden: Collection[int]) -> tuple[int, ...]:
        """Return the question of an answer or output, or the answer to a question, unless hidden."""
        if candidate.role == "user":
            exchange = list(self._following(candidate.seq))
            if not 0 < len(exchange) < _MAX_LOOK_AHEAD:
                return ()
            last, role = exchange[-1]
            return (last,) if role == "assistant" and last not in hidden else ()
        is_near = 0 < candidate.exchange < candidate.seq <= candidate.exchange + _MAX_QUESTION_DISTANCE
        return (candidate.exchange,) if is_near and candidate.exchange not in hidden else ()

    def output_of(self, candidate: Candidate, hidden: Collection[int]) -> int | None:
        """Return the tool output that belongs to a message: of a call it makes, or of a call it led to.

        The tools that a user message led to may have been about anything, so such an output must match the query.
        """
        outputs: list[int] = []
        for seq, role in self._following(candidate.seq) if candidate.role in {"user", "assistant"} else ():
            if role == "tool":
                outputs.append(seq)
            elif candidate.role == "assistant":
                break
        best = max((seq for seq in outputs if seq not in hidden), key=self._word_score, default=None)
        if best is None or (candidate.role == "user" and self._word_score(best) <= _MIN_OUTPUT_SHARE * candidate.bm25):
            return None
        return best

    def rank_with(self, parent: Ranked, seq: int, own: Ranked | None) -> Ranked | None:
        """Rank an output as high as the message it belongs to; `own` is its own rank, if the search returned it."""
        if own is None:
            known = self.attributes.of(seq)
            if known is None:
                return None
            session, exchange = parent.candidate.session, parent.candidate.exchange
            candidate = Candidate(
                session=session, seq=seq, ts=known.ts, role=known.role, marks=known.marks, exchange=exchange
            )
            own = Ranked(candidate=candidate, score=0.0, chance=0.0, parts={})
        parts = {**own.parts, "comes along": parent.score - own.score}
        # The score is assigned and not summed from the parts: it must equal the parent's to the last bit, so that
        # rounding does not decide their order.
        return replace(own, score=parent.score, chance=max(own.chance, parent.chance), parts=parts)

    def _following(self, seq: int) -> Iterator[tuple[int, str]]:
        """Yield the messages after a message in its exchange, up to the look-ahead limit."""
        seqs, roles = self.attributes.seqs, self.attributes.roles
        start = int(seqs.searchsorted(seq, side="right"))
        end = start + _MAX_LOOK_AHEAD
        for later, role in zip(seqs[start:end].tolist(), roles[start:end].tolist(), strict=True):
            if ROLES[role] == "user" or later > self.upto:
                return
            yield later, ROLES[role]

    def _word_score(self, seq: int) -> float:
        return self.scores.of(seq)[0]
