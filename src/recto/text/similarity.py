"""Lexical similarity of two texts: near 1 for two reads of one file, near 0 for texts on different topics.

A text becomes a sparse vector of its hashed words and word pairs; similarity is the cosine. It depends on the letters
alone and is the same on every machine: paraphrases and translations are not similar.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from math import log, sqrt
from typing import TypeAlias
from zlib import crc32

from recto.text.lazy_re import lazy_re
from recto.text.terms import clip_middle

Vector: TypeAlias = Mapping[int, float]
"""Weights by hashed feature; of length 1, or empty for a text without words."""

MAX_COMPARED_CHARS = 16_000
"""Characters of a text that are compared: three quarters at its beginning, the rest at its end."""
SHORT_WORD_WEIGHT = 0.5
"""Weight of a word of up to three letters relative to a longer one: such words are in every text."""

_LINE_NUMBERS = lazy_re(r"^ *\d+[→\t:-]", re.MULTILINE)
"""Line numbers that tools prepend: one more line at the top would change them all."""
_WORD = lazy_re(r"[^\W_]+(?:_[^\W_]+)*")
_UNSPACED = lazy_re("[\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


def text_vector(text: str) -> Vector:
    """The vector of a text."""
    text = _LINE_NUMBERS.sub("", clip_middle(text, MAX_COMPARED_CHARS))
    words = _WORD.findall(text)
    if not text.isascii():
        words = [piece for word in words for piece in _pieces(word)]
    hashed = [crc32(word.encode("utf-8", "surrogatepass")) for word in words]
    light = {code for code, word in zip(hashed, words, strict=True) if len(word) <= 3 and word.isascii()}
    weights = {code: (SHORT_WORD_WEIGHT if code in light else 1.0) * _damp(n) for code, n in Counter(hashed).items()}
    for (first, second), n in Counter(pairwise(hashed)).items():
        both = first in light and second in light
        # Multiplication distinguishes the order; the highest bit separates pairs from words.
        code = (1 << 32) | ((first * 31 + second) & 0xFFFFFFFF)
        weights[code] = weights.get(code, 0.0) + (SHORT_WORD_WEIGHT if both else 1.0) * _damp(n)
    length = sqrt(sum(weight * weight for weight in weights.values()))
    return {code: weight / length for code, weight in weights.items()} if length else {}


def cosine(left: Vector, right: Vector) -> float:
    """From 0 (nothing in common) to 1 (the same words with the same frequencies)."""
    if len(right) < len(left):
        left, right = right, left
    return min(1.0, sum(weight * right[code] for code, weight in left.items() if code in right))


def _damp(count: int) -> float:
    return 1.0 + log(count)


def _pieces(word: str) -> list[str]:
    """A word, or its characters in a script without spaces."""
    return list(word) if _UNSPACED.search(word) else [word]
