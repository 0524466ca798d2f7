"""A lexicon for every script that reduces English words to their stems.

It uses the Porter stemmer of SQLite's FTS5. Words of other languages written in ASCII are stemmed too; that is
harmless, because documents and queries are cut in the same way.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from zlib import crc32

import apsw

from recto.text.analyzer import words_of

MAX_CACHED_WORDS = 200_000
"""Words whose terms are cached. When there are more, the cache starts empty again."""

STOP_WORDS = frozenset(
    """
    a an the this that these those i me my you your yours he him his she her hers it its we our they them their who
    whom what which where when why how many much am is are was were be been being do does did doing done have has had
    having will would can could should shall may might must and or nor but if so than then as at by for from in into
    of off on onto to up down out over under with about above after again before because below between both during
    each few further more most now once only other own same through until while there here just also very too not no
    any all some such s t d ll m re ve don didn doesn isn wasn
    """.split()  # noqa: SIM905  read as prose
)
"""Words that occur in nearly every English message and say nothing about its subject.

`not` and `no` are among them: a text that denies something has the same subject as one that affirms it, and a query
should find both. `never`, `without` and `nothing` are rare enough to distinguish texts and are kept.
"""


class PorterLexicon:
    """Terms of words in any script: English words by their stem, all others unchanged."""

    name = "porter/1"

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._stem = self._connection.fts5_tokenizer("porter", ["ascii"])
        self._known: dict[str, int] = {}
        # A tokenizer belongs to one connection and must not run in two threads at once.
        self._lock = threading.Lock()

    def terms(self, text: str) -> dict[int, int]:
        """Count each term by the CRC-32 of its stem.

        Stop words are dropped unless the text has no other words: a question such as `who am I` must be able to find
        the message that answers it.
        """
        counts = Counter(words_of(text))
        if not counts.keys() <= STOP_WORDS:
            for word in STOP_WORDS & counts.keys():
                del counts[word]
        known = self._known
        if not counts.keys() <= known.keys():
            known = self._learn(counts.keys())
        term_counts: dict[int, int] = {}
        for word, count in counts.items():
            term = known[word]
            term_counts[term] = term_counts.get(term, 0) + count
        return term_counts

    def sequence(self, text: str) -> list[int]:
        """Return the terms in text order, without stop words."""
        words = [word for word in words_of(text) if word not in STOP_WORDS]
        known = self._known
        if any(word not in known for word in words):
            known = self._learn(dict.fromkeys(words))
        return [known[word] for word in words]

    def _learn(self, words: Iterable[str]) -> dict[str, int]:
        """Add words to the cache and return it."""
        with self._lock:
            known = self._known
            fresh = [word for word in words if word not in known]
            if len(known) + len(fresh) > MAX_CACHED_WORDS:
                # Other threads may be reading the old dictionary without a lock, so it is replaced and not cleared.
                known, fresh = {}, list(words)
            stemmed = [word for word in fresh if word.isascii() and word.isalpha()]
            known.update((word, _term(word)) for word in fresh)
            known.update((word, _term(stem)) for word, stem in zip(stemmed, self._stems(stemmed), strict=True))
            self._known = known
            return known

    def _stems(self, words: list[str]) -> list[str]:
        text = " ".join(words).encode()
        stems = self._stem(text, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
        return [str(stem) for stem in stems]


def _term(word: str) -> int:
    return crc32(word.encode("utf-8", "surrogatepass"))
