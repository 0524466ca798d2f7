"""Numbers written in words: where they are in a text, and their value.

English words from thirteen on, and Chinese and Japanese numerals of two characters or more. Small single numbers are
ignored: `one` and `two` are common words.
"""

from __future__ import annotations

import re

from recto.text.lazy_re import lazy_re

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
_CJK_DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "二": 2}
_CJK_TENS = {"十": 10, "百": 100, "千": 1_000}
_CJK_LARGE = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_MAX_WORDS = 24

_WORD = "(?:" + "|".join((*_VALUES, *_LARGE)) + ")(?![a-z])"
NUMBER_WORDS = lazy_re(
    rf"(?<![\w-])(?:an?[ \t-](?=hundred|thousand|million|billion|trillion))?{_WORD}(?:(?:-"
    rf"|[ \t]{{1,2}}(?:and[ \t])?){_WORD}){{0,{_MAX_WORDS}}}+(?![\w-])"
    "|[零〇一二三四五六七八九十两](?:[零〇一二三四五六七八九十百千万萬亿億两]){1,24}",
    re.IGNORECASE,
)
"""Matches candidates; `number_value` decides whether one is a number."""


def number_value(text: str) -> str | None:
    """The value of number words, in digits; None for words that are no number, or a small one."""
    words = [word for word in re.split(r"[\s-]+", text.strip().lower()) if word != "and"]
    if not words or len(words) > _MAX_WORDS + 2:
        return None
    if len(words) == 1 and words[0] not in _VALUES:
        return _value_of_cjk(words[0])
    words = ["one", *words[1:]] if words[0] in ("a", "an") else words
    if any(word not in _VALUES and word not in _LARGE for word in words) or words[0] in _LARGE:
        return None
    if len(words) == 1:
        return str(_VALUES[words[0]]) if _VALUES[words[0]] > 12 else None
    return _value_of_words(words)


def _value_of_words(words: list[str]) -> str:
    """`two hundred and forty-two` is added up; `four two` is read digit by digit."""
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


def _value_of_cjk(text: str) -> str | None:
    known = _CJK_DIGITS.keys() | _CJK_TENS.keys() | _CJK_LARGE.keys()
    if len(text) < 2 or any(character not in known for character in text):
        return None
    if all(character in _CJK_DIGITS for character in text):
        return "".join(str(_CJK_DIGITS[character]) for character in text)
    total = group = digit = 0
    for character in text:
        if character in _CJK_DIGITS:
            digit = _CJK_DIGITS[character]
        elif character in _CJK_TENS:
            group, digit = group + max(digit, 1) * _CJK_TENS[character], 0
        else:
            total, group, digit = (total + group + digit) * _CJK_LARGE[character], 0, 0
    return str(total + group + digit)
