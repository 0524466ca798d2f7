"""Searches one or several sessions by words, by meaning and by date, and ranks the candidates.

Works on columns from the index: no text is read, and only the best candidates become objects. Every score is explained
as a sum of named parts: word scores and cosines are standardized over the candidates and fused; added to that are the
days the query names and, unless it asks for a fact, the rules and preferences that the user stated. Nothing else is:
role, age, the task and other kinds of statements brought nothing on the public sets that the constants were tuned on
(docs/recall.md has the figures).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from recto.context.facts.types import Mark
from recto.errors import RectoError
from recto.recall.documents import passages
from recto.recall.index.bm25 import SessionView, TermStatistics, WordScores
from recto.recall.index.message_rows import AttributeTable, EntryKey, MessageRows
from recto.recall.index.vectors import VectorIndex
from recto.recall.indexer import Indexer
from recto.recall.stemmer import STOP_WORDS
from recto.recall.term_rows import ROLES
from recto.recall.types import Query
from recto.text.dates import DateSpan, find_date_spans
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MAX_SEQ, Role
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.recall.protocols import Lexicon, Matrix


Floats: TypeAlias = NDArray[np.float64]

ASSISTANT_WEIGHT = 0.6
"""Weight of words in assistant messages: they repeat the question and are verbose."""
PASSAGE_PENALTY = 0.02
"""Penalty on the best cosine per log of the number of passages: the best of many is always near by chance."""
_USER, _ASSISTANT = ROLES.index("user"), ROLES.index("assistant")
_MAX_MATCHED = 6


class Candidates(Struct, frozen=True, kw_only=True):
    """Messages proposed by words, vectors or a date: one array per property, one position per message."""

    sessions: NDArray[np.intp]
    """Positions in the list of searched sessions."""
    seqs: NDArray[np.int64]
    ts: NDArray[np.int64]
    roles: NDArray[np.uint8]
    """Positions in `ROLES`."""
    marks: NDArray[np.uint32]
    exchanges: NDArray[np.int64]
    """The user messages that opened the exchanges they belong to; 0 if there is none."""
    bm25: Floats
    strength: Floats
    """The BM25 score as a share of the best score the query could reach, from 0 to 1."""
    matched: Floats
    """Number of query terms in the message, approximately."""
    cosines: Floats
    """Cosine to the query; NaN if the message has no comparable vector."""
    passages: Floats
    """Number of passages the nearest one was chosen from, approximately."""
    in_span: NDArray[np.bool]
    """Whether it dates from the days the query names."""

    def __len__(self) -> int:
        return len(self.seqs)

    @property
    def words(self) -> Floats:
        """BM25 scores, weighted by role."""
        return np.where(self.roles == _ASSISTANT, ASSISTANT_WEIGHT, 1.0) * self.bm25

    @property
    def is_standing(self) -> NDArray[np.bool]:
        """Whether the user states a rule or a preference in the message."""
        is_marked = (self.marks & np.uint32(Mark.CONSTRAINT | Mark.PREFERENCE)) != 0
        found: NDArray[np.bool] = is_marked & (self.roles == _USER)
        return found

    @property
    def likeness(self) -> Floats:
        """Cosines, corrected for the number of passages; NaN where there is none."""
        corrected: Floats = self.cosines - PASSAGE_PENALTY * np.log(np.maximum(self.passages, 1))
        return corrected


class RankingWeights(Struct, frozen=True, kw_only=True):
    """Weight of each part, in standard deviations of similarity over the candidates."""

    meaning: float = 0.5
    """Share of vectors in the similarity; words have the rest."""
    words_alone: float = 1.0
    """Share of words in the similarity of a message without a vector, such as a tool result."""
    date: float = 1.0
    standing: float = 0.8
    """Of a rule or a preference that the user stated: it is brief, and a request it applies to has other words."""
    superseded: float = -1.0
    judged: float = 1.0
    """Of an entry that was judged helpful; as much is taken from one that was judged not helpful."""
    unhelpful: float = 0.5
    """Factor of the relevance of the latter: quoted again only where it matches well."""

    def with_meaning(self, share: float) -> RankingWeights:
        """Return a copy with another share for vectors, as configured by the embedder."""
        return replace(self, meaning=share)


class RelevanceCalibration(Struct, frozen=True, kw_only=True):
    """Maps absolute similarity to the relevance of a message: a logistic curve, fitted on labelled questions.

    This is a gate and not a probability: one in six questions about something that was never mentioned passes it.
    """

    base: float
    strength: float
    matched: float = 0.0
    likeness: float = 0.0
    assistant: float = 0.7
    """Factor of the strength of assistant messages."""

    def chances(self, candidates: Candidates) -> Floats:
        """Return the relevance of each candidate, from 0 to 1."""
        factor = np.where(candidates.roles == _ASSISTANT, self.assistant, 1.0)
        lexical = self.base + self.strength * factor * candidates.strength
        lexical += self.matched * np.minimum(candidates.matched, _MAX_MATCHED)
        if self.likeness:
            lexical += self.likeness * np.nan_to_num(candidates.likeness)
        chances: Floats = 1 / (1 + np.exp(-lexical))
        return chances


WORDS_ONLY = RelevanceCalibration(base=-2.75, strength=10.0, matched=1 / 6)
"""For candidates without a cosine, or with one of an embedder that has no calibration."""
CALIBRATIONS: Mapping[str, RelevanceCalibration] = MappingProxyType(
    {"arctic-embed-s": RelevanceCalibration(base=-7.3, strength=7.5, likeness=9.0)}
)
"""By prefix of the embedder's name: the scale of a cosine depends on the model."""


def calibration_for(embedder: str) -> RelevanceCalibration:
    """Return the calibration of an embedder."""
    return next((curve for name, curve in CALIBRATIONS.items() if embedder.startswith(name)), WORDS_ONLY)


class Scores(Struct, frozen=True, kw_only=True):
    """The scores of candidates, in the same positions."""

    parts: Mapping[str, Floats]
    """What a score is the sum of, by name."""
    total: Floats
    chances: Floats
    """Estimated relevance from 0 to 1."""

    def parts_of(self, at: NDArray[np.intp]) -> list[dict[str, float]]:
        """Return the parts of some scores. Parts other than similarity are left out where they are 0."""
        rows = zip(*(column[at].tolist() for column in self.parts.values()), strict=True)
        return [
            {name: value for name, value in zip(self.parts, row, strict=True) if value or name in _SIMILARITY_PARTS}
            for row in rows
        ]

    def with_judged(self, weights: RankingWeights, at: NDArray[np.intp], helpful: NDArray[np.bool]) -> Scores:
        """Return these with what judgements of earlier quotations add or take.

        Helpful ones rank higher but are not more relevant: a judgement lets nothing through the gate.
        """
        chances = self.chances.copy()
        chances[at[~helpful]] *= weights.unhelpful
        values = np.where(helpful, weights.judged, -weights.judged)
        return replace(self.with_part("judged", at, values), chances=chances)

    def with_part(self, name: str, at: NDArray[np.intp], values: Floats) -> Scores:
        """Return these with one more part, which some of the candidates have."""
        part = np.zeros(len(self.total))
        part[at] = values
        return replace(self, parts={**self.parts, name: part}, total=self.total + part)


_SIMILARITY_PARTS = ("words", "meaning")


def score_candidates(candidates: Candidates, weights: RankingWeights, curve: RelevanceCalibration) -> Scores:
    """Score candidates. Similarity is standardized over all of them."""
    known = ~np.isnan(candidates.cosines)
    share = weights.meaning if known.any() else 0.0
    meaning = np.zeros(len(candidates))
    if share:
        meaning[known] = standardized(candidates.likeness[known])
    words = np.where(known, 1 - share, weights.words_alone if share else 1.0) * standardized(candidates.words)
    parts = {"words": words, "meaning": share * meaning}
    if candidates.in_span.any():
        # The query names these days, so they count whatever the relevance.
        parts["date"] = weights.date * candidates.in_span.astype(np.float64)
    if (standing := candidates.is_standing).any():
        parts["standing"] = weights.standing * standing.astype(np.float64)
    chances: Floats = WORDS_ONLY.chances(candidates)
    if curve is not WORDS_ONLY:
        chances = np.where(known, curve.chances(candidates), chances)
    total: Floats = sum(parts.values(), np.zeros(len(candidates)))
    return Scores(parts=parts, total=total, chances=chances)


def best_first(candidates: Candidates, total: Floats) -> NDArray[np.intp]:
    """Return the positions of candidates by score, best first; newer ones first among equals."""
    return np.lexsort((candidates.sessions, -candidates.seqs, -candidates.ts, -total))


def standardized(values: Floats) -> Floats:
    """Return the deviation of each value from the mean in standard deviations; 0 if all are equal."""
    if not len(values):
        return values
    centred: Floats = values - values.mean()
    return centred / (float(np.sqrt((centred * centred).mean())) or 1.0)


MAX_CANDIDATES = 200
"""Candidates that words and vectors contribute at most, each."""
_MAX_TERMS = 64
"""Terms of a long query that are searched: the rarest ones."""
_KEPT_QUERIES = 8
"""Texts whose terms are kept: those of the query in flight."""
_MAX_QUERY_PASSAGES = 3
MAX_RANKED = 50
"""Best candidates that are compared with each other."""
_TERMS_PER_PASSAGE, _MAX_PASSAGES = 90, 6
_TERMS_PER_STATEMENT, _MAX_STATEMENTS = 17, 4
"""The same for user messages, whose sentences have vectors of their own; see `STATEMENT_CHARACTERS`."""
CONTEXT_WEIGHT = 0.3
"""Weight of a term that occurs only in the context of a query."""
_MAX_QUESTION_CHARACTERS = 1000
"""A longer text is no question: it is searched for as it is."""
_FORM = r"(?:summary|overview|recap|outline|timeline|list|order|sequence)"
_TALK = r"(?:conversation|chat|discussion|session)"
_FRAME = lazy_re(
    "|".join(
        (
            r"\bwalk me through\b|\b(?:summari[sz]e|recap)\b",
            rf"\b(?:an?|the) (?:(?:clear|complete|comprehensive|detailed|brief|short|full|chronological) )*{_FORM} "
            r"(?:of|in which|that)\b",
            r"\b(?:i|we)(?:[’']ve| have| had)? (?:ever |already )?(?:brought up|mentioned|discussed|talked about)\b",
            r"\b(?:throughout|across|during|in|over|through|from|to|at|based on) (?:all )?(?:of )?(?:our|my|these|the) "
            rf"(?:previous |past |earlier |last )?(?:{_TALK}s\b|{_TALK}\b(?= about\b|\s*(?:[,.;:?!]|$)))(?: about\b)?",
            r"\bin (?:chronological )?order\b(?! to\b)",
            r"\b(?:mention|list|name|give)(?: (?:me|us|only|exactly|just|and))+ \w+ (?:items|things|points)\b",
        )
    ),
    re.IGNORECASE,
)
"""Phrases that name a form of answer or the conversation. `the order of my parcels` is one; `my order` is none."""
_FILLERS = lazy_re(
    r"\b(?:can|could|would|will) you\b|\bplease\b|\b(?:give|show|tell|remind) (?:me|us)(?: of)?\b|\bprovide\b|\blist\b"
    r"|\b(?:going|looking) (?:back|through)\b"
    r"|\b(?:the )?(?:different|various) (?:aspects|topics|parts|stages|steps|things|points)(?: (?:of|about))?\b",
    re.IGNORECASE,
)
"""What comes with such a phrase. Without one it is left: `can you provide the file` is about a file."""
_FACT = lazy_re(
    r"\b(?:did|was|were|had|(?:have|has|am|are) (?:i|we|my|our)|(?:i|we)[’']ve|ago|so far|when|who|where"
    r"|how (?:many|much|long|often|old|far))\b",
    re.IGNORECASE,
)
"""Words of a question about a fact or about the past."""

Positions: TypeAlias = NDArray[np.intp]
"""Positions of messages in the attributes of their session."""


class SearchedSession(Struct, kw_only=True):
    """One session of a search: its columns in the index, and what is proposed of it."""

    key: str
    view: SessionView
    statistics: TermStatistics
    is_visible: NDArray[np.bool]
    """Which messages may be proposed, by position."""
    end: int
    """Number of messages that count: the others were stored after the query."""
    scores: WordScores = field(default_factory=WordScores.none)
    proposed: list[Positions] = field(default_factory=list)
    vectors: tuple[Positions, NDArray[np.float64]] = field(
        default_factory=lambda: (np.empty(0, np.intp), np.empty(0, np.float64))
    )
    """Messages in ascending order with their cosines."""

    @classmethod
    def of(
        cls, key: str, view: SessionView, statistics: TermStatistics, upto: int, hidden: Collection[int]
    ) -> SearchedSession:
        """Prepare the search of a session, up to an entry and without hidden ones."""
        table = view.attributes
        end = table.count_through(upto)
        is_visible = np.ones(len(table), np.bool)
        is_visible[end:] = False
        if hidden:
            at, exists = _positions(table.seqs, np.fromiter(hidden, np.uint32, len(hidden)))
            is_visible[at[exists]] = False
        return cls(key=key, view=view, statistics=statistics, is_visible=is_visible, end=end)

    @property
    def attributes(self) -> AttributeTable:
        """The attributes of every message."""
        return self.view.attributes


def _positions(sorted_values: NDArray[Any], values: NDArray[Any]) -> tuple[Positions, NDArray[np.bool]]:
    """Return where values are in a sorted column of the same type, and which of them are in it."""
    at = sorted_values.searchsorted(values)
    exists = at < len(sorted_values)
    exists[exists] = sorted_values[at[exists]] == values[exists]
    return at, exists


class Ranked(Struct, frozen=True, kw_only=True):
    """A candidate with its score and the parts of it."""

    session: str
    seq: int
    ts: int
    role: Role
    marks: Mark
    exchange: int = 0
    """The user message that opened the exchange it belongs to."""
    bm25: float = 0.0
    score: float
    chance: float
    parts: Mapping[str, float]


class Ranking(Struct, frozen=True, kw_only=True):
    """The ranked candidates of a search."""

    candidates: Candidates
    scores: Scores
    order: NDArray[np.intp]
    """Positions of the candidates, best first."""
    sessions: Sequence[SearchedSession]
    term_weights: Mapping[int, float]
    """The terms searched for, with their weight in the query."""
    spans: Sequence[DateSpan]
    searched: int
    notes: tuple[str, ...]

    def best(self, limit: int | None = None) -> list[Ranked]:
        """Return the best candidates, best first; all of them without a limit."""
        return self.ranked(self.order[:limit])

    def places(self, limit: int, least: float = 0.0) -> dict[EntryKey, int]:
        """Return the places of the best candidates, best first, without those below the `least` relevance."""
        best = self.order[:limit]
        best = best[self.scores.chances[best] >= least]
        return dict(zip(self.keys(best), best.tolist(), strict=True))

    def keys(self, places: NDArray[np.intp]) -> list[EntryKey]:
        """Return which entries the candidates at some places are."""
        numbers = self.candidates.sessions[places].tolist()
        return [
            (self.sessions[number].key, seq)
            for number, seq in zip(numbers, self.candidates.seqs[places].tolist(), strict=True)
        ]

    @property
    def best_chance(self) -> float:
        """The highest relevance among the best candidates."""
        return float(self.scores.chances[self.order[:MAX_RANKED]].max(initial=0.0))

    def find(self, session: str, seq: int) -> Ranked | None:
        """Return an entry if it is a candidate."""
        found = self.candidates
        number = next((number for number, one in enumerate(self.sessions) if one.key == session), -1)
        # Candidates are in the order of their sessions, and of their entries in each.
        start, end = found.sessions.searchsorted([number, number + 1]).tolist()
        place = start + int(found.seqs[start:end].searchsorted(seq))
        return self.ranked(np.array([place]))[0] if place < end and found.seqs[place] == seq else None

    def ranked(self, at: NDArray[np.intp]) -> list[Ranked]:
        """Return the candidates at some places."""
        found = self.candidates
        columns = (found.sessions, found.seqs, found.ts, found.roles, found.marks, found.exchanges, found.bm25)
        rows = zip(*(column[at].tolist() for column in (*columns, self.scores.total, self.scores.chances)), strict=True)
        return [
            Ranked(
                session=self.sessions[session].key,
                seq=seq,
                ts=ts,
                role=ROLES[role],
                marks=Mark(marks),
                exchange=exchange,
                bm25=bm25,
                score=score,
                chance=chance,
                parts=parts,
            )
            for (session, seq, ts, role, marks, exchange, bm25, score, chance), parts in zip(
                rows, self.scores.parts_of(at), strict=True
            )
        ]


class Searcher:
    """Searches the sessions of an indexer."""

    def __init__(
        self,
        indexer: Indexer,
        *,
        weights: RankingWeights | None = None,
        patience: float = 10.0,
        store: TranscriptStore | None = None,
    ) -> None:
        self.indexer = indexer
        self.store = store or indexer.store
        """Where texts are read: the view of one tenant, where the indexer serves several."""
        self.rows = MessageRows(self.store, indexer.lexicon)
        self.terms_in: Callable[[str], tuple[int, ...]] = lru_cache(_KEPT_QUERIES)(_distinct_terms(indexer.lexicon))
        """The distinct terms of a query, which is ranked by them, compared with messages, and quoted for."""
        self.patience = patience
        """Time limit for embedding a query, in seconds. After that only words are searched."""
        weights, embedder = weights or RankingWeights(), indexer.embedder
        self.weights = weights if embedder is None else weights.with_meaning(embedder.weight)
        self.curve = WORDS_ONLY if embedder is None else calibration_for(embedder.name)

    def find(
        self, query: Query, sessions: Sequence[str], hidden: Mapping[str, Collection[int]] | None = None
    ) -> Ranking:
        """Rank the candidates in these sessions, best first, without hidden entries."""
        spans, notes, question = find_date_spans(query.text, query.now), list[str](), query.text
        query = replace(query, text=subject_of(query.text))  # after the dates, which may be in the rest
        searched, statistics, weights = self._by_words(query, sessions, hidden or {})
        self._by_meaning(query, searched, notes)
        _by_date(searched, spans)
        best = sum(weight * statistics.idf(term) for term, weight in weights.items()) or 1.0
        candidates = _columns(searched, spans, best, len(weights))
        scores = score_candidates(candidates, self._weights_for(question), self.curve)
        order = best_first(candidates, scores.total)
        if query.judged:
            scores = self._with_judged(query.judged, scores, candidates, searched)
            order = best_first(candidates, scores.total)
        return Ranking(
            candidates=candidates,
            scores=scores,
            order=order,
            sessions=searched,
            term_weights=weights,
            spans=spans,
            searched=statistics.documents,
            notes=tuple(notes),
        )

    def _weights_for(self, question: str) -> RankingWeights:
        # Rules and preferences tell how to do what is requested; a fact is in another message.
        return replace(self.weights, standing=0.0) if asks_for_fact(question) else self.weights

    def _by_words(
        self, query: Query, sessions: Sequence[str], hidden: Mapping[str, Collection[int]]
    ) -> tuple[list[SearchedSession], TermStatistics, dict[int, float]]:
        """Score all messages that have a term of the query, and propose the best."""
        words = self.indexer.words
        weights = dict.fromkeys(self.terms_in(query.context), CONTEXT_WEIGHT) if query.context else {}
        weights |= dict.fromkeys(self.terms_in(query.text), 1.0)
        terms = list(weights)
        searched, statistics = list[SearchedSession](), TermStatistics()
        for session in sessions:
            # Only the session of the query, which is the first, has a limit.
            upto = query.before if not searched else MAX_SEQ
            view = words.view(session, terms)
            found = words.statistics(session, terms, upto=upto, view=view)
            statistics = statistics + found if searched else found
            searched.append(SearchedSession.of(session, view, found, upto, hidden.get(session, ())))
        # The statistics of all sessions together score every session, so that scores of two sessions are comparable.
        rarest = sorted(weights, key=lambda term: (-weights[term], statistics.df.get(term, 0), term))[:_MAX_TERMS]
        chosen = {term: weights[term] for term in rarest}
        best: list[tuple[int, Positions, NDArray[np.float32]]] = []
        for number, one in enumerate(searched):
            one.scores = words.score(one.key, chosen, statistics, view=one.view)
            at = one.scores.best(MAX_CANDIDATES, one.is_visible)
            best.append((number, at, one.scores.bm25[at]))
        _propose_best(searched, best)
        return searched, statistics, chosen

    def _by_meaning(self, query: Query, searched: Sequence[SearchedSession], notes: list[str]) -> None:
        for position, embedder in enumerate(self.indexer.embedders):
            numbers = [number for number, one in enumerate(searched) if self.indexer.has_vectors(one.key, embedder)]
            if not numbers:
                continue
            pieces = passages(query.text, limit=_MAX_QUERY_PASSAGES)
            try:
                patience = min(self.patience, query.seconds)
                vectors = [embedder.query(piece, patience) for piece in pieces]
                index = self.indexer.vector_index(embedder, patience)
            except RectoError as error:
                notes.append(str(error))  # words are searched without vectors
                continue
            near = [(number, *_nearest(searched[number], index, vectors)) for number in numbers]
            _propose_best(searched, near)
            for number, at, cosines in near:
                # If two embedders have a vector of an entry, the current one counts: their cosines are not comparable.
                _keep_cosines(searched[number], at, cosines.astype(np.float64), replace=position == 0)

    def _with_judged(
        self,
        judged: Mapping[EntryKey, bool],
        scores: Scores,
        candidates: Candidates,
        searched: Sequence[SearchedSession],
    ) -> Scores:
        """Add what judgements of earlier quotations say about the candidates."""
        numbers = zip(candidates.sessions.tolist(), candidates.seqs.tolist(), strict=True)
        keys = [(searched[number].key, seq) for number, seq in numbers]
        found = [(place, judged[key]) for place, key in enumerate(keys) if key in judged]
        if not found:
            return scores
        places, helpful = zip(*found, strict=True)
        return scores.with_judged(self.weights, np.array(places, np.intp), np.array(helpful, np.bool))


def _distinct_terms(lexicon: Lexicon) -> Callable[[str], tuple[int, ...]]:
    return lambda text: tuple(lexicon.terms(text))


def _propose_best(
    searched: Sequence[SearchedSession], found: Sequence[tuple[int, Positions, NDArray[np.floating]]]
) -> None:
    """Propose the messages with the highest values over all sessions; newer ones first among equals."""
    if len(found) == 1:
        number, at, values = found[0]
        few = len(at) <= MAX_CANDIDATES
        searched[number].proposed.append(at if few else at[np.lexsort((-at, -values))[:MAX_CANDIDATES]])
        return
    sizes = [len(at) for _, at, _ in found]
    numbers = np.repeat([number for number, _, _ in found], sizes)
    names = np.argsort(np.argsort([one.key for one in searched]))
    positions, values = np.concatenate([part[1] for part in found]), np.concatenate([part[2] for part in found])
    best = np.lexsort((-positions, names[numbers], -values))[:MAX_CANDIDATES]
    for number in np.unique(numbers[best]).tolist():
        searched[number].proposed.append(positions[best[numbers[best] == number]])


def _nearest(
    session: SearchedSession, index: VectorIndex, vectors: Sequence[Matrix]
) -> tuple[Positions, NDArray[np.float32]]:
    """Return the messages of a session that are near to one of the vectors, in ascending order, with their cosines."""
    column = session.attributes.seqs
    proposed = column[_joined(session.proposed)].tolist()
    hidden = int(session.end - np.count_nonzero(session.is_visible))
    found = []
    for vector in vectors:
        found.append(index.nearest(session.key, vector, MAX_CANDIDATES + hidden))
        # The second search gives a cosine to what words proposed, even if it is not among the nearest.
        found.append(index.nearest(session.key, vector, len(proposed), only=proposed))
    seqs = np.concatenate([np.empty(0, np.uint32), *(near.seqs.astype(np.uint32) for near in found)])
    cosines = np.concatenate([np.empty(0, np.float32), *(near.cosines for near in found)])
    at, known = _positions(column, seqs)
    known[known] = session.is_visible[at[known]]
    at, cosines = at[known], cosines[known]
    order = np.lexsort((-cosines, at))
    at, firsts = np.unique(at[order], return_index=True)
    return at, cosines[order][firsts]


def _joined(proposed: Sequence[Positions]) -> Positions:
    """Return what was proposed, in ascending order."""
    return np.unique(np.concatenate([np.empty(0, np.intp), *proposed]))


def _keep_cosines(session: SearchedSession, at: Positions, cosines: NDArray[np.float64], *, replace: bool) -> None:
    known, values = session.vectors
    new = (at, cosines) if replace else (known, values)
    old = (known, values) if replace else (at, cosines)
    both = np.concatenate([new[0], old[0]])
    merged, firsts = np.unique(both, return_index=True)  # the first of two equal ones is that of `new`
    session.vectors = merged, np.concatenate([new[1], old[1]])[firsts]


def _by_date(searched: Sequence[SearchedSession], spans: Sequence[DateSpan]) -> None:
    """Propose messages of the days named in the query with the best words, even if few words match."""
    for session in searched if spans else ():
        ts = session.attributes.ts
        for span in spans:
            at = np.flatnonzero((ts >= span.start) & (ts < span.end) & session.is_visible)
            session.proposed.append(at[highest(session.scores.bm25[at], MAX_CANDIDATES // 4)])


def highest(values: NDArray[np.float32], limit: int) -> Positions:
    """Return where the highest values are; of equal ones the first."""
    if len(values) <= limit:
        return np.arange(len(values))
    least = np.partition(values, -limit)[-limit]
    above = np.flatnonzero(values > least)
    return np.concatenate([above, np.flatnonzero(values == least)[: limit - len(above)]])


def _columns(searched: Sequence[SearchedSession], spans: Sequence[DateSpan], best: float, terms: int) -> Candidates:
    """Return what was proposed, with the columns of the index that ranking needs."""
    tables = [_session_columns(number, session, spans) for number, session in enumerate(searched) if session.proposed]
    if len(tables) == 1:
        joined = tables[0]
    else:
        joined = {name: np.concatenate([none, *(table[name] for table in tables)]) for name, none in _EMPTY.items()}
    coverage = joined.pop("coverage")
    return Candidates(**joined, strength=joined["bm25"] / best, matched=np.rint(coverage * terms))


def _session_columns(number: int, session: SearchedSession, spans: Sequence[DateSpan]) -> dict[str, NDArray[Any]]:
    table = session.attributes
    at = _joined(session.proposed)
    seqs, ts = table.seqs[at].astype(np.int64), table.ts[at]
    cosines, (with_vectors, values) = np.full(len(at), np.nan), session.vectors
    if len(with_vectors):
        near, has_vector = _positions(with_vectors, at)
        cosines[has_vector] = values[near[has_vector]]
    in_span = np.zeros(len(at), np.bool)
    for span in spans:
        in_span |= (ts >= span.start) & (ts < span.end)
    lengths, is_user = table.lengths[at].astype(np.int64), table.roles[at] == _USER
    passages = np.clip(-(-lengths // _TERMS_PER_PASSAGE), 1, _MAX_PASSAGES)
    passages[is_user] = np.clip(-(-lengths[is_user] // _TERMS_PER_STATEMENT), 1, _MAX_STATEMENTS)
    return {
        "sessions": np.full(len(at), number, np.intp),
        "seqs": seqs,
        "ts": ts,
        "roles": table.roles[at],
        "marks": table.marks[at],
        "exchanges": table.openings(at),
        "bm25": session.scores.bm25[at].astype(np.float64),
        "coverage": session.scores.coverage(at).astype(np.float64),
        "cosines": cosines,
        "passages": passages.astype(np.float64),
        "in_span": in_span,
    }


_EMPTY: Mapping[str, NDArray[Any]] = {
    "sessions": np.empty(0, np.intp),
    "seqs": np.empty(0, np.int64),
    "ts": np.empty(0, np.int64),
    "roles": np.empty(0, np.uint8),
    "marks": np.empty(0, np.uint32),
    "exchanges": np.empty(0, np.int64),
    "bm25": np.empty(0),
    "coverage": np.empty(0),
    "cosines": np.empty(0),
    "passages": np.empty(0),
    "in_span": np.empty(0, np.bool),
}


def asks_for_fact(question: str) -> bool:
    """Whether a text asks about the past, or for a number, a person, a time or a place, and not for advice or work."""
    if "?" not in question or len(question) > _MAX_QUESTION_CHARACTERS:
        return False
    return _FACT.search(question) is not None or _FRAME.search(question) is not None


def subject_of(question: str) -> str:
    """Return a question without the phrases that say how to answer it or point to the conversation.

    "Can you list the order in which I brought up different aspects of my garden throughout our conversations? Mention
    only five items." is about a garden. Its other words occur in every conversation, and a search that counts them
    finds talk about lists and conversations instead. A question is returned as it is where it has no such phrase, or
    nothing else.
    """
    if len(question) > _MAX_QUESTION_CHARACTERS or _FRAME.search(question) is None:
        return question
    words = _FILLERS.sub(" ", _FRAME.sub(" ", question)).split()
    while words and _says_nothing(words[0]):
        del words[0]
    while words and _says_nothing(words[-1]):
        del words[-1]
    return " ".join(words) or question


def _says_nothing(word: str) -> bool:
    bare = word.strip(".,;:?!\"'()").lower()
    return not bare or bare in STOP_WORDS
