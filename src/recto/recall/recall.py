"""The retrieval service of a session: searches its history, explains the hits, and fits them into a token budget.

Recalled text is quoted with pointers for one prompt only. It is never stored as a message and carries no authority. A
statement that was corrected later is never quoted without its correction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

from recto.errors import InputError
from recto.formats.entry_text import entry_text
from recto.recall._selection import MessageReader, Selection
from recto.recall.documents import excerpt
from recto.recall.indexer import Indexer
from recto.recall.protocols import Authority
from recto.recall.quoting import Excerpt, format_minute, render_excerpt, render_quotation
from recto.recall.search import Ranking, Searcher
from recto.recall.types import Confirmation, Hit, Injection, Query, SearchResult
from recto.text.identifiers import find_terms as references
from recto.transcript.entries import Entry
from recto.transcript.session_keys import Scope, memory_session, parse_pointer, pointer_to, reach_of

_COMPANION_MARGIN = 0.1
"""Hits may be this much less relevant than the threshold if the best hit reaches it."""
_MAX_SESSIONS = 1000
"""Sessions that a search over an agent or a tenant covers at most."""
_MIN_SHARE_TOKENS = 120
"""Tokens an excerpt may have even if its share of the budget is smaller: two or three sentences."""
_MIN_EXCERPT_TOKENS = 60
"""Tokens below which an excerpt is not worth its heading."""
_CHARACTERS_PER_TOKEN = 4
"""First estimate for cutting excerpts; the result is counted exactly."""
_MIN_REPEATED_TERMS = 2
"""Names and numbers of a recalled text that an answer must repeat to count as using it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRules:
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
    ) -> None:
        self.searcher = searcher
        self.session = session
        self.rules = rules
        self._owns_indexer = owns_indexer
        self._remembers = authority is not None
        self._messages = MessageReader(searcher, authority)

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

    def search(
        self,
        query: Query,
        *,
        limit: int,
        scope: Scope | None = None,
        hidden: Collection[int] = (),
        shown: Collection[int] = (),
    ) -> SearchResult:
        """Search for messages that match a query.

        Args:
            query: what to search for.
            limit: maximum number of hits.
            scope: sessions to search; by default that of the rules.
            hidden: entries of this session to leave out.
            shown: entries of this session that are in the prompt; hits among them are marked.
        """
        scope = scope or self.rules.scope

        def find() -> tuple[Ranking, list[Hit]]:
            self.indexer.discard_foreign_rows(self.session)
            ranking = self.searcher.find(query, self._sessions(scope), {self.session: hidden})
            chosen = Selection(
                self._messages,
                ranking,
                self.session,
                superseded_weight=self.searcher.weights.superseded,
                upto=query.before,
                shown=shown,
                hidden=hidden,
            )
            return ranking, chosen.hits(limit, own_session_only=scope == "session")

        ranking, hits = self.indexer.with_repair(find, after=self.catch_up)
        behind, without_vectors = self.indexer.backlog(self.session)
        notes = [*ranking.notes]
        notes += [f"'{span.words}' is read as {_format_days(span.start, span.end)}" for span in ranking.spans]
        if error := self.indexer.last_error(self.session):
            notes.append(f"the index is not being kept up: {error}")
        return SearchResult(
            query=query.text,
            scope=scope,
            hits=tuple(hits),
            searched=ranking.searched,
            behind=behind,
            # Both numbers count from the head of the transcript: what has no words yet has no vectors either.
            without_vectors=max(without_vectors - behind, 0),
            notes=tuple(notes),
        )

    def build_injection(
        self, query: Query, *, budget: int, count: Callable[[str], int], hidden: Collection[int]
    ) -> tuple[Injection | None, SearchResult]:
        """Search, and quote the relevant hits within `budget` tokens; None if nothing is relevant enough."""
        result = self.search(query, limit=self.rules.most * 2, hidden=hidden)
        best = max((hit.chance for hit in result.hits), default=0.0)
        threshold = self.rules.threshold - _COMPANION_MARGIN if best >= self.rules.threshold else inf
        relevant = [hit for hit in result.hits if hit.chance >= threshold]
        return self._fit_to_budget(query, relevant, budget, count), result

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
        repeated = frozenset().union(*(references(answer) for answer in answers)) - references(question)
        return [
            hit.seq
            for hit in injection.hits
            if hit.session == self.session and len(repeated & references(hit.text)) >= _MIN_REPEATED_TERMS
        ]

    def _sessions(self, scope: Scope) -> list[str]:
        reach = reach_of(self.session, scope)
        if scope == "session":
            return [self.session, *self._memory()]
        keys = [key for key in self.indexer.index.sessions(reach.prefix) if reach.contains(key) and key != self.session]
        return [self.session, *keys[: _MAX_SESSIONS - 1]]

    def _memory(self) -> list[str]:
        """Return the session with the approved memory of this session's agent: in reach whatever the scope."""
        key = memory_session(self.session)
        head = self.searcher.store.head(key).seq if self._remembers and key != self.session else 0
        if head:
            self.indexer.index_words(key, head, self.rules.index_seconds)
        return [key] if head else []

    def _fit_to_budget(
        self, query: Query, hits: Sequence[Hit], budget: int, count: Callable[[str], int]
    ) -> Injection | None:
        """Quote as many hits as fit, each cut to the sentences that match the query, in transcript order."""
        relevance = self._relevance_to(query.text)
        share = max(budget // 8, _MIN_SHARE_TOKENS)
        render = cache(render_excerpt)  # every attempt renders all excerpts chosen so far again
        chosen: list[tuple[Hit, list[Excerpt]]] = []
        best: Injection | None = None
        for hit in hits[: self.rules.most]:
            if hit.superseded_by is not None and all(other.seq != hit.superseded_by for other, _ in chosen):
                continue  # its correction did not fit, and without it the statement would mislead
            spent = best.tokens if best else 0
            limit = min(share, budget - spent)
            if limit < _MIN_EXCERPT_TOKENS:
                break
            attempt = [*chosen, (hit, self._excerpts(hit, limit * _CHARACTERS_PER_TOKEN, relevance))]
            injection = _render_injection(attempt, count, render)
            if injection.tokens > budget:
                # Try once more with half the text and without the question before it.
                shorter = self._excerpts(hit, limit * _CHARACTERS_PER_TOKEN // 2, relevance)[-1:]
                attempt = [*chosen, (hit, shorter)]
                injection = _render_injection(attempt, count, render)
            if injection.tokens <= budget:
                chosen, best = attempt, injection
        return best

    def excerpts_of(self, hit: Hit, query: str, characters: int) -> list[Excerpt]:
        """Return a hit as a prompt would quote it: cut to what matches the query, after the question it answers."""
        return self._excerpts(hit, characters, self._relevance_to(query))

    def _relevance_to(self, query: str) -> Callable[[str], float]:
        """Return a function that counts the terms a sentence shares with the query."""
        lexicon = self.indexer.lexicon
        query_terms = lexicon.terms(query)
        return lambda sentence: float(len(query_terms.keys() & lexicon.terms(sentence).keys()))

    def _excerpts(self, hit: Hit, characters: int, relevance: Callable[[str], float]) -> list[Excerpt]:
        """Return the hit, preceded by a short excerpt of the question it answers."""
        note = hit.note
        if hit.superseded_by is not None:
            note = f"superseded by {pointer_to(hit.session, hit.superseded_by)}"
        elif hit.supersedes:
            note = f"takes back {', '.join(pointer_to(hit.session, seq) for seq in hit.supersedes)}"
        excerpts = []
        if hit.role != "user" and hit.context:
            question = self._messages.at(hit.session, hit.context[0])
            if question is not None:
                text = excerpt(entry_text(question), relevance, max(characters // 4, 80))
                excerpts.append(Excerpt(pointer_to(hit.session, question.seq), question.role, question.ts, text))
        speaker = "memory" if hit.note else hit.role
        excerpts.append(Excerpt(hit.pointer, speaker, hit.ts, excerpt(hit.text, relevance, characters), note))
        return excerpts


def _render_injection(
    chosen: Sequence[tuple[Hit, list[Excerpt]]], count: Callable[[str], int], render: Callable[[Excerpt], str]
) -> Injection:
    """Render the quotation in transcript order; a question that several hits share is quoted once."""
    by_pointer: dict[str, tuple[int, Excerpt]] = {}
    for hit, excerpts in chosen:
        for position, piece in enumerate(excerpts):
            is_hit = position == len(excerpts) - 1
            if is_hit or piece.pointer not in by_pointer:
                by_pointer[piece.pointer] = (hit.seq if is_hit else hit.context[0], piece)
    ordered = sorted(by_pointer.values(), key=lambda numbered: (numbered[1].ts, numbered[0]))
    text = render_quotation([piece for _, piece in ordered], render=render)
    return Injection(text=text, tokens=count(text), hits=tuple(hit for hit, _ in chosen))


def _format_days(start: int, end: int) -> str:
    first, last = format_minute(start)[:10], format_minute(end - 1)[:10]
    return first if first == last else f"{first} to {last}"
