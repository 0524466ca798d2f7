"""How alike two texts are, word for word: near 1 for two reads of one file, near 0 for texts about other things.

A text becomes a sparse vector of its words and pairs of words, hashed; likeness is the cosine. It is arithmetic on the
letters alone, the same on every machine and in every process: paraphrases and translations are not alike here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from math import log, sqrt
from typing import TypeAlias
from zlib import crc32

from recto.text.identifiers import ends_of

Vector: TypeAlias = Mapping[int, float]
"""Weights by hashed feature; of length 1, or empty for a text without words."""

MOST = 16_000
"""Characters of a text that are compared: three quarters at its beginning, the rest at its end."""
SHORT_WORD = 0.5
"""What a word of up to three letters weighs against a longer one: such words are in every text."""

_NUMBERED = re.compile(r"^ *\d+[→\t:-]", re.MULTILINE)
"""The numbers a tool writes before the lines of a file: one line more at the top changes them all."""
_WORD = re.compile(r"[^\W_]+(?:_[^\W_]+)*")
_UNSPACED = re.compile("[\u2e80-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


def vector(text: str) -> Vector:
    """The vector of a text."""
    text = _NUMBERED.sub("", ends_of(text, MOST))
    words = _WORD.findall(text)
    if not text.isascii():
        words = [piece for word in words for piece in _pieces(word)]
    hashed = [crc32(word.encode("utf-8", "surrogatepass")) for word in words]
    light = {code for code, word in zip(hashed, words, strict=True) if len(word) <= 3 and word.isascii()}
    weights = {code: (SHORT_WORD if code in light else 1.0) * _damped(n) for code, n in Counter(hashed).items()}
    for (first, second), n in Counter(pairwise(hashed)).items():
        both = first in light and second in light
        # A product tells the order apart; the bit above all others keeps pairs away from words.
        code = (1 << 32) | ((first * 31 + second) & 0xFFFFFFFF)
        weights[code] = weights.get(code, 0.0) + (SHORT_WORD if both else 1.0) * _damped(n)
    length = sqrt(sum(weight * weight for weight in weights.values()))
    return {code: weight / length for code, weight in weights.items()} if length else {}


def cosine(one: Vector, other: Vector) -> float:
    """From 0, nothing in common, to 1, the same words in the same numbers."""
    if len(other) < len(one):
        one, other = other, one
    return min(1.0, sum(weight * other[code] for code, weight in one.items() if code in other))


def _damped(count: int) -> float:
    return 1.0 + log(count)


def _pieces(word: str) -> list[str]:
    """A word; or, in a script that writes no spaces, its characters."""
    return list(word) if _UNSPACED.search(word) else [word]
