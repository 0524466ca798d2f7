"""Counts tokens: tokenizers by family, and what a message costs beyond its words.

Token costs of messages, including the frame each model family adds around messages, calls and tool schemas.

A `Meter` combines a text counter, a frame and an image formula for one model.

Frames are token counts of the families' published chat templates, rounded up where a template varies. Sums over
messages are valid because every family separates messages by tokens that never merge with text.

Token counters by tokenizer family: exact if the vocabulary is public, on the high side if not.

Vocabularies are part of `splintr`. They are loaded at the first count, once per process, and are thread-safe. If
`splintr` cannot be imported, `tiktoken` is used if its vocabulary is already on this machine (nothing is ever
downloaded), else the text is estimated. Special tokens spelled out in a message are counted as plain text, as
providers do.

A text longer than `PIECE_CHARS` is counted in pieces, which bounds memory and lets other threads run; a cut can hide at
most one token, so one is added per cut. Runs of one character need no splitting: `splintr` is linear on them. Of a text
longer than `MAX_COUNTED_CHARS` the rest counts as one token per byte: a bound that is never too low.

Estimates are arithmetic on the text and err on the high side. Their constants were fitted to counts of real messages;
`tools/check_claude_estimate.py` repeats the check for Claude.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from msgspec import Struct, field

from recto.errors import SettingsError
from recto.formats.message import Message, Part
from recto.text.lazy_re import lazy_re
from recto.tokens.model_card import ModelCard

CountText: TypeAlias = Callable[[str], int]

OPAQUE_TOKENS_PER_BYTE = 0.3
"""Signatures and encrypted reasoning represent hidden text: base64 is 4/3 of it, dense text has 2.5 bytes per token."""

MEDIA_TOKENS_PER_BYTE = 0.25
"""Audio and video cost far less per byte; a text-only PDF can come near this."""


class Frame(Struct, frozen=True, kw_only=True):
    """Tokens a model family adds around content."""

    message: int
    """Around every message: its role and its end."""
    prompt: int
    """Once per prompt: the start, the default system text, the opening of the answer."""
    assistant: int = 0
    """Additional tokens around an assistant message."""
    name: int = 2
    """Additional tokens for a speaker's name, besides the name itself."""
    thinking: int = 4
    """Around a thinking block."""
    call: int = 20
    """Around a tool call, besides its name and arguments."""
    argument: int = 0
    """Around each argument of a call, for families that do not send them as JSON."""
    result: int = 16
    """Around a tool result, besides its output."""
    tools: int = 100
    """Once if there are tools: the text that explains how to call them."""
    tool: int = 4
    """Around each tool's schema."""
    indent: int | None = None
    """Indentation of tool schemas in the template, if any."""
    quotes_results: bool = False
    """Whether the template writes tool results as JSON strings."""


FRAMES: dict[str, Frame] = {
    "cl100k": Frame(message=4, prompt=3, name=1),
    "o200k": Frame(message=4, prompt=3, assistant=2, name=1),
    "gpt-oss": Frame(message=4, prompt=52, assistant=2),
    "llama3": Frame(message=5, prompt=40, tools=150, indent=4, quotes_results=True),
    "llama2": Frame(message=12, prompt=4, quotes_results=True),
    "qwen3": Frame(message=5, prompt=30, assistant=4),
    "deepseek": Frame(message=3, prompt=6, tools=250, tool=16),
    "mistral": Frame(message=3, prompt=2, quotes_results=True),
    "gemma": Frame(message=5, prompt=5),
    "gemini": Frame(message=5, prompt=5),
    "glm": Frame(message=4, prompt=6, tools=200),
    "kimi": Frame(message=5, prompt=28),
    "phi4": Frame(message=5, prompt=4),
    # Fitted to the usage of 4,800 real calls; the newer tokenizer has no such data and gets 1.35 of it.
    "claude": Frame(message=4, prompt=7, thinking=16, call=34, argument=13, result=27, tools=530, tool=16),
    "claude-4.7": Frame(message=6, prompt=11, thinking=22, call=46, argument=18, result=37, tools=530, tool=24),
}
"""By tokenizer family."""

MAX_FRAME = Frame(
    message=12,
    prompt=52,
    assistant=4,
    thinking=22,
    call=46,
    argument=18,
    result=37,
    tools=530,
    tool=24,
    indent=4,
    quotes_results=True,
)
"""For unknown families: the maximum of all known ones."""


class Meter(Struct, frozen=True, kw_only=True):
    """Counts messages, tool schemas and prompts as one model does."""

    name: str
    """The counter's name, stored with every count."""
    count: CountText
    exact: bool = False
    """Whether the counter is the model's own tokenizer."""
    frame: Frame = MAX_FRAME
    images: str = "unknown"
    """Name of the image formula."""

    def text(self, text: str) -> int:
        """Tokens of a text alone."""
        return self.count(text)

    def result_text(self, text: str) -> int:
        """Tokens of a tool's output as the model's template writes it: some quote it as a JSON string."""
        return self.count(json.dumps(text, ensure_ascii=False) if self.frame.quotes_results else text)

    def message(self, message: Message) -> int:
        """All tokens a message adds to a prompt."""
        tokens = self.frame.message + sum(self._part(part) for part in message.parts)
        if message.role == "assistant":
            tokens += self.frame.assistant
        if message.name:
            tokens += self.frame.name + self.count(message.name)
        return tokens

    def tools(self, schemas: str) -> int:
        """All tokens of the tool schemas, which are the JSON array that is sent."""
        if not schemas.strip():
            return 0
        try:
            parsed = json.loads(schemas)
        except (ValueError, RecursionError):
            return self.frame.tools + self.count(schemas)
        if not parsed:
            return 0
        number = len(parsed) if isinstance(parsed, list) else 1
        # Templates reformat the schemas, with spaces or line by line; count whichever costs more.
        reformatted = json.dumps(parsed, ensure_ascii=False, indent=self.frame.indent)
        return self.frame.tools + self.frame.tool * number + max(self.count(schemas), self.count(reformatted))

    def prompt(self, messages: Iterable[Message], tools: str = "") -> int:
        """All tokens of a prompt: its frame, tool schemas and messages."""
        return self.frame.prompt + self.tools(tools) + sum(self.message(message) for message in messages)

    def _part(self, part: Part) -> int:
        match part.kind:
            case "image":
                from recto.tokens._images import image_tokens  # noqa: PLC0415  # start-up: few prompts hold images

                return image_tokens(self.images, part.size, part.detail)
            case "media":
                return self.count(part.text) + ceil(part.weight * MEDIA_TOKENS_PER_BYTE)
            case "call":
                tokens = self.frame.call + self.count(part.name) + self.count(part.text)
                if self.frame.argument:
                    tokens += self.frame.argument * _argument_count(part.text)
            case "result":
                tokens = self.frame.result + self.count(part.name) + self.result_text(part.text)
            case "thinking":
                tokens = self.frame.thinking + self.count(part.text)
            case "text" | "other":
                tokens = self.count(part.text)
        return tokens + ceil(part.weight * OPAQUE_TOKENS_PER_BYTE)


def frame_of(family: str) -> Frame:
    """The frame of a tokenizer family; the maximum for unknown ones."""
    return FRAMES.get(family, MAX_FRAME)


def _argument_count(text: str) -> int:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return 0
    return len(parsed) if isinstance(parsed, dict) else 0


class TokenCounter(Protocol):
    """Counts the tokens of a text as one model family does."""

    @property
    def name(self) -> str:
        """Stored with every count it makes."""
        ...

    @property
    def exact(self) -> bool:
        """Whether it is the model's own tokenizer; if not, it errs on the high side."""
        ...

    def count(self, text: str) -> int:
        """Count tokens. Never raises; linear in the length of the text."""
        ...


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
    if text.isascii():
        return text
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


class ClaudeFormula(Struct, frozen=True, kw_only=True):
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


PIECE_CHARS = 1 << 16
"""Characters of a long text that are counted at once: a tokenizer needs up to 200 times their memory."""
MAX_COUNTED_CHARS = 1 << 22
"""Characters of one text that are given to a tokenizer: about a million tokens of English, more of anything else."""
_CACHED_CHARS = 1 << 23
"""Characters after which the cache of a tokenizer is emptied: it holds pieces of text, limited only by number."""
MAX_CTOK_CHARS = 1 << 18
"""Claude's reconstructed tokenizer takes seconds per megabyte and is only used for texts shorter than this."""


class Family(Struct, frozen=True, kw_only=True):
    """How one tokenizer family is counted."""

    vocabulary: str
    """Its name in `splintr`."""
    frame: str
    """Its frame in `recto.tokens.meter`."""
    percent: int = 100
    """Factor for the vocabulary's count in percent: above 100 if the model's own vocabulary may differ."""
    exact: bool = True
    nfc: bool = False
    """Whether the model composes characters first."""
    claude: ClaudeFormula | None = None
    ctok: str = ""
    """The version requested from `ctok`, if that is installed."""


FAMILIES: dict[str, Family] = {
    "o200k": Family(vocabulary="o200k_base", frame="o200k"),
    "cl100k": Family(vocabulary="cl100k_base", frame="cl100k"),
    "gpt-oss": Family(vocabulary="gpt-oss", frame="gpt-oss"),
    "openai-next": Family(vocabulary="o200k_base", frame="o200k", percent=110, exact=False),
    # A `-next` family is a later model whose vocabulary is not public: the last public one, plus a margin.
    "llama3": Family(vocabulary="llama3", frame="llama3"),
    "llama2": Family(vocabulary="llama2", frame="llama2"),
    "codellama": Family(vocabulary="codellama", frame="llama2"),
    "qwen3": Family(vocabulary="qwen3", frame="qwen3", nfc=True),
    "qwen-next": Family(vocabulary="qwen3", frame="qwen3", percent=115, exact=False, nfc=True),
    "deepseek-v3": Family(vocabulary="deepseek_v3", frame="deepseek"),
    "deepseek-next": Family(vocabulary="deepseek_v3", frame="deepseek", percent=115, exact=False),
    "mistral-v1": Family(vocabulary="mistral_v1", frame="mistral"),
    "mistral-v2": Family(vocabulary="mistral_v2", frame="mistral"),
    "mistral-v3": Family(vocabulary="mistral_v3", frame="mistral"),
    "mistral-next": Family(vocabulary="mistral_v3", frame="mistral", percent=115, exact=False),
    # Gemma's own tokenizer joins some markup that is counted here piece by piece: never lower, so not exact.
    "gemma2": Family(vocabulary="gemma2", frame="gemma", exact=False),
    "gemma3": Family(vocabulary="gemma3", frame="gemma", exact=False),
    "gemma4": Family(vocabulary="gemma4", frame="gemma", exact=False),
    # Google's own client counts Gemini text by Gemma's vocabularies, "approximately". Gemma 3 and 4 agree on every
    # text tried, and 4 is four times as fast here.
    "gemini": Family(vocabulary="gemma4", frame="gemini", percent=105, exact=False),
    "gemini-next": Family(vocabulary="gemma4", frame="gemini", percent=115, exact=False),
    "glm4": Family(vocabulary="glm4", frame="glm"),
    "glm-next": Family(vocabulary="glm4", frame="glm", percent=115, exact=False),
    "kimi-k2": Family(vocabulary="kimi_k2", frame="kimi"),
    "kimi-k3": Family(vocabulary="kimi_k3", frame="kimi"),
    "kimi-next": Family(vocabulary="kimi_k3", frame="kimi", percent=115, exact=False),
    "phi4": Family(vocabulary="phi4", frame="phi4"),
    "olmo2": Family(vocabulary="olmo2", frame="phi4"),
    "claude": Family(vocabulary="cl100k_base", frame="claude", exact=False, claude=CLAUDE, ctok="3.0"),
    "claude-4.7": Family(vocabulary="cl100k_base", frame="claude-4.7", exact=False, claude=CLAUDE_4_7, ctok="4.8"),
    # Unknown models are counted with the tokenizer that produces the most tokens.
    "unknown": Family(vocabulary="cl100k_base", frame="unknown", exact=False, claude=CLAUDE_4_7),
}

_ESTIMATE_PERCENT = {"o200k_base": 100, "gpt-oss": 100} | dict.fromkeys(
    ("llama2", "codellama", "mistral_v1", "mistral_v2"), 160
)
"""Factor in percent for the plain estimate, which is made for o200k; 125 for vocabularies not listed."""

_TIKTOKEN_FILES = {
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
}
"""Files cached by tiktoken and their SHA-256: with a different file it would use the network."""


class SafeCounter(Struct, frozen=True, kw_only=True):
    """A token counter that never raises: if its tokenizer fails, it returns the byte bound."""

    name: str
    exact: bool
    count_text: CountText
    percent: int = 100
    nfc: bool = False

    def count(self, text: str) -> int:
        """Tokens of a text, or more."""
        if not text:
            return 0
        counted = replace_surrogates(text[:MAX_COUNTED_CHARS])
        if self.nfc:
            counted = unicodedata.normalize("NFC", counted)
        if len(counted) <= PIECE_CHARS:
            total = self._count(counted)
        else:
            total = sum(1 + self._count(piece) for piece in _pieces(counted)) - 1
        tokens = -(-total * self.percent // 100)
        for start in range(MAX_COUNTED_CHARS, len(text), PIECE_CHARS):
            tokens += byte_bound(text[start : start + PIECE_CHARS])
        return tokens

    def _count(self, text: str) -> int:
        try:
            return self.count_text(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001  a panic inside a native tokenizer is not an Exception
            return byte_bound(text) + 1


class Tokenizers(Struct, frozen=True):
    """Provides the counter for each model, from the families known here or from the user's own files."""

    files: Mapping[str, str] = field(default_factory=dict)
    """The user's own tokenizers: a name as used in model cards, and the path of its `tokenizer.json`."""

    def counter_for(self, card: ModelCard) -> TokenCounter:
        """The counter for a model."""
        file = self.files.get(card.tokenizer)
        return counter_named(card.tokenizer) if file is None else counter_from_file(Path(file).expanduser())

    def meter_for(self, card: ModelCard) -> Meter:
        """The meter for a model, which counts messages and prompts."""
        counter = self.counter_for(card)
        family = FAMILIES.get(card.tokenizer)
        frame = frame_of(family.frame if family else card.tokenizer)
        return Meter(name=counter.name, count=counter.count, exact=counter.exact, frame=frame, images=card.images)


def counter_named(family: str) -> TokenCounter:
    """The counter of a family."""
    spec = FAMILIES.get(family)
    if spec is None:
        from difflib import get_close_matches  # noqa: PLC0415  # start-up: only for an error

        nearest = get_close_matches(family, FAMILIES, n=1)
        reason = f"'{family}' is neither a tokenizer family nor named under 'tokenizers'"
        raise SettingsError("tokenizer", reason, nearest[0] if nearest else None)
    encoding = _encoding(spec.vocabulary)
    if spec.claude is not None:
        return _claude_counter(family, spec, spec.claude, encoding)
    name = family if encoding.library == "splintr" else f"{family}/{encoding.library}"
    exact = spec.exact and encoding.library != "estimate"
    return SafeCounter(name=name, exact=exact, count_text=encoding.count_text, percent=spec.percent, nfc=spec.nfc)


def counter_from_file(path: Path) -> TokenCounter:
    """A counter from a model's own `tokenizer.json`; its name contains a hash of the file."""
    try:
        raw = path.read_bytes()
        tokenizer = importlib.import_module("splintr").from_json_bytes(raw)
        frame = len(tokenizer.encode_ordinary(""))
    except OSError as error:
        raise SettingsError("tokenizer", f"cannot read '{path}': {error.strerror}") from None
    except ImportError:
        raise SettingsError("tokenizer", "a tokenizer.json file needs the package splintr-rs; install it") from None
    except Exception as error:  # noqa: BLE001  whatever the reader objects to, the file is not usable
        raise SettingsError("tokenizer", f"'{path}' is not a tokenizer.json that can be read: {error}") from None
    name = f"{path.name}:{hashlib.sha256(raw).hexdigest()[:12]}"
    return SafeCounter(name=name, exact=True, count_text=lambda text: len(tokenizer.encode_ordinary(text)) - frame)


class _Encoding(Struct, frozen=True, kw_only=True):
    """A loaded vocabulary and the library that loaded it."""

    count_text: CountText
    library: str


_loaded: dict[str, _Encoding] = {}
_loading = threading.Lock()


def _encoding(vocabulary: str) -> _Encoding:
    encoding = _loaded.get(vocabulary)
    if encoding is None:
        with _loading:
            encoding = _loaded.get(vocabulary)
            if encoding is None:
                encoding = _loaded[vocabulary] = _load(vocabulary)
    return encoding


def _load(vocabulary: str) -> _Encoding:
    with suppress(Exception):  # if one tokenizer fails for any reason, try the next
        return _Encoding(count_text=_SplintrCount(importlib.import_module("splintr"), vocabulary), library="splintr")
    with suppress(Exception):
        tokenizer = _from_tiktoken(vocabulary)
        if tokenizer is not None:
            return _Encoding(count_text=partial(_encoded_length, tokenizer.encode_ordinary), library="tiktoken")
    return _Encoding(count_text=partial(_scaled_estimate, _ESTIMATE_PERCENT.get(vocabulary, 125)), library="estimate")


class _SplintrCount:
    """Counts with a vocabulary of `splintr`, which is unpacked at the first count: opening a session needs none.

    The vocabularies are inside the package, so that one that can be imported has them.
    """

    def __init__(self, splintr: Any, vocabulary: str) -> None:  # noqa: ANN401  untyped on the other side
        self._splintr = splintr
        self._vocabulary = vocabulary
        self._tokenizer: Any = None
        self._cached_chars = 0

    def __call__(self, text: str) -> int:
        if self._tokenizer is None:
            with _loading:
                if self._tokenizer is None:
                    self._tokenizer = self._splintr.Tokenizer.from_pretrained(self._vocabulary)
        tokens = len(self._tokenizer.encode_ordinary(text))
        self._cached_chars += len(text)
        if self._cached_chars > _CACHED_CHARS:
            self._cached_chars = 0
            self._tokenizer.clear_cache()
        return tokens


def _from_tiktoken(vocabulary: str) -> Any:  # noqa: ANN401  untyped on the other side
    vocabulary = "o200k_base" if vocabulary == "gpt-oss" else vocabulary
    if vocabulary not in _TIKTOKEN_FILES:
        return None
    name, digest = _TIKTOKEN_FILES[vocabulary]
    import tempfile  # noqa: PLC0415  # start-up: only where splintr is missing

    cache_dir = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    file = (Path(cache_dir) if cache_dir else Path(tempfile.gettempdir()) / "data-gym-cache") / name
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        return None
    return importlib.import_module("tiktoken").get_encoding(vocabulary)


def _encoded_length(encode: Callable[[str], list[int]], text: str) -> int:
    return len(encode(text))


def _scaled_estimate(percent: int, text: str) -> int:
    return -(-plain_estimate(text) * percent // 100)


def _claude_counter(family: str, spec: Family, formula: ClaudeFormula, cl100k: _Encoding) -> SafeCounter:
    def by_formula(text: str) -> int:
        return formula.estimate(text, cl100k.count_text(text))

    count_with_ctok = _load_ctok() if spec.ctok else None
    if count_with_ctok is None:
        how = "formula" if cl100k.library == "splintr" else f"formula/{cl100k.library}"
        return SafeCounter(name=f"{family}/{how}", exact=False, count_text=by_formula)
    frame = count_with_ctok("a", spec.ctok) - 1

    def by_ctok(text: str) -> int:
        return max(1, count_with_ctok(text, spec.ctok) - frame) if len(text) < MAX_CTOK_CHARS else by_formula(text)

    return SafeCounter(name=f"{family}/ctok", exact=False, count_text=by_ctok)


def _load_ctok() -> Callable[[str, str], int] | None:
    try:
        token_count: Callable[[str, str], int] = importlib.import_module("ctok").token_count
    except Exception:  # noqa: BLE001  an optional package that fails to load is one that is not there
        return None
    return token_count


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE_CHARS:
        # A cut before a space loses no token; anywhere else it loses at most one.
        space = text.rfind(" ", start + PIECE_CHARS // 2, start + PIECE_CHARS)
        end = space if space > start else start + PIECE_CHARS
        yield text[start:end]
        start = end
    yield text[start:]
