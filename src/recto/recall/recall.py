"""The retrieval service of a session: searches its history, explains the hits, and fits them into a token budget.

Recalled text is quoted with pointers for one prompt only. It is never stored as a message and carries no authority. A
statement that was corrected later is never quoted without its correction. The gate decides which hits are relevant
enough to be quoted in a prompt that did not ask for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from recto.context.facts.classifier import classify
from recto.context.window.units import EntryVectors
from recto.errors import InputError, RectoError
from recto.recall._selection import MessageReader, Selection
from recto.recall.documents import Relevance, excerpt, recall_text, spoken_by
from recto.recall.index.message_rows import EntryKey
from recto.recall.indexer import Indexer
from recto.recall.protocols import Authority
from recto.recall.search import MAX_RANKED, Ranking, Searcher
from recto.recall.types import (
    HEADER,
    PROJECT_HEADER,
    Confirmation,
    Excerpt,
    Hit,
    Injection,
    Query,
    SearchResult,
    format_minute,
    frame_quotation,
    render_excerpt,
)
from recto.text.terms import TermCache
from recto.text.terms import find_terms as references
from recto.transcript.entries import Entry, refused_key
from recto.transcript.session_keys import Scope, memory_session, parse_pointer, pointer_to, reach_of

if TYPE_CHECKING:
    from recto.recall.protocols import Matrix
    from recto.transcript.sources import SessionSource, SessionSources


SPARE_TOKENS = 300
"""Budget from which on a best hit below the threshold is quoted."""
_COMPANION_MARGIN = 0.1
"""Hits may be this much less relevant than the threshold if the best hit reaches it."""
_UNSURE_MARGIN = 0.1
"""The best hit may be this much below the threshold if there are tokens to spare."""
_CLOSE_TO_BEST = 0.85
"""Share of the best relevance from which on others are quoted with a best hit below the threshold."""
_MAX_UNSURE = 3
"""Hits that are quoted at most where the best is below the threshold."""
_STANDS_OUT = 4.0
"""Standard deviations above the other candidates by which a best hit below the threshold must match the words."""
_MIN_CANDIDATES = 32
"""Candidates from which on a hit can be distinguished: of a few, none is far from the others."""


def relevant_hits(result: SearchResult, threshold: float, *, spare: bool) -> list[Hit]:
    """Return the hits that are relevant enough to be quoted.

    Where the best one is just below the threshold and there are tokens to `spare`, it is quoted with the few that come
    close to it: a plain question is often answered by a message that shares few words with it. A question about
    something that was never mentioned has such a best hit too, but one that hardly differs from the other candidates.
    """
    best = max((hit.chance for hit in result.hits), default=0.0)
    if best >= threshold:
        return [hit for hit in result.hits if hit.chance >= threshold - _COMPANION_MARGIN]
    if not spare or best < threshold - _UNSURE_MARGIN or not _stands_out(result):
        return []
    return [hit for hit in result.hits if hit.chance >= _CLOSE_TO_BEST * best][:_MAX_UNSURE]


def least_relevance(ranking: Ranking, threshold: float, *, spare: bool) -> float | None:
    """Return the relevance below which no hit of a ranking would be quoted; None if nothing would be.

    Known before any text is read. `relevant_hits` decides about the hits that are left.
    """
    best = ranking.order[:MAX_RANKED]
    chance = ranking.best_chance
    if chance >= threshold:
        return threshold - _COMPANION_MARGIN
    if not spare or chance < threshold - _UNSURE_MARGIN:
        return None
    parts = ranking.scores.parts
    can_be_told = len(ranking.candidates) >= _MIN_CANDIDATES and not parts["meaning"][best].any()
    if can_be_told and parts["words"][best].max() < _STANDS_OUT:
        return None
    return _CLOSE_TO_BEST * chance


def _stands_out(result: SearchResult) -> bool:
    """Whether the words of one hit match far better than those of most candidates; true if that is unknown."""
    if result.candidates < _MIN_CANDIDATES or any(hit.parts.get("meaning") for hit in result.hits):
        return True
    return max((hit.parts.get("words", 0.0) for hit in result.hits), default=0.0) >= _STANDS_OUT


_log = logging.getLogger("recto.recall")
_MAX_SESSIONS = 1000
"""Sessions that a search over an agent or a tenant covers at most."""
_MAX_BUDGET_SHARE = 3
"""One hit takes at most this part of the budget: a third."""
_MIN_SHARE_TOKENS = 120
"""Tokens an excerpt may have even if its share of the budget is smaller: two or three sentences."""
_MIN_EXCERPT_TOKENS = 60
"""Tokens below which an excerpt is not worth its heading."""
_MIN_EXCERPT_CHARACTERS = 60
"""Characters below which an excerpt says nothing."""
_CHARACTERS_PER_TOKEN = 4
"""First estimate for cutting excerpts; the result is counted exactly."""
_MAX_SENTENCES = 8192
"""Sentences whose terms are kept, about; each has at most 240 characters."""
_MAX_REFERENCES = 4096
"""Names whose parts are kept, about."""
_MIN_REPEATED_TERMS = 2
"""Names and numbers of a recalled text that an answer must repeat to count as using it."""


class RecallRules(Struct, frozen=True, kw_only=True):
    """How much is recalled, from where, and above which relevance."""

    inject: bool = True
    """Whether relevant messages are added to the prompt automatically."""
    scope: Scope = "session"
    threshold: float = 0.4
    """Relevance the best hit must have before anything is added to a prompt."""
    most: int = 12
    """Messages added to one prompt at most."""
    tokens: int = 0
    """Token limit of recalled text; 0 means the memory share of the budget."""
    query_seconds: float = 0.1
    """How long a prompt waits for the vector of its question. After that it is answered by words."""
    index_seconds: float = 10.0
    """How long relief waits for the index. After that, messages that are not indexed stay in the prompt."""


class RecallService:
    """Retrieval for one session."""

    def __init__(
        self,
        searcher: Searcher,
        session: str,
        *,
        rules: RecallRules,
        owns_indexer: bool = False,
        authority: Authority | None = None,
        sources: SessionSources | None = None,
    ) -> None:
        self.searcher = searcher
        self.session = session
        self.rules = rules
        self._owns_indexer = owns_indexer
        self._authority = authority
        self._sources = sources
        self._messages = MessageReader(searcher, authority)
        self._goal: tuple[str, Matrix] | None = None
        """The last goal that was compared with messages, and its vector."""
        self._sentence_terms: dict[str, frozenset[int]] = {}
        """The same messages are quoted for many questions, so the terms of their sentences are kept."""
        self._references: TermCache = {}
        """The names in their texts, kept for the same reason."""

    @property
    def indexer(self) -> Indexer:
        """The indexer that keeps the index up to date."""
        return self.searcher.indexer

    def close(self) -> None:
        """Close the indexer if this session owns it."""
        if self._owns_indexer:
            self.indexer.close()

    def confirm(self, seqs: Iterable[int]) -> Confirmation:
        """Confirm that these entries can be recalled once evicted; indexes them first if needed."""
        return self.indexer.confirm(self.session, seqs, self.rules.index_seconds)

    def catch_up(self) -> None:
        """Index the session as far as possible within the time limit."""
        self.indexer.try_catch_up(self.session, self.rules.index_seconds)

    def vectors_of(self, seqs: Collection[int], goal: str) -> EntryVectors:
        """The stored vectors of messages, and the vector of a goal, which is the only text that may be embedded here.

        Returns none where recall has none of the current embedder, or where the embedder does not answer in time.
        """
        embedder = self.indexer.embedder
        if embedder is None or not seqs:
            return EntryVectors()
        try:
            self.indexer.discard_foreign_rows(self.session)
            if not self.indexer.has_vectors(self.session, embedder):
                return EntryVectors()
            index = self.indexer.vector_index(embedder, self.rules.query_seconds)
            # Messages are compared whole. The pieces of a user message come after its passages.
            passages = self.indexer.vectors.rules.passages
            entries = {seq: rows[:passages] for seq, rows in index.of(self.session, seqs).items()}
        except Exception:  # noqa: BLE001  # relief never fails the turn: words are compared instead
            _log.warning("vectors of %s could not be read, words are compared instead", self.session, exc_info=True)
            return EntryVectors()
        characters = self.indexer.vectors.rules.characters
        if goal.strip() and (self._goal is None or self._goal[0] != goal):
            with suppress(RectoError):  # it is asked for again in the next plan
                self._goal = goal, embedder.query(goal[:characters], self.rules.query_seconds)[0]
        known = self._goal if self._goal is not None and self._goal[0] == goal else None
        return EntryVectors(entries=entries, goal=known[1] if known else None, characters=characters)

    def search(
        self,
        query: Query,
        *,
        limit: int,
        scope: Scope | None = None,
        hidden: Collection[int] = (),
        hidden_memories: Collection[int] = (),
        shown: Collection[int] = (),
        repeats: bool = True,
        least: Callable[[Ranking], float | None] = lambda ranking: 0.0,
    ) -> SearchResult:
        """Search for messages that match a query.

        Args:
            query: what to search for.
            limit: maximum number of hits.
            scope: sessions to search; by default that of the rules. A query about a source searches its sessions.
            hidden: entries of this session to leave out.
            hidden_memories: entries of the agent's memory session to leave out.
            shown: entries of this session that are in the prompt; hits among them are marked.
            repeats: whether a message that says the same as the query is a hit; otherwise its answer is one.
            least: returns the relevance that a hit must have, and None if there need not be any.
        """
        scope = "tenant" if query.source else scope or self.rules.scope
        sessions = self._sessions_of(query.source) if query.source else self._sessions(scope)

        def find() -> tuple[Ranking, list[Hit]]:
            self.indexer.discard_foreign_rows(self.session)
            unseen = {memory_session(self.session): hidden_memories, self.session: hidden}
            ranking = self.searcher.find(query, sessions, unseen)
            relevance = least(ranking)
            if relevance is None:
                return ranking, []
            chosen = Selection(
                self._messages,
                ranking,
                self.session,
                superseded_weight=self.searcher.weights.superseded,
                shown=shown,
                hidden=hidden,
                query="" if repeats else query.text,
                judged=query.judged,
            )
            return ranking, chosen.hits(limit, own_session_only=scope == "session", least=relevance)

        ranking, hits = self.indexer.with_repair(find, after=self.catch_up)
        behind, without_vectors = self.indexer.backlog(self.session, ranking.sessions[0].view.fresh.head.seq)
        notes = [*ranking.notes]
        notes += [f"'{span.words}' is read as {_format_days(span.start, span.end)}" for span in ranking.spans]
        if error := self.indexer.last_error(self.session):
            notes.append(f"the index is not being kept up: {error}")
        return SearchResult(
            query=query.text,
            scope=scope,
            hits=tuple(hits) if scope == "session" else self._with_sources(hits),
            searched=ranking.searched,
            candidates=len(ranking.candidates),
            best=ranking.best_chance,
            behind=behind,
            # Both numbers count from the head of the transcript: what has no words yet has no vectors either.
            without_vectors=max(without_vectors - behind, 0),
            notes=tuple(notes),
        )

    def build_injection(
        self,
        query: Query,
        *,
        budget: int,
        count: Callable[[str], int],
        hidden: Collection[int],
        hidden_memories: Collection[int] = (),
        raises_threshold: bool = False,
        skips: Callable[[Hit], bool] = lambda hit: False,
    ) -> tuple[Injection | None, SearchResult]:
        """Search, and quote the relevant hits within `budget` tokens; None if nothing is relevant enough.

        Where not all of them fit, as many as possible are quoted; with `raises_threshold`, only the most relevant.
        A query about a source names the source of each hit. Hits that `skips` accepts are not quoted.
        """
        threshold, spare = self.rules.threshold, budget >= SPARE_TOKENS
        result = self.search(
            query,
            limit=self.rules.most * 2,
            hidden=hidden,
            hidden_memories=hidden_memories,
            repeats=False,
            least=partial(least_relevance, threshold=threshold, spare=spare),
        )
        relevant = relevant_hits(result, threshold, spare=spare)
        relevant = [hit for hit in relevant if not self._is_refused(hit) and not skips(hit)]
        relevant = relevant[: self.rules.most]
        injection = quoted = self._fit_to_budget(query, relevant, budget, count)
        while raises_threshold and quoted is not None and len(quoted.hits) < len(relevant):
            least = min(reversed(relevant), key=lambda hit: hit.chance)
            relevant = [hit for hit in relevant if hit is not least]
            quoted = self._fit_to_budget(query, relevant, budget, count)
            if quoted is not None:
                injection, threshold = quoted, max(threshold, least.chance)
        return (None if injection is None else replace(injection, threshold=round(threshold, 4))), result

    def _is_refused(self, hit: Hit) -> bool:
        """Whether a provider refused a message of another session; those of this one are hidden by the caller."""
        if hit.session == self.session:
            return False
        return self.searcher.store.find(hit.session, refused_key(hit.seq)) is not None

    def read(self, pointer: str, around: int = 0) -> list[Entry]:
        """Read the entry of a pointer, with `around` neighbours on each side.

        Raises `InputError`. An entry outside the scope gives the same error as one that does not exist.
        """
        session, seq = parse_pointer(pointer)
        entries: list[Entry] = []
        if reach_of(self.session, self.rules.scope).contains(session) or session in self._memory():
            entries = list(self.searcher.store.read(session, max(seq - around, 1), seq + around))
        if not any(entry.seq == seq for entry in entries):
            raise InputError(f"there is nothing at '{pointer:.300}'")
        return entries

    def used_entries(self, injection: Injection, question: str, answers: Sequence[str]) -> list[int]:
        """Return the recalled entries that the answers used: they repeat names or numbers found only there."""
        if len(self._references) > _MAX_REFERENCES:
            self._references = {}
        find = partial(references, cache=self._references)
        repeated = frozenset().union(*map(find, answers)) - find(question)
        if len(repeated) < _MIN_REPEATED_TERMS:
            return []
        return [
            hit.seq
            for hit in injection.hits
            if hit.session == self.session and len(repeated & find(hit.text)) >= _MIN_REPEATED_TERMS
        ]

    def _sessions(self, scope: Scope) -> list[str]:
        reach = reach_of(self.session, scope)
        memory = self._memory()
        if scope == "session":
            return [self.session, *memory]
        others = (key for key in self.indexer.sessions(reach.prefix) if reach.contains(key) and key != self.session)
        return [self.session, *islice(others, _MAX_SESSIONS - 1)]

    def _sessions_of(self, source: SessionSource) -> list[str]:
        """Return this session, and those of a project and an agent that the tenant may search."""
        wanted = self._sources.matching(source) if self._sources else frozenset()
        reach = reach_of(self.session, "tenant")
        indexed = (key for key in self.indexer.sessions(reach.prefix) if key in wanted and reach.contains(key))
        return [self.session, *islice((key for key in indexed if key != self.session), _MAX_SESSIONS - 1)]

    def _with_sources(self, hits: Iterable[Hit]) -> tuple[Hit, ...]:
        """Return the hits with where their sessions come from, as far as it is known."""
        known = self._sources.known() if self._sources else {}
        named = ((hit, known.get(hit.session)) for hit in hits)
        return tuple(replace(hit, agent=at.agent, project=at.project) if at else hit for hit, at in named)

    def _memory(self) -> list[str]:
        """Return the session with the approved memory of this session's agent: in reach whatever the scope."""
        key = memory_session(self.session)
        if self._authority is None or key == self.session:
            return []
        with suppress(RectoError):  # a store that cannot be written: what is known is searched
            self._authority.take_in_files(key)
        head = self.searcher.store.head(key).seq
        if head:
            self.indexer.index_words(key, head, self.rules.index_seconds)
        return [key] if head else []

    def _fit_to_budget(
        self, query: Query, hits: Sequence[Hit], budget: int, count: Callable[[str], int]
    ) -> Injection | None:
        """Quote as many hits as fit, each cut to the sentences that match the query, in transcript order.

        Corrections are fitted first, then what they take back, so that nothing else takes their tokens. The sum of all
        excerpts decides what fits; the whole is counted at the end, and the last hits are dropped again should it
        exceed the budget after all. An excerpt that reads like one that is quoted already is not quoted again: it is
        from another version of the same file.
        """
        hits = sorted(hits[: self.rules.most], key=lambda hit: (not hit.supersedes, hit.superseded_by is None))
        quoting = _Quoting(
            self._relevance_to(query.text), self._questions_of(hits), count, names_sources=query.source is not None
        )
        most = budget // _MAX_BUDGET_SHARE
        share = min(max(budget // 8, _MIN_SHARE_TOKENS), most)
        spent = count(frame_quotation([], header=quoting.header))
        chosen: list[_QuotedHit] = []
        quoted, texts = set[str](), set[str]()
        for hit in hits:
            if hit.superseded_by is not None and all(other.hit.seq != hit.superseded_by for other in chosen):
                continue  # its correction did not fit, and without it the statement would mislead
            left = budget - spent
            if left < _MIN_EXCERPT_TOKENS and chosen:
                break
            limits = _Limits(share=min(share, left), excerpt=most, left=left)
            fitted = self._fitted(hit, limits, quoting, quoted)
            if fitted is not None and fitted.text not in texts:
                chosen.append(fitted)
                texts.add(fitted.text)
                quoted.update(piece.pointer for piece in fitted.pieces)
                spent += fitted.tokens
        while chosen:
            injection = _injection(chosen, count, quoting.header)
            if injection.tokens <= budget:
                return injection
            dropped = chosen.pop()
            chosen = [other for other in chosen if other.hit.superseded_by != dropped.hit.seq]
        return None

    def _fitted(self, hit: Hit, limits: _Limits, quoting: _Quoting, quoted: Collection[str]) -> _QuotedHit | None:
        """Quote a hit within its limits: first with the question it answers, then without, then shorter."""
        characters = limits.share * _CHARACTERS_PER_TOKEN
        for with_question in (True, False, False):
            fitted = self._quoted(hit, characters if with_question else -characters, quoting, quoted)
            if fitted.tokens <= min(limits.left, limits.excerpt):
                return fitted
            excerpt_tokens = quoting.excerpt_tokens(fitted.pieces)
            if fitted.tokens <= limits.left and excerpt_tokens <= limits.excerpt:
                return fitted
            # Numbers and code have more tokens to the character than prose.
            over = max(fitted.tokens / limits.left, excerpt_tokens / limits.excerpt, 1.33)
            characters = int(characters / over * 0.75)
            if characters < _MIN_EXCERPT_CHARACTERS:
                break
        return None

    def _quoted(self, hit: Hit, characters: int, quoting: _Quoting, quoted: Collection[str] = ()) -> _QuotedHit:
        question = quoting.questions.get((hit.session, hit.context[0])) if characters > 0 and hit.context else None
        excerpts = self._excerpts(hit, question, abs(characters), quoting.relevance)
        pieces = _rendered(hit, _naming_source(hit, excerpts) if quoting.names_sources else excerpts)
        pieces = [piece for piece in pieces if piece.is_hit or piece.pointer not in quoted]
        return _QuotedHit(hit, characters, pieces, quoting.tokens(pieces))

    def requote(
        self,
        query: Query,
        recorded: Sequence[Mapping[str, Any]],
        *,
        count: Callable[[str], int],
        hidden: Collection[int],
    ) -> Injection | None:
        """Quote again the hits that an event records; None if one of them cannot be read, or not from here."""
        keys = [key for hit in recorded if self._may_quote(*(key := parse_pointer(hit["pointer"])))]
        if len(keys) < len(recorded):
            return None
        entries = self._messages.read(keys)
        if not recorded or any(key not in entries or (key[0] == self.session and key[1] in hidden) for key in keys):
            return None
        notes = self._messages.notes(keys)
        hits = [
            self._hit_again(entries[key], payload, notes.get(key, ""))
            for key, payload in zip(keys, recorded, strict=True)
        ]
        quoting = _Quoting(self._relevance_to(query.text), self._questions_of(hits), count)
        if any(self._is_refused(hit) or not hit.text.strip() for hit in hits):
            return None
        chosen: list[_QuotedHit] = []
        quoted: set[str] = set()
        for hit, payload in zip(hits, recorded, strict=True):
            chosen.append(self._quoted(hit, payload["characters"], quoting, quoted))
            quoted.update(piece.pointer for piece in chosen[-1].pieces)
        return _injection(chosen, count)

    def _may_quote(self, session: str, seq: int) -> bool:
        """Whether a search would return an entry: an event may have been imported."""
        if reach_of(self.session, self.rules.scope).contains(session):
            return True
        return session == memory_session(self.session) and bool(
            self._messages.notes([(session, seq)]).get((session, seq))
        )

    def _hit_again(self, entry: Entry, payload: Mapping[str, Any], note: str) -> Hit:
        text = recall_text(entry)
        return Hit(
            session=entry.session,
            seq=entry.seq,
            pointer=payload["pointer"],
            role=entry.role,
            ts=entry.ts,
            text=text,
            score=payload["score"],
            chance=payload["chance"],
            parts=payload["parts"],
            marks=classify(text, spoken_by(entry.role, text)),
            superseded_by=payload["superseded_by"],
            supersedes=tuple(payload["supersedes"]),
            note=note,
            context=tuple(payload["context"]),
        )

    def excerpts_of(self, hit: Hit, query: str, characters: int) -> list[Excerpt]:
        """Return a hit as a prompt would quote it: cut to what matches the query, after the question it answers.

        The source is named where it is known and other sessions were searched.
        """
        question = next(iter(self._questions_of([hit]).values()), None)
        return _naming_source(hit, self._excerpts(hit, question, characters, self._relevance_to(query)))

    def _relevance_to(self, query: str) -> Relevance:
        """Return a function that counts the terms that sentences share with the query."""
        query_terms = frozenset(self.searcher.terms_in(query))
        return lambda sentences: [float(len(query_terms & terms)) for terms in self._terms_of(sentences)]

    def _terms_of(self, sentences: Sequence[str]) -> list[frozenset[int]]:
        if len(self._sentence_terms) > _MAX_SENTENCES:
            self._sentence_terms = {}
        known = self._sentence_terms
        if missing := [sentence for sentence in sentences if sentence not in known]:
            known.update(zip(missing, self.indexer.lexicon.distinct(missing), strict=True))
        return [known[sentence] for sentence in sentences]

    def _questions_of(self, hits: Sequence[Hit]) -> dict[EntryKey, Entry]:
        """Read the questions that hits answer, but those that a client wrote."""
        keys = [(hit.session, hit.context[0]) for hit in hits if hit.role != "user" and hit.context]
        found = self._messages.read(keys) if keys else {}
        return {key: question for key, question in found.items() if recall_text(question).strip()}

    def _excerpts(self, hit: Hit, question: Entry | None, characters: int, relevance: Relevance) -> list[Excerpt]:
        """Return the hit, preceded by a short excerpt of the question it answers."""
        note = hit.note
        if hit.superseded_by is not None:
            note = f"superseded by {pointer_to(hit.session, hit.superseded_by)}"
        elif hit.supersedes:
            note = f"takes back {', '.join(pointer_to(hit.session, seq) for seq in hit.supersedes)}"
        excerpts = []
        if hit.role != "user" and question is not None:
            text = recall_text(question)
            speaker: str = spoken_by(question.role, text)
            text = excerpt(text, relevance, max(characters // 4, 80))
            excerpts.append(Excerpt(pointer_to(hit.session, question.seq), speaker, question.ts, text))
        speaker = "memory" if hit.note else spoken_by(hit.role, hit.text)
        excerpts.append(Excerpt(hit.pointer, speaker, hit.ts, excerpt(hit.text, relevance, characters), note))
        return excerpts


class _Limits(Struct, frozen=True, kw_only=True):
    """The tokens that one hit may take."""

    share: int
    """About so many, where there are several hits."""
    excerpt: int
    """At most, without headings."""
    left: int
    """At most, in all."""


class _Quoting:
    """What all excerpts of a quotation are made with."""

    def __init__(
        self,
        relevance: Relevance,
        questions: Mapping[EntryKey, Entry],
        count: Callable[[str], int],
        *,
        names_sources: bool = False,
    ) -> None:
        self.relevance = relevance
        self.names_sources = names_sources
        self.header = PROJECT_HEADER if names_sources else HEADER
        self.questions = questions
        self._count = count
        self._empty = count("")
        """The tokens of a message without text."""

    def tokens(self, pieces: Sequence[_QuotedExcerpt]) -> int:
        """Return the tokens that excerpts add to a quotation."""
        return sum(self._count(f"{piece.text}\n") - self._empty for piece in pieces)

    def excerpt_tokens(self, pieces: Sequence[_QuotedExcerpt]) -> int:
        """Return the same without the headings."""
        return sum(self._count(piece.text.partition("\n")[2]) - self._empty for piece in pieces)


class _QuotedExcerpt(Struct, frozen=True):
    """An excerpt as it is quoted."""

    pointer: str
    ts: int
    seq: int
    text: str
    is_hit: bool


def _naming_source(hit: Hit, excerpts: Sequence[Excerpt]) -> list[Excerpt]:
    """Return excerpts with the agent and the project of a hit in their headings."""
    source = " in ".join(filter(None, (hit.agent, hit.project)))
    return [replace(one, note=" · ".join(filter(None, (source, one.note)))) for one in excerpts]


def _rendered(hit: Hit, excerpts: Sequence[Excerpt]) -> list[_QuotedExcerpt]:
    last = len(excerpts) - 1
    return [
        _QuotedExcerpt(
            piece.pointer, piece.ts, hit.seq if place == last else hit.context[0], render_excerpt(piece), place == last
        )
        for place, piece in enumerate(excerpts)
    ]


class _QuotedHit(Struct, frozen=True):
    """A hit with its excerpts."""

    hit: Hit
    characters: int
    """As in `Injection.characters`."""
    pieces: Sequence[_QuotedExcerpt]
    tokens: int

    @property
    def text(self) -> str:
        """What is quoted of the hit itself, without the heading."""
        return next(piece.text.partition("\n")[2] for piece in self.pieces if piece.is_hit)


def _injection(chosen: Sequence[_QuotedHit], count: Callable[[str], int], header: str = HEADER) -> Injection:
    """Make the quotation in transcript order; a message that is a hit and a question of another is quoted once."""
    by_pointer: dict[str, _QuotedExcerpt] = {}
    for piece in (piece for one in chosen for piece in one.pieces):
        if piece.is_hit or piece.pointer not in by_pointer:
            by_pointer[piece.pointer] = piece
    ordered = sorted(by_pointer.values(), key=lambda piece: (piece.ts, piece.seq))
    text = frame_quotation([piece.text for piece in ordered], header=header)
    return Injection(
        text=text,
        tokens=count(text),
        hits=tuple(one.hit for one in chosen),
        characters=tuple(one.characters for one in chosen),
    )


def _format_days(start: int, end: int) -> str:
    first, last = format_minute(start)[:10], format_minute(end - 1)[:10]
    return first if first == last else f"{first} to {last}"
