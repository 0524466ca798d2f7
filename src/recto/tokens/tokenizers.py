"""Token counters by tokenizer family: exact where the vocabulary is public, on the high side where it is not.

Vocabularies come inside `splintr`. They are loaded when first asked for, once in a process, and may be used from many
threads. Where `splintr` cannot be imported, `tiktoken` is asked if its vocabulary is on this machine already (nothing
is ever downloaded), and else the text is estimated. Text is counted as text: a special token spelled out in a message
is what the provider takes it for, some characters.

A text longer than `PIECE` is counted in pieces, which keeps memory flat and lets other threads run; a cut can hide at
most one token, so one is added for each. Runs of one character need no splitting: `splintr` is linear on them.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
import threading
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from recto.errors import SettingsError
from recto.tokens.estimates import CLAUDE, CLAUDE_4_7, ClaudeFormula, byte_bound, plain_estimate, whole
from recto.tokens.meter import CountText, Meter, frame_of
from recto.tokens.model_card import ModelCard
from recto.tokens.protocols import TokenCounter

PIECE = 1 << 20
"""Characters of a long text that are counted at once."""
CTOK_MOST = 1 << 18
"""Characters from which on Claude's reconstructed tokenizer, which takes seconds a megabyte, is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How one tokenizer family is counted."""

    vocabulary: str
    """Its name in `splintr`."""
    frame: str
    """Its frame in `recto.tokens.meter`."""
    percent: int = 100
    """What the vocabulary's count is multiplied by: more than 100 where the model's own may differ."""
    exact: bool = True
    nfc: bool = False
    """Whether the model composes characters first."""
    claude: ClaudeFormula | None = None
    ctok: str = ""
    """The version to ask `ctok` for, where it is installed."""


FAMILIES: dict[str, Family] = {
    "o200k": Family(vocabulary="o200k_base", frame="o200k"),
    "cl100k": Family(vocabulary="cl100k_base", frame="cl100k"),
    "gpt-oss": Family(vocabulary="gpt-oss", frame="gpt-oss"),
    "openai-next": Family(vocabulary="o200k_base", frame="o200k", percent=110, exact=False),
    # A `-next` family is a later model whose vocabulary is not public: the last public one, with room to spare.
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
    # Nothing is known: counted as by the tokenizer that makes the most tokens of all we know.
    "unknown": Family(vocabulary="cl100k_base", frame="unknown", exact=False, claude=CLAUDE_4_7),
}

_ESTIMATE_PERCENT = {"o200k_base": 100, "gpt-oss": 100} | dict.fromkeys(
    ("llama2", "codellama", "mistral_v1", "mistral_v2"), 160
)
"""What the plain estimate, which is made for o200k, is multiplied by; 125 for vocabularies not named."""

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
"""The files tiktoken keeps, and their SHA-256: with a file that differs it would go to the network for another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """A token counter that never raises: where its tokenizer fails, it gives the byte bound."""

    name: str
    exact: bool
    counts: CountText
    percent: int = 100
    nfc: bool = False

    def count(self, text: str) -> int:
        """The tokens of a text, or more."""
        if not text:
            return 0
        text = whole(text)
        if self.nfc:
            text = unicodedata.normalize("NFC", text)
        total = -1
        for piece in _pieces(text):
            total += 1 + self._count(piece)
        return -(-total * self.percent // 100)

    def _count(self, text: str) -> int:
        try:
            return self.counts(text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:  # noqa: BLE001  a panic inside a native tokenizer is not an Exception
            return byte_bound(text) + 1


@dataclass(frozen=True, slots=True)
class Tokenizers:
    """Gives each model its counter, from the families known here or from files of the user's own."""

    files: Mapping[str, str] = field(default_factory=dict)
    """The user's own: a name, as a model card gives it, and the path of its `tokenizer.json`."""

    def counter_for(self, card: ModelCard) -> TokenCounter:
        """The counter for a model."""
        file = self.files.get(card.tokenizer)
        return counter_named(card.tokenizer) if file is None else counter_from_file(Path(file).expanduser())

    def meter_for(self, card: ModelCard) -> Meter:
        """What counts whole messages and prompts for a model."""
        counter = self.counter_for(card)
        family = FAMILIES.get(card.tokenizer)
        frame = frame_of(family.frame if family else card.tokenizer)
        return Meter(name=counter.name, count=counter.count, exact=counter.exact, frame=frame, images=card.images)


def counter_named(family: str) -> TokenCounter:
    """The counter of a family."""
    spec = FAMILIES.get(family)
    if spec is None:
        nearest = get_close_matches(family, FAMILIES, n=1)
        reason = f"'{family}' is neither a tokenizer family nor named under 'tokenizers'"
        raise SettingsError("tokenizer", reason, nearest[0] if nearest else None)
    encoding = _encoding(spec.vocabulary)
    if spec.claude is not None:
        return _claude_counter(family, spec, spec.claude, encoding)
    name = family if encoding.by == "splintr" else f"{family}/{encoding.by}"
    exact = spec.exact and encoding.by != "estimate"
    return Counter(name=name, exact=exact, counts=encoding.counts, percent=spec.percent, nfc=spec.nfc)


def counter_from_file(path: Path) -> TokenCounter:
    """A counter from a model's own `tokenizer.json`; its name tells the file's content apart."""
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
    return Counter(name=name, exact=True, counts=lambda text: len(tokenizer.encode_ordinary(text)) - frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoding:
    """A loaded vocabulary, and what loaded it."""

    counts: CountText
    by: str


_loaded: dict[str, _Encoding] = {}
_loading = threading.Lock()


def _encoding(vocabulary: str) -> _Encoding:
    found = _loaded.get(vocabulary)
    if found is None:
        with _loading:
            found = _loaded.get(vocabulary)
            if found is None:
                found = _loaded[vocabulary] = _load(vocabulary)
    return found


def _load(vocabulary: str) -> _Encoding:
    for by, load in (("splintr", _from_splintr), ("tiktoken", _from_tiktoken)):
        with suppress(Exception):  # whatever is wrong with one tokenizer, the next is asked
            tokenizer = load(vocabulary)
            if tokenizer is not None:
                return _Encoding(counts=partial(_length, tokenizer.encode_ordinary), by=by)
    return _Encoding(counts=partial(_scaled, _ESTIMATE_PERCENT.get(vocabulary, 125)), by="estimate")


def _from_splintr(vocabulary: str) -> Any:  # noqa: ANN401  untyped on the other side
    return importlib.import_module("splintr").Tokenizer.from_pretrained(vocabulary)


def _from_tiktoken(vocabulary: str) -> Any:  # noqa: ANN401  untyped on the other side
    vocabulary = "o200k_base" if vocabulary == "gpt-oss" else vocabulary
    if vocabulary not in _TIKTOKEN_FILES:
        return None
    name, digest = _TIKTOKEN_FILES[vocabulary]
    kept = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
    file = (Path(kept) if kept else Path(tempfile.gettempdir()) / "data-gym-cache") / name
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        return None
    return importlib.import_module("tiktoken").get_encoding(vocabulary)


def _length(encode: Callable[[str], list[int]], text: str) -> int:
    return len(encode(text))


def _scaled(percent: int, text: str) -> int:
    return -(-plain_estimate(text) * percent // 100)


def _claude_counter(family: str, spec: Family, formula: ClaudeFormula, cl100k: _Encoding) -> Counter:
    def by_formula(text: str) -> int:
        return formula.estimate(text, cl100k.counts(text))

    ask = _ctok() if spec.ctok else None
    if ask is None:
        how = "formula" if cl100k.by == "splintr" else f"formula/{cl100k.by}"
        return Counter(name=f"{family}/{how}", exact=False, counts=by_formula)
    frame = ask("a", spec.ctok) - 1

    def by_ctok(text: str) -> int:
        return max(1, ask(text, spec.ctok) - frame) if len(text) < CTOK_MOST else by_formula(text)

    return Counter(name=f"{family}/ctok", exact=False, counts=by_ctok)


def _ctok() -> Callable[[str, str], int] | None:
    try:
        found: Callable[[str, str], int] = importlib.import_module("ctok").token_count
    except Exception:  # noqa: BLE001  an optional package that fails to load is one that is not there
        return None
    return found


def _pieces(text: str) -> Iterator[str]:
    start = 0
    while len(text) - start > PIECE:
        # Before a space no count is lost; anywhere else at most one token is.
        space = text.rfind(" ", start + PIECE // 2, start + PIECE)
        end = space if space > start else start + PIECE
        yield text[start:end]
        start = end
    yield text[start:]
