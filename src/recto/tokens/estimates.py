"""Token estimates from the text alone, for models whose tokenizer is not available.

Every estimate errs on the high side. They are arithmetic on the text: no vocabulary, no state, linear in its length.
The constants were fitted to counts of real messages; `tools/check_claude_estimate.py` repeats the check for Claude.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil

from recto.text.lazy_re import lazy_re

_UPPER = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LOWER = _UPPER.lower()
_PUNCTUATION = bytes(code for code in range(33, 127) if not chr(code).isalnum())
_CONTROL = bytes(code for code in range(128) if code < 32 and code not in b"\t\n\r") + b"\x7f"
_NO_LETTER = bytes(code for code in range(128) if not chr(code).isalpha() and chr(code) != "^")
_CONTINUATION = bytes(range(0x80, 0xC0))

_WORD = lazy_re(rb"[A-Z]?[a-z]+|[A-Z]+")
_DIGITS = lazy_re(rb"[0-9]{1,3}")
_PUNCTUATION_RUN = lazy_re(rb"[!-/:-@\[-`{-~]+")
_SPACES = lazy_re(rb"  +")
_BREAKS = lazy_re(rb"[\t\r\n]+")
_REPEATED_LETTER = lazy_re("([A-Za-z^\u0080-\U0010ffff])\\1{7,}")
"""A letter repeated many times: GPT's vocabularies have tokens for it, Claude's do not."""

_TOKENS_BY_LEAD_BYTE = (
    (0xC2, 0xC9, 1.1),
    (0xCA, 0xCD, 2.0),
    (0xCE, 0xCF, 0.5),
    (0xD0, 0xD3, 0.8),
    (0xD4, 0xDF, 2.2),
    (0xE0, 0xE0, 1.9),
    (0xE1, 0xE1, 3.2),
    (0xE2, 0xE2, 2.9),
    (0xE3, 0xE3, 1.9),
    (0xE4, 0xE9, 1.05),
    (0xEA, 0xEF, 3.0),
    (0xF0, 0xF4, 4.0),
)
"""Tokens per character outside ASCII, by the first byte of its UTF-8 form, which roughly tells its script."""


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate, so that the text can be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def byte_bound(text: str) -> int:
    """The most tokens a byte-level tokenizer can produce: one per byte."""
    return len(replace_surrogates(text).encode())


def plain_estimate(text: str) -> int:
    """At least as many tokens as o200k produces for 99.9 % of English, code, JSON and the main languages."""
    data = replace_surrogates(text).encode()
    words = excess_letters = 0
    for word in _WORD.finditer(data):
        words += 1
        excess_letters += max(0, word.end() - word.start() - 7)
    tokens = (
        3.5
        + 1.35 * words
        + excess_letters
        + 0.17 * _count(data, _UPPER)
        + 1.70 * _matches(_DIGITS, data)
        + 0.30 * _matches(_PUNCTUATION_RUN, data)
        + 0.45 * _count(data, _PUNCTUATION)
        + 1.30 * _matches(_SPACES, data)
        + 1.20 * _matches(_BREAKS, data)
        + 0.17 * data.count(b"\t")
        + _count(data, _CONTROL)
    )
    if not data.isascii():
        tokens += _non_ascii_tokens(data)
    return min(len(data), ceil(tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaudeFormula:
    """Claude's count derived from cl100k's: its vocabulary is smaller, with fewer capitals, signs and long spaces."""

    per_token: float
    per_upper: float
    per_lower: float
    per_sign: float
    per_gap: float
    """For each pair of spaces."""
    constant: float

    def estimate(self, text: str, cl100k: int) -> int:
        """An upper estimate of Claude's tokens for the text, from its cl100k count."""
        text = replace_surrogates(text)
        data = text.encode()
        tokens = (
            self.constant
            + self.per_token * cl100k
            + self.per_upper * _count(data, _UPPER)
            + self.per_lower * _count(data, _LOWER)
            + self.per_sign * _count(data, _PUNCTUATION)
            + self.per_gap * data.count(b"  ")
            + (sum(run.end() - run.start() for run in _REPEATED_LETTER.finditer(text)) if _may_repeat(data) else 0)
        )
        return ceil(tokens) if data else 0


CLAUDE = ClaudeFormula(per_token=1.29, per_upper=0.42, per_lower=0.0, per_sign=0.21, per_gap=0.11, constant=3.4)
"""Claude 3 to 4.6."""
CLAUDE_4_7 = ClaudeFormula(per_token=1.39, per_upper=0.77, per_lower=0.09, per_sign=0.61, per_gap=0.11, constant=4.1)
"""Claude 4.7 and later."""


def _count(data: bytes, which: bytes) -> int:
    return len(data) - len(data.translate(None, which))


def _may_repeat(data: bytes) -> bool:
    """Whether a letter may be repeated eight times: far quicker than the pattern, and mostly false."""
    letters, width = data.translate(None, _NO_LETTER), 1
    if not letters.isascii():
        letters, width = letters.decode().encode("utf-32-le"), 4
    number = int.from_bytes(letters, "little")
    return bytes(7 * width) in (number ^ number >> 8 * width).to_bytes(len(letters), "little")


def _matches(pattern: re.Pattern[bytes], data: bytes) -> int:
    return sum(1 for _ in pattern.finditer(data))


def _non_ascii_tokens(data: bytes) -> float:
    leads = data.translate(None, _CONTINUATION + bytes(range(128)))
    return sum(weight * _count(leads, bytes(range(first, last + 1))) for first, last, weight in _TOKENS_BY_LEAD_BYTE)
