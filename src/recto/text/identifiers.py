"""Distinctive terms of a text: names that would be recognized if they occurred again.

Identifiers, paths, URLs, error codes, quoted names, numbers with units, and uncommon words. Terms are recognized by
their form alone, independent of language and meaning. Of a very long text only its beginning and end are read.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, pairwise
from typing import TypeAlias

from recto.text.lazy_re import lazy_re

MAX_TERM_CHARS = 4_000
"""Characters of a text that are read: three quarters at its beginning, the rest at its end."""
MAX_TERM_LENGTH = 200
"""Characters of one term; anything longer is data and not a name."""

TermCache: TypeAlias = dict[str, tuple[str, ...]]
"""Terms by token. A caller that reads many texts keeps one cache for all of them."""

_MEASURE = r"\d[\d.,]* (?:[num]?s|min|h|[kKMGT]i?B|[kcm]?m|kg|[kMG]?Hz|tokens?|px|%)(?!\w)"
_ASCII_TOKEN = lazy_re(_MEASURE + r"|[A-Za-z0-9_./:\\@%+~#$-]{3,}")
"""A number and its unit with a space between, or the characters of a name. The small ASCII class is fast to match."""
_ANY_TOKEN = lazy_re(_MEASURE + r"|[\w./:\\@%+~#$-]{2,}")
"""The same in any script."""
_QUOTED = lazy_re(r""""([^"\n]{3,60})"|`([^`\n]{3,60})`|“([^”\n]{3,60})”|«([^»\n]{3,60})»|「([^」\n]{2,60})」""")
_QUOTES = ('"', "`", "“", "«", "「")
_LINE_SUFFIX = lazy_re(r":\d+(?::\d+)?$")
_WORD_RUN = lazy_re(r"\w+")
_MIXED_CASE = lazy_re(r"[a-z0-9][A-Z]|[A-Za-z]\d|\d[A-Za-z]")

_COMMON_WORDS = frozenset(
    """
    about above after again against almost already always another anything because become before being below between
    cannot could doing during either enough every everything first following found further getting given going having
    inside instead itself known large later least likely little looking makes making might never nothing other others
    otherwise perhaps please quite rather really right second several shall should since small something still their
    theirs there therefore these thing things think third those though through together toward under unless until using
    usually where whether which while whole whose within without would yourself return function string class const false
    value values input output result results number import print default
    """.split()  # noqa: SIM905  read as prose
)


def find_terms(text: str, max_chars: int = MAX_TERM_CHARS, cache: TermCache | None = None) -> frozenset[str]:
    """The terms of a text. Words are case-folded, names are kept as written."""
    cache = {} if cache is None else cache
    clipped = clip_middle(text, max_chars)
    if clipped.isascii():
        tokens = set(_ASCII_TOKEN.findall(clipped))
    else:
        tokens = set(_ANY_TOKEN.findall(unicodedata.normalize("NFC", clipped)))
    for token in tokens:
        if token not in cache:
            cache[token] = _terms_of_token(token)
    found_terms = set(chain.from_iterable(map(cache.__getitem__, tokens)))
    if any(quote in clipped for quote in _QUOTES):
        found_terms.update(_quoted_terms(clipped))
    return frozenset(found_terms)


def clip_middle(text: str, max_chars: int) -> str:
    """The text, or if it is long its beginning and end, with a line break between."""
    if len(text) <= max_chars:
        return text
    tail = max_chars // 4
    return f"{text[: max_chars - tail]}\n{text[len(text) - tail :]}"


def _quoted_terms(text: str) -> set[str]:
    """Quoted names of several words; single words are found without their quotes."""
    quotes = ("".join(groups).strip() for groups in _QUOTED.findall(text))
    return {quote.casefold() for quote in quotes if " " in quote and quote[:1].isalnum()}


def _terms_of_token(token: str) -> tuple[str, ...]:
    if len(token) > MAX_TERM_LENGTH:
        return ()
    if token.isascii() and token.isalpha() and (token.islower() or token.istitle()):
        return _word_terms(token)
    if " " in token:
        return (token.replace(" ", ""),)
    name = token.strip(".:#$@~-+\\")
    if len(name) < 2:
        return ()
    if "://" in name:
        return (name.rstrip("/"),)
    if "/" in name or "\\" in name:
        return _path_terms(token.rstrip(".:"))
    if not name.isascii():
        return tuple(term for run in _WORD_RUN.findall(name) for term in _non_ascii_terms(run))
    if "_" in name or "." in name or ":" in name:
        return _compound_terms(name)
    if name.isalpha() and (name.islower() or name.istitle()):
        return _word_terms(name)
    if name.isdigit():
        return (name,) if len(name) >= 4 else ()
    is_name = name.isupper() or name.endswith("%") or "-" in name or _MIXED_CASE.search(name)
    return (name,) if len(name) >= 3 and is_name else ()


def _path_terms(token: str) -> tuple[str, ...]:
    path = _LINE_SUFFIX.sub("", token).rstrip("/\\")
    last = re.split(r"[/\\]", path)[-1]
    return (path, last) if len(last) >= 4 and last != path else (path,) if len(path) >= 3 else ()


def _compound_terms(name: str) -> tuple[str, ...]:
    """Dotted, coloned and snake-case names: in full, and the last part if it is long enough."""
    name = _LINE_SUFFIX.sub("", name)
    if len(name) < 4:
        return ()
    last = re.split(r"[.:]+", name)[-1]
    return (name, last) if len(last) >= 5 and last != name and not last.isdigit() else (name,)


def _word_terms(word: str) -> tuple[str, ...]:
    plain = word.casefold()
    return (plain,) if len(plain) >= 5 and plain not in _COMMON_WORDS else ()


def _non_ascii_terms(run: str) -> tuple[str, ...]:
    """A run of non-ASCII letters. Scripts without spaces between words are split into character pairs."""
    if not any(_is_unspaced(character) for character in run):
        return (run.casefold(),) if len(run) >= 4 else ()
    if len(run) <= 2:
        return (run,)
    return tuple(first + second for first, second in pairwise(run))


def _is_unspaced(character: str) -> bool:
    code = ord(character)
    return code >= 0x2E80 or 0x0E00 <= code <= 0x0EFF or 0x1000 <= code <= 0x109F or 0x1780 <= code <= 0x17FF
