"""What a question found by words: how common its words are, and how well each message fits them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Tally:
    """How common terms are where a question is searched. Those of several sessions add up."""

    documents: int = 0
    length: int = 0
    """Of all messages, in terms."""
    df: Mapping[int, int] = field(default_factory=dict)
    """How many messages have a term."""
    tf: Mapping[int, int] = field(default_factory=dict)
    """How often it stands in all of them together."""

    def __add__(self, other: Tally) -> Tally:
        df, tf = Counter(self.df), Counter(self.tf)
        df.update(other.df)
        tf.update(other.tf)
        return Tally(self.documents + other.documents, self.length + other.length, df, tf)

    def idf(self, term: int) -> float:
        """How much a term tells: the rarer, the more."""
        count = self.df.get(term, 0)
        return math.log(1 + (max(self.documents, count) - count + 0.5) / (count + 0.5))


@dataclass(frozen=True, slots=True)
class Scored:
    """The messages that have any word of a question, ascending."""

    seqs: NDArray[np.uint32]
    bm25: NDArray[np.float32]
    """Without the constant factor k1 + 1, so it is below the weight of all words together."""
    coverage: NDArray[np.float32]
    """The share of the weight of all words that stands in the message, whether or not any message has the rest."""

    def of(self, seq: int) -> tuple[float, float]:
        """The score and the coverage of one message."""
        at = int(self.seqs.searchsorted(np.uint32(seq)))
        if at == len(self.seqs) or self.seqs[at] != seq:
            return 0.0, 0.0
        return float(self.bm25[at]), float(self.coverage[at])

    def best(self, most: int, hidden: Collection[int] = ()) -> list[tuple[int, float]]:
        """The best ones with their scores, but those that are hidden; of two equal ones the newer comes first."""
        count = most + len(hidden)
        chosen = np.arange(len(self.seqs))
        if 0 < count < len(chosen):
            edge = np.partition(self.bm25, -count)[-count]
            above, at_edge = np.flatnonzero(self.bm25 > edge), np.flatnonzero(self.bm25 == edge)
            chosen = np.concatenate([above, at_edge[len(at_edge) - (count - len(above)) :]])
        order = chosen[np.lexsort((self.seqs[chosen], self.bm25[chosen]))[::-1]]
        pairs = zip(self.seqs[order].tolist(), self.bm25[order].tolist(), strict=True)
        return [pair for pair in pairs if pair[0] not in hidden][: max(most, 0)]
