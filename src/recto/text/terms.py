"""Terms of a text, in any script: the words that search compares, and the names that identify something.

Names are identifiers, paths, URLs, error codes, quoted names, numbers with units, and uncommon words: what would be
recognized if it occurred again. They are recognized by their form alone, independent of language and meaning. Of a very
long text only its beginning and end are read.

Words are lower-cased and stripped of accents. A compound name yields its parts and the full name, so that a part
matches it and the full name matches it first. Scripts without spaces are split into character pairs. Documents and
queries go through the same function. It is language-independent: stop words and stemming belong to the lexicon.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import accumulate, chain, pairwise
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


MAX_ANALYZED_CHARS = 200_000
"""Characters of a text that are analyzed: three quarters at its beginning, the rest at its end."""
MAX_WORD_CHARS = 100
"""Characters of one word; longer ones are cut."""
_CACHE_SIZE = 32_768
"""Number of words whose analysis is cached."""
_MAX_REMEMBERED_CHARS = 50_000
"""Characters of a text whose chunks are remembered."""

UNSPACED_SCRIPTS = (
    "\u0e00-\u0eff\u1000-\u1049\u104c-\u109f\u1100-\u11ff\u1780-\u17d3\u17dc-\u17ff\u3005-\u3007\u3040-\u30fa"
    "\u30fc-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Scripts without spaces between words. Korean has spaces, but its endings are attached to the word."""
_FIRST_UNSPACED = "\u0e00"
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711\u0730-\u074a"
"""Marks that are dropped: the word is the same without them."""
_MORE_MARKS = "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
_LETTERS = (
    "0-9A-Z_a-z\u00aa\u00ad\u00b2\u00b3\u00b5\u00b9-\u00be\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u037d\u037f-\u0386\u0388-\u0559"
    "\u0560-\u0588\u0591-\u05bd\u05bf-\u05f2\u0610-\u061a\u0620-\u0669\u066e-\u06d3\u06d5-\u06ff\u0710-\u0963"
    "\u0966-\u0dff\u0f00-\u0f0a\u0f15-\u0fff\u10a0-\u10ff\u1200-\u135f\u1369-\u13ff\u1401-\u166c\u166f-\u169a\u16a0-\u16ea"
    "\u16ee-\u177f\u1810-\u1fff\u200c\u200d\u2070-\u209c\u20d0-\u218b\u2460-\u249b\u249c-\u24ff\u2776-\u2793"
    "\u2c00-\u2dff\u3021-\u302f\u3031-\u3035\u3038-\u303c\u3099\u309a\u3105-\u312f\u3192-\u3195\u31a0-\u31bf"
    "\u3220-\u3229\u3248-\u324f\u3251-\u325f\u3280-\u3289\u32b1-\u32bf\ua000-\uabff\ud7b0-\ud7ff\ufb00-\ufdff\ufe00-\ufe0f\ufe20-\ufe2f\ufe70-\ufefc"
    "\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uffa0-\uffdc\U00010000-\U0001efff\U0001f100-\U0001f10c\U0001fbf0-\U0001fbf9"
)
"""Letters of all other scripts, including vowel signs and joiners."""


def _name_pattern(letters: str) -> str:
    """Letters and digits, and what may join them to one name; the first character is checked first, for speed."""
    joint = r"(?=[.\\@:/',-])(?:[.\\@-]{1,2}|:{1,2}|:?/{1,3}|'|(?<=\d),(?=\d{3}))"
    return rf"[{letters}]++(?:{joint}[{letters}]++)*+(?:(?=[+#])(?<![^\W_]\w)(?:\+\+|\#))?+"


_ASCII = lazy_re(_name_pattern("A-Za-z0-9_"))
_ANY_SCRIPT = lazy_re(rf"[{UNSPACED_SCRIPTS}]{{1,{MAX_WORD_CHARS}}}|{_name_pattern(_LETTERS)}")
_IS_UNSPACED = lazy_re(f"[{UNSPACED_SCRIPTS}]")
_SYMBOLS = lazy_re(
    "[\u00a0-\u00a9\u00ab\u00ac\u00b0\u00b7\u2000-\u200b\u2010-\u206f\u2190-\u245f\u2500-\u2775\u2794-\u2bff\U0001f200-\U0001faff]+"
)
"""Quotes, dashes, arrows and emoji: a text with only these beyond ASCII takes the fast ASCII path."""
_DROPPED = lazy_re(f"[{_MARKS}{_MORE_MARKS}\u0640\u200c\u200d\u00ad]")
_EQUIVALENTS = str.maketrans(
    {
        **{"ٱ": "ا", "ى": "ي", "ی": "ي", "ې": "ي", "ة": "ه", "ک": "ك"},
        **{"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ı": "i", "ß": "ss", "ẞ": "SS"},
        **{"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ħ": "h", "’": "'"},
    }
)
_CAMEL_PARTS = lazy_re(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_ALPHANUMERIC_RUN = lazy_re(r"[^\W_]+")
_HEX = lazy_re(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,}")
_UUID = lazy_re(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = lazy_re(r"[vV]?[0-9]+(?:[.:,-][0-9]+)+")
_SEPARATORS = bytes(
    code if code < 128 and (chr(code).isalnum() or chr(code) in "_.\\@:/',+#-") else ord(" ") for code in range(256)
)
"""Of ASCII text: every character that is never part of a name is a space. Bytes are translated faster than text."""
_CONTRACTIONS = frozenset(("s", "m", "d", "re", "ve", "ll"))


def chunks_of(text: str) -> list[str]:
    """Split a text so that `words_of` of all chunks, one after the other, are the words of the text.

    Far quicker than `words_of`: whoever remembers the words of a chunk need not analyze it again.
    """
    return _chunks_of(_plain(text))


def _chunks_of(plain: str) -> list[str]:
    if plain.isascii():
        return plain.encode("ascii").translate(_SEPARATORS).decode("ascii").split()
    return _ANY_SCRIPT.findall(plain)


def chunk_counts(text: str) -> Mapping[str, int]:
    """How often each chunk of a text occurs, in order of appearance. The result is shared: do not modify it.

    Of a short text it is remembered for a moment, because a new message is classified and indexed by the same chunks.
    """
    return _short_counts(text)[0] if len(text) <= _MAX_REMEMBERED_CHARS else Counter(chunks_of(text))


def distinct_chunks(text: str) -> Collection[str]:
    """Every run of letters, digits and `_.\\@:/',+#-` that occurs in a text, once. Do not modify it.

    To find out that a text contains none of many words, it is quicker to search these. A text that is long, or has
    letters beyond ASCII, is returned as the only one.
    """
    if len(text) <= _MAX_REMEMBERED_CHARS:
        counts, is_ascii = _short_counts(text)
        if is_ascii:
            return counts.keys()
    return (text,)


@lru_cache(maxsize=4)
def _short_counts(text: str) -> tuple[Counter[str], bool]:
    """The frequencies of the chunks, and whether all of them are ASCII."""
    plain = _plain(text)
    return Counter(_chunks_of(plain)), plain.isascii()


def _plain(text: str) -> str:
    clipped = clip_middle(text, MAX_ANALYZED_CHARS)
    if clipped.isascii():
        return clipped
    return _SYMBOLS.sub(" ", clipped.replace("’", "'").replace("\u2011", "-"))


def words_of(text: str) -> list[str]:
    """The words of a text in order, each name with its parts. Never raises; linear in the length of the text."""
    if len(text) <= MAX_WORD_CHARS and text.isascii() and (text.isidentifier() or text.isalnum()):
        return [text] if text.isalpha() and text.islower() else list(_analyze_word(text))
    clipped = _plain(text)
    is_plain = clipped.isascii()
    tokens = (_ASCII if is_plain else _ANY_SCRIPT).findall(clipped)
    if not tokens:
        return []
    if max(map(len, tokens)) <= MAX_WORD_CHARS and (is_plain or not _IS_UNSPACED.search(clipped)):
        return list(chain.from_iterable(map(_analyze_word, tokens)))
    return list(chain.from_iterable(map(_analyze_any_script, tokens)))


def _bounded_words(token: str) -> tuple[str, ...]:
    """The words of one token; of a very long one only its alphanumeric runs, each cut."""
    if len(token) <= MAX_WORD_CHARS:
        return _analyze_word(token)
    if len(token) <= 4 * MAX_WORD_CHARS:
        return tuple(word[:MAX_WORD_CHARS] for word in _analyze_word.__wrapped__(token))
    return tuple(run[:MAX_WORD_CHARS].lower() for run in _ALPHANUMERIC_RUN.findall(token))


def _analyze_any_script(token: str) -> tuple[str, ...]:
    if token >= _FIRST_UNSPACED and _IS_UNSPACED.match(token):
        return _character_pairs(token)
    if len(token) <= MAX_WORD_CHARS or token.isascii():
        return _bounded_words(token)
    pieces = (token[at : at + MAX_WORD_CHARS] for at in range(0, len(token), MAX_WORD_CHARS))
    return tuple(chain.from_iterable(_analyze_word.__wrapped__(piece) for piece in pieces))


def _character_pairs(run: str) -> tuple[str, ...]:
    plain = unicodedata.normalize("NFKC", run)
    if len(plain) <= 2:
        return (plain,)
    return tuple(first + second for first, second in pairwise(plain))


@lru_cache(maxsize=_CACHE_SIZE)
def _analyze_word(token: str) -> tuple[str, ...]:
    """The words that one token is indexed under."""
    if not token.isascii():
        return _analyze_non_ascii(token)
    if token.isalpha() and (token.islower() or token[1:].islower() or len(token) == 1):
        return (token.lower(),)
    if "'" in token:
        return _split_apostrophe(token)
    if token[-1] in "+#":
        return (token.lower(), token.rstrip("+#").lower())
    if "://" in token:
        return _split_url(token)
    if "/" in token or "\\" in token:
        return _split_path(token)
    if ":" in token and not _NUMBER.fullmatch(token):
        return _split_colons(token)
    return tuple(dict.fromkeys(_split_name(token)))


def _analyze_non_ascii(token: str) -> tuple[str, ...]:
    """A token with non-ASCII letters: accents, marks and width variants are removed, then it is analyzed again."""
    plain = unicodedata.normalize("NFKD", token.translate(_EQUIVALENTS))
    plain = unicodedata.normalize("NFC", _DROPPED.sub("", plain)).translate(_EQUIVALENTS)
    if any(character.isdecimal() and not character.isascii() for character in plain):
        plain = "".join(
            str(unicodedata.decimal(character)) if character.isdecimal() else character for character in plain
        )
    if plain.isascii():
        return tuple(chain.from_iterable(_bounded_words(word) for word in _ASCII.findall(plain)))
    words: list[str] = []
    for word in _ANY_SCRIPT.findall(plain):
        if word >= _FIRST_UNSPACED and _IS_UNSPACED.match(word):
            words += _character_pairs(word)
        elif word.isascii():
            words += _bounded_words(word)
        else:
            parts = [part.casefold()[:MAX_WORD_CHARS] for part in re.split(r"[_.\\@:/'’,-]+", word) if part]
            full_word = word.casefold().strip("_")[:MAX_WORD_CHARS]
            words += [*parts, full_word] if len(parts) > 1 else parts
    return tuple(words)


def _split_apostrophe(token: str) -> tuple[str, ...]:
    """`don't` is do and not, `user's` is user, `l'eau` is both its parts."""
    first, _, rest = token.partition("'")
    if rest == "t" and first[-1:] == "n" and len(first) > 1:
        base = {"ca": "can", "wo": "will", "sha": "shall"}.get(first[:-1].lower(), first[:-1])
        return (*_analyze_word(base), "not")
    if rest.lower() in _CONTRACTIONS:
        return _analyze_word(first)
    return tuple(chain.from_iterable(_analyze_word(part) for part in (first, *rest.split("'")) if part))


def _split_url(token: str) -> tuple[str, ...]:
    """A URL: its host, each part of its path, and the full URL without its scheme."""
    rest = token.partition("://")[2]
    host, _, path = rest.partition("/")
    parts = [word for part in (host, path) if part for word in _analyze_word(part)]
    return tuple(dict.fromkeys([*parts, rest.lower()]))


def _split_path(token: str) -> tuple[str, ...]:
    segments = [segment for segment in re.split(r"[/\\]+", token) if segment]
    words = list(chain.from_iterable(_analyze_word(segment) for segment in segments))
    full_path = "/".join(segments).partition(":")[0].lower()
    return tuple(dict.fromkeys([*words, full_path] if len(segments) > 1 else words))


def _split_colons(token: str) -> tuple[str, ...]:
    parts = [part for part in token.split(":") if part]
    words = list(chain.from_iterable(_analyze_word(part) for part in parts))
    return tuple(dict.fromkeys([*words, token.lower()] if "::" in token or len(parts) > 2 else words))


def _split_name(token: str) -> list[str]:
    """A name of letters, digits, dots, dashes, underscores and at signs: its parts, then the full name."""
    full_name = token.strip("_").lower()
    if not full_name:
        return []
    if _NUMBER.fullmatch(token):
        return _split_number(full_name.lstrip("v"))
    if _HEX.fullmatch(full_name):
        return [full_name, full_name[:7]]
    if _UUID.fullmatch(full_name):
        return [full_name, full_name[:8]]
    if full_name.startswith("0x") or full_name.isdigit():
        return [full_name]
    runs = _ALPHANUMERIC_RUN.findall(token)
    if len(runs) > 1 and all(len(run) == 1 and run.isalpha() for run in runs) and "." in token:
        return ["".join(runs).lower()]
    return [*chain.from_iterable(_split_camel_case(run) for run in runs), full_name]


def _split_camel_case(run: str) -> list[str]:
    """The words inside `fetchUserData`, `HTTPServer` and `utf8`; single letters are dropped."""
    parts = _CAMEL_PARTS.findall(run)
    if len(parts) < 2:
        return [run.lower()]
    return [*(part.lower() for part in parts if len(part) > 1), run.lower()]


def _split_number(token: str) -> list[str]:
    """A number, version, date or time: in full, and for versions and dates also its prefixes."""
    if "," in token:
        return [token.replace(",", ""), *(part for part in token.split(",") if len(part) > 2)]
    separator = next(character for character in token if not character.isdigit())
    parts = re.split(r"[.:,-]", token)
    prefixes = list(accumulate(parts, lambda before, part: before + separator + part))
    if separator == "." and len(parts) == 2:
        return [token]
    return [token, *prefixes[1:-1], *(part for part in parts if len(part) > 2)]
