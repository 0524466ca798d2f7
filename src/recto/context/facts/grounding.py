"""What names and numbers look like in a text: which written words can be checked, and by what they are found.

Every written word that is not a plain word of letters counts as a name, a path or a number: what is odd is looked at,
however it is made, and only what is plain is let by. Sources and texts that are held against them go through the same
functions. Texts come as `recto.text.unicode` leaves them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from recto.text.excision import item_numbers, remove_spans, renumber_items
from recto.text.numbers import NUMBER_WORDS, number_value
from recto.text.unicode import visible_text

Kind = Literal["number", "path", "identifier", "url", "error", "quote"]

LONGEST = 400
"""Characters of one written word that is taken apart; a longer one stands for itself alone."""
_DEEPEST = 24
"""Folders of a path, or parts of a dotted name, that are told apart, counted from its end."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u1049\u104c-\u109f\u1100-\u11ff\u1780-\u17d3\u17dc-\u17ff\u3005-\u3007\u3040-\u30fa"
    "\u30fc-\u30ff\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_APART = r"\s\"'`<>|,;:(){}\[\]=!?&^“”‘’‚„«»‹›…—–→←↔⇒⇐│┃├└┌┐┘─━•。、，；：！？「」『』（）《》【】"
_GLUE = r"(?:(?<=\d),(?=\d{3}(?!\d))|:(?=\d)|::|(?<=\b[A-Za-z]):(?=[\\/]))"
"""What parts words elsewhere, and holds together a number, a place in a file, a name or the letter of a drive."""
_RUN = rf"[^{_APART}{_UNSPACED}]++"
_OTHER = rf"[{_UNSPACED}]++"
_IN_PATH = rf"(?:(?<=[/\\._-]){_OTHER}(?:{_RUN})?)*+"
PIECES = re.compile(rf"[^{_APART}]++(?:{_GLUE}[^{_APART}]++)*+")
PIECES_ANYHOW = re.compile(
    rf"{_RUN}(?:{_GLUE}{_RUN})*+{_IN_PATH}|{_OTHER}(?:(?=[/\\._][A-Za-z0-9]){_RUN}(?:{_GLUE}{_RUN})*+{_IN_PATH})?+"
)
"""Written words; the second also where scripts without spaces stand beside names."""

_EDGES = re.compile(r"^[^\w/\\.~$#@+%-]+|[^\w%]+$")
_ESCAPED = re.compile(r"\\([._#+*~-])")
_PLAIN = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_HUMP = re.compile(r"[a-z][A-Z]|[A-Z]{2,}[a-z]{2,}")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DIGIT = re.compile(r"\d")
_AMOUNT = re.compile(
    r"[~+<>#≈≤≥-]{0,2}[$€£¥₹]?-?(?:[vV](?=\d))?(\d+(?:,\d{3})*(?:_\d+)*(?:\.\d+)*)([%‰°]|[A-Za-zµμ]{1,5}%?"
    r"|(?:-[A-Za-z]{2,15}){1,3})?\+?"
)
_SEVERAL = re.compile(
    r"[~+<>#-]{0,2}\$?\d[\d.,]*[A-Za-z%]{0,3}(?:(?:[-/:x×~*^]|\.\.+)[+-]?\$?\d[\d.,]*[A-Za-z%]{0,3})+\+?"
)
_SPAN = re.compile(r"[-/x×~]|\.\.+")
_MOMENT = re.compile(r"(\d{4})[-/](\d{2})[-/](\d{2})(?:[T ](\d{2}:\d{2})(:\d{2})?(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?")
_CLOCK = re.compile(r"(\d{1,2}:\d{2}):\d{2}(?:\.\d+)?")
_TIME = re.compile(r"\d{1,2}(?::\d{2}){1,2}")
_LASTS = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|ns|us|µs|h|m|s|d|w|min)){2,}")
_PLACE = re.compile(r"^(.{2,}?):(\d+)(?:[-:](\d+))?$")
_ISSUE = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]{1,10}-\d{1,7})(?![A-Za-z0-9])")
_VERSION = re.compile(r"[A-Za-z]{1,12}-?(\d+(?:\.\d+)+)")
_HEX = re.compile(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}")
_UUID = re.compile(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SLASHES = re.compile(r"[/\\]+")
_JOINTS = re.compile(r"::|[.:#]")
_INNER = re.compile(r"[-@+#$%~*:^]+")
_LARGE = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "mn": 6, "thousand": 3, "million": 6, "billion": 9}
_NAMES = frozenset(
    """
    GitHub GitLab JavaScript TypeScript macOS iOS iPadOS OpenAI JetBrains PostgreSQL MySQL SQLite NumPy PyTorch DevOps
    YouTube LinkedIn WordPress PyPI VSCode LaTeX MongoDB GraphQL DynamoDB FastAPI CircleCI WebSocket WebSockets
    BitBucket CentOS IDs URLs PRs APIs TODOs README READMEs SDKs CLIs SHAs UUIDs IDEs LLMs PDFs GPUs CPUs
    """.split()  # noqa: SIM905  read as prose
)
"""Written with capitals inside, and everybody's."""
_EITHER = frozenset(
    """
    and/or either/or he/she his/her him/her s/he yes/no true/false on/off in/out read/write input/output client/server
    request/response start/stop add/remove pass/fail before/after i/o tcp/ip n/a w/o ci/cd a/b key/value name/value
    success/failure enable/disable enabled/disabled push/pull create/update insert/update get/set open/close
    first/last above/below where/if collapse/expand thick/thin
    begin/end if/else try/catch try/except new/old old/new pros/cons is/are was/were day/night left/right up/down
    """.split()  # noqa: SIM905  read as prose
)
_ALIKE = re.compile(r"[A-Za-z]/[A-Za-z]|[a-z]+ing/[a-z]+ing|([a-z]{4,})/[a-z]{2,3}\1")
"""Words that are set side by side rather than one in the other."""
_SHORT = frozenset(("e.g", "i.e", "a.m", "p.m", "vs", "etc", "ph.d", "u.s"))
_FILES = frozenset(
    """
    ada adoc asm astro avi avif awk bak bash bat bazel bib bin bmp c cc cert cfg cjs class clj cmake cmd conf config cpp
    crt cs css csv cts cu cxx d dart db deb diff dll dockerfile doc docx dylib ejs elm env eot eps erb erl ex exe exs
    f90 fish flac fs gem gif go gql gradle graphql gz h handlebars hcl hh hpp hs htm html hxx ico ics idx iml in inc ini
    ipynb jar java jpeg jpg js json json5 jsonc jsonl jsx jl key kt kts less lock log lua m mak map md mdx mjs mk ml mm
    mod mov mp3 mp4 mts nim nix npy npz o odt ogg onnx out parquet patch pbtxt pdf pem php pid pkl pl plist png po ppt
    pptx prisma properties proto ps1 psd pt py pyc pyd pyi pyx r rar rb rego rkt rpm rs rst rtf s sass scala scss sh so
    sol sql sqlite sqlite3 srt sum svelte svg swift sys tar tcl tex tf tfvars tgz tif tiff tmpl toml tpl ts tsv tsx ttf
    txt vb vim vue wasm wat wav webm webp whl woff woff2 xcconfig xls xlsx xml xsd xz yaml yml zig zip zsh
    """.split()  # noqa: SIM905  read as prose
)


def pieces_of(text: str) -> list[str]:
    """The written words of a text."""
    return (PIECES if text.isascii() else PIECES_ANYHOW).findall(text)


def core_of(piece: str) -> str:
    """A written word without the marks around it."""
    core = _EDGES.sub("", piece)
    if core.startswith("."):
        core = core.lstrip(".") if core.startswith("...") else core.removeprefix("./")
    return _ESCAPED.sub(r"\1", core) if "\\" in core else core


@lru_cache(32_768)
def kind_of(core: str) -> Kind | None:
    """What a written word can be checked as; None for a plain word."""
    bare = core.strip("_*~.-/\\+#%$@:")
    if not bare or _is_plain(core, bare):
        return None
    if "@" in core and _EMAIL.fullmatch(core):
        return "identifier"
    if _AMOUNT.fullmatch(core) or _SEVERAL.fullmatch(core) or _MOMENT.fullmatch(core) or _LASTS.fullmatch(core):
        return "number"
    if "/" in core or "\\" in core:
        return None if bare.lower() in _EITHER or _ALIKE.fullmatch(bare) else "path"
    name = _PLACE.sub(r"\1", core)
    ending = name.rpartition(".")
    return (
        "path"
        if ending[1] and (ending[2] in _FILES or (ending[2].lower() in _FILES and ending[2].isupper()))
        else "identifier"
    )


def _is_plain(core: str, bare: str) -> bool:
    if len(bare) > 40 or core.startswith(("-", "$", "@", "/", "\\")):
        return False
    if not bare.isascii():
        return all(char.isalpha() or char in "-_\u200c\u200d" or _is_mark(char) for char in bare)
    if _PLAIN.fullmatch(bare):
        return not _HUMP.search(bare) or all(part in _NAMES or not _HUMP.search(part) for part in bare.split("-"))
    return bare.lower() in _SHORT


def _is_mark(char: str) -> bool:
    """Signs of vowels and accents, pictures and symbols: nothing a name in ASCII is written with."""
    return not char.isascii() and not char.isalnum() and not char.isnumeric()


def numbers_of(core: str) -> tuple[str, ...]:
    """The numbers a source gives by this word, each in one form."""
    if len(core) > LONGEST:
        return ()
    if found := _AMOUNT.fullmatch(core):
        return _amount(found)
    if found := _MOMENT.fullmatch(core):
        year, month, day, clock, seconds = found.groups()
        whole = f"{year}-{month}-{day}"
        parts = (
            (whole, year, month, day, str(int(month)), str(int(day)))
            if int(month) <= 12 and int(day) <= 31
            else (whole,)
        )
        return (*parts, clock, clock + (seconds or "")) if clock else parts
    if found := _CLOCK.fullmatch(core):
        return (core, found[1])
    if _SEVERAL.fullmatch(core):
        inner = [number for part in _SPAN.split(core) if (one := _AMOUNT.fullmatch(part)) for number in _amount(one)]
        return (core, *inner) if len(_SPAN.findall(core)) == 1 else (core,)
    if _LASTS.fullmatch(core):
        return (core, *re.findall(r"\d+(?:\.\d+)?", core))
    return (version[1],) if (version := _VERSION.fullmatch(core)) else ()


def asked_of(core: str) -> tuple[str, ...]:
    """The numbers of which all must be known for this word to be true; none where it is not made of numbers."""
    if found := _AMOUNT.fullmatch(core):
        return _amount(found)[:1]
    if found := _MOMENT.fullmatch(core):
        return (numbers_of(core)[0], found[4] + (found[5] or "")) if found[4] else numbers_of(core)[:1]
    if _LASTS.fullmatch(core):
        return numbers_of(core)[1:]
    if _SEVERAL.fullmatch(core) and len(_SPAN.findall(core)) == 1 and ":" not in core:
        return tuple(number for part in _SPAN.split(core) if part for number in asked_of(part))
    return (core,) if _SEVERAL.fullmatch(core) else ()


def _amount(found: re.Match[str]) -> tuple[str, ...]:
    number, unit = found[1].replace(",", "").replace("_", ""), found[2] or ""
    if unit not in _LARGE:
        return (number,)
    whole, _, part = number.partition(".")
    zeros = _LARGE[unit] - len(part)
    exact = (whole + part + "0" * zeros).lstrip("0") if zeros >= 0 and "." not in part else number + unit
    return (exact or "0",)


def names_of(core: str) -> list[str]:
    """Every name a source gives by this word: itself, and what it is made of where that stands alone."""
    found = [core]
    if len(core) > LONGEST:
        return found
    if ":" in core:
        if (place := _PLACE.match(core)) and not _TIME.fullmatch(core):
            found += [*names_of(place[1]), place[2]]
            found += [f"{end}:{place[2]}" for end in _ends(place[1])]
        else:
            found += [name for part in core.split(":") if part for name in names_of(part)]
    elif "/" in core or "\\" in core:
        found += _path(core)
    elif not core.isalpha():
        found += _compound(core)
    return found


def _ends(path: str) -> list[str]:
    parts = [part for part in _SLASHES.split(path) if part and part != "."][-_DEEPEST:]
    return ["/".join(parts[at:]) for at in range(len(parts))]


def _path(core: str) -> list[str]:
    """A path, every folder above it, and each of them from any folder on; whole where it begins at a root."""
    parts = tuple(part for part in _SLASHES.split(core) if part and part != ".")
    found = ["/".join(parts)]
    if core[0] in "/\\":
        found += _from_root(parts[:-1][:_DEEPEST])
        found.append("/" + found[0])
    parts = parts[-_DEEPEST:]
    found += _folders(parts[:-1])
    found += ["/".join(parts[at:]) for at in range(1, len(parts))]
    last = parts[-1] if parts else ""
    return found if last.isalpha() or not last else [*found, *_compound(last)]


@lru_cache(8_192)
def _from_root(parts: tuple[str, ...]) -> list[str]:
    return [f"/{'/'.join(parts[:to])}" for to in range(1, len(parts) + 1)]


@lru_cache(8_192)
def _folders(parts: tuple[str, ...]) -> list[str]:
    """Every run of folders that follow each other."""
    runs = ["/".join(parts[at:to]) for to in range(1, len(parts) + 1) for at in range(to)]
    return [*runs, *(name for part in parts if not part.isalpha() for name in _compound(part))]


def _compound(name: str) -> list[str]:
    found: list[str] = []
    parts = [part for part in _JOINTS.split(name) if part] if "." in name or "#" in name else []
    if 1 < len(parts) <= 8 and parts[-1].lower() not in _FILES and not any(part[0].isdigit() for part in parts):
        found += [".".join(parts[at:to]) for to in range(1, len(parts) + 1) for at in range(to)]
    found += [issue.lower() for issue in _ISSUE.findall(name)]
    lowered = name.lower()
    if uuid := _UUID.fullmatch(name):
        found += [lowered] if uuid[1].isdigit() else [lowered, uuid[1].lower()]
    elif _HEX.fullmatch(lowered):
        beginnings = (lowered[:to] for to in range(7, min(len(lowered), 16)))
        found += [lowered, *(beginning for beginning in beginnings if not beginning.isdigit())]
    if not _AMOUNT.fullmatch(name) and _INNER.search(name):
        found += [part for part in _INNER.split(name) if len(part) > 2 and not part.isdigit()]
    return found


def path_of(core: str) -> str:
    """A path in the one form in which it is known."""
    parts = [part for part in _SLASHES.split(core) if part and part != "."]
    return ("/" if core[:1] in ("/", "\\") else "") + "/".join(parts)


def parts_of(core: str) -> list[str]:
    """The parts of a dotted name, without what only marks it as a name."""
    return [part for part in _JOINTS.split(core) if part]


def place_in(core: str) -> tuple[str, list[str]]:
    """A file and the lines in it that a word points at; no lines where it does not."""
    if found := _PLACE.match(core):
        return found[1], [line for line in found.groups()[1:] if line]
    return core, []


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
_LARGE_CLAIMS = re.compile(r"[ \t](?:thousand|million|billion|[KMB]|k)(?![\w-])")
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
_DIGIT_CLAIMS = re.compile(r"\d")
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
    shown = visible_text(text)
    found: list[Claim] = []
    at = 0
    for claim in sorted(_whole(shown), key=lambda claim: (claim.start, -claim.end)):
        if claim.start >= at:
            found += _words(shown, at, claim.start)
            found.append(claim)
            at = claim.end
    found += _words(shown, at, len(shown))
    counted = {span for span, number in item_numbers(shown) if shown[span[0] : span[1]] == str(number)}
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
        if number_value(found[0]) is not None:
            yield Claim("number", found[0], found.start(), found.end())
    for found in _BROKEN.finditer(text):
        before = text[text.rfind("\n", 0, found.start()) + 1 : found.end()]
        if text[found.end() : found.end() + 1] == ")" and before.count("(") <= before.count(")"):
            continue
        yield Claim("number", found[0], found.start(), found.end())


def _words(text: str, start: int, end: int) -> Iterator[Claim]:
    part = text[start:end]
    pattern = PIECES if part.isascii() else PIECES_ANYHOW
    for found in pattern.finditer(part):
        core = core_of(found[0])
        kind = kind_of(core) if len(core) <= LONGEST else "identifier"
        if kind is None:
            continue
        at = found.start() + max(found[0].find(core), 0)
        stop = min(at + len(core), found.end()) if core in found[0] else found.end()
        if kind == "number" and (large := _LARGE_CLAIMS.match(part, stop)):
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
    odd = (at for at, word in enumerate(words) if at and kind_of(core_of(word)))
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
            shown = visible_text(text)
            self._shown.append(shown)
            # No name has a space in it: what was met between two spaces before gives nothing new.
            fresh = set(shown.split()) - met
            met |= fresh
            written = " ".join(fresh)
            pieces = set(pieces_of(written))
            if "\\" in written:
                pieces.update(pieces_of(_ESCAPES.sub(" ", written)))
            self._learn(pieces - learnt)
            learnt |= pieces
            if "://" in shown or "www." in shown:
                self._urls.update(_beginnings(shown))

    def _learn(self, pieces: set[str]) -> None:
        names = self._names
        for core in map(core_of, pieces):
            if core.isalpha():
                names.add(core)
                continue
            found = names_of(core)
            names.update(found)
            for name in found:
                if ("/" not in name and _DIGIT_CLAIMS.search(name)) or name is core:
                    self._numbers.update(numbers_of(name))

    def holds(self, claim: Claim) -> bool:
        """Whether the sources say it."""
        asked = (claim.kind, claim.text)
        if asked not in self._asked:
            if len(self._asked) >= _REMEMBERED:
                self._asked.clear()
            self._asked[asked] = self._holds(claim)
        return self._asked[asked]

    def _holds(self, claim: Claim) -> bool:
        shown = visible_text(claim.text)
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
                return self._counts(shown) or self._stands(core_of(shown))
            case "path" | "identifier":
                return self._stands(core_of(shown))

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
        if (value := number_value(text)) is not None:
            return value in self._numbers or self._says(text)
        asked = asked_of(re.sub(r"\s+", "", core_of(text)))
        return bool(asked) and all(number in self._numbers for number in asked)

    def _stands(self, core: str) -> bool:
        if self._is_known(core):
            return True
        bare = re.sub(r"[*`]|~~|\\(?=[^\w\\/])", "", core).strip("_~*")
        file, lines = place_in(bare)
        if lines and self._is_known(file):
            return all(line in self._numbers for line in lines)
        return bare != core and self._is_known(bare)

    def _is_known(self, name: str) -> bool:
        names = self._names
        if name in names or (name.lower() in names and not name.isalpha() and name.isascii() and _is_id(name)):
            return True
        if "/" in name or "\\" in name:
            return path_of(name) in names
        if kind_of(name) == "number":
            return self._counts(name)
        if name.endswith("s") and name[:-1] in names:
            return True
        parts = parts_of(name)
        return (
            len(parts) > 1
            and not (name.islower() and "_" not in name)
            and kind_of(name) == "identifier"
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
    shown = renumber_items(visible_text(text))
    claims = claims_in(shown)
    invented = [claim for claim in claims if not evidence.holds(claim)]
    first, rounds = tuple(invented), 0
    while invented and rounds < _ROUNDS:
        shown = renumber_items(visible_text(remove_spans(shown, [(claim.start, claim.end) for claim in invented])))
        invented = [claim for claim in claims_in(shown) if not evidence.holds(claim)]
        rounds += 1
    return Checked("" if invented else shown, len(claims), first)
