"""Selects the messages to show from a ranking: the best ones without duplicates, with related messages.

The output of a tool call is placed next to the call, and a corrected statement always comes with its correction.
Messages are compared by their terms; texts are read of those that are shown, and to confirm a duplicate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
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
from recto.text.similarity import Vector, cosine, text_vector
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
        return {
            (session, entry.seq): entry
            for session, seqs in _by_session(keys).items()
            for entry in self._store.pick(session, list(self._notes(session, seqs)))
            if entry.kind == MESSAGE
        }

    def notes(self, keys: Collection[EntryKey]) -> dict[EntryKey, str]:
        """Return the captions of memory, and an empty text for other messages; nothing for what must not be shown."""
        return {
            (session, seq): note
            for session, seqs in _by_session(keys).items()
            for seq, note in self._notes(session, seqs).items()
        }

    def _notes(self, session: str, seqs: Collection[int]) -> Mapping[int, str]:
        # The authority has no note of memory that was retired or whose page no longer exists.
        return self._authority.notes(session, seqs) if self._authority is not None else dict.fromkeys(seqs, "")


def _by_session(keys: Collection[EntryKey]) -> dict[str, list[int]]:
    by_session: dict[str, list[int]] = {}
    for session, seq in dict.fromkeys(keys):
        by_session.setdefault(session, []).append(seq)
    return by_session


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
        self._query_terms = np.fromiter(messages.lexicon.terms(query), np.uint32) if self._query else _NO_TERMS
        self._sessions = {one.key: one for one in ranking.sessions}
        self._sets: dict[EntryKey, TermSet] = dict(ranking.term_sets)
        self._notes: dict[EntryKey, str] = {}
        self._entries: dict[EntryKey, Entry] = {}
        self._texts: dict[EntryKey, str] = {}

    def hits(self, limit: int, *, own_session_only: bool) -> list[Hit]:
        """Return the best hits. With `own_session_only` other sessions contribute approved memory only."""
        best = self._ranking.best(MAX_RANKED)
        self._notes = self._messages.notes([_key_of(one) for one in best])
        best = [
            one
            for one in best
            if (note := self._notes.get(_key_of(one))) is not None
            and (note or not own_session_only or one.session == self._session)
        ]
        outputs = self._outputs_of(best)
        self._compare([*map(_key_of, best), *((key[0], seq) for key, seq in outputs.items())])
        answers = self._answers_of(best)
        self._compare([(key[0], seq) for key, seq in answers.items() if seq])
        chosen = _Chosen(self._sets, self._texts, self._read, self._messages.vector_of)
        for ranked in best:
            if chosen.in_place >= limit:
                break
            if (answer := answers.get(_key_of(ranked))) is not None:
                # The query was asked before: the answer of that time is a hit, the question is none.
                if answer and (in_place := self._rank_with(ranked, answer)) is not None:
                    self._choose(chosen, in_place)
                continue
            added = self._choose(chosen, ranked)
            if added is not None and (seq := outputs.get(_key_of(ranked))) is not None:
                output = self._rank_with(added, seq)
                if output is not None:
                    self._choose(chosen, output)
        shown = chosen.best(limit)
        self._read([_key_of(one) for one in shown])
        shown = [one for one in shown if _key_of(one) in self._entries]
        contexts = self._contexts_of(shown)
        return self._with_corrections([self._hit(one, contexts[_key_of(one)]) for one in shown])

    def _choose(self, chosen: _Chosen, ranked: Ranked) -> Ranked | None:
        """Add a message that may be shown."""
        key = _key_of(ranked)
        if key not in self._notes:
            self._notes |= self._messages.notes([key])
        return chosen.add(ranked, is_memory=bool(self._notes[key])) if key in self._notes else None

    def _compare(self, keys: Sequence[EntryKey]) -> None:
        """Read the terms of messages that are compared with each other."""
        self._sets |= self._messages.terms.of([key for key in keys if key not in self._sets])

    def _read(self, keys: Collection[EntryKey]) -> None:
        """Read messages that were not read yet."""
        if missing := [key for key in keys if key not in self._entries]:
            found = self._messages.read(missing)
            self._entries |= found
            self._texts |= {key: entry_text(entry) for key, entry in found.items()}

    def _answers_of(self, best: Sequence[Ranked]) -> dict[EntryKey, int]:
        """Return the messages that repeat the query, each with the answer that ends its exchange.

        The answer is 0 if there is none that may be shown.
        """
        asked = [one for one in best if one.role == "user" and _key_of(one) in self._sets] if self._query else []
        sets = [self._sets[_key_of(one)] for one in asked]
        # What has the same words has the same terms, or more: a path is a term of its own beside those of its parts.
        sizes = np.array([len(terms) for terms in sets], np.intp)
        is_likely = shared_terms(sets, self._query_terms) == np.minimum(sizes, len(self._query_terms))
        asked = [asked[at] for at in np.flatnonzero(is_likely).tolist()]
        self._read([_key_of(one) for one in asked])
        asked = [one for one in asked if fold_words(self._texts.get(_key_of(one), "")) == self._query]
        return {key: next(iter(context), 0) for key, context in self._contexts_of(asked).items()}

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

    def _rank_with(self, parent: Ranked, seq: int) -> Ranked | None:
        """Rank an output or an answer as high as the message it belongs to, unless it ranks higher on its own."""
        own = self._ranking.find(parent.session, seq)
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

    def _hit(self, ranked: Ranked, context: tuple[int, ...]) -> Hit:
        entry = self._entries[_key_of(ranked)]
        return Hit(
            session=entry.session,
            seq=entry.seq,
            pointer=pointer_to(entry.session, entry.seq),
            role=entry.role,
            ts=entry.ts,
            text=self._texts[_key_of(ranked)],
            score=ranked.score,
            chance=ranked.chance,
            parts=dict(ranked.parts),
            marks=ranked.marks,
            in_prompt=entry.session == self._session and entry.seq in self._shown,
            note=self._notes[entry.session, entry.seq],
            context=context,
        )

    def _contexts_of(self, some: Sequence[Ranked]) -> dict[EntryKey, tuple[int, ...]]:
        """Return the question of each answer or output, and the answer to each question, unless hidden."""
        contexts: dict[EntryKey, tuple[int, ...]] = {}
        questions: dict[str, list[int]] = {}
        for one in some:
            if one.role == "user":
                questions.setdefault(one.session, []).append(one.seq)
            is_near = 0 < one.exchange < one.seq <= one.exchange + _MAX_QUESTION_DISTANCE
            is_shown = is_near and one.exchange not in self._hidden_of(one.session)
            contexts[_key_of(one)] = (one.exchange,) if is_shown else ()
        for session, asked in questions.items():
            seqs, roles, follows = _exchanges_after(self._sessions[session], asked)
            lasts = follows.sum(axis=1) - 1
            rows = np.arange(len(asked))
            ends = seqs[rows, lasts].tolist(), (roles[rows, lasts] == _ASSISTANT).tolist(), lasts.tolist()
            for seq, answer, is_answer, last in zip(asked, *ends, strict=True):
                is_whole = is_answer and 0 <= last < _MAX_LOOK_AHEAD - 1
                contexts[session, seq] = (answer,) if is_whole and answer not in self._hidden_of(session) else ()
        return contexts

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
        own = self._ranking.find(correction.session, correction.seq)
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
        key = _key_of(own)
        self._notes |= self._messages.notes([key])
        context = self._contexts_of([own])[key]
        self._entries[key], self._texts[key] = correction, entry_text(correction)
        return self._hit(replace(own, parts={**own.parts, "takes back": 0.0}), context)

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
        self._compare(corrections)
        sets = [self._sets.get((hit.session, hit.seq), _NO_TERMS) for hit in hits]
        later = [self._sets.get(key, _NO_TERMS) for key in corrections]
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
        self,
        terms: Mapping[EntryKey, TermSet],
        texts: Mapping[EntryKey, str],
        read: Callable[[Collection[EntryKey]], None],
        vector_of: Callable[[str], Vector],
    ) -> None:
        """Compare messages by their terms, and read those that may be duplicates of another one."""
        keys, sets = list(terms), list(terms.values())
        sizes = np.array([len(one) for one in sets], np.intp)
        self._similarity = similarities(sets, sets)
        is_short = sizes <= _MAX_SHORT_TERMS
        alike = (self._similarity >= _SIMILAR_FORM) & is_short & is_short[:, None]
        maybe = (self._similarity >= _MAYBE_DUPLICATES) | ((sizes == 0) & (sizes == 0)[:, None])
        self._alike, self._maybe = _masks(alike), _masks(maybe)
        self._places = {key: place for place, key in enumerate(keys)}
        self._ranked: dict[int, Ranked] = {}
        """By place, in the order in which they were added."""
        self._mask = 0
        """The places of those, as bits."""
        read([key for key, others in zip(keys, self._maybe, strict=True) if others])
        self._texts = [texts.get(key) for key in keys]
        self._vector_of = vector_of
        self.in_place = 0
        """Number of messages without a penalty."""

    def add(self, ranked: Ranked, *, is_memory: bool) -> Ranked | None:
        """Add a message and return it with its penalty; None if it cannot be shown or is a duplicate."""
        place = self._places.get(_key_of(ranked))
        if place is None or place in self._ranked:
            return None
        if self._maybe[place] and self._texts[place] is None:
            return None
        if self._is_duplicate(place, self._maybe[place] & self._mask):
            if is_memory:
                self._replace_source(place, ranked)
            return None
        similar = (self._alike[place] & self._mask).bit_count()
        if similar < _MAX_SIMILAR_HITS:
            self.in_place += 1
        else:
            penalty = _SIMILAR_PENALTY * (similar - _MAX_SIMILAR_HITS + 1)
            parts = {**ranked.parts, "much alike": penalty}
            ranked = replace(ranked, score=ranked.score + penalty, parts=parts)
        self._ranked[place] = ranked
        self._mask |= 1 << place
        return ranked

    def best(self, limit: int) -> list[Ranked]:
        """Return the best messages."""
        return sorted(self._ranked.values(), key=lambda one: (-one.score, one.session, -one.seq))[:limit]

    def _is_duplicate(self, place: int, maybe: int) -> bool:
        """Whether the text is that of another one, or nearly that of the one with the most similar terms."""
        if not maybe:
            return False
        text, others = self._texts[place], [other for other in self._ranked if maybe >> other & 1]
        if any(self._texts[other] == text for other in others):
            return True
        compared = self._texts[max(others, key=self._similarity[place].tolist().__getitem__)]
        if text is None or compared is None:
            return False
        shorter, longer = sorted((len(text), len(compared)))
        if shorter <= _DUPLICATE_SIMILARITY * longer:
            return False
        return cosine(self._vector_of(text), self._vector_of(compared)) >= _DUPLICATE_SIMILARITY

    def _replace_source(self, place: int, memory: Ranked) -> None:
        """Put approved memory in the place of the message it was made from."""
        for other in list(self._ranked):
            if self._maybe[place] >> other & 1 and self._texts[other] == self._texts[place]:
                self._ranked[other] = memory


def _masks(matrix: NDArray[np.bool]) -> list[int]:
    """Return, by row, the other columns that are set, as the bits of a number."""
    np.fill_diagonal(matrix, val=False)
    rows = np.packbits(matrix, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in rows]
