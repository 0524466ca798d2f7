"""Recall in a window: confirms that messages are indexed before they are evicted, and quotes them in later prompts.

Recall searches once for a turn, and again when a decision has changed the prompt anyway. What was found is recorded as
an event, from which the same quotation is made again after a restart.

The query is made from the request and what it answers. Tool output is never searched for, nor are the
reminders that coding agents add to a message. A reply without a word of its own ("1+2", "yes") is searched for with
what it answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property, partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from recto.context.facts.statements import FUNCTION_WORDS, user_sentences, without_injected
from recto.context.policies.planner import ReliefRules
from recto.context.window.state import WindowState
from recto.context.window.units import EntryVectors
from recto.engine.projection import EventLog
from recto.engine.prompt_builder import MessageCache, PromptBuilder, TurnNote
from recto.errors import InputError
from recto.formats.message import Message
from recto.recall.types import USED, Confirmation, Hit, Injection, Query, SearchResult
from recto.text.lazy_re import lazy_re
from recto.transcript.entries import MESSAGE, Entry
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import parse_pointer

if TYPE_CHECKING:
    from recto.recall.recall import RecallService

INJECTED, MISSED, INDEX_FAILED = "recall_injected", "recall_miss", "index_failed"
_SEAL_EVERY = 256
"""Entries after which the background thread looks whether rows of words fill a block."""

_NOTE_REACH = 400
"""Entries back in which the last recall is searched: the length of a long turn."""
_BETWEEN_STEPS = "nothing is searched for between the steps of the model"
_SHORT_REQUEST = 40
"""Characters below which a request is searched for together with what it answers and the request before it."""
_MAX_ANSWERED = 600
"""Characters of what a bare reply answers, from its end: questions and options are there."""
_MAX_QUESTIONS = 2
_MAX_READ = 4_000
"""Characters of that message that are read for questions."""
_QUESTION_ENDS = ("?", "？", "؟")
_MAX_BEFORE = 600
"""Characters of the request before."""
_WORD = lazy_re(r"[^\W\d_]{3,}|[\u3400-\u9fff]{3,}")
_REPLIES = frozenset(
    """
    yes yep yeah sure okay fine good great perfect thanks thank continue proceed next ahead option options number both
    first second third last one two three four five agreed correct exactly right done lgtm nope neither either none
    ja nein klar gerne genau weiter danke oui non merci continuez vale claro gracias sigue sim sì
    """.split()  # noqa: SIM905  read as prose
)
"""Words of replies that name no subject."""


class _RecalledTurn(Struct, frozen=True, kw_only=True):
    """What was recalled, and for which state of the prompt."""

    question: int
    anchor: int
    """The entry up to which the transcript was searched."""
    injection: Injection | None = None
    result: SearchResult | None = None
    error: str = ""

    @property
    def note(self) -> TurnNote | None:
        """What is added to the prompt."""
        found = self.injection
        return TurnNote(question=self.question, text=found.text, tokens=found.tokens) if found is not None else None


class TurnText(Struct, frozen=True, kw_only=True):
    """What is searched for in a turn."""

    text: str
    context: str
    """Searched for as well, with less weight."""


class RecallInjection:
    """The recall of one window: what is quoted in the prompt now, and what was reported about it."""

    def __init__(
        self,
        opener: Callable[[], RecallService],
        messages: MessageCache,
        events: EventLog,
        reaches_beyond: Callable[[], bool] = lambda: False,
    ) -> None:
        """Prepare recall for a window.

        Args:
            opener: Opens the search, when it is first needed.
            messages: The messages in the window.
            events: Where recall is reported.
            reaches_beyond: Whether there may be approved memory or other sessions to search. Called for every prompt
                of a session that has evicted nothing, so it must not read the store.
        """
        self._opener = opener
        self._messages = messages
        self._events = events
        self._reaches_beyond = reaches_beyond
        self.shown_memories: frozenset[int] = frozenset()
        """Messages of the agent's memory session that are in the prompt anyway."""
        self._turn: _RecalledTurn | None = None
        self._looked_at = (0, 0)
        """The question and the last edit of the prompt for which it was last decided whether to search."""
        self._reported = 0
        self._scheduled = -_SEAL_EVERY
        """The entry up to which the background thread was last asked to index."""
        self._failure: Confirmation | None = None
        self._vectors: tuple[frozenset[int], str, EntryVectors] | None = None
        """The messages and the goal whose vectors were read last, until a message is stored."""
        self._stored_at: dict[int, int] = {}
        """When the messages of the last append were said."""

    @cached_property
    def recall(self) -> RecallService:
        """Opened on first use: a session that has nothing to search needs no index."""
        return self._opener()

    def close(self) -> None:
        """Closes recall, if it was ever opened."""
        if "recall" in self.__dict__:
            self.recall.close()

    def index_lag(self, seq: int) -> int:
        """Entries up to this one whose words are not indexed; 0 before recall was first needed. Reads nothing."""
        if "recall" not in self.__dict__:
            return 0
        return max(seq - self.recall.indexer.indexed_through(self.recall.session), 0)

    def note_stored(self, entries: Sequence[Entry]) -> None:
        """Takes entries that were just stored, so that their words are known to be indexed."""
        self._stored_at = {entry.seq: entry.ts for entry in entries if entry.kind == MESSAGE} or self._stored_at
        self._vectors = None
        if entries and "recall" in self.__dict__:
            self.recall.indexer.note_stored(self.recall.session, entries)

    def vectors_of(self, seqs: Collection[int], goal: str) -> EntryVectors:
        """The vectors of messages and of a goal. Read once for a plan, which asks again as its state shrinks."""
        known = self._vectors
        if known is None or known[1] != goal or not known[0].issuperset(seqs):
            found = self.recall.vectors_of(seqs, goal)
            known = self._vectors = frozenset(seqs), goal, found
        return known[2]

    def index_ahead(self, seq: int) -> None:
        """Lets the background thread index the session up to an entry, where there is something for it to do.

        Words are stored with their messages. What is left are vectors, messages that another process stored without
        their words, and now and then a block of rows to seal.
        """
        indexer = self.recall.indexer
        if indexer.embedder is not None or self.index_lag(seq) or seq - self._scheduled >= _SEAL_EVERY:
            self._scheduled = seq
            indexer.schedule(self.recall.session)

    @property
    def hits(self) -> tuple[Hit, ...]:
        """What is quoted in the prompt now."""
        injection = self._turn.injection if self._turn else None
        return injection.hits if injection else ()

    @property
    def blocked_by_index(self) -> str:
        """Why nothing may be evicted; empty where the index does not prevent it."""
        return self._failure.reason if self._failure is not None and not self._failure.words else ""

    def confirm_indexed(self, seqs: Collection[int]) -> Confirmation:
        """Whether entries are in the index, so that they may be evicted. Records a failure once."""
        confirmed = self.recall.confirm(seqs)
        before, self._failure = self._failure, confirmed if confirmed.reason else None
        if self._failure and (before is None or (before.words, before.vectors) != (confirmed.words, confirmed.vectors)):
            self._events.record(
                INDEX_FAILED,
                {
                    "words": confirmed.words,
                    "vectors": confirmed.vectors,
                    "reason": confirmed.reason,
                    "first": min(seqs),
                    "last": max(seqs),
                    "entries": len(seqs),
                },
            )
        return confirmed

    def finish_turn(self, state: WindowState) -> None:
        """Ends the recall of the turn before, once there is a new question, and records whether it was used."""
        turn = self._turn
        if turn is None or turn.question == state.question:
            return
        self._turn = None
        if turn.injection is None:
            return
        later = takewhile(lambda line: line.seq > turn.question, reversed(state.messages.values()))
        answers = [self._messages.text_of(line.seq) for line in later if line.role == "assistant"][::-1]
        if answers:
            question = self._messages.text_of(turn.question) if turn.question in state.messages else ""
            used = self.recall.used_entries(turn.injection, question, answers)
            shown = [hit.seq for hit in turn.injection.hits if hit.session == self.recall.session]
            payload = {"question": turn.question, "shown": shown, "used": used}
            self._events.record(USED, payload, f"{USED}/{turn.question}")

    def recall_for(
        self,
        state: WindowState,
        builder: PromptBuilder,
        *,
        input_budget: int,
        share: int,
        enforced: bool = False,
        relief: ReliefRules | None = None,
    ) -> TurnNote | None:
        """Searches evicted messages for what matters to the question, before the model takes its first step.

        Returns the note to put above the question, within the memory share and what is free of the input budget. It
        stays as long as the turn lasts and it fits. Nothing is searched for between steps: of the names that the next
        action uses, what is found there holds almost none that the prompt does not hold. Where the share is `enforced`,
        no setting exceeds it, and hits must be more relevant where not all of them fit. With the rules of a `relief`
        that follows, what it can evict counts as free: the note makes the prompt too long, and relief makes room.
        """
        question, edit = state.question, (state.question, state.last_edit)
        if question and edit != self._looked_at:
            # Relief may edit the prompt that is being built; what was found before it is not reported yet.
            unsent = self._turn is not None and self._turn.anchor != self._reported
            is_first_prompt, self._looked_at = unsent or self._looked_at[0] != question, edit
            if self._has_more(state) and self.recall.rules.inject:
                bare = builder.using(handoff=builder.extras.handoff)
                limit = self.recall.rules.tokens or share
                limit = min(limit, share) if enforced else limit
                free = input_budget - bare.prompt_tokens(state)
                if free < limit and relief is not None:
                    free += relief.evictable_tokens(state)
                limit = min(limit, free)
                turn = self._turn if self.hits and self._turn is not None and self._turn.question == question else None
                turn = turn or self._recorded(state, bare.wire_of(state), question, limit)
                if turn is None and (is_first_prompt or not _edited_between_steps(state)):
                    turn = self._search(state, bare.wire_of(state), question, max(limit, 0), raises=enforced)
                elif turn is None:  # reported, so that another process does not search either
                    turn = _RecalledTurn(question=question, anchor=question, error=_BETWEEN_STEPS)
                if turn.note is not None and turn.note.tokens > limit:
                    turn = replace(turn, injection=None)
                self._turn = turn
        elif relief is None and builder.prompt_tokens(state) > input_budget and self._turn is not None:
            self._turn = replace(self._turn, injection=None)  # relief could not make room for it
        return self._turn.note if self._turn is not None else None

    def _has_more(self, state: WindowState) -> bool:
        """Whether there may be anything to search that is not in the prompt."""
        return bool(state.evicted_messages or state.shortened) or self._reaches_beyond()

    def report(self) -> None:
        """Records what was recalled for the prompt that is sent now, if anything. Once, also after a restart."""
        turn = self._turn
        if turn is None or turn.anchor == self._reported:
            return
        self._reported = turn.anchor
        payload: dict[str, Any] = {"question": turn.question}
        if turn.result is None:
            payload["reason"] = turn.error[:500]
        else:
            payload |= {"searched": turn.result.searched, "notes": list(turn.result.notes)}
            payload |= {"without_vectors": turn.result.without_vectors} if turn.result.without_vectors else {}
        if turn.injection is not None:
            payload |= {
                "tokens": turn.injection.tokens,
                "threshold": turn.injection.threshold,
                "hits": [_hit_payload(hit) for hit in turn.injection.hits],
                "excerpts": [
                    {"characters": characters, "context": list(hit.context), "supersedes": list(hit.supersedes)}
                    for hit, characters in zip(turn.injection.hits, turn.injection.characters, strict=True)
                ],
            }
        elif turn.result is not None:
            payload |= {"best": round(turn.result.best, 4), "threshold": self.recall.rules.threshold}
        kind = MISSED if turn.injection is None else INJECTED
        self._events.record(kind, payload, _event_key(turn.anchor))

    def _search(self, state: WindowState, wire: str, anchor: int, limit: int, *, raises: bool) -> _RecalledTurn:
        question = state.question
        try:
            turn = turn_text(state, self._messages)
            injection, result = self.recall.build_injection(
                self._query(turn, question, anchor, judged_entries(state, self.recall.session)),
                budget=limit,
                count=partial(self._messages.cost_of_text, wire=wire),
                hidden=_hidden(state),
                hidden_memories=self.shown_memories,
                raises_threshold=raises,
            )
        except Exception as error:  # noqa: BLE001  # recall never fails the turn
            return _RecalledTurn(question=question, anchor=anchor, error=str(error) or repr(error))
        return _RecalledTurn(question=question, anchor=anchor, injection=injection, result=result)

    def _recorded(self, state: WindowState, wire: str, anchor: int, limit: int) -> _RecalledTurn | None:
        """What was recalled for this state of the prompt already, as its event says; None if there is no event.

        The result of a search depends on what was indexed, remembered and said elsewhere at that moment. Quoting what
        the event names keeps the prompt as it was, after a restart or in another process.
        """
        if state.seq == anchor:
            return None  # nothing was stored since, so there is no event
        event = self._events.store.find(self._events.session, _event_key(anchor))
        if event is None:
            return None
        injection = None
        if event.kind == INJECTED:
            injection = self.quote_again(event, state, self._messages, wire)
            if injection is None or injection.tokens > limit:
                return None
        self._reported = anchor
        return _RecalledTurn(question=state.question, anchor=anchor, injection=injection)

    def quote_again(self, event: Entry, state: WindowState, messages: MessageCache, wire: str) -> Injection | None:
        """The quotation that an event records, as it was sent; None where its messages cannot be quoted any more."""
        try:
            payload = json.loads(event.content)
            query = self._query(turn_text(state, messages), state.question, state.question)
            recorded = [hit | excerpt for hit, excerpt in zip(payload["hits"], payload["excerpts"], strict=True)]
            count = partial(messages.cost_of_text, wire=wire)
            return self.recall.requote(query, recorded, count=count, hidden=_hidden(state))
        except Exception:  # noqa: BLE001  # an event of an earlier version, or a store that cannot be read
            return None

    def _query(
        self, turn: TurnText, question: int, anchor: int, judged: Mapping[tuple[str, int], bool] | None = None
    ) -> Query:
        asked_at = self._stored_at.get(question)
        if asked_at is None:
            asked_at = next(iter(self.recall.searcher.store.read(self.recall.session, question, question))).ts
        return Query(
            text=turn.text,
            context=turn.context,
            now=asked_at,
            before=anchor,
            judged=judged or {},
            seconds=self.recall.rules.query_seconds,
        )


def judged_entries(state: WindowState, session: str) -> dict[tuple[str, int], bool]:
    """The judged entries of a state, by session and number."""
    judged = {}
    for entry, helpful in state.judged.items():
        with suppress(InputError):  # an imported file may hold anything
            judged[(session, int(entry)) if entry.isdecimal() else parse_pointer(entry)] = helpful
    return judged


def _hidden(state: WindowState) -> Set[int]:
    """Entries of the session that are not quoted: those in the prompt, and those that the provider refused."""
    return (state.messages.keys() - state.shortened.keys()) | state.refused


def _edited_between_steps(state: WindowState) -> bool:
    """Whether the prompt was last edited after the model had taken a step since the question."""
    return any(
        line.role == "assistant" and state.question < line.seq < state.last_edit for line in state.messages.values()
    )


def _event_key(anchor: int) -> str:
    return f"recall/{anchor}"


def _hit_payload(hit: Hit) -> dict[str, Any]:
    """A hit in an event: where it is and why it was chosen, not its text."""
    return {
        "pointer": hit.pointer,
        "score": round(hit.score, 4),
        "chance": round(hit.chance, 4),
        "parts": {name: round(value, 4) for name, value in hit.parts.items()},
        "superseded_by": hit.superseded_by,
    }


def recalled_note(store: TranscriptStore, session: str, state: WindowState) -> TurnNote | None:
    """What is recalled for the question in flight, by the transcript. Only its tokens are known, not its text."""
    question = state.question
    if not question:
        return None
    first = max(question, state.seq - _NOTE_REACH) + 1
    for entry in reversed(list(store.read(session, first, state.seq)) if first <= state.seq else []):
        if entry.kind in (INJECTED, MISSED):
            tokens = json.loads(entry.content).get("tokens")
            return TurnNote(question=question, text="", tokens=tokens) if isinstance(tokens, int) and tokens else None
    return None


def turn_text(state: WindowState, messages: MessageCache) -> TurnText:
    """Return what is searched for."""
    question = state.question
    request = _typed(messages.message(question))
    text, context = request, ""
    if len(request) < _SHORT_REQUEST:
        answered, before = _answered(state, messages), _request_before(state, messages)
        if is_bare(request):
            about = answered[-_MAX_ANSWERED:] or before
            text, context = "\n".join(part for part in (about, request) if part), before
        else:
            context = "\n".join(part for part in (*_questions_in(answered), before) if part)
    return TurnText(text=text, context=context)


def is_bare(request: str) -> bool:
    """Whether a request has no word that names a subject."""
    words = _WORD.findall(request.lower())
    return all(word in FUNCTION_WORDS or word in _REPLIES for word in words)


def _typed(message: Message) -> str:
    """The words of a message, without tool results and without what a client added to them."""
    text = message.text
    if message.results:
        text = "\n".join(part.text for part in message.parts if part.kind == "text")
    return without_injected(text) or text


def _answered(state: WindowState, messages: MessageCache) -> str:
    """The assistant message that the request answers."""
    before = (line for line in reversed(state.messages.values()) if line.seq < state.question)
    answered = next((line.seq for line in before if line.role == "assistant"), 0)
    return messages.text_of(answered) if answered else ""


def _questions_in(text: str) -> list[str]:
    """The last questions of a message."""
    asked = [sentence for sentence in user_sentences(text[-_MAX_READ:]) if sentence.endswith(_QUESTION_ENDS)]
    return asked[-_MAX_QUESTIONS:]


def _request_before(state: WindowState, messages: MessageCache) -> str:
    earlier = [line.seq for line in state.messages.values() if line.seq < state.question and line.acts_as == "user"]
    return _typed(messages.message(earlier[-1]))[:_MAX_BEFORE] if earlier else ""
