"""The words a text is found by, in any script, before they are stemmed.

Words come without case and without accents. A name made of several words is given as its parts and once more whole, so
that a part finds it and the whole finds it first. Scripts that put no spaces between words are taken two characters at
a time. Documents and questions go through the same function. No language is known here: what a word means, which words
are everybody's and how they are bent is for a lexicon to say.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from itertools import accumulate, chain, pairwise

from recto.text.identifiers import ends_of

MOST = 200_000
"""Characters of a text that are looked at: three quarters at its beginning, the rest at its end."""
LONGEST = 100
"""Characters of one word; what is longer is cut."""
_KEPT = 32_768
"""Written words whose parts are remembered."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u1049\u104c-\u109f\u1100-\u11ff\u1780-\u17d3\u17dc-\u17ff\u3005-\u3007\u3040-\u30fa"
    "\u30fc-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
"""Scripts without spaces between words. Korean has spaces, but its endings are written onto the word."""
_FIRST_UNSPACED = "\u0e00"
_MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711\u0730-\u074a"
"""Marks that are left out: the word is the same without them."""
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
"""What words of all other scripts are written with, vowel signs and joiners among it."""


def _name_of(letters: str) -> str:
    """Letters and digits, and what may join them to one name; its first character is looked at first, to be quick."""
    joint = r"(?=[.\\@:/',-])(?:[.\\@-]{1,2}|:{1,2}|:?/{1,3}|'|(?<=\d),(?=\d{3}))"
    return rf"[{letters}]++(?:{joint}[{letters}]++)*+(?:(?=[+#])(?<![^\W_]\w)(?:\+\+|\#))?+"


_ASCII = re.compile(_name_of("A-Za-z0-9_"))
_ANY = re.compile(rf"[{_UNSPACED}]{{1,{LONGEST}}}|{_name_of(_LETTERS)}")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_SYMBOLS = re.compile(
    "[\u00a0-\u00a9\u00ab\u00ac\u00b0\u00b7\u2000-\u200b\u2010-\u206f\u2190-\u245f\u2500-\u2775\u2794-\u2bff\U0001f200-\U0001faff]+"
)
"""Quotes, dashes, arrows and pictures: a text that has only these beyond ASCII is read as quickly as one without."""
_LEFT_OUT = re.compile(f"[{_MARKS}{_MORE_MARKS}\u0640\u200c\u200d\u00ad]")
_SAME = str.maketrans(
    {
        **{"ٱ": "ا", "ى": "ي", "ی": "ي", "ې": "ي", "ة": "ه", "ک": "ك"},
        **{"ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "đ": "d", "Đ": "D", "ı": "i", "ß": "ss", "ẞ": "SS"},
        **{"æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ħ": "h", "’": "'"},
    }
)
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_RUNS = re.compile(r"[^\W_]+")
_HEX = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{7,}")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[vV]?[0-9]+(?:[.:,-][0-9]+)+")
_ENDINGS = frozenset(("s", "m", "d", "re", "ve", "ll"))


def words_of(text: str) -> list[str]:
    """The words of a text in their order, each name with its parts. Never raises; linear in the length of the text."""
    looked = ends_of(text, MOST)
    if not looked.isascii():
        looked = _SYMBOLS.sub(" ", looked.replace("’", "'").replace("\u2011", "-"))
    is_plain = looked.isascii()
    written = (_ASCII if is_plain else _ANY).findall(looked)
    if not written:
        return []
    if max(map(len, written)) <= LONGEST and (is_plain or not _IS_UNSPACED.search(looked)):
        return list(chain.from_iterable(map(_words_in, written)))
    return list(chain.from_iterable(map(_in_any_script, written)))


def _short_enough(written: str) -> tuple[str, ...]:
    """The words of one written word; of a very long one only its runs of letters and digits, each cut."""
    if len(written) <= LONGEST:
        return _words_in(written)
    if len(written) <= 4 * LONGEST:
        return tuple(word[:LONGEST] for word in _words_in.__wrapped__(written))
    return tuple(run[:LONGEST].lower() for run in _RUNS.findall(written))


def _in_any_script(written: str) -> tuple[str, ...]:
    if written >= _FIRST_UNSPACED and _IS_UNSPACED.match(written):
        return _pairs(written)
    if len(written) <= LONGEST or written.isascii():
        return _short_enough(written)
    pieces = (written[at : at + LONGEST] for at in range(0, len(written), LONGEST))
    return tuple(chain.from_iterable(_words_in.__wrapped__(piece) for piece in pieces))


def _pairs(run: str) -> tuple[str, ...]:
    plain = unicodedata.normalize("NFKC", run)
    if len(plain) <= 2:
        return (plain,)
    return tuple(first + second for first, second in pairwise(plain))


@lru_cache(maxsize=_KEPT)
def _words_in(written: str) -> tuple[str, ...]:
    """What one written word is found by."""
    if not written.isascii():
        return _words_of_letters(written)
    if written.isalpha() and (written.islower() or written[1:].islower() or len(written) == 1):
        return (written.lower(),)
    if "'" in written:
        return _without_apostrophe(written)
    if written[-1] in "+#":
        return (written.lower(), written.rstrip("+#").lower())
    if "://" in written:
        return _address(written)
    if "/" in written or "\\" in written:
        return _path(written)
    if ":" in written and not _NUMBER.fullmatch(written):
        return _joined_by_colons(written)
    return tuple(dict.fromkeys(_name(written)))


def _words_of_letters(written: str) -> tuple[str, ...]:
    """A word with letters beyond ASCII: accents, marks and forms of width go, then it is read anew."""
    plain = unicodedata.normalize("NFKD", written.translate(_SAME))
    plain = unicodedata.normalize("NFC", _LEFT_OUT.sub("", plain)).translate(_SAME)
    if any(character.isdecimal() and not character.isascii() for character in plain):
        plain = "".join(str(unicodedata.decimal(one)) if one.isdecimal() else one for one in plain)
    if plain.isascii():
        return tuple(chain.from_iterable(_short_enough(word) for word in _ASCII.findall(plain)))
    found: list[str] = []
    for word in _ANY.findall(plain):
        if word >= _FIRST_UNSPACED and _IS_UNSPACED.match(word):
            found += _pairs(word)
        elif word.isascii():
            found += _short_enough(word)
        else:
            parts = [part.casefold()[:LONGEST] for part in re.split(r"[_.\\@:/'’,-]+", word) if part]
            whole = word.casefold().strip("_")[:LONGEST]
            found += [*parts, whole] if len(parts) > 1 else parts
    return tuple(found)


def _without_apostrophe(written: str) -> tuple[str, ...]:
    """`don't` is do and not, `user's` is user, `l'eau` is both its parts."""
    first, _, rest = written.partition("'")
    if rest == "t" and first[-1:] == "n" and len(first) > 1:
        base = {"ca": "can", "wo": "will", "sha": "shall"}.get(first[:-1].lower(), first[:-1])
        return (*_words_in(base), "not")
    if rest.lower() in _ENDINGS:
        return _words_in(first)
    return tuple(chain.from_iterable(_words_in(part) for part in (first, *rest.split("'")) if part))


def _address(written: str) -> tuple[str, ...]:
    """A URL: its host, each part of its path, and the whole without its scheme."""
    rest = written.partition("://")[2]
    host, _, path = rest.partition("/")
    parts = [word for part in (host, path) if part for word in _words_in(part)]
    return tuple(dict.fromkeys([*parts, rest.lower()]))


def _path(written: str) -> tuple[str, ...]:
    segments = [segment for segment in re.split(r"[/\\]+", written) if segment]
    words = list(chain.from_iterable(_words_in(segment) for segment in segments))
    whole = "/".join(segments).partition(":")[0].lower()
    return tuple(dict.fromkeys([*words, whole] if len(segments) > 1 else words))


def _joined_by_colons(written: str) -> tuple[str, ...]:
    parts = [part for part in written.split(":") if part]
    words = list(chain.from_iterable(_words_in(part) for part in parts))
    return tuple(dict.fromkeys([*words, written.lower()] if "::" in written or len(parts) > 2 else words))


def _name(written: str) -> list[str]:
    """A name of letters, digits, dots, dashes, underscores and at signs: its parts, then the whole."""
    whole = written.strip("_").lower()
    if not whole:
        return []
    if _NUMBER.fullmatch(written):
        return _number(whole.lstrip("v"))
    if _HEX.fullmatch(whole):
        return [whole, whole[:7]]
    if _UUID.fullmatch(whole):
        return [whole, whole[:8]]
    if whole.startswith("0x") or whole.isdigit():
        return [whole]
    runs = _RUNS.findall(written)
    if len(runs) > 1 and all(len(run) == 1 and run.isalpha() for run in runs) and "." in written:
        return ["".join(runs).lower()]
    return [*chain.from_iterable(_humps(run) for run in runs), whole]


def _humps(run: str) -> list[str]:
    """The words inside `fetchUserData`, `HTTPServer` and `utf8`; beside others a single letter says nothing."""
    parts = _HUMPS.findall(run)
    if len(parts) < 2:
        return [run.lower()]
    return [*(part.lower() for part in parts if len(part) > 1), run.lower()]


def _number(written: str) -> list[str]:
    """A number, version, date or time: whole, and for versions and dates also what it begins with."""
    if "," in written:
        return [written.replace(",", ""), *(part for part in written.split(",") if len(part) > 2)]
    mark = next(character for character in written if not character.isdigit())
    parts = re.split(r"[.:,-]", written)
    begins = list(accumulate(parts, lambda before, part: before + mark + part))
    if mark == "." and len(parts) == 2:
        return [written]
    return [written, *begins[1:-1], *(part for part in parts if len(part) > 2)]
