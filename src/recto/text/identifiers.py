"""What a text talks about: the names in it that would be recognised if they came up again.

Identifiers, paths, URLs, error codes, quoted names, numbers with their units, and words that are not everybody's. It is
told by the look of each word alone: no language is known here, and no meaning. Of a very long text only its beginning
and its end are looked at.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import chain, pairwise
from typing import TypeAlias

MOST = 4_000
"""Characters of a text that are looked at: three quarters at its beginning, the rest at its end."""
LONGEST = 200
"""Characters of one term; what is longer is data and not a name."""

Known: TypeAlias = dict[str, tuple[str, ...]]
"""The terms of each written word that was met already. Whoever reads many texts keeps one and saves the work."""

_MEASURE = r"\d[\d.,]* (?:[num]?s|min|h|[kKMGT]i?B|[kcm]?m|kg|[kMG]?Hz|tokens?|px|%)(?!\w)"
_WRITTEN = re.compile(_MEASURE + r"|[A-Za-z0-9_./:\\@%+~#$-]{3,}")
"""A number and its unit with a space between, or what a name may be written with. A short list is quick to look for."""
_WRITTEN_ANYHOW = re.compile(_MEASURE + r"|[\w./:\\@%+~#$-]{2,}")
"""The same in any script."""
_QUOTED = re.compile(r""""([^"\n]{3,60})"|`([^`\n]{3,60})`|“([^”\n]{3,60})”|«([^»\n]{3,60})»|「([^」\n]{2,60})」""")
_QUOTES = ('"', "`", "“", "«", "「")
_PLACE = re.compile(r":\d+(?::\d+)?$")
_RUN = re.compile(r"\w+")
_INNER = re.compile(r"[a-z0-9][A-Z]|[A-Za-z]\d|\d[A-Za-z]")

_EVERYBODYS = frozenset(
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


def terms(text: str, most: int = MOST, known: Known | None = None) -> frozenset[str]:
    """The terms of a text. Words come without case, names as they are written."""
    known = {} if known is None else known
    looked = ends_of(text, most)
    if looked.isascii():
        written = set(_WRITTEN.findall(looked))
    else:
        written = set(_WRITTEN_ANYHOW.findall(unicodedata.normalize("NFC", looked)))
    for word in written:
        if word not in known:
            known[word] = _told_by(word)
    found = set(chain.from_iterable(map(known.__getitem__, written)))
    if any(quote in looked for quote in _QUOTES):
        found.update(_quoted(looked))
    return frozenset(found)


def ends_of(text: str, most: int) -> str:
    """The text, or where it is long its beginning and its end, with a break between that keeps words apart."""
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail]}\n{text[len(text) - tail :]}"


def _quoted(text: str) -> set[str]:
    """Quoted names of several words; single words are found without their quotes."""
    quotes = ("".join(groups).strip() for groups in _QUOTED.findall(text))
    return {quote.casefold() for quote in quotes if " " in quote and quote[:1].isalnum()}


def _told_by(written: str) -> tuple[str, ...]:
    if len(written) > LONGEST:
        return ()
    if written.isascii() and written.isalpha() and (written.islower() or written.istitle()):
        return _word(written)
    if " " in written:
        return (written.replace(" ", ""),)
    name = written.strip(".:#$@~-+\\")
    if len(name) < 2:
        return ()
    if "://" in name:
        return (name.rstrip("/"),)
    if "/" in name or "\\" in name:
        return _path(written.rstrip(".:"))
    if not name.isascii():
        return tuple(term for run in _RUN.findall(name) for term in _foreign(run))
    if "_" in name or "." in name or ":" in name:
        return _compound(name)
    if name.isalpha() and (name.islower() or name.istitle()):
        return _word(name)
    if name.isdigit():
        return (name,) if len(name) >= 4 else ()
    is_name = name.isupper() or name.endswith("%") or "-" in name or _INNER.search(name)
    return (name,) if len(name) >= 3 and is_name else ()


def _path(written: str) -> tuple[str, ...]:
    path = _PLACE.sub("", written).rstrip("/\\")
    last = re.split(r"[/\\]", path)[-1]
    return (path, last) if len(last) >= 4 and last != path else (path,) if len(path) >= 3 else ()


def _compound(name: str) -> tuple[str, ...]:
    """Dotted, coloned and snake-case names: whole, and the last part where it can stand alone."""
    name = _PLACE.sub("", name)
    if len(name) < 4:
        return ()
    last = re.split(r"[.:]+", name)[-1]
    return (name, last) if len(last) >= 5 and last != name and not last.isdigit() else (name,)


def _word(word: str) -> tuple[str, ...]:
    plain = word.casefold()
    return (plain,) if len(plain) >= 5 and plain not in _EVERYBODYS else ()


def _foreign(run: str) -> tuple[str, ...]:
    """A run of letters outside ASCII. Scripts that put no spaces between words are taken two characters at a time."""
    if not any(_is_unspaced(character) for character in run):
        return (run.casefold(),) if len(run) >= 4 else ()
    if len(run) <= 2:
        return (run,)
    return tuple(first + second for first, second in pairwise(run))


def _is_unspaced(character: str) -> bool:
    code = ord(character)
    return code >= 0x2E80 or 0x0E00 <= code <= 0x0EFF or 0x1000 <= code <= 0x109F or 0x1780 <= code <= 0x17FF
