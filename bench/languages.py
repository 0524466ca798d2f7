"""Measures how often a question in a language other than English finds the message that answers it.
Each question has one message that answers it, mostly with other forms of its words, and one that looks similar but does
not. Recto's stems and stop words for each language are compared with English ones for every text.

All messages of all languages are in one session. The questions are in `languages.json`. *before*: English stems and
stop words for every text. *stop words*: English stems for every text, without the function words of its own language.
Ways to segment Chinese and Japanese are compared on the same questions; a library that splits them into words is
measured if it is installed (`pip install rjieba janome`).
"""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, pairwise
from pathlib import Path
from zlib import crc32

from bench.measure import figures, percentile, row, seconds
from bench.recall import WHEN, draft, embedder, key
from bench.recall_data import Turn
from recto.recall.indexer import Indexer
from recto.recall.protocols import Embedder, Lexicon
from recto.recall.search import Searcher
from recto.recall.stemmer import BY_SCRIPT, CHINESE, ENGLISH, FUNCTION_WORDS, JAPANESE, PorterLexicon, languages_of
from recto.recall.types import Query
from recto.stores.memory import MemoryIndex, MemoryStore
from recto.text.lazy_re import lazy_re
from recto.text.terms import UNSPACED_SCRIPTS, chunk_counts, words_of

QUESTIONS = Path(__file__).with_name("languages.json")
SESSION = key("languages")
UNSPACED = ("Chinese", "Japanese")
DEPTHS = (1, 5)
_RUNS = lazy_re(f"([{UNSPACED_SCRIPTS}]+)")
_ENGLISH = PorterLexicon()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A lexicon that cuts texts into words in some way, without anything else."""

    name: str
    cut: Callable[[str], Iterable[str]]

    def terms(self, text: str) -> Mapping[int, int]:
        return Counter(self.sequence(text))

    def sequence(self, text: str) -> Sequence[int]:
        return [crc32(word.encode()) for word in self.cut(text)]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnglishStems:
    """English stems for every text, as they were before there were others."""

    name: str = "english"

    def terms(self, text: str) -> Mapping[int, int]:
        return Counter(self.sequence(text))

    def sequence(self, text: str) -> Sequence[int]:
        return _ENGLISH.sequence(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopWordsOnly:
    """English stems for every text, without the function words of its own language."""

    name: str = "stop words"

    def terms(self, text: str) -> Mapping[int, int]:
        return Counter(self.sequence(text))

    def sequence(self, text: str) -> Sequence[int]:
        dropped = _function_words((ENGLISH, *languages_of(chunk_counts(text)), *BY_SCRIPT))
        return list(chain.from_iterable(_ENGLISH.sequence(word) for word in words_of(text) if word not in dropped))


@cache
def _function_words(languages: tuple[str, ...]) -> frozenset[str]:
    return frozenset().union(*(FUNCTION_WORDS[language] for language in languages))


def run(quick: bool) -> list[dict]:
    known = questions(3 if quick else None)
    meaning = embedder()
    found = {
        "before": recalled(known, EnglishStems()),
        "stop words": recalled(known, StopWordsOnly()),
        "now": recalled(known, PorterLexicon()),
    }
    if meaning is not None:
        found |= {
            "before, with embedder": recalled(known, EnglishStems(), meaning),
            "now, with embedder": recalled(known, PorterLexicon(), meaning),
        }
    rows = []
    for depth, at in zip(DEPTHS, range(len(DEPTHS)), strict=True):
        for language, asked in known.items():
            values = {name: of[language][at] for name, of in found.items()}
            rows.append(figures(f"{language}: recall at {depth}", values, f"{len(asked)} questions", 2))
    rows += segmentation(known)
    return rows + cost(known)


def questions(most: int | None = None) -> dict[str, list[list[str]]]:
    """By language: question, message that answers it, message that does not."""
    return {language: of[:most] for language, of in json.loads(QUESTIONS.read_text(encoding="utf-8")).items()}


def recalled(
    known: Mapping[str, Sequence[Sequence[str]]], lexicon: Lexicon, embedder: Embedder | None = None
) -> dict[str, tuple[float, ...]]:
    """By language: the share of questions whose message is among the first ones, at each depth."""
    store = MemoryStore()
    indexer = Indexer(store, MemoryIndex(), lexicon=lexicon, embedder=embedder, in_background=False)
    messages = [message for of in known.values() for _, *both in of for message in both]
    places = {message: place for place, message in enumerate(messages, 1)}
    store.append(SESSION, [draft(f"m{at}", Turn(role="user", text=text), WHEN) for at, text in enumerate(messages)])
    indexer.catch_up(SESSION)
    searcher = Searcher(indexer)

    def rank(question: str, evidence: str) -> int:
        best = [hit.seq for hit in searcher.find(Query(text=question, now=WHEN), [SESSION]).best(max(DEPTHS))]
        return best.index(places[evidence]) + 1 if places[evidence] in best else max(DEPTHS) + 1

    ranks = {name: [rank(question, evidence) for question, evidence, _ in of] for name, of in known.items()}
    return {name: tuple(sum(at <= depth for at in of) / len(of) for depth in DEPTHS) for name, of in ranks.items()}


def segmentation(known: Mapping[str, Sequence[Sequence[str]]]) -> list[dict]:
    """How texts without spaces are cut, each way with all words and without particles and endings."""
    ways: dict[str, Callable[[str], Iterable[str]]] = {
        "characters": partial(_cut_runs, cut=tuple),
        "pairs": words_of,
        "ideographs and pairs": partial(_cut_runs, cut=_both),
    }
    if find_spec("rjieba") and find_spec("janome"):
        ways["words, by rjieba and janome"] = partial(_cut_runs, cut=_library_words)
    rows = []
    for way, cut in ways.items():
        rows.append(_segmentation_row(way, recalled(known, Cut(name=way, cut=cut)), ""))
        fewer = Cut(name=way, cut=lambda text, cut=cut: [word for word in cut(text) if not _says_nothing(word)])
        note = "as in Recto" if way == "ideographs and pairs" else ""
        rows.append(_segmentation_row(f"{way}, without function words", recalled(known, fewer), note))
    return rows


def _segmentation_row(way: str, found: Mapping[str, Sequence[float]], note: str) -> dict:
    values = {f"{language} at {depth}": found[language][at] for language in UNSPACED for at, depth in enumerate(DEPTHS)}
    return figures(way, values, note, 2)


def _says_nothing(word: str) -> bool:
    dropped = FUNCTION_WORDS[CHINESE] | FUNCTION_WORDS[JAPANESE]
    if len(word) == 1:
        return word in dropped or "\u3041" <= word <= "\u309f"
    return all(first + second in dropped for first, second in pairwise(word))


def _cut_runs(text: str, *, cut: Callable[[str], Iterable[str]]) -> list[str]:
    parts = [part for part in _RUNS.split(text) if part]
    return [word for part in parts for word in (cut(_plain(part)) if _RUNS.match(part) else words_of(part))]


def _plain(run: str) -> str:
    return unicodedata.normalize("NFKC", run)


def _both(run: str) -> list[str]:
    return [*filter(_is_ideograph, run), *(first + second for first, second in pairwise(run))]


def _is_ideograph(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff"


def _library_words(run: str) -> list[str]:
    if any("\u3040" <= character <= "\u30ff" for character in run):
        return [token.surface for token in _japanese().tokenize(run)]
    return list(import_module("rjieba").cut_for_search(run))


@cache
def _japanese():  # noqa: ANN202  # of a package that need not be here
    return import_module("janome.tokenizer").Tokenizer()


def cost(known: Mapping[str, Sequence[Sequence[str]]]) -> list[dict]:
    """What a text of 200 words costs whose words are known, in English and in another language."""
    german = " ".join(evidence for _, evidence, _ in known["German"]) * 2
    english = "the ledger is written before the queue is informed so that a crash between the two loses nothing " * 11
    rows = []
    for name, text in (("English", english), ("German", german)):
        texts = [f"{text} {number}" for number in range(200)]
        lexicon = PorterLexicon()
        lexicon.terms(text)
        times = [seconds(partial(lexicon.terms, one)) for one in texts]
        rows.append(row(f"terms of {len(text.split())} words, {name}", percentile(times, 0.5) * 1e3, "ms", "", 3))
        looked = [seconds(partial(languages_of, chunk_counts(one))) for one in texts]
        rows.append(row(f"its language, {name}", percentile(looked, 0.5) * 1e3, "ms", "part of it", 3))
    terms = len(PorterLexicon().terms(german)) / len(EnglishStems().terms(german))
    rows.append(row("terms in the index, German", terms, "× before", "the stems of both languages, no stop words", 2))
    return rows
