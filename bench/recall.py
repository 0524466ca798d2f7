"""Measures how often a search finds the labelled evidence for a question, and how early.
The questions and sessions are those of LongMemEval and BEAM, two public data sets; no chat model is called. Recto, with
words alone and with the embedder that comes with it, is compared with two lexical baselines.

Sessions, turns and exchanges are ranked by the same code that fills a prompt. Differences are to the better baseline,
with the interval that contains them in 95 % of resamplings of the questions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import log
from multiprocessing import get_context
from typing import TypeAlias

import numpy as np
from rich.progress import track

from bench.kept_vectors import KeptVectors, opened
from bench.lexical import BASELINES, OKAPI, PORTER, Corpus
from bench.measure import figures, progress
from bench.recall_data import (
    DATA,
    Chat,
    ChatQuestion,
    Conversation,
    Turn,
    chat_questions,
    chats,
    conversations,
    interval,
    ndcg,
    recall_all,
    recall_any,
    share,
)
from recto.formats.openai_chat import CHAT
from recto.models.embedders import ARCTIC_WEIGHT, EmbedderChoice, embedder_for
from recto.recall.index.bm25 import WordIndex
from recto.recall.indexer import Indexer
from recto.recall.protocols import Embedder
from recto.recall.search import Ranking, Searcher, standardized
from recto.recall.stemmer import PorterLexicon
from recto.recall.types import Query
from recto.stores.memory import MemoryIndex, MemoryStore
from recto.transcript.entries import Draft, to_json

WORDS, DEFAULT, DATED = "Recto, words alone", "Recto", "Recto, with dates"
HAYSTACK, POOL = "LME-48", "LME-pool"
APART = {"event_ordering": "event ordering", "summarization": "summarization"}
CHAT_MEASURES: dict[str, Callable[[Sequence[object], frozenset], float]] = {
    "all@5": lambda order, gold: recall_all(order, gold, 5),
    "ndcg@5": lambda order, gold: ndcg(order, gold, 5),
    "all@10": lambda order, gold: recall_all(order, gold, 10),
    "ndcg@10": lambda order, gold: ndcg(order, gold, 10),
    "any@5": lambda order, gold: recall_any(order, gold, 5),
    "any@10": lambda order, gold: recall_any(order, gold, 10),
}
BEAM_MEASURES = ("share@5", "share@10", "share@20", "any@5", "any@10")
PUBLISHED: Mapping[tuple[str, str], tuple[float, ...]] = {
    ("LME-48 session", OKAPI): (0.7160, 0.7400, 0.8043, 0.7640, 0.8759, 0.9189),
    ("LME-48 session", PORTER): (0.8473, 0.8713, 0.9117, 0.8872, 0.9451, 0.9690),
    ("LME-48 turn", OKAPI): (0.4726, 0.5257, 0.5632, 0.5537, 0.7112, 0.7828),
    ("LME-48 turn", PORTER): (0.6706, 0.6946, 0.7542, 0.7179, 0.8807, 0.9141),
    ("LME-pool session", OKAPI): (0.4487, 0.4786, 0.5537, 0.5139, 0.6492, 0.7351),
    ("LME-pool session", PORTER): (0.5919, 0.6228, 0.6969, 0.6555, 0.8138, 0.8831),
    ("LME-pool turn", OKAPI): (0.2864, 0.3362, 0.3747, 0.3666, 0.5131, 0.5943),
    ("LME-pool turn", PORTER): (0.4105, 0.4796, 0.5585, 0.5211, 0.7112, 0.7924),
    ("BEAM exchange", OKAPI): (0.381, 0.461, 0.554, 0.592, 0.668),
    ("BEAM exchange", PORTER): (0.424, 0.526, 0.647, 0.614, 0.721),
}
"""As they came with the sets; those of LongMemEval are of the 419 questions."""
WHEN = 1_700_000_000_000_000
"""When everything is said where dates shall not matter."""

Scores: TypeAlias = dict[str, list[tuple[float, ...]]]
"""By who ranked: what each question came to."""


def run(quick: bool) -> list[dict]:
    if not DATA.is_dir():
        return [figures("recall", {"questions": 0}, "the sets are not here")]
    rows = long_mem_eval(chat_questions()[:: 10 if quick else 1])
    rows += beam(conversations()[:: 10 if quick else 1])
    return rows


def long_mem_eval(questions: Sequence[ChatQuestion]) -> list[dict]:
    scores: dict[str, Scores] = defaultdict(lambda: defaultdict(list))
    for name, found in _chat_rankings(questions):
        for (place, level), orders in found.items():
            for asked, order in zip(questions, orders, strict=True):
                gold = asked.sessions if level == "session" else asked.said_by_user
                row = tuple(measure(order, gold) for measure in CHAT_MEASURES.values())
                scores[f"{place} {level}"][name].append(row)
    rows = []
    for what, ranked in scores.items():
        strict = {name: [one for one, q in zip(of, questions, strict=True) if q.strict] for name, of in ranked.items()}
        rows += compared(f"{what} (n={sum(q.strict for q in questions)})", strict, list(CHAT_MEASURES), "all@5", what)
        rows += compared(f"{what} (n={len(questions)})", ranked, list(CHAT_MEASURES), "all@5")
    return rows


Orders: TypeAlias = dict[tuple[str, str], list[list]]
"""By where was searched and what was ranked: the order found for each question."""


def _chat_rankings(questions: Sequence[ChatQuestion]) -> Iterator[tuple[str, Orders]]:
    for name in BASELINES:
        yield name, _baseline_orders(name, questions)
    for name in (WORDS, DEFAULT, DATED):
        if name == WORDS or embedder() is not None:
            yield name, _chat_orders(name, questions)


def _baseline_orders(name: str, questions: Sequence[ChatQuestion]) -> Orders:
    baseline, known = BASELINES[name], chats()
    turns = {chat.name: [(chat.name, place) for place, _ in spoken(chat)] for chat in known.values()}
    of_turn = {
        (chat.name, at): Counter(baseline.cut(turn.text)) for chat in known.values() for at, turn in spoken(chat)
    }
    of_chat = {
        chat.name: Counter(baseline.cut(" ".join(turn.text for _, turn in spoken(chat)))) for chat in known.values()
    }

    def corpora(sessions: Sequence[str]) -> Iterator[tuple[str, list, Corpus]]:
        names = [turn for session in sessions for turn in turns[session]]
        yield "session", list(sessions), Corpus([of_chat[session] for session in sessions], baseline)
        yield "turn", names, Corpus([of_turn[turn] for turn in names], baseline)

    pooled = list(corpora(list(known)))
    orders: Orders = defaultdict(list)
    for asked in track(questions, f"LongMemEval, {name}", console=progress()):
        for where, searched in ((HAYSTACK, corpora(asked.haystack)), (POOL, pooled)):
            for level, names, corpus in searched:
                order = corpus.ranked(baseline.cut(asked.text), 10)
                orders[where, level].append([names[place] for place in order])
    return orders


def _chat_orders(name: str, questions: Sequence[ChatQuestion]) -> Orders:
    """In several processes: a search through all sessions looks into each of them."""
    orders: Orders = defaultdict(list)
    with get_context("spawn").Pool() as pool:
        done = pool.imap(partial(_found_in_chats, name), questions, chunksize=2)
        for found in track(done, f"LongMemEval, {name}", total=len(questions), console=progress()):
            for place, order in found.items():
                orders[place].append(order)
    return orders


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chats:
    """All sessions, ready to be searched."""

    searcher: Searcher
    turns: Mapping[str, list[tuple[str, int]]]
    """What the entries of each session are."""


@cache
def _opened(dated: bool, with_meaning: bool) -> _Chats:
    """Once in each process."""
    known = chats().values()
    said = {key(chat.name): [(turn, chat.ts if dated else WHEN) for _, turn in spoken(chat)] for chat in known}
    turns = {key(chat.name): [(chat.name, place) for place, _ in spoken(chat)] for chat in known}
    return _Chats(searcher=searching(said, embedder() if with_meaning else None), turns=turns)


def _found_in_chats(name: str, asked: ChatQuestion) -> dict[tuple[str, str], list]:
    dated = name == DATED
    opened = _opened(dated, name != WORDS)
    question = Query(text=asked.text, now=asked.ts if dated else WHEN)
    found = {}
    for where, sessions in ((HAYSTACK, list(map(key, asked.haystack))), (POOL, list(opened.turns))):
        if where == POOL and dated:
            continue  # the sessions of all questions together have no common calendar
        ranking = opened.searcher.find(question, sessions)
        found[where, "session"] = [opened.turns[session][0][0] for session, _ in ranked_sessions(ranking)[:10]]
        found[where, "turn"] = [opened.turns[one.session][one.seq - 1] for one in ranking.best(10)]
    return found


def embedder() -> Embedder | None:
    """The one that is used where nobody chooses, with its vectors kept."""
    usual = embedder_for(EmbedderChoice())
    return None if usual is None else KeptVectors(usual, opened())


def key(name: str) -> str:
    return f"agent:bench:{name}"


def spoken(chat: Chat) -> list[tuple[int, Turn]]:
    """The turns of the user, with their places."""
    return [(place, turn) for place, turn in enumerate(chat.turns) if turn.role == "user"]


def searching(sessions: Mapping[str, Iterable[tuple[Turn, int]]], embedder: Embedder | None) -> Searcher:
    """The product's own search over these sessions."""
    store = MemoryStore()
    indexer = Indexer(store, MemoryIndex(), lexicon=PorterLexicon(), embedder=embedder, in_background=False)
    for session, turns in sessions.items():
        drafts = [draft(f"{session}-{place}", turn, ts) for place, (turn, ts) in enumerate(turns)]
        store.append(session, drafts)
        indexer.catch_up(session)
    return Searcher(indexer)


def draft(id: str, turn: Turn, ts: int, tokens: int = 0, counter: str = "") -> Draft:
    content = to_json({"role": turn.role, "content": turn.text})
    return Draft(id=id, ts=ts, role=turn.role, content=content, wire=CHAT, tokens=tokens, counter=counter)


def beam(talks: Sequence[Conversation]) -> list[dict]:
    meaning = embedder()
    systems: dict[str, Callable[[Conversation], list[list[int]]]] = {
        **{name: lambda talk, name=name: _baseline_exchanges(name, talk) for name in BASELINES},
        WORDS: lambda talk: _exchanges(talk, None),
    }
    if meaning is not None:
        systems[DEFAULT] = lambda talk: _exchanges(talk, meaning)
    kinds = [question.kind for talk in talks for question in talk.questions]
    scores: Scores = {}
    for name, ranked in systems.items():
        scores[name] = [
            beam_row(talk, order, question.gold)
            for talk in track(talks, f"BEAM, {name}", console=progress())
            for order, question in zip(ranked(talk), talk.questions, strict=True)
        ]
    rows = compared(f"BEAM exchange (n={len(kinds)})", scores, BEAM_MEASURES, "share@5", "BEAM exchange")
    for title, wanted in (
        *((f"BEAM {name}", {kind}) for kind, name in APART.items()),
        ("BEAM the other kinds", set(kinds) - set(APART)),
    ):
        some = {
            name: [one for one, kind in zip(of, kinds, strict=True) if kind in wanted] for name, of in scores.items()
        }
        rows += compared(f"{title} (n={sum(kind in wanted for kind in kinds)})", some, BEAM_MEASURES, "share@5")
    return rows


def _baseline_exchanges(name: str, talk: Conversation) -> list[list[int]]:
    baseline = BASELINES[name]
    members: dict[int, list[str]] = defaultdict(list)
    for exchange, turn in zip(talk.exchanges, talk.turns, strict=True):
        members[exchange].append(turn.text)
    exchanges = list(members)
    corpus = Corpus([Counter(baseline.cut(" ".join(texts))) for texts in members.values()], baseline)
    return [[exchanges[at] for at in corpus.ranked(baseline.cut(asked.text), 20)] for asked in talk.questions]


def _exchanges(talk: Conversation, embedder: Embedder | None) -> list[list[int]]:
    session = key(talk.name)
    searcher = searching({session: [(turn, WHEN) for turn in talk.turns]}, embedder)

    def order(found: Ranking) -> list[int]:
        # An entry's number is its place and one; an exchange is known by its first entry.
        return [exchange - 1 for _, exchange in ranked_exchanges(found)]

    return [order(searcher.find(Query(text=question.text, now=WHEN), [session])) for question in talk.questions]


def ranked_exchanges(ranking: Ranking) -> list[tuple[str, int]]:
    """The exchanges of the candidates, best first: each a session and the entry that opens it."""
    return _ranked_groups(ranking, ranking.candidates.exchanges, {})


def ranked_sessions(ranking: Ranking) -> list[tuple[str, int]]:
    """The sessions of the candidates, best first, each with 0."""
    return _ranked_groups(ranking, np.zeros(len(ranking.candidates), np.int64), _session_scores(ranking))


def _ranked_groups(ranking: Ranking, numbers: np.ndarray, whole: Mapping[str, float]) -> list[tuple[str, int]]:
    """Candidates of one session and number together, by their best members; the second and third best count less.

    What a whole session scores as one long message is added to its words.
    """
    candidates, likeness, words = ranking.candidates, ranking.candidates.likeness, ranking.candidates.words
    beside = sum((part for name, part in ranking.scores.parts.items() if name not in {"words", "meaning"}), 0 * words)
    members: dict[tuple[str, int], list[int]] = defaultdict(list)
    for at in ranking.order.tolist():
        members[ranking.sessions[candidates.sessions[at]].key, int(numbers[at])].append(at)
    lexical = np.array([whole.get(name[0], 0.0) + _decayed(words[of]) for name, of in members.items()])
    near = np.array([_group_likeness(likeness[of]) for of in members.values()])
    known = ~np.isnan(near)
    share = ARCTIC_WEIGHT if known.any() else 0.0
    meaning = np.zeros(len(members))
    meaning[known] = standardized(near[known])
    scores = (1 - share) * standardized(lexical) + share * meaning
    scores += np.array([beside[of].max() for of in members.values()])
    names = list(members)
    return [names[at] for at in np.argsort(-scores, kind="stable")]


def _decayed(values: np.ndarray) -> float:
    best = np.sort(values)[::-1][:3]
    return float((best * 0.5 ** np.arange(len(best))).sum())


def _group_likeness(values: np.ndarray) -> float:
    """The weighted mean of the best and second cosine: one message that is near by chance has no second."""
    best = np.sort(values[~np.isnan(values)])[::-1]
    if not len(best):
        return np.nan
    return float(best[0] if len(best) == 1 else (best[0] + best[1] / 2) / 1.5)


def _session_scores(ranking: Ranking) -> dict[str, float]:
    """The BM25 score of each session as one long message; empty for a single session."""
    sessions = ranking.sessions
    if len(sessions) == 1:
        return {}
    weights = ranking.term_weights
    occurrences = {session.key: session.view.occurrences() for session in sessions}
    df = {term: sum(term in of for of in occurrences.values()) for term in weights}
    average = max(sum(session.statistics.length for session in sessions) / len(sessions), 1.0)
    scores = {}
    for session in sessions:
        norm = WordIndex.k1 * (1 - WordIndex.b + WordIndex.b * session.statistics.length / average)
        scores[session.key] = sum(
            weight * log(1 + (len(sessions) - df[term] + 0.5) / (df[term] + 0.5)) * tf / (tf + norm)
            for term, weight in weights.items()
            if (tf := occurrences[session.key].get(term, 0))
        )
    return scores


def beam_row(talk: Conversation, order: Sequence[int], gold: frozenset[int]) -> tuple[float, ...]:
    def returned(most: int) -> list[int]:
        first = set(order[:most])
        return [place for place, exchange in enumerate(talk.exchanges) if exchange in first]

    everything = len(talk.turns)
    shares = tuple(share(returned(most), gold, everything) for most in (5, 10, 20))
    return (*shares, *(recall_any(returned(most), gold, everything) for most in (5, 10)))


@dataclass(frozen=True, slots=True)
class Difference:
    """How one ranking stands to another over the same questions."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, ours: Sequence[float], theirs: Sequence[float]) -> Difference:
        differences = [one - other for one, other in zip(ours, theirs, strict=True)]
        return cls(sum(differences) / len(differences), *interval(differences))

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def compared(what: str, scores: Scores, measures: Sequence[str], first: str, published: str = "") -> list[dict]:
    """A row for each ranking; Recto's say how far they are from the better baseline, measure by measure."""
    at = list(measures)
    rows = []
    for name, of in scores.items():
        means = dict(zip(at, (sum(values) / len(values) for values in zip(*of, strict=True)), strict=True))
        note = ""
        if name in BASELINES and (published, name) in PUBLISHED:
            note = "published: " + " ".join(f"{value:.3f}" for value in PUBLISHED[published, name])
        elif name not in BASELINES:
            note = "; ".join(f"{one} {_to_the_better(scores, name, at.index(one))}" for one in _told(at, first))
        rows.append(figures(f"{what}: {name}", means, note))
    return rows


def _told(measures: Sequence[str], first: str) -> list[str]:
    return [one for one in measures if one.partition("@")[0] == first.partition("@")[0]]


def _to_the_better(scores: Scores, name: str, at: int) -> Difference:
    better = max(BASELINES, key=lambda baseline: sum(row[at] for row in scores[baseline]))
    return Difference.of([row[at] for row in scores[name]], [row[at] for row in scores[better]])
