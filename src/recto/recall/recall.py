"""Brings back what left the prompt and matters now: searches, explains, and fits what it found into its share.

What comes back is quoted, with pointers, for one prompt. It is never stored as a message and carries no authority. A
statement that was taken back later never comes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

from recto.errors import InputError
from recto.formats.entry_text import text_of
from recto.recall.chunking import excerpt
from recto.recall.indexer import Indexer
from recto.recall.protocols import Authority
from recto.recall.quoting import Excerpt, format_minute, render_excerpt, render_quotation
from recto.recall.search import Ranking, Searcher
from recto.recall.selection import MessageReader, Selection
from recto.recall.types import Confirmation, Hit, Injection, Query, SearchResult
from recto.text.identifiers import find_terms as references
from recto.transcript.entries import Entry
from recto.transcript.session_keys import Scope, memory_session, parse_pointer, pointer_to, reach_of

_COMPANION_MARGIN = 0.1
"""How much less likely others may be that come along with one that is likely enough."""
_MAX_SESSIONS = 1000
"""Sessions a search of an agent or a tenant goes through."""
_MIN_SHARE_TOKENS = 120
"""Tokens an excerpt may have even where the share is small: two or three sentences."""
_MIN_EXCERPT_TOKENS = 60
"""Tokens below which an excerpt is not worth its frame."""
_CHARACTERS_PER_TOKEN = 4
"""Characters of a token, to begin with; what is made is counted."""
_MIN_REPEATED_TERMS = 2
"""Names and numbers of a recalled text that an answer must repeat to have made use of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallRules:
    """How much comes back, from where, and when not."""

    inject: bool = True
    """Whether what matters is put into the prompt without being asked for."""
    scope: Scope = "session"
    threshold: float = 0.4
    """The chance the best hit must have for anything to be put into a prompt."""
    most: int = 12
    """Messages that are put into one prompt, at most."""
    tokens: int = 0
    """What recalled text may cost; 0: the memory share of the budget."""
    index_seconds: float = 10.0
    """How long relief waits for the index before what should leave stays."""


class RecallService:
    """Recall of one session."""

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
        """What takes messages in."""
        return self.searcher.indexer

    def close(self) -> None:
        """Closes the indexer, if it is this session's own."""
        if self._owns_indexer:
            self.indexer.close()

    def confirm(self, seqs: Iterable[int]) -> Confirmation:
        """Whether these entries can be found again once they have left; indexes them first where needed."""
        return self.indexer.confirm(self.session, seqs, self.rules.index_seconds)

    def catch_up(self) -> None:
        """Has the session indexed, as far as that goes within the time limit."""
        self.indexer.keep_up(self.session, self.rules.index_seconds)

    def search(
        self,
        asked: Query,
        *,
        most: int,
        scope: Scope | None = None,
        hidden: Collection[int] = (),
        shown: Collection[int] = (),
    ) -> SearchResult:
        """What answers a question. `hidden` entries of this session are left out, `shown` ones are marked as such."""
        scope = scope or self.rules.scope

        def look() -> tuple[Ranking, list[Hit]]:
            self.indexer.recognise(self.session)
            ranking = self.searcher.find(asked, self._sessions(scope), {self.session: hidden})
            chosen = Selection(
                self._messages,
                ranking,
                self.session,
                taken_back=self.searcher.weights.taken_back,
                upto=asked.before,
                shown=shown,
                hidden=hidden,
            )
            return ranking, chosen.hits(most, alone=scope == "session")

        ranking, hits = self.indexer.mended(look, after=self.catch_up)
        behind, bare = self.indexer.behind(self.session)
        notes = [*ranking.notes]
        notes += [f"'{span.words}' is read as {_format_days(span.start, span.end)}" for span in ranking.spans]
        if trouble := self.indexer.trouble(self.session):
            notes.append(f"the index is not being kept up: {trouble}")
        return SearchResult(
            query=asked.text,
            scope=scope,
            hits=tuple(hits),
            searched=ranking.searched,
            behind=behind,
            without_vectors=max(bare - behind, 0),
            notes=tuple(notes),
        )

    def injection(
        self, asked: Query, *, room: int, count: Callable[[str], int], hidden: Collection[int]
    ) -> tuple[Injection | None, SearchResult]:
        """What to put into a prompt, within so many tokens; nothing where nothing is relevant enough."""
        found = self.search(asked, most=self.rules.most * 2, hidden=hidden)
        best = max((hit.chance for hit in found.hits), default=0.0)
        keeps = self.rules.threshold - _COMPANION_MARGIN if best >= self.rules.threshold else inf
        relevant = [hit for hit in found.hits if hit.chance >= keeps]
        return self._fitted(asked, relevant, room, count), found

    def read(self, pointer: str, around: int = 0) -> list[Entry]:
        """The entry a pointer names, with neighbours where asked. What is out of reach is as if it were not there."""
        session, seq = parse_pointer(pointer)
        entries: list[Entry] = []
        if reach_of(self.session, self.rules.scope).contains(session) or session in self._memory():
            entries = list(self.searcher.store.read(session, max(seq - around, 1), seq + around))
        if not any(entry.seq == seq for entry in entries):
            raise InputError(f"there is nothing at '{pointer:.300}'")
        return entries

    def used(self, injection: Injection, question: str, answers: Sequence[str]) -> list[int]:
        """Which of the recalled entries the answers made use of: they repeat names or numbers found only there."""
        said = frozenset().union(*(references(answer) for answer in answers)) - references(question)
        return [
            hit.seq
            for hit in injection.hits
            if hit.session == self.session and len(said & references(hit.text)) >= _MIN_REPEATED_TERMS
        ]

    def _sessions(self, scope: Scope) -> list[str]:
        reach = reach_of(self.session, scope)
        if scope == "session":
            return [self.session, *self._memory()]
        found = [
            key for key in self.indexer.index.sessions(reach.prefix) if reach.contains(key) and key != self.session
        ]
        return [self.session, *found[: _MAX_SESSIONS - 1]]

    def _memory(self) -> list[str]:
        """The session that holds what this session's agent remembers for good: within its reach, whatever the scope."""
        key = memory_session(self.session)
        head = self.searcher.store.head(key).seq if self._remembers and key != self.session else 0
        if head:
            self.indexer.take_words(key, head, self.rules.index_seconds)
        return [key] if head else []

    def _fitted(self, asked: Query, hits: Sequence[Hit], room: int, count: Callable[[str], int]) -> Injection | None:
        """As many of the hits as fit, each cut to what it says about the question; told in the order they were said."""
        matters = self._matters(asked.text)
        share = max(room // 8, _MIN_SHARE_TOKENS)
        each = cache(render_excerpt)
        chosen: list[tuple[Hit, list[Excerpt]]] = []
        best: Injection | None = None
        for hit in hits[: self.rules.most]:
            if hit.superseded_by is not None and all(other.seq != hit.superseded_by for other, _ in chosen):
                continue  # never alone
            spent = best.tokens if best else 0
            limit = min(share, room - spent)
            if limit < _MIN_EXCERPT_TOKENS:
                break
            tried = [*chosen, (hit, self._excerpts(hit, limit * _CHARACTERS_PER_TOKEN, matters))]
            made = _render_injection(tried, count, each)
            if made.tokens > room:
                tried = [*chosen, (hit, self._excerpts(hit, limit * _CHARACTERS_PER_TOKEN // 2, matters)[-1:])]
                made = _render_injection(tried, count, each)
            if made.tokens <= room:
                chosen, best = tried, made
        return best

    def quotable(self, hit: Hit, query: str, characters: int) -> list[Excerpt]:
        """A hit as it would stand in a prompt: cut to what it says about a question, behind the one it answers."""
        return self._excerpts(hit, characters, self._matters(query))

    def _matters(self, query: str) -> Callable[[str], float]:
        lexicon = self.indexer.lexicon
        wanted = lexicon.terms(query)
        return lambda sentence: float(len(wanted.keys() & lexicon.terms(sentence).keys()))

    def _excerpts(self, hit: Hit, characters: int, matters: Callable[[str], float]) -> list[Excerpt]:
        """The hit, and before it in few words the question it answers."""
        note = hit.note
        if hit.superseded_by is not None:
            note = f"superseded by {pointer_to(hit.session, hit.superseded_by)}"
        elif hit.supersedes:
            note = f"takes back {', '.join(pointer_to(hit.session, seq) for seq in hit.supersedes)}"
        made = []
        if hit.role != "user" and hit.context:
            question = self._messages.at(hit.session, hit.context[0])
            if question is not None:
                text = excerpt(text_of(question), matters, max(characters // 4, 80))
                made.append(Excerpt(pointer_to(hit.session, question.seq), question.role, question.ts, text))
        who = "memory" if hit.note else hit.role
        made.append(Excerpt(hit.pointer, who, hit.ts, excerpt(hit.text, matters, characters), note))
        return made


def _render_injection(
    chosen: Sequence[tuple[Hit, list[Excerpt]]], count: Callable[[str], int], each: Callable[[Excerpt], str]
) -> Injection:
    """In the order in which it was said; a question that stands there already is not said twice."""
    by_pointer: dict[str, tuple[int, Excerpt]] = {}
    for hit, excerpts in chosen:
        for place, one in enumerate(excerpts):
            is_hit = place == len(excerpts) - 1
            if is_hit or one.pointer not in by_pointer:
                by_pointer[one.pointer] = (hit.seq if is_hit else hit.context[0], one)
    ordered = sorted(by_pointer.values(), key=lambda held: (held[1].when, held[0]))
    text = render_quotation([one for _, one in ordered], each=each)
    return Injection(text=text, tokens=count(text), hits=tuple(hit for hit, _ in chosen))


def _format_days(start: int, end: int) -> str:
    first, last = format_minute(start)[:10], format_minute(end - 1)[:10]
    return first if first == last else f"{first} to {last}"
