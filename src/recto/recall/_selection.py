"""Selects the messages to show from a ranking: the best ones without duplicates, with related messages.

The output of a tool call is placed next to the call, and a corrected statement always comes with its correction.
Messages are compared by their terms; texts are read of those that are shown, and to confirm a duplicate.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from recto.context.facts.classifier import RELOCATION, supersession_score
from recto.context.facts.grounding import fold_words
from recto.context.facts.types import Mark
from recto.formats.entry_text import entry_text
from recto.recall._term_sets import EntryKey, TermSet, TermSets, shared_terms, similarities
from recto.recall.protocols import Authority
from recto.recall.search import MAX_RANKED, Ranked, Ranking, SearchedSession, Searcher
from recto.recall.term_rows import ROLES
from recto.recall.types import Hit
from recto.text.lazy_re import lazy_re
from recto.text.similarity import cosine, text_vector
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import pointer_to

_NO_TERMS = np.empty(0, np.uint32)
_USER, _ASSISTANT, _TOOL = (ROLES.index(role) for role in ("user", "assistant", "tool"))
_MAX_QUESTION_DISTANCE = 16
"""Largest distance of a question from its answer: one that is further away says little about it."""
_MAX_LOOK_AHEAD = 64
"""Messages after a hit that are searched for its answer or output."""
_MIN_OUTPUT_SHARE = 0.25
"""Minimum word score of an output, as a share of the score of the user message that led to it."""
_MAX_CORRECTIONS = 50
"""Corrections, newest first, that are compared with the hits."""
_MIN_SUPERSEDES = 0.5
"""Minimum score of `supersession_score` for a correction to count."""
_MIN_SUPERSEDES_CLAUSE = 0.9
"""The same for one clause of a message: a few words are soon alike."""
_MAX_CLAUSES_CHARACTERS = 600
"""Length of a message up to which its clauses are compared with corrections one by one."""
_CLAUSE_END = lazy_re(r"[.;:!?]\s+|\n+|,\s+(?:and|but|so|und|aber|et|mais|y|pero)\s+|[。；！？]")
_MAYBE_DUPLICATES = 0.9
"""Share of common terms from which the texts of two messages are compared."""
_DUPLICATE_SIMILARITY = 0.95
"""Word similarity from which two texts are duplicates."""
_MAX_VECTORS = 256
"""Texts whose features are kept, because the same messages are found for many questions."""
_SIMILAR_FORM = 0.55
"""Share of common terms from which two short messages have the same form: the same statement about something else."""
_MAX_SHORT_TERMS = 50
"""Most distinct terms of a message that counts as short."""
_MAX_SIMILAR_HITS = 2
"""Penalise near-duplicate hits after this many, so that boilerplate messages do not crowd out other results."""
_SIMILAR_PENALTY = -1.0
"""Score penalty of each further one."""


class MessageReader:
    """Reads messages from the store, skipping retired or unapproved memory."""

    def __init__(self, searcher: Searcher, authority: Authority | None) -> None:
        self.terms: TermSets = searcher.terms
        self.lexicon = searcher.indexer.lexicon
        self.vector_of = lru_cache(_MAX_VECTORS)(text_vector)
        self._store = searcher.store
        self._authority = authority

    def read(self, keys: Collection[EntryKey]) -> dict[EntryKey, Entry]:
        """Read the messages that may be shown, with one read per session."""
        by_session: dict[str, list[int]] = {}
        for session, seq in dict.fromkeys(keys):
            by_session.setdefault(session, []).append(seq)
        entries = {
            (session, entry.seq): entry
            for session, seqs in by_session.items()
            for entry in self._store.pick(session, seqs)
        }
        # The authority returns None for memory that was retired or whose page no longer exists.
        return {key: entry for key, entry in entries.items() if entry.kind == MESSAGE and self.note(*key) is not None}

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
        shown: Collection[int],
        hidden: Collection[int],
        query: str,
    ) -> None:
        """Prepare a selection.

        Args:
            messages: reads the candidates.
            ranking: result of the search.
            session: session of the query.
            superseded_weight: added to the score of a corrected statement.
            shown: entries of the session that are in the prompt.
            hidden: entries of the session that must not be added, neither as hits nor as context.
            query: what was searched for, if a message that says the same is no hit; else empty.
        """
        self._messages = messages
        self._ranking = ranking
        self._session = session
        self._superseded_weight = superseded_weight
        self._shown = shown
        self._hidden = hidden
        self._query = fold_words(query)
        self._sessions = {one.key: one for one in ranking.sessions}

    def hits(self, limit: int, *, own_session_only: bool) -> list[Hit]:
        """Return the best hits. With `own_session_only` other sessions contribute approved memory only."""
        best = [
            ranked
            for ranked in self._ranking.best(MAX_RANKED)
            if not (own_session_only and ranked.session != self._session)
            or self._messages.note(ranked.session, ranked.seq)
        ]
        outputs = self._outputs_of(best)
        keys = [*map(_key_of, best), *((key[0], seq) for key, seq in outputs.items())]
        entries = self._messages.read(keys)
        answers = self._answers_of([one for one in best if self._repeats_query(entries.get(_key_of(one)))])
        entries |= self._messages.read([(key[0], seq) for key, seq in answers.items() if seq])
        sets = dict(self._ranking.term_sets)
        sets |= self._messages.terms.of([key for key in entries if key not in sets])
        own = {
            (session.key, seq): ranked
            for session in self._ranking.sessions
            if (seqs := [seq for key, seq in outputs.items() if key[0] == session.key])
            for seq, ranked in self._ranking.find(session.key, seqs).items()
        }
        chosen = _Chosen(entries, sets, self._messages)
        for ranked in best:
            if chosen.in_place >= limit:
                break
            if (answer := answers.get(_key_of(ranked))) is not None:
                # The query was asked before: the answer of that time is a hit, the question is none.
                found = self._ranking.find(ranked.session, [answer]).get(answer)
                if answer and (in_place := self._rank_with(ranked, answer, found)) is not None:
                    chosen.add(in_place)
                continue
            added = chosen.add(ranked)
            if added is not None and (seq := outputs.get(_key_of(ranked))) is not None:
                output = self._rank_with(added, seq, own.get((added.session, seq)))
                if output is not None:
                    chosen.add(output)
        return self._with_corrections([self._hit(entries[_key_of(one)], one) for one in chosen.best(limit)])

    def _repeats_query(self, entry: Entry | None) -> bool:
        if entry is None or entry.role != "user" or not self._query:
            return False
        return fold_words(entry_text(entry)) == self._query

    def _answers_of(self, questions: Sequence[Ranked]) -> dict[EntryKey, int]:
        """Return, by question, the answer that ends its exchange; 0 if there is none that may be shown."""
        return {_key_of(one): next(iter(self._context_of(one)), 0) for one in questions}

    def _outputs_of(self, best: Sequence[Ranked]) -> dict[EntryKey, int]:
        """Return the tool outputs that belong to messages: of a call one makes, or of a call it led to.

        The tools that a user message led to may have been about anything, so such an output must match the query.
        """
        outputs: dict[EntryKey, int] = {}
        for session in self._ranking.sessions:
            own = [one for one in best if one.session == session.key and one.role in {"user", "assistant"}]
            if not own:
                continue
            seqs, roles, follows = _exchanges_after(session, [one.seq for one in own])
            is_output = follows & (roles == _TOOL)
            is_call = np.array([one.role == "assistant" for one in own])
            # The outputs of a call come directly after it.
            is_output[is_call] = np.logical_and.accumulate(is_output[is_call], axis=1)
            scores = np.full(seqs.shape, -1.0, np.float32)
            scores[is_output], _ = session.scores.at(seqs[is_output])
            if len(session.hidden):
                scores[np.isin(seqs, session.hidden)] = -1.0
            at = scores.argmax(axis=1)
            values = scores[np.arange(len(own)), at]
            least = np.where(is_call, -0.5, _MIN_OUTPUT_SHARE * np.array([one.bm25 for one in own]))
            for row in np.flatnonzero(values > least).tolist():
                outputs[_key_of(own[row])] = int(seqs[row, at[row]])
        return outputs

    def _rank_with(self, parent: Ranked, seq: int, own: Ranked | None) -> Ranked | None:
        """Rank an output as high as the message it belongs to; `own` is its own rank, if the search returned it."""
        if own is not None and own.score > parent.score:
            return None  # it is selected on its own
        if own is None:
            known = self._sessions[parent.session].attributes.of(seq)
            if known is None:
                return None
            own = Ranked(
                session=parent.session,
                seq=seq,
                ts=known.ts,
                role=known.role,
                marks=known.marks,
                exchange=parent.exchange,
                score=0.0,
                chance=0.0,
                parts={},
            )
        parts = {**own.parts, "comes along": parent.score - own.score}
        # The score is assigned and not summed from the parts: it must equal the parent's to the last bit, so that
        # rounding does not decide their order.
        return replace(own, score=parent.score, chance=max(own.chance, parent.chance), parts=parts)

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
            marks=ranked.marks,
            in_prompt=entry.session == self._session and entry.seq in self._shown,
            note=self._messages.note(entry.session, entry.seq) or "",
            context=self._context_of(ranked),
        )

    def _context_of(self, ranked: Ranked) -> tuple[int, ...]:
        """Return the question of an answer or output, or the answer to a question, unless hidden."""
        hidden = self._hidden_of(ranked.session)
        if ranked.role == "user":
            seqs, roles, follows = _exchanges_after(self._sessions[ranked.session], [ranked.seq])
            last = int(follows[0].sum()) - 1
            if not 0 <= last < _MAX_LOOK_AHEAD - 1 or roles[0, last] != _ASSISTANT:
                return ()
            return (int(seqs[0, last]),) if int(seqs[0, last]) not in hidden else ()
        is_near = 0 < ranked.exchange < ranked.seq <= ranked.exchange + _MAX_QUESTION_DISTANCE
        return (ranked.exchange,) if is_near and ranked.exchange not in hidden else ()

    def _hidden_of(self, session: str) -> Collection[int]:
        return self._hidden if session == self._session else ()

    def _with_corrections(self, hits: list[Hit]) -> list[Hit]:
        """Put every corrected statement after its correction, and add corrections that the search did not return."""
        by_key = {(hit.session, hit.seq): hit for hit in hits}
        corrections = self._corrections_of(hits)
        for hit in hits:
            correction = corrections.get((hit.session, hit.seq))
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
            lowered = by_key[hit.session, hit.seq]
            parts = {**lowered.parts, "taken back": self._superseded_weight}
            by_key[hit.session, hit.seq] = replace(
                lowered, score=lowered.score + self._superseded_weight, parts=parts, superseded_by=correction.seq
            )
        return sorted(
            by_key.values(), key=lambda hit: (-hit.score, hit.superseded_by is not None, hit.session, -hit.seq)
        )

    def _correcting(self, hit: Hit, correction: Entry) -> Hit:
        """Make a hit of a correction that was not selected: with its own rank, else with that of the corrected hit."""
        own = self._ranking.find(correction.session, [correction.seq]).get(correction.seq)
        if own is None:
            known = self._sessions[correction.session].attributes.of(correction.seq)
            own = Ranked(
                session=correction.session,
                seq=correction.seq,
                ts=correction.ts,
                role=correction.role,
                marks=known.marks if known is not None else Mark.CORRECTION,
                score=hit.score,
                chance=hit.chance,
                parts=hit.parts,
            )
        return self._hit(correction, replace(own, parts={**own.parts, "takes back": 0.0}))

    def _corrections_of(self, hits: Sequence[Hit]) -> dict[EntryKey, Entry]:
        """Return, by hit, the newest correction of the user that takes it back."""
        by_session: dict[str, list[Hit]] = {}
        for hit in hits:
            by_session.setdefault(hit.session, []).append(hit)
        corrections = {}
        for session, own in by_session.items():
            first = min(hit.seq for hit in own)
            marked = self._sessions[session].attributes.marked(Mark.CORRECTION, after=first)[:_MAX_CORRECTIONS]
            keys = [(session, seq) for seq in marked.tolist()]
            if not keys:
                continue
            likely = self._sharing_terms(own, keys)
            entries = self._messages.read({key for some in likely.values() for key in some})
            text_of = cache(entry_text)
            for hit in own:
                for key in likely[hit.seq]:
                    entry = entries.get(key)
                    if entry is None or entry.role != "user" or entry.seq <= hit.seq:
                        continue
                    if _supersedes(text_of(entry), hit):
                        corrections[session, hit.seq] = entry
                        break
        return corrections

    def _sharing_terms(self, hits: Sequence[Hit], corrections: Sequence[EntryKey]) -> dict[int, list[EntryKey]]:
        """Return, by hit, the corrections that have a term in common with it: others have no common subject."""
        lexicon = self._messages.lexicon
        found = self._messages.terms.of([*corrections, *((hit.session, hit.seq) for hit in hits)])
        sets = [found.get((hit.session, hit.seq), _NO_TERMS) for hit in hits]
        later = [found.get(key, _NO_TERMS) for key in corrections]
        moved = np.fromiter(lexicon.terms(" ".join(sorted(RELOCATION))), np.uint32)
        common = similarities(sets, later, most=None) > 0
        common |= np.outer(shared_terms(sets, moved) > 0, shared_terms(later, moved) > 0)
        return {
            hit.seq: [corrections[at] for at in np.flatnonzero(row).tolist()]
            for hit, row in zip(hits, common, strict=True)
        }


def _supersedes(correction: str, hit: Hit) -> bool:
    """Whether a correction takes back a statement, or one of the clauses of a short one that was said and not read."""
    if supersession_score(correction, hit.text) >= _MIN_SUPERSEDES:
        return True
    if hit.role == "tool" or len(hit.text) > _MAX_CLAUSES_CHARACTERS:
        return False
    clauses = _CLAUSE_END.split(hit.text)
    return any(supersession_score(correction, clause) >= _MIN_SUPERSEDES_CLAUSE for clause in clauses)


def _exchanges_after(
    session: SearchedSession, seqs: Sequence[int]
) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.bool]]:
    """Return what comes after some messages, up to the look-ahead limit, and whether it belongs to their exchange."""
    table = session.attributes
    places = table.seqs.searchsorted(seqs, side="right")[:, None] + np.arange(_MAX_LOOK_AHEAD)
    exists = places < len(table)
    places = np.minimum(places, len(table) - 1)
    later, roles = table.seqs[places], table.roles[places]
    follows = exists & (roles != _USER) & (later <= session.upto)
    return later, roles, np.logical_and.accumulate(follows, axis=1)


def _key_of(ranked: Ranked) -> EntryKey:
    return ranked.session, ranked.seq


class _Chosen:
    """The messages selected so far, without duplicates and with a penalty on repeated forms."""

    def __init__(
        self, entries: Mapping[EntryKey, Entry], terms: Mapping[EntryKey, TermSet], messages: MessageReader
    ) -> None:
        self._messages = messages
        self._entries = list(entries.values())
        self._places = {key: place for place, key in enumerate(entries)}
        sets = [terms.get(key, _NO_TERMS) for key in entries]
        self._short = np.array([len(terms) <= _MAX_SHORT_TERMS for terms in sets], np.bool)
        self._similarity = similarities(sets, sets)
        self._ranked: dict[int, Ranked] = {}
        """By place, in the order in which they were added."""
        self._contents: set[bytes] = set()
        self._text = cache(lambda place: entry_text(self._entries[place]))
        self.in_place = 0
        """Number of messages without a penalty."""

    def add(self, ranked: Ranked) -> Ranked | None:
        """Add a message and return it with its penalty; None if it cannot be shown or is a duplicate."""
        place = self._places.get(_key_of(ranked))
        if place is None or place in self._ranked:
            return None
        others = list(self._ranked)
        similarity = self._similarity[place, others]
        if self._is_duplicate(place, others, similarity):
            if self._messages.note(ranked.session, ranked.seq):
                self._replace_source(place, ranked)
            return None
        self._contents.add(self._entries[place].content)
        similar = 0
        if self._short[place]:
            similar = int(((similarity >= _SIMILAR_FORM) & self._short[others]).sum())
        if similar < _MAX_SIMILAR_HITS:
            self.in_place += 1
        else:
            penalty = _SIMILAR_PENALTY * (similar - _MAX_SIMILAR_HITS + 1)
            parts = {**ranked.parts, "much alike": penalty}
            ranked = replace(ranked, score=ranked.score + penalty, parts=parts)
        self._ranked[place] = ranked
        return ranked

    def best(self, limit: int) -> list[Ranked]:
        """Return the best messages."""
        return sorted(self._ranked.values(), key=lambda one: (-one.score, one.session, -one.seq))[:limit]

    def _is_duplicate(self, place: int, others: Sequence[int], similarity: NDArray[np.float64]) -> bool:
        if self._entries[place].content in self._contents:
            return True
        if not len(others) or similarity.max() < _MAYBE_DUPLICATES:
            return False
        return self._are_duplicates(place, others[int(similarity.argmax())])

    def _are_duplicates(self, place: int, other: int) -> bool:
        text, compared = self._text(place), self._text(other)
        shorter, longer = sorted((len(text), len(compared)))
        if text == compared or shorter <= _DUPLICATE_SIMILARITY * longer:
            return text == compared
        vector_of = self._messages.vector_of
        return cosine(vector_of(text), vector_of(compared)) >= _DUPLICATE_SIMILARITY

    def _replace_source(self, place: int, memory: Ranked) -> None:
        """Put approved memory in the place of the message it was made from."""
        for other in list(self._ranked):
            if self._text(other) == self._text(place):
                self._ranked[other] = memory
