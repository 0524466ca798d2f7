"""Two lexical baselines, as published with the data sets: the results of search by words alone.

`okapi-ws` is BM25 over words split at spaces, as the authors of LongMemEval run it. `porter` folds case, stems and
drops stop words first, and uses an inverse document frequency that is never negative. Neither uses code of Recto.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log

import apsw

K1, B, EPSILON = 1.5, 0.75, 0.25
_WORD = re.compile("[a-z0-9]+")
STOP_WORDS = frozenset(
    """
    a an the this that these those i me my we our you your he him his she her it its they them their what which who
    when where why how am is are was were be been being do does did have has had will would can could should and or
    but if then than so as at by for from in into of on to up out about with over after before not no there here
    """.split()  # noqa: SIM905  read as prose
)


def by_spaces(text: str) -> list[str]:
    return text.split(" ")


def by_stems(text: str) -> list[str]:
    return [_stem(word) for word in _WORD.findall(text.lower()) if word not in STOP_WORDS]


@cache
def _stem(word: str) -> str:
    return str(_stemmer()(word.encode(), apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False)[0][0])


@cache
def _stemmer() -> Callable:
    connection = apsw.Connection(":memory:")
    return connection.fts5_tokenizer("porter", ["ascii"])


def okapi_worth(total: int, often: Mapping[str, int]) -> dict[str, float]:
    """A word in more than half of the documents counts a little, not less than nothing."""
    worth = {word: log(total - n + 0.5) - log(n + 0.5) for word, n in often.items()}
    least = EPSILON * sum(worth.values()) / len(worth)
    return {word: value if value >= 0 else least for word, value in worth.items()}


def lucene_worth(total: int, often: Mapping[str, int]) -> dict[str, float]:
    return {word: log(1 + (total - n + 0.5) / (n + 0.5)) for word, n in often.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """How texts are cut into words, what a word is worth, and who comes first of two that score the same."""

    cut: Callable[[str], list[str]]
    worth: Callable[[int, Mapping[str, int]], dict[str, float]]
    last_first: bool


class Corpus:
    """Texts that were cut, ready to be ranked."""

    def __init__(self, documents: Sequence[Counter[str]], baseline: Baseline) -> None:
        self._documents = documents
        self._baseline = baseline
        lengths = [document.total() for document in documents]
        average = sum(lengths) / len(lengths)
        self._norms = [K1 * (1 - B + B * length / average) for length in lengths]
        often = Counter(word for document in documents for word in document)
        self._worth = baseline.worth(len(documents), often)

    def ranked(self, query: Sequence[str], most: int) -> list[int]:
        """Places of the documents, best first. A word that stands twice in the query counts twice."""
        asked = [(word, self._worth[word]) for word in query if word in self._worth]
        scores = [
            sum(worth * tf * (K1 + 1) / (tf + norm) for word, worth in asked if (tf := document.get(word, 0)))
            for document, norm in zip(self._documents, self._norms, strict=True)
        ]
        places = range(len(scores))
        in_turn = reversed(places) if self._baseline.last_first else places
        return sorted(in_turn, key=lambda place: -scores[place])[:most]


OKAPI, PORTER = "okapi-ws", "porter"
BASELINES: Mapping[str, Baseline] = {
    OKAPI: Baseline(cut=by_spaces, worth=okapi_worth, last_first=True),
    PORTER: Baseline(cut=by_stems, worth=lucene_worth, last_first=False),
}
