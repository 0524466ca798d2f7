"""Searches one or several sessions by words, by meaning and by date, and ranks the candidates.

Works on numbers from the index. Only the texts of the best candidates are read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from recto.errors import RectoError
from recto.formats.entry_text import entry_text
from recto.recall.documents import passages
from recto.recall.index.bm25 import TermStatistics, WordScores
from recto.recall.index.vectors import VectorIndex
from recto.recall.indexer import Indexer
from recto.recall.ranking import (
    WORDS_ONLY,
    Candidate,
    Group,
    Ranked,
    Ranker,
    RankingWeights,
    calibration_for,
    group_candidates,
)
from recto.recall.types import Query
from recto.text.dates import DateSpan, find_date_spans
from recto.transcript.entries import MAX_SEQ, Entry
from recto.transcript.protocols import TranscriptStore

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix

MAX_CANDIDATES = 200
"""Candidates that words and vectors contribute at most, each."""
_MAX_TERMS = 64
"""Terms of a long query that are searched: the rarest ones."""
_MAX_QUERY_PASSAGES = 3
MAX_RERANKED = 50
"""Candidates whose texts are read, to match phrases and to be shown."""
_MAX_PHRASE_CHARACTERS = 4000
"""Characters of a message that are compared for phrases."""
_TERMS_PER_PASSAGE, _MAX_PASSAGES = 90, 6
CONTEXT_WEIGHT = 0.3
"""Weight of a term that occurs only in the context of a query."""

EntryKey: TypeAlias = tuple[str, int]
"""A session key and the number of an entry in it."""


@dataclass(slots=True)
class _SearchState:
    """Intermediate results of one search."""

    query: Query
    sessions: Sequence[str]
    hidden: Mapping[str, Collection[int]]
    spans: list[DateSpan]
    scored: dict[str, WordScores] = field(default_factory=dict)
    cosines: dict[EntryKey, float] = field(default_factory=dict)
    proposed: dict[EntryKey, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    term_weights: dict[int, float] = field(default_factory=dict)
    statistics_by_session: dict[str, TermStatistics] = field(default_factory=dict)
    statistics: TermStatistics = field(default_factory=TermStatistics)
    """Of all sessions together."""

    def upto(self, session: str) -> int:
        """Return the last entry that counts. Only the session of the query, which is the first, has such a limit."""
        return self.query.before if session == self.sessions[0] else MAX_SEQ

    def propose(self, session: str, seqs: Sequence[int]) -> None:
        hidden = self.hidden.get(session, ())
        last = self.upto(session)
        self.proposed |= dict.fromkeys((session, int(seq)) for seq in seqs if seq <= last and seq not in hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """The ranked candidates of a search, best first."""

    ranked: list[Ranked]
    spans: list[DateSpan]
    searched: int
    notes: tuple[str, ...]
    session_scores: Mapping[Hashable, float]
    """Word score of each session taken as one long message, if several were searched."""
    scored: Mapping[str, WordScores]
    """Word scores by session."""
    entries: Mapping[EntryKey, Entry]
    """The entries of the best candidates, as far as they exist."""

    def exchanges(self, share: float = 0.6) -> list[Group]:
        """Group the candidates by exchange, best first."""
        return group_candidates(self.ranked, lambda candidate: (candidate.session, candidate.exchange), share=share)

    def sessions(self, share: float = 0.6) -> list[Group]:
        """Group the candidates by session, best first."""
        return group_candidates(
            self.ranked, lambda candidate: candidate.session, share=share, session_scores=self.session_scores
        )


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
        self.patience = patience
        """Time limit for embedding a query, in seconds. After that only words are searched."""
        weights, embedder = weights or RankingWeights(), indexer.embedder
        self.weights = weights if embedder is None else weights.with_meaning(embedder.weight)
        self.curve = WORDS_ONLY if embedder is None else calibration_for(embedder.name)

    def find(
        self, query: Query, sessions: Sequence[str], hidden: Mapping[str, Collection[int]] | None = None
    ) -> Ranking:
        """Rank the candidates in these sessions, best first, without hidden entries."""
        search = _SearchState(query, sessions, hidden or {}, find_date_spans(query.text, query.now))
        self._by_words(search)
        self._by_meaning(search)
        self._by_date(search)
        candidates = self._candidates(search)
        ranker = Ranker(candidates, weights=self.weights, curve=self.curve, now=query.now)
        ranked = ranker.ranked()
        best = [ranking.candidate for ranking in ranked[:MAX_RERANKED]]
        entries = self._entries(best)
        # Second pass: phrases and the task need texts, which are read for the best candidates only.
        if reranked := self._match_texts(query, best, entries):
            ranked = ranker.ranked_again(reranked, ranked[MAX_RERANKED:])
        return Ranking(
            ranked=ranked,
            spans=search.spans,
            searched=search.statistics.documents,
            notes=tuple(search.notes),
            session_scores=self._session_scores(search),
            scored=search.scored,
            entries=entries,
        )

    def _by_words(self, search: _SearchState) -> None:
        words, lexicon = self.indexer.words, self.indexer.lexicon
        weights = dict.fromkeys(lexicon.terms(search.query.context), CONTEXT_WEIGHT) if search.query.context else {}
        weights |= dict.fromkeys(lexicon.terms(search.query.text), 1.0)
        for session in search.sessions:
            found = words.statistics(session, list(weights), upto=search.upto(session))
            search.statistics_by_session[session] = found
            search.statistics += found
        # The statistics of all sessions together score every session, so that scores of two sessions are comparable.
        statistics = search.statistics
        rarest = sorted(weights, key=lambda term: (-weights[term], statistics.df.get(term, 0), term))[:_MAX_TERMS]
        search.term_weights = {term: weights[term] for term in rarest}
        best: list[tuple[float, str, int]] = []
        for session in search.sessions:
            search.scored[session] = scored = words.score(session, search.term_weights, statistics)
            hidden = search.hidden.get(session, ())
            best += [(score, session, seq) for seq, score in scored.best(MAX_CANDIDATES, hidden)]
        best.sort(key=lambda match: (-match[0], match[1], -match[2]))
        for _, session, seq in best[:MAX_CANDIDATES]:
            search.propose(session, [seq])

    def _by_meaning(self, search: _SearchState) -> None:
        for position, embedder in enumerate(self.indexer.embedders):
            sessions = [session for session in search.sessions if self.indexer.has_vectors(session, embedder)]
            if not sessions:
                continue
            pieces = passages(search.query.text, limit=_MAX_QUERY_PASSAGES)
            try:
                vectors = [embedder.query(piece, self.patience) for piece in pieces]
                index = self.indexer.vector_index(embedder, self.patience)
            except RectoError as error:
                search.notes.append(str(error))  # words are searched without vectors
                continue
            self._nearest(search, sessions, index, vectors, is_current=position == 0)

    def _nearest(
        self,
        search: _SearchState,
        sessions: Sequence[str],
        index: VectorIndex,
        vectors: Sequence[Matrix],
        *,
        is_current: bool,
    ) -> None:
        cosines: dict[EntryKey, float] = {}
        for session in sessions:
            hidden = search.hidden.get(session, ())
            proposed = {seq for key, seq in search.proposed if key == session}
            for vector in vectors:
                # The second search gives a cosine to what words proposed, even if it is not among the nearest.
                for nearest in (
                    index.nearest(session, vector, MAX_CANDIDATES + len(hidden)),
                    index.nearest(session, vector, len(proposed), only=proposed),
                ):
                    for seq, cosine in nearest.pairs():
                        if seq not in hidden:
                            cosines[session, seq] = max(cosine, cosines.get((session, seq), -1.0))
        best = sorted(cosines, key=lambda key: (-cosines[key], key[0], -key[1]))[:MAX_CANDIDATES]
        for session, seq in best:
            search.propose(session, [seq])
        for key, cosine in cosines.items():
            # If two embedders have a vector of an entry, the current one counts: their cosines are not comparable.
            if key in search.proposed and (is_current or key not in search.cosines):
                search.cosines[key] = cosine

    def _by_date(self, search: _SearchState) -> None:
        """Propose entries of the days named in the query, best words first, even if few words match."""
        for session in search.sessions if search.spans else ():
            attributes = self.indexer.words.attributes(session)
            scored = search.scored[session]
            for span in search.spans:
                seqs = attributes.between(span.start, span.end)
                by_words = sorted((int(seq) for seq in seqs), key=lambda seq: (-scored.of(seq)[0], seq))
                search.propose(session, by_words[: MAX_CANDIDATES // 4])

    def _candidates(self, search: _SearchState) -> list[Candidate]:
        candidates = []
        best = sum(weight * search.statistics.idf(term) for term, weight in search.term_weights.items()) or 1.0
        sessions = {key[0]: None for key in search.proposed}
        attributes = {session: self.indexer.words.attributes(session) for session in sessions}
        openings = {session: table.spoken_by("user") for session, table in attributes.items()}
        for session, seq in search.proposed:
            known = attributes[session].of(seq)
            if known is None:
                continue
            bm25, coverage = search.scored[session].of(seq)
            candidates.append(
                Candidate(
                    session=session,
                    seq=seq,
                    ts=known.ts,
                    role=known.role,
                    marks=known.marks,
                    exchange=_opening_of(openings[session], seq),
                    bm25=bm25,
                    strength=bm25 / best,
                    matched=round(coverage * len(search.term_weights)),
                    cosine=search.cosines.get((session, seq)),
                    passages=min(-(-known.length // _TERMS_PER_PASSAGE), _MAX_PASSAGES) or 1,
                    in_span=any(span.start <= known.ts < span.end for span in search.spans),
                )
            )
        return candidates

    def _match_texts(
        self, query: Query, candidates: Sequence[Candidate], entries: Mapping[EntryKey, Entry]
    ) -> list[Candidate]:
        """Add what only the texts show: phrases of the query and terms of the task. Empty if there are neither."""
        lexicon = self.indexer.lexicon
        task = lexicon.terms(query.task[:_MAX_PHRASE_CHARACTERS]).keys()
        phrases = set(pairwise(lexicon.sequence(query.text)))
        if not phrases and not task:
            return []
        matches: list[tuple[Candidate, set[tuple[int, int]], float]] = []
        for candidate in candidates:
            entry = entries.get((candidate.session, candidate.seq))
            terms = lexicon.sequence(entry_text(entry)[:_MAX_PHRASE_CHARACTERS] if entry is not None else "")
            task_share = len(task & set(terms)) / len(task) if task else 0.0
            matches.append((candidate, phrases.intersection(pairwise(terms)), task_share))
        weights = _phrase_weights([pairs for _, pairs, _ in matches])
        return [
            replace(candidate, phrases=min(sum(map(weights.__getitem__, pairs)), 2.0), task=task_share)
            for candidate, pairs, task_share in matches
        ]

    def _entries(self, candidates: Sequence[Candidate]) -> dict[EntryKey, Entry]:
        """Read the entries of candidates, with one read per session."""
        by_session: dict[str, list[int]] = {}
        for candidate in candidates:
            by_session.setdefault(candidate.session, []).append(candidate.seq)
        return {
            (session, entry.seq): entry
            for session, seqs in by_session.items()
            for entry in self.store.pick(session, seqs)
        }

    def _session_scores(self, search: _SearchState) -> dict[Hashable, float]:
        """Return the BM25 score of each session, taken as one long message; empty for a single session."""
        if len(search.sessions) == 1:
            return {}
        by_session, words = search.statistics_by_session, self.indexer.words
        df = {term: sum(term in statistics.tf for statistics in by_session.values()) for term in search.term_weights}
        average = max(search.statistics.length / len(by_session), 1.0)
        scores: dict[Hashable, float] = {}
        for session, statistics in by_session.items():
            norm = words.k1 * (1 - words.b + words.b * statistics.length / average)
            scores[session] = sum(
                weight * log(1 + (len(by_session) - df[term] + 0.5) / (df[term] + 0.5)) * tf / (tf + norm)
                for term, weight in search.term_weights.items()
                if (tf := statistics.tf.get(term, 0))
            )
        return scores


def _phrase_weights(matches: Sequence[set[tuple[int, int]]]) -> dict[tuple[int, int], float]:
    """Weigh each phrase by its rarity among the candidates; 1 for one that no candidate has."""
    counts = Counter(pair for pairs in matches for pair in pairs)
    unseen = log(1 + (len(matches) + 0.5) / 0.5)
    return {pair: log(1 + (len(matches) - n + 0.5) / (n + 0.5)) / unseen for pair, n in counts.items()}


def _opening_of(openings: NDArray[np.uint32], seq: int) -> int:
    """Return the user message that opened the exchange of an entry: the last one at or before it."""
    at = int(np.searchsorted(openings, seq, side="right"))
    return int(openings[at - 1]) if at else 0
