"""Grounding: find the claims of a text (names, numbers, quotes, errors) and check them against its sources.

A text is split into tokens. Every token that is not a plain word counts as a name, a path or a number, however odd it
looks, and each token yields the forms under which it can be found. `Evidence` collects these forms from the sources;
`remove_ungrounded` drops every sentence of a text whose claims the sources do not support. Sources and texts go through
the same functions, in the form of `recto.text.unicode.visible_text`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Literal

from msgspec import Struct

from recto.text.excision import item_numbers, remove_spans, renumber_items
from recto.text.lazy_re import lazy_re
from recto.text.numbers import NUMBER_WORDS, number_value
from recto.text.terms import UNSPACED_SCRIPTS
from recto.text.unicode import visible_text

ClaimKind = Literal["number", "path", "identifier", "url", "error", "quote"]

MAX_TOKEN_CHARS = 400
"""Characters of a token that is analyzed; a longer one only matches itself."""
_MAX_PATH_DEPTH = 24
"""Path folders or parts of a dotted name that are distinguished, counted from the end."""

_SEPARATORS = r"\s\"'`<>|,;:(){}\[\]=!?&^“”‘’‚„«»‹›…—–→←↔⇒⇐│┃├└┌┐┘─━•。、，；：！？「」『』（）《》【】"
_GLUE = r"(?:(?<=\d),(?=\d{3}(?!\d))|:(?=\d)|::|(?<=\b[A-Za-z]):(?=[\\/]))"
"""Separators that hold together a number, a location in a file, a name or a drive letter."""
_RUN = rf"[^{_SEPARATORS}{UNSPACED_SCRIPTS}]++"
_OTHER = rf"[{UNSPACED_SCRIPTS}]++"
_IN_PATH = rf"(?:(?<=[/\\._-]){_OTHER}(?:{_RUN})?)*+"
_TOKEN = lazy_re(rf"[^{_SEPARATORS}]++(?:{_GLUE}[^{_SEPARATORS}]++)*+")
_TOKEN_ANY_SCRIPT = lazy_re(
    rf"{_RUN}(?:{_GLUE}{_RUN})*+{_IN_PATH}|{_OTHER}(?:(?=[/\\._][A-Za-z0-9]){_RUN}(?:{_GLUE}{_RUN})*+{_IN_PATH})?+"
)
"""Tokens; the second pattern also handles scripts without spaces next to names."""

_EDGES = lazy_re(r"^[^\w/\\.~$#@+%-]+|[^\w%]+$")
_ESCAPED = lazy_re(r"\\([._#+*~-])")
_PLAIN = lazy_re(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_CAMEL_CASE = lazy_re(r"[a-z][A-Z]|[A-Z]{2,}[a-z]{2,}")
_EMAIL = lazy_re(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DIGIT = lazy_re(r"\d")
_AMOUNT = lazy_re(
    r"[~+<>#≈≤≥-]{0,2}[$€£¥₹]?-?(?:[vV](?=\d))?(\d+(?:,\d{3})*(?:_\d+)*(?:\.\d+)*)([%‰°]|[A-Za-zµμ]{1,5}%?"
    r"|(?:-[A-Za-z]{2,15}){1,3})?\+?"
)
_NUMBER_LIST = lazy_re(
    r"[~+<>#-]{0,2}\$?\d[\d.,]*[A-Za-z%]{0,3}(?:(?:[-/:x×~*^]|\.\.+)[+-]?\$?\d[\d.,]*[A-Za-z%]{0,3})+\+?"
)
_RANGE_SEPARATOR = lazy_re(r"[-/x×~]|\.\.+")
_TIMESTAMP = lazy_re(r"(\d{4})[-/](\d{2})[-/](\d{2})(?:[T ](\d{2}:\d{2})(:\d{2})?(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?")
_CLOCK_TIME = lazy_re(r"(\d{1,2}:\d{2}):\d{2}(?:\.\d+)?")
_TIME = lazy_re(r"\d{1,2}(?::\d{2}){1,2}")
_DURATION = lazy_re(r"(?:\d+(?:\.\d+)?(?:ms|ns|us|µs|h|m|s|d|w|min)){2,}")
_LOCATION = lazy_re(r"^(.{2,}?):(\d+)(?:[-:](\d+))?$")
_ISSUE = lazy_re(r"(?<![A-Za-z0-9])([A-Za-z]{1,10}-\d{1,7})(?![A-Za-z0-9])")
_VERSION = lazy_re(r"[A-Za-z]{1,12}-?(\d+(?:\.\d+)+)")
_HEX = lazy_re(r"(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}")
_UUID = lazy_re(r"([0-9a-f]{8})(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_SLASHES = lazy_re(r"[/\\]+")
_NAME_SEPARATOR = lazy_re(r"::|[.:#]")
_NAME_PUNCTUATION = lazy_re(r"[-@+#$%~*:^]+")
_MAGNITUDES = {"k": 3, "K": 3, "M": 6, "B": 9, "bn": 9, "mn": 6, "thousand": 3, "million": 6, "billion": 9}
_COMMON_NAMES = frozenset(
    """
    GitHub GitLab JavaScript TypeScript macOS iOS iPadOS OpenAI JetBrains PostgreSQL MySQL SQLite NumPy PyTorch DevOps
    YouTube LinkedIn WordPress PyPI VSCode LaTeX MongoDB GraphQL DynamoDB FastAPI CircleCI WebSocket WebSockets
    BitBucket CentOS IDs URLs PRs APIs TODOs README READMEs SDKs CLIs SHAs UUIDs IDEs LLMs PDFs GPUs CPUs
    """.split()  # noqa: SIM905  read as prose
)
"""Common names with inner capitals."""
_WORD_PAIRS = frozenset(
    """
    and/or either/or he/she his/her him/her s/he yes/no true/false on/off in/out read/write input/output client/server
    request/response start/stop add/remove pass/fail before/after i/o tcp/ip n/a w/o ci/cd a/b key/value name/value
    success/failure enable/disable enabled/disabled push/pull create/update insert/update get/set open/close
    first/last above/below where/if collapse/expand thick/thin
    begin/end if/else try/catch try/except new/old old/new pros/cons is/are was/were day/night left/right up/down
    """.split()  # noqa: SIM905  read as prose
)
_COORDINATED = lazy_re(r"[A-Za-z]/[A-Za-z]|[a-z]+ing/[a-z]+ing|([a-z]{4,})/[a-z]{2,3}\1")
"""Two words side by side rather than a path."""
_ABBREVIATIONS = frozenset(("e.g", "i.e", "a.m", "p.m", "vs", "etc", "ph.d", "u.s"))
_FILE_EXTENSIONS = frozenset(
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


def tokenize(text: str) -> list[str]:
    """The tokens of a text."""
    return (_TOKEN if text.isascii() else _TOKEN_ANY_SCRIPT).findall(text)


def strip_punctuation(token: str) -> str:
    """A token without the punctuation around it."""
    core = _EDGES.sub("", token)
    if core.startswith("."):
        core = core.lstrip(".") if core.startswith("...") else core.removeprefix("./")
    return _ESCAPED.sub(r"\1", core) if "\\" in core else core


@lru_cache(32_768)
def claim_kind(core: str) -> ClaimKind | None:
    """What kind of claim a token is; None for a plain word."""
    bare = core.strip("_*~.-/\\+#%$@:")
    if not bare or _is_plain(core, bare):
        return None
    if "@" in core and _EMAIL.fullmatch(core):
        return "identifier"
    if (
        _AMOUNT.fullmatch(core)
        or _NUMBER_LIST.fullmatch(core)
        or _TIMESTAMP.fullmatch(core)
        or _DURATION.fullmatch(core)
    ):
        return "number"
    if "/" in core or "\\" in core:
        return None if bare.lower() in _WORD_PAIRS or _COORDINATED.fullmatch(bare) else "path"
    name = _LOCATION.sub(r"\1", core)
    ending = name.rpartition(".")
    return (
        "path"
        if ending[1]
        and (ending[2] in _FILE_EXTENSIONS or (ending[2].lower() in _FILE_EXTENSIONS and ending[2].isupper()))
        else "identifier"
    )


def _is_plain(core: str, bare: str) -> bool:
    if len(bare) > 40 or core.startswith(("-", "$", "@", "/", "\\")):
        return False
    if not bare.isascii():
        return all(char.isalpha() or char in "-_\u200c\u200d" or _is_mark(char) for char in bare)
    if _PLAIN.fullmatch(bare):
        return not _CAMEL_CASE.search(bare) or all(
            part in _COMMON_NAMES or not _CAMEL_CASE.search(part) for part in bare.split("-")
        )
    return bare.lower() in _ABBREVIATIONS


def _is_mark(char: str) -> bool:
    """Vowel signs, accents, emoji and symbols: nothing an ASCII name contains."""
    return not char.isascii() and not char.isalnum() and not char.isnumeric()


def numbers_in_token(core: str) -> tuple[str, ...]:
    """The numbers a source token provides, each in canonical form."""
    if len(core) > MAX_TOKEN_CHARS:
        return ()
    if match := _AMOUNT.fullmatch(core):
        return _amount_values(match)
    if match := _TIMESTAMP.fullmatch(core):
        year, month, day, clock, seconds = match.groups()
        day_text = f"{year}-{month}-{day}"
        parts = (
            (day_text, year, month, day, str(int(month)), str(int(day)))
            if int(month) <= 12 and int(day) <= 31
            else (day_text,)
        )
        return (*parts, clock, clock + (seconds or "")) if clock else parts
    if match := _CLOCK_TIME.fullmatch(core):
        return (core, match[1])
    if _NUMBER_LIST.fullmatch(core):
        inner = [
            number
            for part in _RANGE_SEPARATOR.split(core)
            if (amount := _AMOUNT.fullmatch(part))
            for number in _amount_values(amount)
        ]
        return (core, *inner) if len(_RANGE_SEPARATOR.findall(core)) == 1 else (core,)
    if _DURATION.fullmatch(core):
        return (core, *re.findall(r"\d+(?:\.\d+)?", core))
    return (version[1],) if (version := _VERSION.fullmatch(core)) else ()


def required_numbers(core: str) -> tuple[str, ...]:
    """The numbers that must all be known for this token to be supported; none if it contains no numbers."""
    if match := _AMOUNT.fullmatch(core):
        return _amount_values(match)[:1]
    if match := _TIMESTAMP.fullmatch(core):
        return (numbers_in_token(core)[0], match[4] + (match[5] or "")) if match[4] else numbers_in_token(core)[:1]
    if _DURATION.fullmatch(core):
        return numbers_in_token(core)[1:]
    if _NUMBER_LIST.fullmatch(core) and len(_RANGE_SEPARATOR.findall(core)) == 1 and ":" not in core:
        return tuple(number for part in _RANGE_SEPARATOR.split(core) if part for number in required_numbers(part))
    return (core,) if _NUMBER_LIST.fullmatch(core) else ()


def _amount_values(match: re.Match[str]) -> tuple[str, ...]:
    number, unit = match[1].replace(",", "").replace("_", ""), match[2] or ""
    if unit not in _MAGNITUDES:
        return (number,)
    integer_part, _, decimals = number.partition(".")
    zeros = _MAGNITUDES[unit] - len(decimals)
    exact = (integer_part + decimals + "0" * zeros).lstrip("0") if zeros >= 0 and "." not in decimals else number + unit
    return (exact or "0",)


def names_in_token(core: str) -> list[str]:
    """Every name a source token provides: itself, and its parts where they can be used alone."""
    names = [core]
    if len(core) > MAX_TOKEN_CHARS:
        return names
    if ":" in core:
        if (location := _LOCATION.match(core)) and not _TIME.fullmatch(core):
            names += [*names_in_token(location[1]), location[2]]
            names += [f"{end}:{location[2]}" for end in _path_suffixes(location[1])]
        else:
            names += [name for part in core.split(":") if part for name in names_in_token(part)]
    elif "/" in core or "\\" in core:
        names += _path_names(core)
    elif not core.isalpha():
        names += _compound_names(core)
    return names


def _path_suffixes(path: str) -> list[str]:
    parts = [part for part in _SLASHES.split(path) if part and part != "."][-_MAX_PATH_DEPTH:]
    return ["/".join(parts[at:]) for at in range(len(parts))]


def _path_names(core: str) -> list[str]:
    """A path, its parent folders, and their suffixes; with the leading slash if it is absolute."""
    parts = tuple(part for part in _SLASHES.split(core) if part and part != ".")
    names = ["/".join(parts)]
    if core[0] in "/\\":
        names += _absolute_parents(parts[:-1][:_MAX_PATH_DEPTH])
        names.append("/" + names[0])
    parts = parts[-_MAX_PATH_DEPTH:]
    names += _folder_runs(parts[:-1])
    names += ["/".join(parts[at:]) for at in range(1, len(parts))]
    last = parts[-1] if parts else ""
    return names if last.isalpha() or not last else [*names, *_compound_names(last)]


@lru_cache(8_192)
def _absolute_parents(parts: tuple[str, ...]) -> list[str]:
    return [f"/{'/'.join(parts[:to])}" for to in range(1, len(parts) + 1)]


@lru_cache(8_192)
def _folder_runs(parts: tuple[str, ...]) -> list[str]:
    """Every run of consecutive folders."""
    runs = ["/".join(parts[at:to]) for to in range(1, len(parts) + 1) for at in range(to)]
    return [*runs, *(name for part in parts if not part.isalpha() for name in _compound_names(part))]


def _compound_names(name: str) -> list[str]:
    names: list[str] = []
    parts = [part for part in _NAME_SEPARATOR.split(name) if part] if "." in name or "#" in name else []
    if (
        1 < len(parts) <= 8
        and parts[-1].lower() not in _FILE_EXTENSIONS
        and not any(part[0].isdigit() for part in parts)
    ):
        names += [".".join(parts[at:to]) for to in range(1, len(parts) + 1) for at in range(to)]
    names += [issue.lower() for issue in _ISSUE.findall(name)]
    lowered = name.lower()
    if uuid := _UUID.fullmatch(name):
        names += [lowered] if uuid[1].isdigit() else [lowered, uuid[1].lower()]
    elif _HEX.fullmatch(lowered):
        prefixes = (lowered[:to] for to in range(7, min(len(lowered), 16)))
        names += [lowered, *(prefix for prefix in prefixes if not prefix.isdigit())]
    if not _AMOUNT.fullmatch(name) and _NAME_PUNCTUATION.search(name):
        names += [part for part in _NAME_PUNCTUATION.split(name) if len(part) > 2 and not part.isdigit()]
    return names


def canonical_path(core: str) -> str:
    """A path in its canonical form."""
    parts = [part for part in _SLASHES.split(core) if part and part != "."]
    return ("/" if core[:1] in ("/", "\\") else "") + "/".join(parts)


def split_dotted(core: str) -> list[str]:
    """The parts of a dotted name."""
    return [part for part in _NAME_SEPARATOR.split(core) if part]


def split_location(core: str) -> tuple[str, list[str]]:
    """A file and the line numbers a token points to; no lines if it points to none."""
    if match := _LOCATION.match(core):
        return match[1], [line for line in match.groups()[1:] if line]
    return core, []


_URL = lazy_re(r"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9+.-]{1,15}://|www\.)[^\s<>\"'`“”‘’«»]{1,2000}")
_URL_END = lazy_re(r"[^\w/=&%#~+-]+$")
_QUOTE = lazy_re(
    r"\"([^\"\n]{0,600})\"|`([^`\n]{0,600})`|“([^”\n]{0,600})”|«([^»\n]{0,600})»|「([^」\n]{0,600})」"
    r"|(?<![\w'])'(?=\S)([^'\n]{0,600})(?<=\S)'(?![\w'])|‘([^’\n]{0,600})’"
)
_ELISION = lazy_re(r"\.\.\.+|…|\[[^\[\]]{0,80}\]")
"""Omissions and insertions inside a quotation."""
_ERROR = lazy_re(
    r"(?<![\w.])(?:(?:[A-Za-z_]\w{0,40}\.){0,6}[A-Z]\w{0,60}(?:Error|Exception|Failure|Panic)"
    r"|(?:(?<=[`\"“'])|^[ \t>-]{0,12})(?:error|fatal|panic|ERROR|FATAL|Error|Fatal|npm ERR!)"
    r"(?:\[\w{1,20}\]|\s(?:TS|E|C)\d{2,5})?):[ \t]+(?=\S)([^\n`\"“”]{3,300})",
    re.MULTILINE,
)
_BARE_CALL = lazy_re(r"(?<![\w./\\:#-])[A-Za-z]+\(\)")
"""A call of a function whose name is a plain word."""
_MAGNITUDE_WORD = lazy_re(r"[ \t](?:thousand|million|billion|[KMB]|k)(?![\w-])")
_WRAPPED_NUMBER = lazy_re(r"(?<![\w.,:/#-])[$€£]?\d++(?:[.,]\d++)*+-?[ \t]*\n[ \t]*\d++(?:[.,]\d++)*+(?![\w:/-]|\.\s)")
"""A number that continues on the next line. A numbered list there does not match."""
_ID = lazy_re(r"[A-Za-z]{1,10}-\d{1,7}|(?:0[xX])?[0-9a-fA-F]{7,}|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_MIN_QUOTED_WORDS = 4
"""Words of the shortest quotation that is checked: fewer are a name, a term or a figure of speech."""
_MAX_ERROR_WORDS = 4
"""Words of an error message that are compared; authors continue in their own words after it."""
_FOLDED = bytes(
    ord(chr(code).lower()) if code < 128 and (chr(code).isalnum() or chr(code) == "_") else ord(" ")
    for code in range(256)
)
"""Of ASCII text: letters in lower case, and a space for punctuation."""
_WORD = lazy_re(r"\w+")
_ESCAPES = lazy_re(r"\\+(?:[nrt](?![a-z]*[\\:])|[\"'])")
"""Line breaks and quotes as JSON escapes them."""
_MAX_CACHED = 20_000
"""Claims whose result is cached: texts repeat themselves, and are checked again after each removal."""
_MAX_REMEMBERED_CHARS = 600
"""Characters of lines whose words are remembered: a summary is measured several times, and most of its lines stay."""
_MAX_ROUNDS = 12
"""How often the remaining text is checked again; a text with unsupported claims after that is dropped."""
_SENTENCE_END = lazy_re(r"[.!?](?:[\"')\]”]*)\s")


class Claim(Struct, frozen=True):
    """Something in a text that can be checked against its sources."""

    kind: ClaimKind
    text: str
    start: int
    end: int


def find_claims(text: str) -> tuple[Claim, ...]:
    """The claims of a text in order, without overlaps; positions are those in `visible_text(text)`. Linear."""
    visible = visible_text(text)
    claims: list[Claim] = []
    at = 0
    for claim in sorted(_multiword_claims(visible), key=lambda claim: (claim.start, -claim.end)):
        if claim.start >= at:
            claims += _token_claims(visible, at, claim.start)
            claims.append(claim)
            at = claim.end
    claims += _token_claims(visible, at, len(visible))
    item_spans = {span for span, number in item_numbers(visible) if visible[span[0] : span[1]] == str(number)}
    return tuple(claim for claim in claims if (claim.start, claim.end) not in item_spans)


def _multiword_claims(text: str) -> Iterator[Claim]:
    """Claims longer than a token: URLs, quotations, errors, numbers in words or across two lines."""
    for match in _URL.finditer(text):
        url = _trim_url(match[0])
        yield Claim("url", url, match.start(), match.start() + len(url))
    for match in _QUOTE.finditer(text):
        inner, start = match[match.lastindex or 0], match.start(match.lastindex or 0)
        if len(inner.split()) >= _MIN_QUOTED_WORDS:
            yield Claim("error" if _ERROR.match(inner) else "quote", inner, start, start + len(inner))
        elif match[2] and inner.isalpha():
            yield Claim("identifier", inner, start, start + len(inner))
    for match in _BARE_CALL.finditer(text):
        yield Claim("identifier", match[0], match.start(), match.end())
    for match in _ERROR.finditer(text):
        stop = _SENTENCE_END.search(match[0])
        message = match[0][: stop.start()] if stop else match[0].rstrip()
        yield Claim("error", message, match.start(), match.start() + len(message))
    for match in NUMBER_WORDS.finditer(text):
        if number_value(match[0]) is not None:
            yield Claim("number", match[0], match.start(), match.end())
    for match in _WRAPPED_NUMBER.finditer(text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.end()]
        if text[match.end() : match.end() + 1] == ")" and before.count("(") <= before.count(")"):
            continue
        yield Claim("number", match[0], match.start(), match.end())


def _token_claims(text: str, start: int, end: int) -> Iterator[Claim]:
    part = text[start:end]
    pattern = _TOKEN if part.isascii() else _TOKEN_ANY_SCRIPT
    for match in pattern.finditer(part):
        core = strip_punctuation(match[0])
        kind = claim_kind(core) if len(core) <= MAX_TOKEN_CHARS else "identifier"
        if kind is None:
            continue
        at = match.start() + max(match[0].find(core), 0)
        stop = min(at + len(core), match.end()) if core in match[0] else match.end()
        if kind == "number" and (magnitude := _MAGNITUDE_WORD.match(part, stop)):
            stop = magnitude.end()
        yield Claim(kind, part[at:stop], start + at, start + stop)


def _trim_url(url: str) -> str:
    """A URL without the punctuation of the sentence around it."""
    while url and ((end := _URL_END.search(url)) or url.endswith(")")):
        if url.endswith(")") and url.count("(") >= url.count(")"):
            return url
        url = url[: end.start()] if end and not url.endswith(")") else url[:-1]
    return url


def fold_words(text: str) -> str:
    """The words of a text in lower case, separated by single spaces."""
    text = _ESCAPES.sub(" ", text) if "\\" in text else text
    if text.isascii() or "\n" not in text:
        return _fold_line(text)
    # Most lines are ASCII, also in a text that is not.
    return " ".join([words for line in text.split("\n") if (words := _fold_line(line))])


def _fold_line(line: str) -> str:
    if line.isascii():
        return b" ".join(line.encode("ascii").translate(_FOLDED).split()).decode("ascii")
    return _fold_short(line) if len(line) <= _MAX_REMEMBERED_CHARS else _fold_any_script(line)


def _fold_any_script(line: str) -> str:
    return " ".join(_WORD.findall(line)).lower()


_fold_short = lru_cache(4096)(_fold_any_script)


class FoldedText:
    """The words of texts in order, to tell which sentences they contain; ignoring white space, case and punctuation."""

    def __init__(self, *texts: str) -> None:
        self._folded = f" {' '.join(filter(None, map(_fold_text, texts)))} "
        self._words = frozenset(self._folded.split())

    def __contains__(self, sentence: str) -> bool:
        words, folded = _fold_sentence(sentence)
        # Most sentences that are missing have a word that is missing, which is far quicker to tell.
        return words <= self._words and folded in self._folded


_fold_text = lru_cache(4)(fold_words)
"""The working record is measured with each version of the summary beside it."""


@lru_cache(2048)
def _fold_sentence(sentence: str) -> tuple[frozenset[str], str]:
    folded = fold_words(sentence)
    return frozenset(folded.split()), f" {folded} "


def _error_start(error: str) -> str:
    """The first words of an error message, up to the first that is not a plain word: those are checked separately."""
    words = error.split()[: _MAX_ERROR_WORDS + 1]
    odd = (index for index, word in enumerate(words) if index and claim_kind(strip_punctuation(word)))
    return " ".join(words[: next(odd, len(words))])


class Evidence:
    """What the sources contain: every name, number and URL in them, and their words in order."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._numbers: set[str] = set()
        self._urls: set[str] = set()
        seen_words: set[str] = set()
        seen_tokens: set[str] = set()
        self._visible_texts: list[str] = []
        self._text = ""
        self._cache: dict[tuple[ClaimKind, str], bool] = {}
        for text in texts:
            visible = visible_text(text)
            self._visible_texts.append(visible)
            # Names contain no spaces: words seen before add nothing new.
            new_words = set(visible.split()) - seen_words
            seen_words |= new_words
            new_text = " ".join(new_words)
            tokens = set(tokenize(new_text))
            if "\\" in new_text:
                tokens.update(tokenize(_ESCAPES.sub(" ", new_text)))
            self._add_tokens(tokens - seen_tokens)
            seen_tokens |= tokens
            if "://" in visible or "www." in visible:
                self._urls.update(_url_prefixes(visible))

    def _add_tokens(self, tokens: set[str]) -> None:
        names = self._names
        for core in map(strip_punctuation, tokens):
            if core.isalpha():
                names.add(core)
                continue
            token_names = names_in_token(core)
            names.update(token_names)
            for name in token_names:
                if ("/" not in name and _DIGIT.search(name)) or name is core:
                    self._numbers.update(numbers_in_token(name))

    def supports(self, claim: Claim) -> bool:
        """Whether the sources support a claim."""
        key = (claim.kind, claim.text)
        if key not in self._cache:
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            self._cache[key] = self._check(claim)
        return self._cache[key]

    def _check(self, claim: Claim) -> bool:
        visible = visible_text(claim.text)
        match claim.kind:
            case "url":
                return _canonical_url(visible) in self._urls
            case "quote":
                parts = _ELISION.split(visible)
                is_quoted = all(self._contains_words(part) for part in parts if len(part.split()) > 2)
                return is_quoted and (len(parts) == 1 or self._supports_all(visible))
            case "error":
                return self._contains_words(_error_start(visible)) and self._supports_all(visible.partition(":")[2])
            case "number":
                return self._has_number(visible) or self._has_name(strip_punctuation(visible))
            case "path" | "identifier":
                return self._has_name(strip_punctuation(visible))

    def _contains_words(self, text: str) -> bool:
        if not self._text:
            # Built on the first quotation, since most texts quote nothing. Sources are separated by a character that
            # no word contains.
            self._text = f" {' | '.join(map(fold_words, self._visible_texts))} "
            self._visible_texts.clear()
        return f" {fold_words(text)} " in self._text

    def _supports_all(self, text: str) -> bool:
        return all(self.supports(claim) for claim in find_claims(text))

    def _has_number(self, text: str) -> bool:
        if "\n" in text:
            joined = re.sub(r"-?\s*\n\s*", "", text)
            return self._has_number(joined)
        if (value := number_value(text)) is not None:
            return value in self._numbers or self._contains_words(text)
        required = required_numbers(re.sub(r"\s+", "", strip_punctuation(text)))
        return bool(required) and all(number in self._numbers for number in required)

    def _has_name(self, core: str) -> bool:
        if self._is_known(core):
            return True
        bare = re.sub(r"[*`]|~~|\\(?=[^\w\\/])", "", core).strip("_~*")
        file, lines = split_location(bare)
        if lines and self._is_known(file):
            return all(line in self._numbers for line in lines)
        return bare != core and self._is_known(bare)

    def _is_known(self, name: str) -> bool:
        names = self._names
        if name in names or (
            name.lower() in names and not name.isalpha() and name.isascii() and _is_case_insensitive_id(name)
        ):
            return True
        if "/" in name or "\\" in name:
            return canonical_path(name) in names
        if claim_kind(name) == "number":
            return self._has_number(name)
        if name.endswith("s") and name[:-1] in names:
            return True
        parts = split_dotted(name)
        return (
            len(parts) > 1
            and not (name.islower() and "_" not in name)
            and claim_kind(name) == "identifier"
            and all(part in names for part in parts)
        )


def _is_case_insensitive_id(name: str) -> bool:
    """Whether a name is the same in upper and lower case."""
    return _ID.fullmatch(name) is not None


def _canonical_url(url: str) -> str:
    _, mark, rest = url.partition("://")
    host, slash, path = (rest if mark else url).partition("/")
    return f"{host.lower()}{slash}{path}".rstrip("/").removeprefix("www.")


def _url_prefixes(text: str) -> Iterator[str]:
    """Every URL of a text, and its prefixes up to each separator."""
    for written in {match[0] for match in _URL.finditer(text)}:
        url = _canonical_url(_trim_url(written))
        yield url
        for separator in list(re.finditer(r"[/?#]", url))[:32]:
            yield url[: separator.start()]


class GroundedText(Struct, frozen=True):
    """A text without unsupported claims."""

    text: str
    claims: int
    """Number of claims it made."""
    invented: tuple[Claim, ...]
    """The claims that the sources do not support."""


def remove_ungrounded(text: str, evidence: Evidence) -> GroundedText:
    """Remove the lines and sentences with unsupported claims from a text. Idempotent."""
    visible = renumber_items(visible_text(text))
    claims = find_claims(visible)
    unsupported = [claim for claim in claims if not evidence.supports(claim)]
    removed, rounds = tuple(unsupported), 0
    while unsupported and rounds < _MAX_ROUNDS:
        visible = renumber_items(
            visible_text(remove_spans(visible, [(claim.start, claim.end) for claim in unsupported]))
        )
        unsupported = [claim for claim in find_claims(visible) if not evidence.supports(claim)]
        rounds += 1
    return GroundedText("" if unsupported else visible, len(claims), removed)
