"""A lexicon for every script that reduces words to their stems.

Every word has the term of its English stem, by the Porter stemmer of SQLite's FTS5, or of the word itself if it is not
ASCII. A text in another language with a stemmer has the term of that stem beside it, and its function words are
dropped. The English term stays, so that names and technical terms are found across languages, and so that a text whose
language was not recognized finds no less than before.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING
from zlib import crc32

import apsw

from recto.text.analyzer import chunk_counts, words_of
from recto.text.languages import BY_SCRIPT, ENGLISH, FUNCTION_WORDS, RUSSIAN, languages_of
from recto.text.lazy_re import lazy_re

if TYPE_CHECKING:
    import Stemmer

MAX_CACHED_WORDS = 200_000
"""Words whose terms are cached, and chunks of text. When there are more, the cache starts empty again."""
_MAX_CACHED_CHARS = 200
"""Longer chunks are not cached."""

STOP_WORDS = FUNCTION_WORDS[ENGLISH]
"""Words that occur in nearly every English message and say nothing about its subject."""
_PROSE = lazy_re(r"[^\W\d_]+(?:['-][^\W\d_]+)*")
"""A plain word of a sentence, not a path or a name with digits or underscores."""
_JOINTS = lazy_re("['-]")
_PUNCTUATION = "_.\\@:/',+#-"
"""What may remain at the ends of a chunk."""
_CYRILLIC = lazy_re("[\u0400-\u04ff]")
_IDEOGRAPH = lazy_re("[\u3400-\u9fff]")
_FIRST_UNSPACED = "\u0e00"


class PorterLexicon:
    """Terms of words in any script: by their English stem, and in other languages by the stem of that language too."""

    name = "porter/2"

    def __init__(self) -> None:
        self._connection = apsw.Connection(":memory:")
        self._stem = self._connection.fts5_tokenizer("porter", ["ascii"])
        self._known: dict[str, int] = {}
        self._chunks: dict[tuple[str, ...], dict[str, tuple[int, ...]]] = {(): {}}
        """By the languages of the text: terms of its chunks, as `chunk_counts` splits them, without stop words."""
        # A tokenizer belongs to one connection and must not run in two threads at once; neither must a stemmer.
        self._lock = threading.Lock()
        self._stemmers: dict[str, Stemmer.Stemmer] = {}

    def terms(self, text: str) -> dict[int, int]:
        """Count each term by the CRC-32 of its stem.

        Stop words are dropped unless the text has no other words: a question such as `who am I` must be able to find
        the message that answers it.
        """
        counts = chunk_counts(text)
        languages = languages_of(counts)
        known = self._chunks.get(languages, {})
        if known.keys() >= counts.keys():
            found: Iterable[tuple[int, ...]] = map(known.__getitem__, counts)
        else:
            learned = self._learn_chunks([chunk for chunk in counts if chunk not in known], languages)
            found = (learned[chunk] if chunk in learned else known[chunk] for chunk in counts)
        term_counts: dict[int, int] = {}
        count_of = term_counts.get
        for terms, count in zip(found, counts.values(), strict=True):
            for term in terms:
                term_counts[term] = count_of(term, 0) + count
        return term_counts or dict(Counter(self._terms_of(words_of(text))))

    def sequence(self, text: str) -> list[int]:
        """Return the terms of English stems in text order, without English stop words."""
        return self._terms_of([word for word in words_of(text) if word not in STOP_WORDS])

    def _terms_of(self, words: list[str]) -> list[int]:
        known = self._known
        if any(word not in known for word in words):
            known = self._learn(dict.fromkeys(words))
        return [known[word] for word in words]

    def _learn_chunks(self, chunks: list[str], languages: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        """Return the terms of chunks, and add them to the cache."""
        dropped = _dropped(languages)
        words = [[word for word in words_of(chunk) if word not in dropped] for chunk in chunks]
        terms = iter(self._terms_of([word for of_chunk in words for word in of_chunk]))
        learned = {chunk: tuple(islice(terms, len(of_chunk))) for chunk, of_chunk in zip(chunks, words, strict=True)}
        with self._lock:
            for chunk, found in learned.items():
                if languages or not chunk.isascii():
                    more = dict.fromkeys(self._foreign_terms(chunk, languages))
                    learned[chunk] = (*found, *(term for term in more if term not in found))
            if sum(map(len, self._chunks.values())) + len(learned) > MAX_CACHED_WORDS:
                # Other threads may be reading the old dictionaries without a lock, so they are replaced, not cleared.
                self._chunks = {}
            short = {chunk: found for chunk, found in learned.items() if len(chunk) <= _MAX_CACHED_CHARS}
            self._chunks.setdefault(languages, {}).update(short)
        return learned

    def _foreign_terms(self, chunk: str, languages: tuple[str, ...]) -> list[int]:
        """Return the terms of the words in a chunk by their stems in other languages; none of a name or a path.

        Of a run of characters without spaces, which has the terms of its pairs already, those that are words alone.
        """
        if chunk >= _FIRST_UNSPACED:
            return [_term(character) for character in _IDEOGRAPH.findall(chunk) if character not in _dropped(())]
        prose = chunk.strip(_PUNCTUATION)
        if not _PROSE.fullmatch(prose):
            return []
        spoken = (RUSSIAN,) if _CYRILLIC.match(prose) else languages
        words = [word.lower() for word in _JOINTS.split(prose) if word[1:].islower()]
        return [
            _term(part)
            for language in spoken
            for word in words
            if word not in FUNCTION_WORDS[language]
            # Accents are removed after stemming: the rules of a language are written with them.
            for part in words_of(self._stemmer(language).stemWord(word))
        ]

    def _stemmer(self, language: str) -> Stemmer.Stemmer:
        import Stemmer  # noqa: PLC0415  # start-up: not for English

        if language not in self._stemmers:
            self._stemmers[language] = Stemmer.Stemmer(language)
            self._stemmers[language].maxCacheSize = 0  # terms are cached here
        return self._stemmers[language]

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
def _dropped(languages: tuple[str, ...]) -> frozenset[str]:
    """Return the words that a text in these languages is not searched by."""
    return STOP_WORDS.union(*(FUNCTION_WORDS[language] for language in (*languages, *BY_SCRIPT)))


@cache
def shared_lexicon() -> PorterLexicon:
    """Return the lexicon of this process: it remembers the words of all sessions."""
    return PorterLexicon()


def _term(word: str) -> int:
    return crc32(word.encode("utf-8", "surrogatepass"))
