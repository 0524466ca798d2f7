"""An embedder that needs only numpy: hashes words and character n-grams into a short vector.

It compares spelling and not meaning: two forms of one word are near, two synonyms are not. It is used if no model is
installed. All sums are integers, so that every machine computes the same bits.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from zlib import crc32

from recto.tokens.estimates import replace_surrogates

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from recto.recall.protocols import Matrix

    Hashes = NDArray[np.uint32]

LONGEST = 100_000
"""Characters of a text that are embedded."""
PIECE = 512
"""Characters normalized at once: ordering combining marks takes quadratic time."""
GRAM = 3
"""Weight of an n-gram relative to its word, which weighs from 1 to `LONGEST_WORD` by its length."""
LONGEST_WORD = 8
SHORT = 3
"""Longest word that is dropped if there are longer ones: most short words carry no meaning."""

_MARKS = re.compile("[\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]+")
"""Accents and vowel points, which are optional; in other scripts a mark makes another word."""
_UNSPACED = (
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x2E80, 0xA4CF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"""Scripts without spaces between words: there two characters carry as much as a word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HashingEmbedder:
    """Signed feature hashing of folded words and of their n-grams of three to five characters.

    A text without any word gets a row of zeros: it is like nothing.
    """

    dims: int = 384
    weight: float = 0.1
    """Small, because it finds little more than the word index: other forms of the same words."""

    @property
    def name(self) -> str:
        """Changes with everything that affects a vector."""
        return f"hashing/1/{self.dims}"

    def documents(self, texts: Sequence[str]) -> Matrix:
        """Embed texts: one unit row per text; zeros for a text without words."""
        import numpy as np  # noqa: PLC0415  # imported only when something is embedded

        rows = np.zeros((len(texts), self.dims), dtype=np.float32)
        for place, text in enumerate(texts):
            rows[place] = self._row(text)
        return rows

    def query(self, text: str) -> Matrix:
        """Embed a question in the same way as a document."""
        return self.documents([text])

    def _row(self, text: str) -> NDArray[np.float64]:
        import numpy as np  # noqa: PLC0415  # imported only when something is embedded

        sums = np.zeros(self.dims, dtype=np.int64)
        words = _telling(_word_pattern().findall(fold(text[:LONGEST])))
        if words:
            self._add(sums, *_word_features(words))
            self._add(sums, *_gram_features(words))
        length = math.sqrt(int((sums * sums).sum()))
        return sums / length if length else sums.astype(np.float64)

    def _add(
        self, sums: NDArray[np.int64], hashes: Hashes, counts: NDArray[np.int64], worth: NDArray[np.int64]
    ) -> None:
        import numpy as np  # noqa: PLC0415  # imported only when something is embedded

        # The square root dampens repetition: a word used ten times is not ten times as important.
        amounts = np.rint(np.sqrt(counts) * 256).astype(np.int64) * worth
        np.add.at(sums, (hashes >> 1) % self.dims, np.where(hashes & 1, amounts, -amounts))


def fold(text: str) -> str:
    """Fold a text: remove case, accents and compatibility forms."""
    if text.isascii():
        return text.lower()
    pieces = (text[start : start + PIECE] for start in range(0, len(text), PIECE))
    bare = "".join(_MARKS.sub("", unicodedata.normalize("NFKD", piece)) for piece in pieces)
    pieces = (bare[start : start + PIECE] for start in range(0, len(bare), PIECE))
    return replace_surrogates("".join(unicodedata.normalize("NFC", piece) for piece in pieces).casefold())


def _telling(words: list[str]) -> list[str]:
    """Return the meaningful words; all of them if all are short."""
    return [word for word in words if len(word) > SHORT or not word.isascii()] or words


@cache
def _word_pattern() -> re.Pattern[str]:
    # `\w` excludes combining marks, which would split the words of most Indic scripts into single letters.
    marks = "".join(chr(code) for code in range(0x300, 0xAC00) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    return re.compile(rf"(?:[^\W_]|[{marks}])+")


def _word_features(words: list[str]) -> tuple[Hashes, NDArray[np.int64], NDArray[np.int64]]:
    """Return the hash, the frequency and the weight of each word."""
    import numpy as np  # noqa: PLC0415  # imported only when something is embedded

    counts = Counter(words)
    hashes = np.array([crc32(word.encode()) for word in counts], dtype=np.uint32)
    worth = [min(max(len(word) - SHORT, 1), LONGEST_WORD) for word in counts]
    return _mixed(hashes), np.array(list(counts.values()), dtype=np.int64), np.array(worth, dtype=np.int64)


def _gram_features(words: list[str]) -> tuple[Hashes, NDArray[np.int64], NDArray[np.int64]]:
    """Return the n-grams of 3 to 5 characters of a word, with spaces marking its ends; of 2 in unspaced scripts."""
    import numpy as np  # noqa: PLC0415  # imported only when something is embedded

    codes = np.frombuffer(f" {' '.join(words)} ".encode("utf-32-le"), dtype="<u4").astype(np.uint32)
    spaces = np.concatenate([[0], np.cumsum(codes == 32)])
    found = [_runs(codes, 2)[_unspaced(codes[:-1]) & _unspaced(codes[1:])]]
    for size in (3, 4, 5):
        if len(codes) >= size:
            start = np.arange(len(codes) - size + 1)
            inside = spaces[start + size - 1] - spaces[start + 1]
            found.append(_runs(codes, size)[inside == 0])
    hashes, counts = np.unique(np.concatenate(found), return_counts=True)
    return hashes, counts.astype(np.int64), np.full(len(hashes), GRAM, dtype=np.int64)


def _runs(codes: Hashes, size: int) -> Hashes:
    import numpy as np  # noqa: PLC0415  # imported only when something is embedded

    last = len(codes) - size + 1
    hashes = np.full(last, 2166136261 ^ size, dtype=np.uint32)
    for place in range(size):
        hashes = (hashes ^ codes[place : place + last]) * np.uint32(16777619)
    return _mixed(hashes)


def _mixed(hashes: Hashes) -> Hashes:
    """Mix the bits, so that every bit of the hash depends on every bit of the input."""
    import numpy as np  # noqa: PLC0415  # imported only when something is embedded

    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        hashes = (hashes ^ (hashes >> np.uint32(shift))) * np.uint32(factor)
    mixed: Hashes = hashes ^ (hashes >> np.uint32(16))
    return mixed


def _unspaced(codes: Hashes) -> NDArray[np.bool_]:
    import numpy as np  # noqa: PLC0415  # imported only when something is embedded

    found = np.zeros(len(codes), dtype=np.bool_)
    for first, last in _UNSPACED:
        found |= (codes >= first) & (codes <= last)
    return found
