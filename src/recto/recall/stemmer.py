"""A lexicon for every script that reduces English words to their stems.

It uses the Porter stemmer of SQLite's FTS5. Words of other languages written in ASCII are stemmed too; that is
harmless, because documents and queries are cut in the same way.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import islice
from zlib import crc32

import apsw

from recto.text.analyzer import chunk_counts, words_of

MAX_CACHED_WORDS = 200_000
"""Words whose terms are cached, and chunks of text. When there are more, the cache starts empty again."""
_MAX_CACHED_CHARS = 200
"""Longer chunks are not cached."""

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
        self._chunks: dict[str, tuple[int, ...]] = {}
        """Terms of chunks of text, as `chunk_counts` splits them, without stop words."""
        # A tokenizer belongs to one connection and must not run in two threads at once.
        self._lock = threading.Lock()

    def terms(self, text: str) -> dict[int, int]:
        """Count each term by the CRC-32 of its stem.

        Stop words are dropped unless the text has no other words: a question such as `who am I` must be able to find
        the message that answers it.
        """
        counts = chunk_counts(text)
        known = self._chunks
        if known.keys() >= counts.keys():
            found: Iterable[tuple[int, ...]] = map(known.__getitem__, counts)
        else:
            learned = self._learn_chunks([chunk for chunk in counts if chunk not in known])
            found = (learned[chunk] if chunk in learned else known[chunk] for chunk in counts)
        term_counts: dict[int, int] = {}
        count_of = term_counts.get
        for terms, count in zip(found, counts.values(), strict=True):
            for term in terms:
                term_counts[term] = count_of(term, 0) + count
        return term_counts or dict(Counter(self._terms_of(words_of(text))))

    def sequence(self, text: str) -> list[int]:
        """Return the terms in text order, without stop words."""
        return self._terms_of([word for word in words_of(text) if word not in STOP_WORDS])

    def _terms_of(self, words: list[str]) -> list[int]:
        known = self._known
        if any(word not in known for word in words):
            known = self._learn(dict.fromkeys(words))
        return [known[word] for word in words]

    def _learn_chunks(self, chunks: list[str]) -> dict[str, tuple[int, ...]]:
        """Return the terms of chunks, and add them to the cache."""
        words = [[word for word in words_of(chunk) if word not in STOP_WORDS] for chunk in chunks]
        terms = iter(self._terms_of([word for of_chunk in words for word in of_chunk]))
        learned = {chunk: tuple(islice(terms, len(of_chunk))) for chunk, of_chunk in zip(chunks, words, strict=True)}
        with self._lock:
            if len(self._chunks) + len(learned) > MAX_CACHED_WORDS:
                # Other threads may be reading the old dictionary without a lock, so it is replaced and not cleared.
                self._chunks = {}
            self._chunks.update((chunk, found) for chunk, found in learned.items() if len(chunk) <= _MAX_CACHED_CHARS)
        return learned

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


@cache
def shared_lexicon() -> PorterLexicon:
    """Return the lexicon of this process: it remembers the words of all sessions."""
    return PorterLexicon()


def _term(word: str) -> int:
    return crc32(word.encode("utf-8", "surrogatepass"))
