"""From what a search found to the messages that are shown: the best, each once, with what belongs to them.

The output of a call comes with the call, and a statement that was taken back later never comes alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cache

from recto.context.facts.classifier import supersession_score
from recto.context.facts.types import Mark
from recto.formats.entry_text import text_of
from recto.recall.neighbors import Neighborhood
from recto.recall.protocols import Authority
from recto.recall.ranking import Candidate, Ranked
from recto.recall.search import MAX_RERANKED, EntryKey, Ranking, Searcher
from recto.recall.types import Hit
from recto.text.similarity import cosine, text_vector
from recto.transcript.entries import MAX_SEQ, MESSAGE, Entry
from recto.transcript.session_keys import pointer_to

_MAX_CORRECTIONS = 50
"""Corrections, newest first, that are held against what was found."""
_MIN_SUPERSEDES = 0.5
_DUPLICATE_SIMILARITY = 0.95
"""Likeness, word for word, from which on two texts are one."""
_SIMILAR_FORM = 0.6
"""Likeness from which on two short texts have one form: the same said, or asked, of something else."""
_MAX_SHORT_CHARACTERS = 400
"""Characters of such a text."""
_MAX_SIMILAR_HITS = 2
"""Of so many that are alike the next one comes later: what is said every day would leave no room for anything else."""
_SIMILAR_PENALTY = -1.0
"""What each further one weighs less."""


class MessageReader:
    """The messages that may be shown: of a store, without memory that nobody stands for any more."""

    def __init__(self, searcher: Searcher, authority: Authority | None) -> None:
        self.indexer = searcher.indexer
        self.store = searcher.store
        self._authority = authority

    def at(self, session: str, seq: int) -> Entry | None:
        """The message at a place; None where there is none that may be shown."""
        return self.shown(next(iter(self.store.read(session, seq, seq)), None))

    def shown(self, entry: Entry | None) -> Entry | None:
        """The entry, if it is a message that may be shown."""
        # Memory that was retired, or has no page any more, is not brought back.
        if entry is None or entry.kind != MESSAGE or self.note(entry.session, entry.seq) is None:
            return None
        return entry

    def note(self, session: str, seq: int) -> str | None:
        """What must be known beside a message that is memory, nothing for any other; None where it must not come."""
        return self._authority.note(session, seq) if self._authority is not None else ""


class Selection:
    """One choice among what one search found."""

    def __init__(
        self,
        messages: MessageReader,
        ranking: Ranking,
        session: str,
        *,
        taken_back: float,
        upto: int,
        shown: Collection[int],
        hidden: Collection[int],
    ) -> None:
        """`taken_back` is what a hit weighs less that was. `hidden` messages of the session come along with none.

        What came after entry `upto` of the session belongs to none either.
        """
        self._messages = messages
        self._ranking = ranking
        self._session = session
        self._taken_back = taken_back
        self._upto = upto
        self._shown = shown
        self._hidden = hidden
        self._ranked = {_key_of(one.candidate): one for one in ranking.ranked}
        # Asked for once and not for each hit: each time is a question to the index, and many hits are of one session.
        self._facts = cache(messages.indexer.words.facts)

    def hits(self, most: int, *, alone: bool) -> list[Hit]:
        """The best. A session `alone` has nothing of others but what was approved as memory."""
        taken = _ChosenHits()
        for ranked in self._ranking.ranked[:MAX_RERANKED]:
            if taken.in_place >= most:
                break
            hit = taken.add(self._hit_of(ranked, alone=alone))
            output = self._output_of(replace(ranked, score=hit.score)) if hit is not None else None
            if output is not None:
                taken.add(self._hit_of(output, alone=alone))
        return self._with_corrections(taken.best(most))

    def _hit_of(self, ranked: Ranked, *, alone: bool) -> Hit | None:
        entry = self._entry_of(ranked.candidate)
        hit = self._hit(entry, ranked) if entry is not None else None
        return None if hit is None or (alone and hit.session != self._session and not hit.note) else hit

    def _output_of(self, ranked: Ranked) -> Ranked | None:
        session, around = ranked.candidate.session, self._around(ranked.candidate.session)
        seq = around.output_of(ranked.candidate, self._hidden_of(session))
        if seq is None:
            return None
        own = self._ranked.get((session, seq))
        # What stands higher by itself needs nobody to come with.
        return around.along(ranked, seq, own) if own is None or own.score <= ranked.score else None

    def _entry_of(self, one: Candidate) -> Entry | None:
        held = self._ranking.entries.get(_key_of(one))
        return self._messages.shown(held) if held is not None else self._messages.at(one.session, one.seq)

    def _hit(self, entry: Entry, ranked: Ranked) -> Hit:
        return Hit(
            session=entry.session,
            seq=entry.seq,
            pointer=pointer_to(entry.session, entry.seq),
            role=entry.role,
            ts=entry.ts,
            text=text_of(entry),
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
        return Neighborhood(self._facts(session), self._ranking.scored[session], upto)

    def _hidden_of(self, session: str) -> Collection[int]:
        return self._hidden if session == self._session else ()

    def _with_corrections(self, hits: list[Hit]) -> list[Hit]:
        """Each statement that was taken back stands behind what took it back, found or not."""
        known = {(hit.session, hit.seq): hit for hit in hits}
        corrections = self._corrections_after(hits)
        for hit in hits:
            said = corrections[hit.session]
            takes_back = (
                one for one, text in said if one.seq > hit.seq and supersession_score(text, hit.text) >= _MIN_SUPERSEDES
            )
            correction = next(takes_back, None)
            if correction is None:
                continue
            if correction.session == self._session and correction.seq in self._hidden:
                del known[hit.session, hit.seq]  # the prompt says it right already
                continue
            later = known.get((correction.session, correction.seq)) or self._correcting(hit, correction)
            known[later.session, later.seq] = replace(
                later,
                score=max(later.score, hit.score),
                chance=max(later.chance, hit.chance),
                supersedes=(*later.supersedes, hit.seq),
            )
            lowered = _penalized(known[hit.session, hit.seq], "taken back", self._taken_back)
            known[hit.session, hit.seq] = replace(lowered, superseded_by=correction.seq)
        return sorted(
            known.values(), key=lambda hit: (-hit.score, hit.superseded_by is not None, hit.session, -hit.seq)
        )

    def _correcting(self, hit: Hit, correction: Entry) -> Hit:
        """A correction that was not among the best: as high up as what it takes back, or by what it has itself."""
        own = self._ranked.get((correction.session, correction.seq))
        if own is None:
            known = self._facts(correction.session).of(correction.seq)
            marks = known.marks if known is not None else Mark.CORRECTION
            one = Candidate(
                session=correction.session, seq=correction.seq, ts=correction.ts, role=correction.role, marks=marks
            )
            own = Ranked(candidate=one, score=hit.score, chance=hit.chance, parts=hit.parts)
        return self._hit(correction, replace(own, parts={**own.parts, "takes back": 0.0}))

    def _corrections_after(self, hits: Sequence[Hit]) -> dict[str, list[tuple[Entry, str]]]:
        """What the user took back after the first of these in each session, newest first, with the texts."""
        first: dict[str, int] = {}
        for hit in hits:
            first[hit.session] = min(hit.seq, first.get(hit.session, hit.seq))
        found = {}
        for session, seq in first.items():
            marked = self._facts(session).marked(Mark.CORRECTION, after=seq)[:_MAX_CORRECTIONS].tolist()
            read = self._messages.store.pick(session, marked) if marked else []
            shown = (self._messages.shown(entry) for entry in reversed(read))
            found[session] = [(one, text_of(one)) for one in shown if one is not None and one.role == "user"]
        return found


def _key_of(one: Candidate) -> EntryKey:
    return one.session, one.seq


def _penalized(hit: Hit, why: str, by: float) -> Hit:
    return replace(hit, score=hit.score + by, parts={**hit.parts, why: by})


class _ChosenHits:
    """The hits that were chosen so far, each once, no form too often."""

    def __init__(self) -> None:
        self._hits: dict[EntryKey, Hit] = {}
        self._seen = _SeenTexts()
        self.in_place = 0
        """How many stand where their scores put them."""

    def add(self, hit: Hit | None) -> Hit | None:
        """The hit as it was taken; None where there is none, or where it is there already."""
        if hit is None or (hit.session, hit.seq) in self._hits:
            return None
        alike = self._seen.alike(hit.text)
        if alike is None:
            if hit.note:  # what was approved stands for what was only said
                self._hits = {place: hit if one.text == hit.text else one for place, one in self._hits.items()}
            return None
        if alike < _MAX_SIMILAR_HITS:
            self.in_place += 1
        else:
            hit = _penalized(hit, "much alike", _SIMILAR_PENALTY * (alike - _MAX_SIMILAR_HITS + 1))
        self._hits[hit.session, hit.seq] = hit
        return hit

    def best(self, most: int) -> list[Hit]:
        """The best of them."""
        return sorted(self._hits.values(), key=lambda hit: (-hit.score, hit.session, -hit.seq))[:most]


class _SeenTexts:
    """The texts that were found already, for telling the same one again, and one of the same form.

    Short texts are held against all short ones at once, by what they have in common; a long one is taken apart only
    where another is about as long.
    """

    def __init__(self) -> None:
        self._short = _ShortTexts()
        self._long: list[str] = []
        self._vector = cache(text_vector)

    def alike(self, text: str) -> int | None:
        """How many of them have its form; None where it is one of them, word for word or nearly so.

        If it is not, it is one of them from now on.
        """
        if len(text) <= _MAX_SHORT_CHARACTERS:
            return self._short.alike(text)
        if any(self._are_same(text, other) for other in self._long):
            return None
        self._long.append(text)
        return 0

    def _are_same(self, one: str, other: str) -> bool:
        if one == other or not _similar_length(one, other):
            return one == other
        return cosine(self._vector(one), self._vector(other)) >= _DUPLICATE_SIMILARITY


class _ShortTexts:
    """The short ones among them."""

    def __init__(self) -> None:
        self._texts = set[str]()
        self._having: dict[int, list[tuple[str, float]]] = {}
        """By feature: the texts that have it, and what it weighs there."""

    def alike(self, text: str) -> int | None:
        features = text_vector(text)
        likeness: dict[str, float] = {}
        for feature, weight in features.items():
            for other, its in self._having.get(feature, ()):
                likeness[other] = likeness.get(other, 0.0) + weight * its
        if text in self._texts or any(
            one >= _DUPLICATE_SIMILARITY and _similar_length(text, it) for it, one in likeness.items()
        ):
            return None
        self._texts.add(text)
        for feature, weight in features.items():
            self._having.setdefault(feature, []).append((text, weight))
        return sum(one >= _SIMILAR_FORM for one in likeness.values())


def _similar_length(one: str, other: str) -> bool:
    shorter, longer = sorted((len(one), len(other)))
    return shorter > _DUPLICATE_SIMILARITY * longer
