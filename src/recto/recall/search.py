"""Finds what a question means in one session or several: by words, by meaning, by date, then ranked.

What is found is numbers, scores and the reasons for them. Only of the best candidates the texts are looked at.
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
from recto.formats.entry_text import text_of
from recto.recall.chunking import passages
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
"""Candidates that words and vectors propose each."""
_MAX_TERMS = 64
"""Terms of a long question that are looked for: the rarest ones."""
_MAX_QUERY_PASSAGES = 3
MAX_RERANKED = 50
"""Candidates whose texts are looked at, for phrases of the question and to be shown."""
_MAX_PHRASE_CHARACTERS = 4000
"""Characters of a message that are looked at for them."""
_TERMS_PER_PASSAGE, _MAX_PASSAGES = 90, 6
CONTEXT_WEIGHT = 0.3
"""What a word weighs that stands beside the question and not in it."""

EntryKey: TypeAlias = tuple[str, int]
"""A session and the number of an entry in it."""


@dataclass(slots=True)
class _SearchState:
    """One search at work."""

    asked: Query
    sessions: Sequence[str]
    hidden: Mapping[str, Collection[int]]
    spans: list[DateSpan]
    scored: dict[str, WordScores] = field(default_factory=dict)
    cosines: dict[EntryKey, float] = field(default_factory=dict)
    places: dict[EntryKey, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    query: dict[int, float] = field(default_factory=dict)
    tallies: dict[str, TermStatistics] = field(default_factory=dict)
    tally: TermStatistics = field(default_factory=TermStatistics)
    """Of all sessions together."""

    def upto(self, session: str) -> int:
        """The last entry of a session that counts. The session that asks is the first; only there it is known."""
        return self.asked.before if session == self.sessions[0] else MAX_SEQ

    def propose(self, session: str, seqs: Sequence[int]) -> None:
        hidden = self.hidden.get(session, ())
        last = self.upto(session)
        self.places |= dict.fromkeys((session, int(seq)) for seq in seqs if seq <= last and seq not in hidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """What a search found, best first."""

    ranked: list[Ranked]
    spans: list[DateSpan]
    searched: int
    notes: tuple[str, ...]
    whole: Mapping[Hashable, float]
    """What the words of each session are worth, taken together, where several were searched."""
    scored: Mapping[str, WordScores]
    """What words found in each session."""
    entries: Mapping[EntryKey, Entry]
    """The best candidates, as far as there are entries."""

    def exchanges(self, share: float = 0.6) -> list[Group]:
        """The exchanges that were found, best first."""
        return group_candidates(self.ranked, lambda one: (one.session, one.exchange), share=share)

    def sessions(self, share: float = 0.6) -> list[Group]:
        """The sessions that were found, best first."""
        return group_candidates(self.ranked, lambda one: one.session, share=share, whole=self.whole)


class Searcher:
    """Searches what an indexer has taken in."""

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
        """Seconds that an embedder may take over a question before words alone are searched."""
        given, embedder = weights or RankingWeights(), indexer.embedder
        self.weights = given if embedder is None else given.with_meaning(embedder.weight)
        self.curve = WORDS_ONLY if embedder is None else calibration_for(embedder.name)

    def find(
        self, asked: Query, sessions: Sequence[str], hidden: Mapping[str, Collection[int]] | None = None
    ) -> Ranking:
        """Candidates in these sessions, best first, without the entries that are hidden."""
        search = _SearchState(asked, sessions, hidden or {}, find_date_spans(asked.text, asked.now))
        self._by_words(search)
        self._by_meaning(search)
        self._by_date(search)
        candidates = self._candidates(search)
        ranker = Ranker(candidates, weights=self.weights, curve=self.curve, now=asked.now)
        ranked = ranker.ranked()
        best = [one.candidate for one in ranked[:MAX_RERANKED]]
        entries = self._entries(best)
        if looked_at := self._looked_at(asked, best, entries):
            ranked = ranker.ranked_again(looked_at, ranked[MAX_RERANKED:])
        return Ranking(
            ranked=ranked,
            spans=search.spans,
            searched=search.tally.documents,
            notes=tuple(search.notes),
            whole=self._whole(search),
            scored=search.scored,
            entries=entries,
        )

    def _by_words(self, search: _SearchState) -> None:
        words, lexicon = self.indexer.words, self.indexer.lexicon
        weights = dict.fromkeys(lexicon.terms(search.asked.beside), CONTEXT_WEIGHT) if search.asked.beside else {}
        weights |= dict.fromkeys(lexicon.terms(search.asked.text), 1.0)
        for session in search.sessions:
            search.tallies[session] = words.tally(session, list(weights), upto=search.upto(session))
            search.tally += search.tallies[session]
        tally = search.tally
        rarest = sorted(weights, key=lambda term: (-weights[term], tally.df.get(term, 0), term))[:_MAX_TERMS]
        search.query = {term: weights[term] for term in rarest}
        best: list[tuple[float, str, int]] = []
        for session in search.sessions:
            search.scored[session] = scored = words.score(session, search.query, tally)
            best += [
                (score, session, seq) for seq, score in scored.best(MAX_CANDIDATES, search.hidden.get(session, ()))
            ]
        best.sort(key=lambda one: (-one[0], one[1], -one[2]))
        for _, session, seq in best[:MAX_CANDIDATES]:
            search.propose(session, [seq])

    def _by_meaning(self, search: _SearchState) -> None:
        for place, embedder in enumerate(self.indexer.embedders):
            sessions = [one for one in search.sessions if self.indexer.has_vectors(one, embedder)]
            if not sessions:
                continue
            pieces = passages(search.asked.text, most=_MAX_QUERY_PASSAGES)
            try:
                vectors = [embedder.query(piece, self.patience) for piece in pieces]
                lane = self.indexer.lane_of(embedder, self.patience)
            except RectoError as error:
                search.notes.append(str(error))
                continue
            self._near(search, sessions, lane, vectors, is_current=place == 0)

    def _near(
        self,
        search: _SearchState,
        sessions: Sequence[str],
        lane: VectorIndex,
        vectors: Sequence[Matrix],
        *,
        is_current: bool,
    ) -> None:
        known: dict[EntryKey, float] = {}
        for session in sessions:
            hidden = search.hidden.get(session, ())
            wanted = {seq for where, seq in search.places if where == session}
            for vector in vectors:
                for found in (
                    lane.nearest(session, vector, MAX_CANDIDATES + len(hidden)),
                    lane.nearest(session, vector, len(wanted), only=wanted),
                ):
                    for seq, cosine in found.pairs():
                        if seq not in hidden:
                            known[session, seq] = max(cosine, known.get((session, seq), -1.0))
        best = sorted(known, key=lambda place: (-known[place], place[0], -place[1]))[:MAX_CANDIDATES]
        for session, seq in best:
            search.propose(session, [seq])
        for place, cosine in known.items():
            # Where two embedders know an entry, the one in use counts: likeness of two kinds is not compared.
            if place in search.places and (is_current or place not in search.cosines):
                search.cosines[place] = cosine

    def _by_date(self, search: _SearchState) -> None:
        """Entries of the days that are meant, the best by words first, even where the words say little else."""
        for session in search.sessions if search.spans else ():
            facts = self.indexer.words.facts(session)
            scored = search.scored[session]
            for span in search.spans:
                seqs = facts.between(span.start, span.end)
                by_words = sorted((int(seq) for seq in seqs), key=lambda seq: (-scored.of(seq)[0], seq))
                search.propose(session, by_words[: MAX_CANDIDATES // 4])

    def _candidates(self, search: _SearchState) -> list[Candidate]:
        found = []
        best = sum(weight * search.tally.idf(term) for term, weight in search.query.items()) or 1.0
        sessions = {place[0]: None for place in search.places}
        facts = {session: self.indexer.words.facts(session) for session in sessions}
        openings = {session: known.spoken_by("user") for session, known in facts.items()}
        uses = {session: self.indexer.uses.counts(session, before=search.upto(session)) for session in sessions}
        for session, seq in search.places:
            known = facts[session].of(seq)
            if known is None:
                continue
            bm25, coverage = search.scored[session].of(seq)
            shown, used = uses[session].get(seq, (0, 0))
            found.append(
                Candidate(
                    session=session,
                    seq=seq,
                    ts=known.ts,
                    role=known.role,
                    marks=known.marks,
                    exchange=_opening_of(openings[session], seq),
                    bm25=bm25,
                    strength=bm25 / best,
                    matched=round(coverage * len(search.query)),
                    cosine=search.cosines.get((session, seq)),
                    passages=min(-(-known.length // _TERMS_PER_PASSAGE), _MAX_PASSAGES) or 1,
                    shown=shown,
                    used=used,
                    in_span=any(span.start <= known.ts < span.end for span in search.spans),
                )
            )
        return found

    def _looked_at(
        self, asked: Query, candidates: Sequence[Candidate], entries: Mapping[EntryKey, Entry]
    ) -> list[Candidate]:
        """The candidates with what only their texts tell: phrases of the question, and words of the task."""
        lexicon = self.indexer.lexicon
        wanted, task = (
            set(pairwise(lexicon.sequence(asked.text))),
            lexicon.terms(asked.task[:_MAX_PHRASE_CHARACTERS]).keys(),
        )
        if not wanted and not task:
            return []
        has: list[tuple[Candidate, set[tuple[int, int]], float]] = []
        for one in candidates:
            entry = entries.get((one.session, one.seq))
            said = lexicon.sequence(text_of(entry)[:_MAX_PHRASE_CHARACTERS] if entry is not None else "")
            serves = len(task & set(said)) / len(task) if task else 0.0
            has.append((one, wanted.intersection(pairwise(said)), serves))
        worth = _phrase_weights([pairs for _, pairs, _ in has])
        return [
            replace(one, phrases=min(sum(map(worth.__getitem__, pairs)), 2.0), task=serves)
            for one, pairs, serves in has
        ]

    def _entries(self, candidates: Sequence[Candidate]) -> dict[EntryKey, Entry]:
        """The entries of candidates; those of a session are read together."""
        wanted: dict[str, list[int]] = {}
        for one in candidates:
            wanted.setdefault(one.session, []).append(one.seq)
        return {
            (session, entry.seq): entry for session, seqs in wanted.items() for entry in self.store.pick(session, seqs)
        }

    def _whole(self, search: _SearchState) -> dict[Hashable, float]:
        """What the words of each session are worth, taken together as one long message."""
        if len(search.sessions) == 1:
            return {}
        tallies, words = search.tallies, self.indexer.words
        holding = {term: sum(term in tally.tf for tally in tallies.values()) for term in search.query}
        average = max(search.tally.length / len(tallies), 1.0)
        found: dict[Hashable, float] = {}
        for session, tally in tallies.items():
            norm = words.k1 * (1 - words.b + words.b * tally.length / average)
            found[session] = sum(
                weight * log(1 + (len(tallies) - holding[term] + 0.5) / (holding[term] + 0.5)) * tf / (tf + norm)
                for term, weight in search.query.items()
                if (tf := tally.tf.get(term, 0))
            )
        return found


def _phrase_weights(found: Sequence[set[tuple[int, int]]]) -> dict[tuple[int, int], float]:
    """What each phrase is worth: the rarer among the candidates, the more; 1 if no other had it."""
    often = Counter(pair for pairs in found for pair in pairs)
    unseen = log(1 + (len(found) + 0.5) / 0.5)
    return {pair: log(1 + (len(found) - n + 0.5) / (n + 0.5)) / unseen for pair, n in often.items()}


def _opening_of(openings: NDArray[np.uint32], seq: int) -> int:
    """The exchange an entry belongs to: the last user message at or before it."""
    at = int(np.searchsorted(openings, seq, side="right"))
    return int(openings[at - 1]) if at else 0
