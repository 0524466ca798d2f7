"""Selects the messages to show from a ranking: the best ones without duplicates, with related messages.

The output of a tool call is placed next to the call, and a corrected statement always comes with its correction.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from recto.context.facts.classifier import supersession_score
from recto.context.facts.types import Mark
from recto.formats.entry_text import entry_text
from recto.recall.index.attributes import ROLES, AttributeTable
from recto.recall.index.bm25 import WordScores
from recto.recall.protocols import Authority
from recto.recall.ranking import Candidate, Ranked
from recto.recall.search import MAX_RERANKED, EntryKey, Ranking, Searcher
from recto.recall.types import Hit
from recto.text.similarity import cosine, text_vector
from recto.transcript.entries import MAX_SEQ, MESSAGE, Entry
from recto.transcript.session_keys import pointer_to

_MAX_QUESTION_DISTANCE = 16
"""Largest distance of a question from its answer: one that is further away says little about it."""
_MAX_LOOK_AHEAD = 64
"""Messages after a hit that are searched for its answer or output."""
_MIN_OUTPUT_SHARE = 0.25
"""Minimum word score of an output, as a share of the score of the user message that led to it."""


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """The messages of one session around the hits of a search."""

    attributes: AttributeTable
    scores: WordScores
    upto: int
    """Entries after this one are ignored, so that repeating a query gives the same result."""

    def context_of(self, candidate: Candidate, hidden: Collection[int]) -> tuple[int, ...]:
        """Return the question of an answer or output, or the answer to a question, unless hidden."""
        if candidate.role == "user":
            exchange = list(self._following(candidate.seq))
            if not 0 < len(exchange) < _MAX_LOOK_AHEAD:
                return ()
            last, role = exchange[-1]
            return (last,) if role == "assistant" and last not in hidden else ()
        is_near = 0 < candidate.exchange < candidate.seq <= candidate.exchange + _MAX_QUESTION_DISTANCE
        return (candidate.exchange,) if is_near and candidate.exchange not in hidden else ()

    def output_of(self, candidate: Candidate, hidden: Collection[int]) -> int | None:
        """Return the tool output that belongs to a message: of a call it makes, or of a call it led to.

        The tools that a user message led to may have been about anything, so such an output must match the query.
        """
        outputs: list[int] = []
        for seq, role in self._following(candidate.seq) if candidate.role in {"user", "assistant"} else ():
            if role == "tool":
                outputs.append(seq)
            elif candidate.role == "assistant":
                break
        best = max((seq for seq in outputs if seq not in hidden), key=self._word_score, default=None)
        if best is None or (candidate.role == "user" and self._word_score(best) <= _MIN_OUTPUT_SHARE * candidate.bm25):
            return None
        return best

    def rank_with(self, parent: Ranked, seq: int, own: Ranked | None) -> Ranked | None:
        """Rank an output as high as the message it belongs to; `own` is its own rank, if the search returned it."""
        if own is None:
            known = self.attributes.of(seq)
            if known is None:
                return None
            session, exchange = parent.candidate.session, parent.candidate.exchange
            candidate = Candidate(
                session=session, seq=seq, ts=known.ts, role=known.role, marks=known.marks, exchange=exchange
            )
            own = Ranked(candidate=candidate, score=0.0, chance=0.0, parts={})
        parts = {**own.parts, "comes along": parent.score - own.score}
        # The score is assigned and not summed from the parts: it must equal the parent's to the last bit, so that
        # rounding does not decide their order.
        return replace(own, score=parent.score, chance=max(own.chance, parent.chance), parts=parts)

    def _following(self, seq: int) -> Iterator[tuple[int, str]]:
        """Yield the messages after a message in its exchange, up to the look-ahead limit."""
        seqs, roles = self.attributes.seqs, self.attributes.roles
        start = int(seqs.searchsorted(seq, side="right"))
        end = start + _MAX_LOOK_AHEAD
        for later, role in zip(seqs[start:end].tolist(), roles[start:end].tolist(), strict=True):
            if ROLES[role] == "user" or later > self.upto:
                return
            yield later, ROLES[role]

    def _word_score(self, seq: int) -> float:
        return self.scores.of(seq)[0]


_MAX_CORRECTIONS = 50
"""Corrections, newest first, that are compared with the hits."""
_MIN_SUPERSEDES = 0.5
"""Minimum score of `supersession_score` for a correction to count."""
_DUPLICATE_SIMILARITY = 0.95
"""Word similarity from which two texts are duplicates."""
_SIMILAR_FORM = 0.6
"""Word similarity from which two short texts have the same form: the same statement about something else."""
_MAX_SHORT_CHARACTERS = 400
"""Longest text that counts as short."""
_MAX_SIMILAR_HITS = 2
"""Penalise near-duplicate hits after this many, so that boilerplate messages do not crowd out other results."""
_SIMILAR_PENALTY = -1.0
"""Score penalty of each further one."""


class MessageReader:
    """Reads messages from the store, skipping retired or unapproved memory."""

    def __init__(self, searcher: Searcher, authority: Authority | None) -> None:
        self.indexer = searcher.indexer
        self.store = searcher.store
        self._authority = authority

    def at(self, session: str, seq: int) -> Entry | None:
        """Return a message; None if there is none that may be shown."""
        return self.shown(next(iter(self.store.read(session, seq, seq)), None))

    def shown(self, entry: Entry | None) -> Entry | None:
        """Return the entry if it is a message that may be shown."""
        # The authority returns None for memory that was retired or whose page no longer exists.
        if entry is None or entry.kind != MESSAGE or self.note(entry.session, entry.seq) is None:
            return None
        return entry

    def note(self, session: str, seq: int) -> str | None:
        """Return the caption of a memory, an empty text for other messages, None for one that must not be shown."""
        return self._authority.note(session, seq) if self._authority is not None else ""


class Selection:
    """Selects hits from the ranking of one search."""

    def __init__(
        self,
        messages: MessageReader,
        ranking: Ranking,
        session: str,
        *,
        superseded_weight: float,
        upto: int,
        shown: Collection[int],
        hidden: Collection[int],
    ) -> None:
        """Prepare a selection.

        Args:
            messages: reads the candidates.
            ranking: result of the search.
            session: session of the query.
            superseded_weight: added to the score of a corrected statement.
            upto: entries of the session after this one are ignored.
            shown: entries of the session that are in the prompt.
            hidden: entries of the session that must not be added, neither as hits nor as context.
        """
        self._messages = messages
        self._ranking = ranking
        self._session = session
        self._superseded_weight = superseded_weight
        self._upto = upto
        self._shown = shown
        self._hidden = hidden
        self._ranked = {_key_of(ranked.candidate): ranked for ranked in ranking.ranked}
        # Cached because every call reads the index, and many hits belong to the same session.
        self._attributes = cache(messages.indexer.words.attributes)

    def hits(self, limit: int, *, own_session_only: bool) -> list[Hit]:
        """Return the best hits. With `own_session_only` other sessions contribute approved memory only."""
        chosen = _ChosenHits()
        for ranked in self._ranking.ranked[:MAX_RERANKED]:
            if chosen.in_place >= limit:
                break
            hit = chosen.add(self._hit_of(ranked, own_session_only=own_session_only))
            output = self._output_of(replace(ranked, score=hit.score)) if hit is not None else None
            if output is not None:
                chosen.add(self._hit_of(output, own_session_only=own_session_only))
        return self._with_corrections(chosen.best(limit))

    def _hit_of(self, ranked: Ranked, *, own_session_only: bool) -> Hit | None:
        entry = self._entry_of(ranked.candidate)
        hit = self._hit(entry, ranked) if entry is not None else None
        is_foreign = hit is not None and own_session_only and hit.session != self._session and not hit.note
        return None if is_foreign else hit

    def _output_of(self, ranked: Ranked) -> Ranked | None:
        session, around = ranked.candidate.session, self._around(ranked.candidate.session)
        seq = around.output_of(ranked.candidate, self._hidden_of(session))
        if seq is None:
            return None
        own = self._ranked.get((session, seq))
        # An output that ranks higher on its own is selected on its own.
        return around.rank_with(ranked, seq, own) if own is None or own.score <= ranked.score else None

    def _entry_of(self, candidate: Candidate) -> Entry | None:
        entry = self._ranking.entries.get(_key_of(candidate))
        if entry is not None:
            return self._messages.shown(entry)
        return self._messages.at(candidate.session, candidate.seq)

    def _hit(self, entry: Entry, ranked: Ranked) -> Hit:
        return Hit(
            session=entry.session,
            seq=entry.seq,
            pointer=pointer_to(entry.session, entry.seq),
            role=entry.role,
            ts=entry.ts,
            text=entry_text(entry),
            score=ranked.score,
            chance=ranked.chance,
            parts=dict(ranked.parts),
            marks=ranked.candidate.marks,
            in_prompt=entry.session == self._session and entry.seq in self._shown,
            note=self._messages.note(entry.session, entry.seq) or "",
            context=self._around(entry.session).context_of(ranked.candidate, self._hidden_of(entry.session)),
        )

    def _around(self, session: str) -> Neighborhood:
        upto = self._upto if session == self._session else MAX_SEQ
        return Neighborhood(self._attributes(session), self._ranking.scored[session], upto)

    def _hidden_of(self, session: str) -> Collection[int]:
        return self._hidden if session == self._session else ()

    def _with_corrections(self, hits: list[Hit]) -> list[Hit]:
        """Put every corrected statement after its correction, and add corrections that the search did not return."""
        by_key = {(hit.session, hit.seq): hit for hit in hits}
        corrections = self._corrections_after(hits)
        for hit in hits:
            superseding = (
                entry
                for entry, text in corrections[hit.session]
                if entry.seq > hit.seq and supersession_score(text, hit.text) >= _MIN_SUPERSEDES
            )
            correction = next(superseding, None)
            if correction is None:
                continue
            if correction.session == self._session and correction.seq in self._hidden:
                del by_key[hit.session, hit.seq]  # the prompt contains the correction already
                continue
            later = by_key.get((correction.session, correction.seq)) or self._correcting(hit, correction)
            by_key[later.session, later.seq] = replace(
                later,
                score=max(later.score, hit.score),
                chance=max(later.chance, hit.chance),
                supersedes=(*later.supersedes, hit.seq),
            )
            lowered = _penalized(by_key[hit.session, hit.seq], "taken back", self._superseded_weight)
            by_key[hit.session, hit.seq] = replace(lowered, superseded_by=correction.seq)
        return sorted(
            by_key.values(), key=lambda hit: (-hit.score, hit.superseded_by is not None, hit.session, -hit.seq)
        )

    def _correcting(self, hit: Hit, correction: Entry) -> Hit:
        """Make a hit of a correction that was not selected: with its own rank, else with that of the corrected hit."""
        own = self._ranked.get((correction.session, correction.seq))
        if own is None:
            known = self._attributes(correction.session).of(correction.seq)
            marks = known.marks if known is not None else Mark.CORRECTION
            candidate = Candidate(
                session=correction.session, seq=correction.seq, ts=correction.ts, role=correction.role, marks=marks
            )
            own = Ranked(candidate=candidate, score=hit.score, chance=hit.chance, parts=hit.parts)
        return self._hit(correction, replace(own, parts={**own.parts, "takes back": 0.0}))

    def _corrections_after(self, hits: Sequence[Hit]) -> dict[str, list[tuple[Entry, str]]]:
        """Return the user's corrections after the first hit of each session, newest first, with their texts."""
        first: dict[str, int] = {}
        for hit in hits:
            first[hit.session] = min(hit.seq, first.get(hit.session, hit.seq))
        corrections = {}
        for session, seq in first.items():
            marked = self._attributes(session).marked(Mark.CORRECTION, after=seq)[:_MAX_CORRECTIONS].tolist()
            entries = self._messages.store.pick(session, marked) if marked else []
            shown = (self._messages.shown(entry) for entry in reversed(entries))
            corrections[session] = [
                (entry, entry_text(entry)) for entry in shown if entry is not None and entry.role == "user"
            ]
        return corrections


def _key_of(candidate: Candidate) -> EntryKey:
    return candidate.session, candidate.seq


def _penalized(hit: Hit, why: str, by: float) -> Hit:
    return replace(hit, score=hit.score + by, parts={**hit.parts, why: by})


class _ChosenHits:
    """The hits selected so far, without duplicates and with a penalty on repeated forms."""

    def __init__(self) -> None:
        self._hits: dict[EntryKey, Hit] = {}
        self._seen = _SeenTexts()
        self.in_place = 0
        """Number of hits without a penalty."""

    def add(self, hit: Hit | None) -> Hit | None:
        """Add a hit and return it with its penalty; None if there is none or if it is a duplicate."""
        if hit is None or (hit.session, hit.seq) in self._hits:
            return None
        similar = self._seen.count_similar(hit.text)
        if similar is None:
            if hit.note:  # approved memory replaces the message it was made from
                self._hits = {key: hit if other.text == hit.text else other for key, other in self._hits.items()}
            return None
        if similar < _MAX_SIMILAR_HITS:
            self.in_place += 1
        else:
            hit = _penalized(hit, "much alike", _SIMILAR_PENALTY * (similar - _MAX_SIMILAR_HITS + 1))
        self._hits[hit.session, hit.seq] = hit
        return hit

    def best(self, limit: int) -> list[Hit]:
        """Return the best hits."""
        return sorted(self._hits.values(), key=lambda hit: (-hit.score, hit.session, -hit.seq))[:limit]


class _SeenTexts:
    """The texts selected so far, to detect duplicates and repeated forms.

    A short text is compared with all short ones at once through an inverted index. A long text is only compared with
    texts of about the same length, because its features are expensive to compute.
    """

    def __init__(self) -> None:
        self._short = _ShortTexts()
        self._long: list[str] = []
        self._vector = cache(text_vector)

    def count_similar(self, text: str) -> int | None:
        """Add a text and return how many texts have its form; None, without adding it, if it is a duplicate."""
        if len(text) <= _MAX_SHORT_CHARACTERS:
            return self._short.count_similar(text)
        if any(self._are_duplicates(text, other) for other in self._long):
            return None
        self._long.append(text)
        return 0

    def _are_duplicates(self, text: str, other: str) -> bool:
        if text == other or not _similar_length(text, other):
            return text == other
        return cosine(self._vector(text), self._vector(other)) >= _DUPLICATE_SIMILARITY


class _ShortTexts:
    """Short texts with an inverted index of their features."""

    def __init__(self) -> None:
        self._texts = set[str]()
        self._by_feature: dict[int, list[tuple[str, float]]] = {}
        """The texts that have a feature, and its weight in each."""

    def count_similar(self, text: str) -> int | None:
        """Add a text and return how many texts have its form; None, without adding it, if it is a duplicate."""
        features = text_vector(text)
        similarity: dict[str, float] = {}
        for feature, weight in features.items():
            for other, other_weight in self._by_feature.get(feature, ()):
                similarity[other] = similarity.get(other, 0.0) + weight * other_weight
        if text in self._texts or any(
            value >= _DUPLICATE_SIMILARITY and _similar_length(text, other) for other, value in similarity.items()
        ):
            return None
        self._texts.add(text)
        for feature, weight in features.items():
            self._by_feature.setdefault(feature, []).append((text, weight))
        return sum(value >= _SIMILAR_FORM for value in similarity.values())


def _similar_length(text: str, other: str) -> bool:
    shorter, longer = sorted((len(text), len(other)))
    return shorter > _DUPLICATE_SIMILARITY * longer
