"""What a text claims that can be checked, and whether its sources say so.

Numbers, paths, names, addresses, error messages and quotations are looked for in the text as it is seen, and held
against the same of the sources. They are held exactly: a rounded number is not the number, a path in another folder is
another path. Only what is the same in another writing is let by. What plain words claim cannot be checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recto.core import claim_forms as forms
from recto.core.claim_forms import Kind
from recto.core.excision import markers, renumbered, without
from recto.core.number_words import NUMBER_WORDS, value_of
from recto.core.visible import visible

_URL = re.compile(r"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9+.-]{1,15}://|www\.)[^\s<>\"'`“”‘’«»]{1,2000}")
_URL_END = re.compile(r"[^\w/=&%#~+-]+$")
_QUOTE = re.compile(
    r"\"([^\"\n]{0,600})\"|`([^`\n]{0,600})`|“([^”\n]{0,600})”|«([^»\n]{0,600})»|「([^」\n]{0,600})」"
    r"|(?<![\w'])'(?=\S)([^'\n]{0,600})(?<=\S)'(?![\w'])|‘([^’\n]{0,600})’"
)
_ELISION = re.compile(r"\.\.\.+|…|\[[^\[\]]{0,80}\]")
"""What a quotation leaves out, or puts in its own words."""
_ERROR = re.compile(
    r"(?<![\w.])(?:(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Failure|Panic)"
    r"|(?:(?<=[`\"“'])|^[ \t>-]{0,12})(?:error|fatal|panic|ERROR|FATAL|Error|Fatal|npm ERR!)"
    r"(?:\[\w{1,20}\]|\s(?:TS|E|C)\d{2,5})?):[ \t]+(?=\S)([^\n`\"“”]{3,300})",
    re.MULTILINE,
)
_CALL = re.compile(r"(?<![\w./\\:#-])[A-Za-z]+\(\)")
"""A call of what is a plain word otherwise."""
_LARGE = re.compile(r"[ \t](?:thousand|million|billion|[KMB]|k)(?![\w-])")
_BROKEN = re.compile(r"(?<![\w.,:/#-])[$€£]?\d++(?:[.,]\d++)*+-?[ \t]*\n[ \t]*\d++(?:[.,]\d++)*+(?![\w:/-]|\.\s)")
"""A number that goes on in the next line. A list that is numbered there is none."""
_ID = re.compile(
    r"[A-Za-z]{1,10}-\d{1,7}|(?:0[xX])?[0-9a-fA-F]{7,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
)
_LEAST_QUOTED = 4
"""Words of the shortest quotation: fewer are a name, a term or a manner of speaking."""
_ERROR_WORDS = 4
"""Words of an error message by which it is known; people go on in their own words after it."""
_WORDS_ASCII = {code: " " for code in range(128) if not chr(code).isalnum() and chr(code) != "_"}
_NO_WORDS = re.compile(r"[\W]+")
_ESCAPES = re.compile(r"\\+(?:[nrt](?![a-z]*[\\:])|[\"'])")
"""Line breaks and quotes as JSON writes them."""
_DIGIT = re.compile(r"\d")
_REMEMBERED = 20_000
"""Claims whose answer is remembered: texts repeat themselves, and are checked again when something was taken out."""
_ROUNDS = 12
"""How often what is left is looked at again; a text that still invents then is let go whole."""
_ENDS = re.compile(r"[.!?](?:[\"')\]”]*)\s")


@dataclass(frozen=True, slots=True)
class Claim:
    """Something in a text that can be held against its sources."""

    kind: Kind
    text: str
    start: int
    end: int


def claims_in(text: str) -> tuple[Claim, ...]:
    """What a text claims, in order, none over another; the places are those in `visible(text)`. Linear."""
    shown = visible(text)
    found: list[Claim] = []
    at = 0
    for claim in sorted(_whole(shown), key=lambda claim: (claim.start, -claim.end)):
        if claim.start >= at:
            found += _words(shown, at, claim.start)
            found.append(claim)
            at = claim.end
    found += _words(shown, at, len(shown))
    counted = {span for span, number in markers(shown) if shown[span[0] : span[1]] == str(number)}
    return tuple(claim for claim in found if (claim.start, claim.end) not in counted)


def _whole(text: str) -> Iterator[Claim]:
    """What is longer than a word: addresses, quotations, errors, numbers in words or in two lines."""
    for found in _URL.finditer(text):
        url = _trimmed_url(found[0])
        yield Claim("url", url, found.start(), found.start() + len(url))
    for found in _QUOTE.finditer(text):
        inner, start = found[found.lastindex or 0], found.start(found.lastindex or 0)
        if len(inner.split()) >= _LEAST_QUOTED:
            yield Claim("error" if _ERROR.match(inner) else "quote", inner, start, start + len(inner))
        elif found[2] and inner.isalpha():
            yield Claim("identifier", inner, start, start + len(inner))
    for found in _CALL.finditer(text):
        yield Claim("identifier", found[0], found.start(), found.end())
    for found in _ERROR.finditer(text):
        stop = _ENDS.search(found[0])
        whole = found[0][: stop.start()] if stop else found[0].rstrip()
        yield Claim("error", whole, found.start(), found.start() + len(whole))
    for found in NUMBER_WORDS.finditer(text):
        if value_of(found[0]) is not None:
            yield Claim("number", found[0], found.start(), found.end())
    for found in _BROKEN.finditer(text):
        before = text[text.rfind("\n", 0, found.start()) + 1 : found.end()]
        if text[found.end() : found.end() + 1] == ")" and before.count("(") <= before.count(")"):
            continue
        yield Claim("number", found[0], found.start(), found.end())


def _words(text: str, start: int, end: int) -> Iterator[Claim]:
    part = text[start:end]
    pattern = forms.PIECES if part.isascii() else forms.PIECES_ANYHOW
    for found in pattern.finditer(part):
        core = forms.core_of(found[0])
        kind = forms.kind_of(core) if len(core) <= forms.LONGEST else "identifier"
        if kind is None:
            continue
        at = found.start() + max(found[0].find(core), 0)
        stop = min(at + len(core), found.end()) if core in found[0] else found.end()
        if kind == "number" and (large := _LARGE.match(part, stop)):
            stop = large.end()
        yield Claim(kind, part[at:stop], start + at, start + stop)


def _trimmed_url(url: str) -> str:
    """An address without what the sentence around it added."""
    while url and ((end := _URL_END.search(url)) or url.endswith(")")):
        if url.endswith(")") and url.count("(") >= url.count(")"):
            return url
        url = url[: end.start()] if end and not url.endswith(")") else url[:-1]
    return url


def folded(text: str) -> str:
    """The words of a text without case, one space between them."""
    text = _ESCAPES.sub(" ", text) if "\\" in text else text
    spaced = text.translate(_WORDS_ASCII) if text.isascii() else _NO_WORDS.sub(" ", text)
    return " ".join(spaced.lower().split())


def _beginning(error: str) -> str:
    """The first words of an error message, up to the first that is not a plain word: those are held each by itself."""
    words = error.split()[: _ERROR_WORDS + 1]
    odd = (at for at, word in enumerate(words) if at and forms.kind_of(forms.core_of(word)))
    return " ".join(words[: next(odd, len(words))])


class Evidence:
    """What the sources say: every name, number and address in them, and their words in order."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._numbers: set[str] = set()
        self._urls: set[str] = set()
        met: set[str] = set()
        learnt: set[str] = set()
        self._shown: list[str] = []
        self._text = ""
        self._asked: dict[tuple[Kind, str], bool] = {}
        for text in texts:
            shown = visible(text)
            self._shown.append(shown)
            # No name has a space in it: what was met between two spaces before gives nothing new.
            fresh = set(shown.split()) - met
            met |= fresh
            written = " ".join(fresh)
            pieces = set(forms.pieces_of(written))
            if "\\" in written:
                pieces.update(forms.pieces_of(_ESCAPES.sub(" ", written)))
            self._learn(pieces - learnt)
            learnt |= pieces
            if "://" in shown or "www." in shown:
                self._urls.update(_beginnings(shown))

    def _learn(self, pieces: set[str]) -> None:
        names = self._names
        for core in map(forms.core_of, pieces):
            if core.isalpha():
                names.add(core)
                continue
            found = forms.names_of(core)
            names.update(found)
            for name in found:
                if ("/" not in name and _DIGIT.search(name)) or name is core:
                    self._numbers.update(forms.numbers_of(name))

    def holds(self, claim: Claim) -> bool:
        """Whether the sources say it."""
        asked = (claim.kind, claim.text)
        if asked not in self._asked:
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
            self._asked[asked] = self._holds(claim)
        return self._asked[asked]

    def _holds(self, claim: Claim) -> bool:
        shown = visible(claim.text)
        match claim.kind:
            case "url":
                return _url(shown) in self._urls
            case "quote":
                parts = _ELISION.split(shown)
                said = all(self._says(part) for part in parts if len(part.split()) > 2)
                return said and (len(parts) == 1 or self._holds_all(shown))
            case "error":
                return self._says(_beginning(shown)) and self._holds_all(shown.partition(":")[2])
            case "number":
                return self._counts(shown) or self._stands(forms.core_of(shown))
            case "path" | "identifier":
                return self._stands(forms.core_of(shown))

    def _says(self, text: str) -> bool:
        if not self._text:
            # Most texts quote nothing, so the words are put in order when the first quotation asks for them. Sources
            # are kept apart by a sign that no word has.
            self._text = f" {' | '.join(map(folded, self._shown))} "
            self._shown.clear()
        return f" {folded(text)} " in self._text

    def _holds_all(self, text: str) -> bool:
        return all(self.holds(claim) for claim in claims_in(text))

    def _counts(self, text: str) -> bool:
        if "\n" in text:
            joined = re.sub(r"-?\s*\n\s*", "", text)
            return self._counts(joined)
        if (value := value_of(text)) is not None:
            return value in self._numbers or self._says(text)
        asked = forms.asked_of(re.sub(r"\s+", "", forms.core_of(text)))
        return bool(asked) and all(number in self._numbers for number in asked)

    def _stands(self, core: str) -> bool:
        if self._is_known(core):
            return True
        bare = re.sub(r"[*`]|~~|\\(?=[^\w\\/])", "", core).strip("_~*")
        file, lines = forms.place_in(bare)
        if lines and self._is_known(file):
            return all(line in self._numbers for line in lines)
        return bare != core and self._is_known(bare)

    def _is_known(self, name: str) -> bool:
        names = self._names
        if name in names or (name.lower() in names and not name.isalpha() and name.isascii() and _is_id(name)):
            return True
        if "/" in name or "\\" in name:
            return forms.path_of(name) in names
        if forms.kind_of(name) == "number":
            return self._counts(name)
        if name.endswith("s") and name[:-1] in names:
            return True
        parts = forms.parts_of(name)
        return (
            len(parts) > 1
            and not (name.islower() and "_" not in name)
            and forms.kind_of(name) == "identifier"
            and all(part in names for part in parts)
        )


def _is_id(name: str) -> bool:
    """Whether a name is the same in capitals and in small letters."""
    return _ID.fullmatch(name) is not None


def _url(url: str) -> str:
    _, mark, rest = url.partition("://")
    host, slash, path = (rest if mark else url).partition("/")
    return f"{host.lower()}{slash}{path}".rstrip("/").removeprefix("www.")


def _beginnings(text: str) -> Iterator[str]:
    """Every address of a text, and all it begins with up to a folder of it."""
    for found in {match[0] for match in _URL.finditer(text)}:
        url = _url(_trimmed_url(found))
        yield url
        for place in list(re.finditer(r"[/?#]", url))[:32]:
            yield url[: place.start()]


@dataclass(frozen=True, slots=True)
class Checked:
    """A text without what its sources do not say."""

    text: str
    claims: int
    """How many claims it made."""
    invented: tuple[Claim, ...]
    """Those that are not in the sources."""


def checked(text: str, evidence: Evidence) -> Checked:
    """The text as it is seen, without the lines and sentences that hold something invented. Checked again, it stays."""
    shown = renumbered(visible(text))
    claims = claims_in(shown)
    invented = [claim for claim in claims if not evidence.holds(claim)]
    first, rounds = tuple(invented), 0
    while invented and rounds < _ROUNDS:
        shown = renumbered(visible(without(shown, [(claim.start, claim.end) for claim in invented])))
        invented = [claim for claim in claims_in(shown) if not evidence.holds(claim)]
        rounds += 1
    return Checked("" if invented else shown, len(claims), first)
