"""Selects the messages to show from a ranking: the best ones without duplicates, with related messages.

The output of a tool call is placed next to the call, and a corrected statement always comes with its correction.
Messages are compared by their rows in the word index; texts are read of those that are shown, and to confirm that two
are nearly the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from math import log

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from recto.context.facts.classifier import (
    CLAUSE_END,
    RELOCATION,
    clause_supersession_bound,
    clause_words,
    correcting_words,
    supersession_score,
)
from recto.context.facts.types import Mark
from recto.recall.documents import recall_text
from recto.recall.index.bm25 import TermStatistics
from recto.recall.index.message_rows import EntryKey, MessageRows, similarities, terms_of
from recto.recall.protocols import Authority
from recto.recall.search import MAX_RANKED, Ranked, Ranking, SearchedSession, Searcher
from recto.recall.term_rows import ROLES, identity_of, role_of, signature_of, text_signature, words_hash
from recto.recall.types import Hit
from recto.text.similarity import Vector, cosine, text_vector
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.session_keys import pointer_to

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
"""Minimum score of `supersession_score` for a correction of a brief statement to count."""
_MAX_STATEMENT_CHARACTERS = 200
"""Length of a brief statement."""
_MIN_SUPERSEDES_LONG = 0.7
"""The same for a longer message, which shares a subject with many corrections."""
_MIN_SUPERSEDES_CLAUSE = 0.9
"""The same for one clause of a message: a few words are soon alike."""
_MAX_CLAUSES_CHARACTERS = 600
"""Length of a message up to which its clauses are compared with corrections one by one."""
_MIN_SHARED_RARITY = 4.0
"""Rarity of the words that a clause of a correction has in common with one of the statement: about one rare word.

Without this, conversations about one subject consist of corrections: on BEAM, of 139 statements that were marked as
superseded, most were only about the same triangle or the same deck of cards.
"""
_MIN_SHARED_SHARE = 0.4
"""Their rarity, at least, as a share of that of the words which name the subject of the shorter clause."""
_BACKGROUND = 200
"""Messages without a word that are added to those of the session: in a short session every word seems frequent."""
_MAYBE_DUPLICATES = 0.9
"""Share of common terms from which the texts of two messages are compared."""
_MIN_NEARLY_SAME_TERMS = 20
"""Distinct terms from which on two texts with different words can be duplicates.

Of a shorter one, a single word and the pairs it is part of are more than a twentieth.
"""
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
        self.rows: MessageRows = searcher.rows
        self.terms_in = searcher.terms_in
        self.frequencies: Callable[[str, Collection[int]], TermStatistics] = searcher.indexer.words.statistics
        """The frequencies of terms in a session."""
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

    def terms_of(self, words: Iterable[str]) -> frozenset[int]:
        """Return the terms of some words."""
        return frozenset(term for word in words for term in self.terms_in(word))

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
        judged: Mapping[EntryKey, bool],
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
            judged: entries that were judged; those that were not helpful do not come along with others.
        """
        self._messages = messages
        self._ranking = ranking
        self._session = session
        self._superseded_weight = superseded_weight
        self._shown = shown
        self._hidden = hidden
        self._judged = judged
        self._query_words = words_hash(text_signature(query)) if query.strip() else -1
        self._query_terms = set(messages.terms_in(query) if query else ())
        self._sessions = {one.key: one for one in ranking.sessions}
        self._sealed = {one.key: sealed for one in ranking.sessions if (sealed := one.view.sealed) is not None}
        self._rows: dict[EntryKey, bytes] = {}
        self._notes: dict[EntryKey, str] = {}
        self._entries: dict[EntryKey, Entry] = {}
        self._texts: dict[EntryKey, str] = {}

    def hits(self, limit: int, *, own_session_only: bool, least: float = 0.0) -> list[Hit]:
        """Return the best hits.

        With `own_session_only` other sessions contribute approved memory only. What is below the `least` relevance is
        not looked at.
        """
        places = self._ranking.places(MAX_RANKED, least)
        self._notes = self._messages.notes(places)
        keys = [key for key in places if self._may_show(key, own_session_only=own_session_only)]
        self._load(keys)
        answers = {key: (key[0], self._answer_to(key)) for key in keys if self._repeats_query(key)}
        self._load([answer for answer in answers.values() if answer[1]])
        keys = self._without_copies(keys, answers)
        best = self._ranking.ranked(np.array([places[key] for key in keys], np.intp))
        outputs = self._outputs_of([one for one in best if _key_of(one) not in answers])
        self._load(outputs.values())
        keys = [*(answers.get(key, key) for key in keys), *outputs.values()]
        rows = {key: row for key in keys if (row := self._rows.get(key)) is not None}
        chosen = _Chosen(rows, self._texts, self._read, self._messages.vector_of)
        for ranked in best:
            if chosen.in_place >= limit:
                break
            key = _key_of(ranked)
            if key in answers:
                # The query was asked before: the answer of that time is a hit, the question is none.
                self._choose_with(chosen, ranked, answers[key])
            elif (added := self._choose(chosen, ranked)) is not None and key in outputs:
                self._choose_with(chosen, added, outputs[key])
        shown = chosen.best(limit)
        self._read([_key_of(one) for one in shown])
        # What belongs to a hit may be empty, such as the output of a command that printed nothing.
        shown = [one for one in shown if self._texts.get(_key_of(one), "").strip()]
        contexts = self._contexts_of(shown)
        return self._with_corrections([self._hit(one, contexts[_key_of(one)]) for one in shown])

    def _may_show(self, key: EntryKey, *, own_session_only: bool) -> bool:
        note = self._notes.get(key)
        return note is not None and (bool(note) or not own_session_only or key[0] == self._session)

    def _repeats_query(self, key: EntryKey) -> bool:
        """Whether a message of the user has the words of the query."""
        row = self._rows.get(key)
        if row is None or words_hash(signature_of(row)) != self._query_words or role_of(row) != "user":
            return False
        # What has the same words has the same terms, or more: a path is a term of its own beside those of its parts.
        terms = set(terms_of(row).tolist())
        return terms <= self._query_terms or terms >= self._query_terms

    def _without_copies(self, keys: Sequence[EntryKey], answers: Mapping[EntryKey, EntryKey]) -> list[EntryKey]:
        """Leave out messages with the text of a better one, but memory. Of a repeated question, its answer counts."""
        first: dict[bytes, EntryKey] = {}
        return [
            key
            for key in keys
            if (row := self._rows.get(answers.get(key, key))) is not None
            and (first.setdefault(identity_of(row), key) == key or self._notes[key])
        ]

    def _choose_with(self, chosen: _Chosen, parent: Ranked, key: EntryKey) -> None:
        """Add an output or an answer in the place of the message it belongs to."""
        if self._judged.get(key) is False or chosen.has(key):
            return
        if (ranked := self._rank_with(parent, key[1])) is not None:
            self._choose(chosen, ranked)

    def _choose(self, chosen: _Chosen, ranked: Ranked) -> Ranked | None:
        """Add a message that may be shown."""
        note = self._notes.get(_key_of(ranked))
        return chosen.add(ranked, is_memory=bool(note)) if note is not None else None

    def _load(self, keys: Collection[EntryKey]) -> None:
        """Read the rows and notes of messages that are compared with each other."""
        if missing := [key for key in keys if key not in self._rows]:
            self._rows |= self._messages.rows.of(missing, self._sealed)
        if missing := [key for key in keys if key not in self._notes]:
            self._notes |= self._messages.notes(missing)

    def _read(self, keys: Collection[EntryKey]) -> None:
        """Read messages that were not read yet."""
        if missing := [key for key in keys if key not in self._entries]:
            found = self._messages.read(missing)
            self._entries |= found
            self._texts |= {key: recall_text(entry) for key, entry in found.items()}

    def _outputs_of(self, best: Sequence[Ranked]) -> dict[EntryKey, EntryKey]:
        """Return the tool outputs that belong to messages: of a call one makes, or of a call it led to.

        The tools that a user message led to may have been about anything, so such an output must match the query.
        """
        outputs: dict[EntryKey, EntryKey] = {}
        for session in self._ranking.sessions:
            own = [one for one in best if one.session == session.key and one.role in {"user", "assistant"}]
            if not own:
                continue
            places, follows = _exchanges_after(session, [one.seq for one in own])
            is_output = follows & (session.attributes.roles[places] == _TOOL)
            is_call = np.array([one.role == "assistant" for one in own])
            # The outputs of a call come directly after it.
            is_output[is_call] = np.logical_and.accumulate(is_output[is_call], axis=1)
            scores = np.where(is_output & session.is_visible[places], session.scores.bm25[places], np.float32(-1.0))
            at = scores.argmax(axis=1)
            values = scores[np.arange(len(own)), at]
            least = np.where(is_call, -0.5, _MIN_OUTPUT_SHARE * np.array([one.bm25 for one in own]))
            for row in np.flatnonzero(values > least).tolist():
                outputs[_key_of(own[row])] = session.key, int(session.attributes.seqs[places[row, at[row]]])
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
            helpful=self._judged.get((entry.session, entry.seq)),
            context=context,
        )

    def _contexts_of(self, some: Sequence[Ranked]) -> dict[EntryKey, tuple[int, ...]]:
        """Return the question of each answer or output, and the answer to each question, unless hidden."""
        contexts: dict[EntryKey, tuple[int, ...]] = {}
        for one in some:
            if one.role == "user":
                context = self._answer_to(_key_of(one))
            else:
                context = one.exchange if 0 < one.exchange < one.seq <= one.exchange + _MAX_QUESTION_DISTANCE else 0
                context = context if context not in self._hidden_of(one.session) else 0
            contexts[_key_of(one)] = (context,) if context else ()
        return contexts

    def _answer_to(self, question: EntryKey) -> int:
        """Return the assistant message that ends the exchange of a question; 0 if it is hidden, not near or missing."""
        session = self._sessions[question[0]]
        table = session.attributes
        start = table.count_through(question[1])
        roles = table.roles[start : min(start + _MAX_LOOK_AHEAD, session.end)].tobytes()
        next_question = roles.find(_USER)
        last = (next_question if next_question >= 0 else len(roles)) - 1
        is_whole = 0 <= last < _MAX_LOOK_AHEAD - 1 and roles[last] == _ASSISTANT
        answer = int(table.seqs[start + last]) if is_whole else 0
        return answer if answer not in self._hidden_of(question[0]) else 0

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
        self._entries[key], self._texts[key] = correction, recall_text(correction)
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
            text_of = cache(recall_text)
            for hit in own:
                for key in likely[hit.seq]:
                    entry = entries.get(key)
                    if entry is None or entry.role != "user" or entry.seq <= hit.seq:
                        continue
                    if _supersedes(text_of(entry), hit) and self._have_subject_in_common(text_of(entry), hit):
                        corrections[session, hit.seq] = entry
                        break
        return corrections

    def _have_subject_in_common(self, correction: str, hit: Hit) -> bool:
        """Whether a clause of the correction and one of the statement share words that few other messages have."""
        corrections = [self._clause(words) for words in correcting_words(correction)]
        statements = [self._clause(words) for words in clause_words(hit.text)]
        all_terms = frozenset().union(*(terms for terms, _ in (*corrections, *statements)))
        found = self._messages.frequencies(hit.session, all_terms)

        def rarity(terms: Collection[int]) -> float:
            return sum(log((found.documents + _BACKGROUND) / (found.df.get(term, 0) + 0.5)) for term in terms)

        for (later, its_subject), (earlier, old_subject) in product(corrections, statements):
            shared = rarity(later & earlier)
            least = _MIN_SHARED_SHARE * min(rarity(its_subject), rarity(old_subject))
            if shared >= max(_MIN_SHARED_RARITY, least):
                return True
        return False

    def _clause(self, words: Collection[str]) -> tuple[frozenset[int], frozenset[int]]:
        """Return the terms of a clause, and those that name its subject: no numbers, dates and parts of paths."""
        values = [word for word in words if not word.isalpha()]
        subject = [word for word in words if word.isalpha() and not any(word in value for value in values)]
        return self._messages.terms_of(words), self._messages.terms_of(subject)

    def _sharing_terms(self, hits: Sequence[Hit], corrections: Sequence[EntryKey]) -> dict[int, list[EntryKey]]:
        """Return, by hit, the corrections that have a term in common with it: others have no common subject."""
        self._load(corrections)
        moved = self._messages.terms_in(" ".join(RELOCATION))
        later = [(key, set(terms_of(self._rows.get(key)).tolist())) for key in corrections]
        moving = [not terms.isdisjoint(moved) for _, terms in later]
        likely = {}
        for hit in hits:
            own = set(terms_of(self._rows.get((hit.session, hit.seq))).tolist())
            has_moved = not own.isdisjoint(moved)
            likely[hit.seq] = [
                key
                for (key, terms), moves in zip(later, moving, strict=True)
                if (has_moved and moves) or not own.isdisjoint(terms)
            ]
        return likely


def _supersedes(correction: str, hit: Hit) -> bool:
    """Whether a correction takes back a statement, or one of the clauses of a short one that was said and not read."""
    if hit.role == "assistant" and len(hit.text) > _MAX_CLAUSES_CHARACTERS:
        return False  # of all that a long answer says, a correction takes back one thing at most
    is_brief = len(hit.text) <= _MAX_STATEMENT_CHARACTERS
    if supersession_score(correction, hit.text) >= (_MIN_SUPERSEDES if is_brief else _MIN_SUPERSEDES_LONG):
        return True
    if hit.role == "tool" or len(hit.text) > _MAX_CLAUSES_CHARACTERS:
        return False
    if clause_supersession_bound(correction, hit.text) < _MIN_SUPERSEDES_CLAUSE:
        return False
    clauses = CLAUSE_END.split(hit.text)
    return any(supersession_score(correction, clause) >= _MIN_SUPERSEDES_CLAUSE for clause in clauses)


def _exchanges_after(session: SearchedSession, seqs: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.bool]]:
    """Return the positions after some messages, up to the look-ahead limit, and which belong to their exchange."""
    table = session.attributes
    places = table.seqs.searchsorted(np.array(seqs, np.uint32), side="right")[:, None] + np.arange(_MAX_LOOK_AHEAD)
    exists = places < session.end
    places = np.minimum(places, len(table) - 1)
    return places, np.logical_and.accumulate(exists & (table.roles[places] != _USER), axis=1)


def _key_of(ranked: Ranked) -> EntryKey:
    return ranked.session, ranked.seq


class _Chosen:
    """The messages selected so far, without duplicates and with a penalty on repeated forms."""

    def __init__(
        self,
        rows: Mapping[EntryKey, bytes],
        texts: Mapping[EntryKey, str],
        read: Callable[[Collection[EntryKey]], None],
        vector_of: Callable[[str], Vector],
    ) -> None:
        """Compare messages by their rows, and read those that may be nearly the same as another one.

        Messages with the same text have one place.
        """
        identities = {key: identity_of(row) for key, row in rows.items()}
        keys = {identity: key for key, identity in identities.items()}
        places = {identity: place for place, identity in enumerate(keys)}
        self._places = {key: places[identity] for key, identity in identities.items()}
        sets = [terms_of(rows[key]) for key in keys.values()]
        sizes = np.array([len(one) for one in sets], np.intp)
        words = np.array([words_hash(signature_of(rows[key])) for key in keys.values()], np.intp)
        self._similarity = similarities(sets)
        is_short = sizes <= _MAX_SHORT_TERMS
        alike = (self._similarity >= _SIMILAR_FORM) & is_short & is_short[:, None]
        is_long = sizes >= _MIN_NEARLY_SAME_TERMS
        maybe = (self._similarity >= _MAYBE_DUPLICATES) & is_long & is_long[:, None]
        maybe |= (words == words[:, None]) & (sizes == sizes[:, None])
        self._alike, self._maybe = _masks(alike), _masks(maybe)
        self._ranked: dict[int, Ranked] = {}
        """By place, in the order in which they were added."""
        self._mask = 0
        """The places of those, as bits."""
        read([key for key, others in zip(keys.values(), self._maybe, strict=True) if others])
        self._texts = [texts.get(key) for key in keys.values()]
        self._vector_of = vector_of
        self.in_place = 0
        """Number of messages without a penalty."""

    def has(self, key: EntryKey) -> bool:
        """Whether a message with the same text was added."""
        return self._places.get(key) in self._ranked

    def add(self, ranked: Ranked, *, is_memory: bool) -> Ranked | None:
        """Add a message and return it with its penalty; None if it cannot be shown or is a duplicate.

        Approved memory takes the place of the message it was made from.
        """
        place = self._places.get(_key_of(ranked))
        if place is None or (self._maybe[place] and self._texts[place] is None):
            return None
        if place in self._ranked:
            if is_memory:
                self._ranked[place] = ranked
            return None
        if self._is_duplicate(place, self._maybe[place] & self._mask):
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
        """Whether the text is nearly that of the one with the most similar terms."""
        if not maybe:
            return False
        others = [other for other in self._ranked if maybe >> other & 1]
        text = self._texts[place]
        compared = self._texts[max(others, key=self._similarity[place].tolist().__getitem__)]
        if text is None or compared is None:
            return False
        shorter, longer = sorted((len(text), len(compared)))
        if shorter <= _DUPLICATE_SIMILARITY * longer:
            return False
        return cosine(self._vector_of(text), self._vector_of(compared)) >= _DUPLICATE_SIMILARITY


def _masks(matrix: NDArray[np.bool]) -> list[int]:
    """Return, by row, the other columns that are set, as the bits of a number."""
    np.fill_diagonal(matrix, val=False)
    rows = np.packbits(matrix, axis=1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in rows]
