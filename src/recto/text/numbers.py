"""Numbers that are written in words: where they stand in a text, and what they amount to.

English words from thirteen on, and Chinese and Japanese numerals of two signs or more. Small numbers by themselves are
not looked for: `one` and `two` are everybody's words.
"""

from __future__ import annotations

import re

_SMALL = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_VALUES = {word: value for value, word in enumerate(_SMALL)} | {word: 10 * ten for ten, word in enumerate(_TENS, 2)}
_LARGE = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SIGNS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "二": 2}
_SIGN_TENS = {"十": 10, "百": 100, "千": 1_000}
_SIGN_LARGE = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_MOST_WORDS = 24

_WORD = "(?:" + "|".join((*_VALUES, *_LARGE)) + ")(?![a-z])"
NUMBER_WORDS = re.compile(
    rf"(?<![\w-])(?:an?[ \t-](?=hundred|thousand|million|billion|trillion))?{_WORD}(?:(?:-"
    rf"|[ \t]{{1,2}}(?:and[ \t])?){_WORD}){{0,{_MOST_WORDS}}}+(?![\w-])"
    "|[零〇一二三四五六七八九十两](?:[零〇一二三四五六七八九十百千万萬亿億两]){1,24}",
    re.IGNORECASE,
)
"""Where such numbers may stand; `value_of` says whether one does."""


def value_of(text: str) -> str | None:
    """The number that words amount to, in digits; None for words that are no number, or one too small to matter."""
    words = [word for word in re.split(r"[\s-]+", text.strip().lower()) if word != "and"]
    if not words or len(words) > _MOST_WORDS + 2:
        return None
    if len(words) == 1 and words[0] not in _VALUES:
        return _of_signs(words[0])
    words = ["one", *words[1:]] if words[0] in ("a", "an") else words
    if any(word not in _VALUES and word not in _LARGE for word in words) or words[0] in _LARGE:
        return None
    if len(words) == 1:
        return str(_VALUES[words[0]]) if _VALUES[words[0]] > 12 else None
    return _of_words(words)


def _of_words(words: list[str]) -> str:
    """`two hundred and forty-two` is counted together; `four two` is read digit by digit."""
    if not _LARGE.keys() & set(words) and not (len(words) == 2 and words[0] in _TENS and 0 < _VALUES[words[1]] < 10):
        return "".join(str(_VALUES[word]) for word in words)
    total = group = 0
    for word in words:
        if word == "hundred":
            group = max(group, 1) * 100
        elif word in _LARGE:
            total, group = total + max(group, 1) * _LARGE[word], 0
        else:
            group += _VALUES[word]
    return str(total + group)


def _of_signs(text: str) -> str | None:
    known = _SIGNS.keys() | _SIGN_TENS.keys() | _SIGN_LARGE.keys()
    if len(text) < 2 or any(sign not in known for sign in text):
        return None
    if all(sign in _SIGNS for sign in text):
        return "".join(str(_SIGNS[sign]) for sign in text)
    total = group = digit = 0
    for sign in text:
        if sign in _SIGNS:
            digit = _SIGNS[sign]
        elif sign in _SIGN_TENS:
            group, digit = group + max(digit, 1) * _SIGN_TENS[sign], 0
        else:
            total, group, digit = (total + group + digit) * _SIGN_LARGE[sign], 0, 0
    return str(total + group + digit)
