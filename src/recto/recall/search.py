"""Searches one or several sessions by words, by meaning and by date, and ranks the candidates.

Works on columns from the index: no text is read, and only the best candidates become objects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.context.facts.types import Mark
from recto.errors import RectoError
from recto.recall._term_sets import EntryKey, TermSet, TermSets, shared_terms
from recto.recall.documents import passages
from recto.recall.index.attributes import AttributeTable
from recto.recall.index.bm25 import SessionView, TermStatistics, WordScores
from recto.recall.index.vectors import VectorIndex
from recto.recall.indexer import Indexer
from recto.recall.ranking import (
    WORDS_ONLY,
    Candidates,
    RankingWeights,
    Scores,
    best_first,
    calibration_for,
    score_candidates,
)
from recto.recall.term_rows import ROLES
from recto.recall.types import Query
from recto.text.dates import DateSpan, find_date_spans
from recto.transcript.entries import MAX_SEQ, Role
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

MAX_CANDIDATES = 200
"""Candidates that words and vectors contribute at most, each."""
_MAX_TERMS = 64
"""Terms of a long query that are searched: the rarest ones."""
_MAX_QUERY_PASSAGES = 3
MAX_RANKED = 50
"""Best candidates that are compared with the task and with each other."""
_MAX_TASK_CHARACTERS = 4000
_TERMS_PER_PASSAGE, _MAX_PASSAGES = 90, 6
_NO_TERMS = np.empty(0, np.uint32)
CONTEXT_WEIGHT = 0.3
"""Weight of a term that occurs only in the context of a query."""

Seqs: TypeAlias = NDArray[np.int64]


@dataclass(slots=True, kw_only=True)
class SearchedSession:
    """One session of a search: its columns in the index, and what is proposed of it."""

    key: str
    view: SessionView
    statistics: TermStatistics
    upto: int
    """The last entry that counts."""
    hidden: Seqs
    scores: WordScores = field(default_factory=WordScores.empty)
    proposed: list[Seqs] = field(default_factory=list)
    vectors: tuple[Seqs, NDArray[np.float64]] = field(
        default_factory=lambda: (np.empty(0, np.int64), np.empty(0, np.float64))
    )
    """Entries in ascending order with their cosines."""

    @property
    def attributes(self) -> AttributeTable:
        """The attributes of every message."""
        return self.view.attributes

    def visible(self, seqs: Seqs) -> NDArray[np.bool]:
        """Return which entries may be proposed."""
        may_be: NDArray[np.bool] = seqs <= self.upto
        return may_be & ~np.isin(seqs, self.hidden) if len(self.hidden) else may_be


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
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


@dataclass(frozen=True, kw_only=True)
class Ranking:
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
    term_sets: Mapping[EntryKey, TermSet]
    """Terms of the messages that were compared with the task."""

    def best(self, limit: int | None = None) -> list[Ranked]:
        """Return the best candidates, best first; all of them without a limit."""
        return self._ranked(self.order[:limit])

    def find(self, session: str, seq: int) -> Ranked | None:
        """Return an entry if it is a candidate."""
        place = self._places.get((session, seq))
        return self._ranked(np.array([place]))[0] if place is not None else None

    @cached_property
    def _places(self) -> dict[EntryKey, int]:
        keys = [session.key for session in self.sessions]
        rows = zip(self.candidates.sessions.tolist(), self.candidates.seqs.tolist(), strict=True)
        return {(keys[number], seq): place for place, (number, seq) in enumerate(rows)}

    def _ranked(self, at: NDArray[np.intp]) -> list[Ranked]:
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
        self.terms = TermSets(self.store, indexer.lexicon)
        # The task is the same for many queries.
        self._task_terms = lru_cache(8)(lambda task: np.fromiter(indexer.lexicon.terms(task), np.uint32))
        self.patience = patience
        """Time limit for embedding a query, in seconds. After that only words are searched."""
        weights, embedder = weights or RankingWeights(), indexer.embedder
        self.weights = weights if embedder is None else weights.with_meaning(embedder.weight)
        self.curve = WORDS_ONLY if embedder is None else calibration_for(embedder.name)

    def find(
        self, query: Query, sessions: Sequence[str], hidden: Mapping[str, Collection[int]] | None = None
    ) -> Ranking:
        """Rank the candidates in these sessions, best first, without hidden entries."""
        spans, notes = find_date_spans(query.text, query.now), list[str]()
        searched, statistics, weights = self._by_words(query, sessions, hidden or {})
        self._by_meaning(query, searched, notes)
        _by_date(searched, spans)
        best = sum(weight * statistics.idf(term) for term, weight in weights.items()) or 1.0
        candidates = _columns(searched, spans, best, len(weights))
        scores = score_candidates(candidates, self.weights, self.curve)
        order = best_first(candidates, scores.total)
        sets: dict[EntryKey, TermSet] = {}
        if query.task and len(order):
            top = order[:MAX_RANKED]
            numbers = zip(candidates.sessions[top].tolist(), candidates.seqs[top].tolist(), strict=True)
            keys = [(searched[number].key, seq) for number, seq in numbers]
            sets = self.terms.of(keys)
            scores = self._with_task(query.task, scores, top, keys, sets)
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
            term_sets=sets,
        )

    def _by_words(
        self, query: Query, sessions: Sequence[str], hidden: Mapping[str, Collection[int]]
    ) -> tuple[list[SearchedSession], TermStatistics, dict[int, float]]:
        """Score all messages that have a term of the query, and propose the best."""
        words, lexicon = self.indexer.words, self.indexer.lexicon
        weights = dict.fromkeys(lexicon.terms(query.context), CONTEXT_WEIGHT) if query.context else {}
        weights |= dict.fromkeys(lexicon.terms(query.text), 1.0)
        terms = list(weights)
        searched, statistics = list[SearchedSession](), TermStatistics()
        for session in sessions:
            # Only the session of the query, which is the first, has a limit.
            upto = query.before if not searched else MAX_SEQ
            view = words.view(session, terms)
            found = words.statistics(session, terms, upto=upto, view=view)
            statistics = statistics + found if searched else found
            unseen = np.fromiter(hidden.get(session, ()), np.int64)
            searched.append(SearchedSession(key=session, view=view, statistics=found, upto=upto, hidden=unseen))
        # The statistics of all sessions together score every session, so that scores of two sessions are comparable.
        rarest = sorted(weights, key=lambda term: (-weights[term], statistics.df.get(term, 0), term))[:_MAX_TERMS]
        chosen = {term: weights[term] for term in rarest}
        best: list[tuple[int, Seqs, NDArray[np.float32]]] = []
        for number, one in enumerate(searched):
            one.scores = words.score(one.key, chosen, statistics, view=one.view)
            at = one.scores.best(MAX_CANDIDATES + len(one.hidden))
            seqs = one.scores.seqs[at].astype(np.int64)
            is_visible = one.visible(seqs)
            best.append((number, seqs[is_visible], one.scores.bm25[at[is_visible]]))
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
            for number, seqs, cosines in near:
                # If two embedders have a vector of an entry, the current one counts: their cosines are not comparable.
                _keep_cosines(searched[number], seqs, cosines.astype(np.float64), replace=position == 0)

    def _with_task(
        self,
        task: str,
        scores: Scores,
        best: NDArray[np.intp],
        keys: Sequence[EntryKey],
        sets: Mapping[EntryKey, TermSet],
    ) -> Scores:
        """Add the share of the terms of the task that the best candidates have, times their relevance."""
        terms = self._task_terms(task[:_MAX_TASK_CHARACTERS])
        if not len(terms):
            return scores
        shares = shared_terms([sets.get(key, _NO_TERMS) for key in keys], terms) / len(terms)
        return scores.with_part("task", best, self.weights.task * shares * scores.chances[best])


def _propose_best(searched: Sequence[SearchedSession], found: Sequence[tuple[int, Seqs, NDArray[np.floating]]]) -> None:
    """Propose the entries with the highest values over all sessions; newer ones first among equals."""
    if len(found) == 1:
        number, seqs, values = found[0]
        searched[number].proposed.append(seqs[np.lexsort((-seqs, -values))[:MAX_CANDIDATES]])
        return
    sizes = [len(seqs) for _, seqs, _ in found]
    numbers = np.repeat([number for number, _, _ in found], sizes)
    names = np.argsort(np.argsort([one.key for one in searched]))
    seqs, values = np.concatenate([part[1] for part in found]), np.concatenate([part[2] for part in found])
    best = np.lexsort((-seqs, names[numbers], -values))[:MAX_CANDIDATES]
    for number in np.unique(numbers[best]).tolist():
        searched[number].proposed.append(seqs[best[numbers[best] == number]])


def _nearest(
    session: SearchedSession, index: VectorIndex, vectors: Sequence[Matrix]
) -> tuple[Seqs, NDArray[np.float32]]:
    """Return the entries of a session that are near to one of the vectors, in ascending order, with their cosines."""
    proposed = np.unique(np.concatenate([np.empty(0, np.int64), *session.proposed])).tolist()
    found = []
    for vector in vectors:
        found.append(index.nearest(session.key, vector, MAX_CANDIDATES + len(session.hidden)))
        # The second search gives a cosine to what words proposed, even if it is not among the nearest.
        found.append(index.nearest(session.key, vector, len(proposed), only=proposed))
    seqs = np.concatenate([np.empty(0, np.int64), *(near.seqs.astype(np.int64) for near in found)])
    cosines = np.concatenate([np.empty(0, np.float32), *(near.cosines for near in found)])
    is_visible = session.visible(seqs)
    seqs, cosines = seqs[is_visible], cosines[is_visible]
    order = np.lexsort((-cosines, seqs))
    seqs, firsts = np.unique(seqs[order], return_index=True)
    return seqs, cosines[order][firsts]


def _keep_cosines(session: SearchedSession, seqs: Seqs, cosines: NDArray[np.float64], *, replace: bool) -> None:
    known, values = session.vectors
    new = (seqs, cosines) if replace else (known, values)
    old = (known, values) if replace else (seqs, cosines)
    both = np.concatenate([new[0], old[0]])
    merged, firsts = np.unique(both, return_index=True)  # the first of two equal ones is that of `new`
    session.vectors = merged, np.concatenate([new[1], old[1]])[firsts]


def _by_date(searched: Sequence[SearchedSession], spans: Sequence[DateSpan]) -> None:
    """Propose entries of the days named in the query, best words first, even if few words match."""
    for session in searched if spans else ():
        for span in spans:
            seqs = session.attributes.between(span.start, span.end).astype(np.int64)
            seqs = seqs[session.visible(seqs)]
            bm25, _ = session.scores.at(seqs)
            session.proposed.append(seqs[np.lexsort((seqs, -bm25))[: MAX_CANDIDATES // 4]])


def _columns(searched: Sequence[SearchedSession], spans: Sequence[DateSpan], best: float, terms: int) -> Candidates:
    """Return what was proposed, with the columns of the index that ranking needs."""
    tables = [_session_columns(number, session, spans) for number, session in enumerate(searched) if session.proposed]
    names = tables[0].keys() if tables else _EMPTY.keys()
    joined = {name: np.concatenate([_EMPTY[name], *(table[name] for table in tables)]) for name in names}
    coverage = joined.pop("coverage")
    return Candidates(**joined, strength=joined["bm25"] / best, matched=np.rint(coverage * terms))


def _session_columns(number: int, session: SearchedSession, spans: Sequence[DateSpan]) -> dict[str, NDArray[Any]]:
    table = session.attributes
    seqs = np.unique(np.concatenate(session.proposed))
    at = table.seqs.searchsorted(seqs)
    known = at < len(table)
    known[known] = table.seqs[at[known]] == seqs[known]
    seqs, at = seqs[known], at[known]
    bm25, coverage = session.scores.at(seqs)
    ts, (with_vectors, values) = table.ts[at], session.vectors
    cosines, near = np.full(len(seqs), np.nan), with_vectors.searchsorted(seqs)
    has_vector = near < len(with_vectors)
    has_vector[has_vector] = with_vectors[near[has_vector]] == seqs[has_vector]
    cosines[has_vector] = values[near[has_vector]]
    openings = np.concatenate([[0], table.spoken_by("user")])
    in_span = np.zeros(len(seqs), np.bool)
    for span in spans:
        in_span |= (ts >= span.start) & (ts < span.end)
    return {
        "sessions": np.full(len(seqs), number, np.intp),
        "seqs": seqs,
        "ts": ts,
        "roles": table.roles[at],
        "marks": table.marks[at],
        "exchanges": openings[openings.searchsorted(seqs, side="right") - 1].astype(np.int64),
        "bm25": bm25.astype(np.float64),
        "coverage": coverage.astype(np.float64),
        "cosines": cosines,
        "passages": np.clip(-(-table.lengths[at].astype(np.int64) // _TERMS_PER_PASSAGE), 1, _MAX_PASSAGES).astype(
            np.float64
        ),
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
