"""A lexicon for every script, with English words reduced to their stems.

The stems are those of the Porter stemmer that comes with SQLite. Words of other languages written in ASCII go through
it too: it cuts them the same way in documents and in questions, which is all that matters. No meaning is known here.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from zlib import crc32

import apsw

from recto.text.analyzer import words_of

MAX_CACHED_WORDS = 200_000
"""Words whose terms are remembered; when there are more, it begins anew."""

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
"""Words that stand in nearly every English message and say nothing of what it is about.

`not` and `no` are among them: a text that denies something is about the same thing as one that affirms it, and a
question should find both. `never`, `without` and `nothing` are rare enough to tell texts apart and stay.
"""


class PorterLexicon:
    """Terms of words in any script: English by its stem, everything else as it is."""

    name = "porter/1"

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._stem = self._connection.fts5_tokenizer("porter", ["ascii"])
        self._known: dict[str, int] = {}
        # A tokenizer belongs to one connection and must not run in two threads at once.
        self._turn = threading.Lock()

    def terms(self, text: str) -> dict[int, int]:
        """How often each term occurs, by the CRC-32 of its stem.

        Stop words are left out, but a text that consists of nothing else keeps them: a question such as `who am I` must
        be able to find the message that says so.
        """
        counts = Counter(words_of(text))
        if not counts.keys() <= STOP_WORDS:
            for word in STOP_WORDS & counts.keys():
                del counts[word]
        known = self._known
        if not counts.keys() <= known.keys():
            known = self._learn(counts.keys())
        found: dict[int, int] = {}
        for word, count in counts.items():
            term = known[word]
            found[term] = found.get(term, 0) + count
        return found

    def sequence(self, text: str) -> list[int]:
        """The terms in the order in which they stand, without stop words."""
        words = [word for word in words_of(text) if word not in STOP_WORDS]
        known = self._known
        if any(word not in known for word in words):
            known = self._learn(dict.fromkeys(words))
        return [known[word] for word in words]

    def _learn(self, words: Iterable[str]) -> dict[str, int]:
        """Everything known, with these words among it."""
        with self._turn:
            known = self._known
            fresh = [word for word in words if word not in known]
            if len(known) + len(fresh) > MAX_CACHED_WORDS:
                # Others may be reading the old one, so it is left alone and a new one takes its place.
                known, fresh = {}, list(words)
            bent = [word for word in fresh if word.isascii() and word.isalpha()]
            known.update((word, _term(word)) for word in fresh)
            known.update((word, _term(stem)) for word, stem in zip(bent, self._stems(bent), strict=True))
            self._known = known
            return known

    def _stems(self, words: list[str]) -> list[str]:
        written = " ".join(words).encode()
        found = self._stem(written, apsw.FTS5_TOKENIZE_DOCUMENT, None, include_offsets=False, include_colocated=False)
        return [str(stem) for stem in found]


def _term(word: str) -> int:
    return crc32(word.encode("utf-8", "surrogatepass"))
