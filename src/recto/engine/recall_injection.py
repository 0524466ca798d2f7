"""Recall in a window: confirms that messages are indexed before they are evicted, and quotes them in later prompts.

Recall searches once for a turn, and again when a decision has changed the prompt anyway. The result depends on nothing
but the transcript up to that point, so it is the same after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from recto.context.window.state import WindowState
from recto.engine.projection import EventLog
from recto.engine.prompt_builder import MessageCache, PromptBuilder, TurnNote
from recto.recall.types import USED, Confirmation, Hit, Injection, Query, SearchResult

if TYPE_CHECKING:
    from recto.recall.recall import RecallService

INJECTED, MISSED, INDEX_FAILED = "recall_injected", "recall_miss", "index_failed"
_SHORT_QUESTION = 40
"""Characters below which a question is searched for together with the exchange before it."""
_CONTEXT_CHARACTERS = 2000
"""Characters of the surrounding exchange that are searched for together with a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _RecalledTurn:
    """What was recalled, and for which state of the prompt."""

    question: int
    anchor: int
    """The entry up to which the transcript was searched."""
    injection: Injection | None = None
    result: SearchResult | None = None
    error: str = ""
    note: TurnNote | None = None


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
        self._looked_at = 0
        """The entry up to which it was last decided whether to search, and searched."""
        self._reported = 0
        self._failure: Confirmation | None = None

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
        answers = [
            self._messages.text_of(line.seq)
            for line in state.messages.values()
            if line.role == "assistant" and line.seq > turn.question
        ]
        if answers:
            question = self._messages.text_of(turn.question) if turn.question in state.messages else ""
            used = self.recall.used_entries(turn.injection, question, answers)
            shown = [hit.seq for hit in turn.injection.hits if hit.session == self.recall.session]
            payload = {"question": turn.question, "shown": shown, "used": used}
            self._events.record(USED, payload, f"{USED}/{turn.question}")

    def recall_for(
        self, state: WindowState, builder: PromptBuilder, *, input_budget: int, share: int
    ) -> TurnNote | None:
        """Searches evicted messages for what matters to the question.

        Returns the note to put behind the question, within the memory share and what is free of the input budget.
        """
        question, anchor = state.question, max(state.question, state.last_edit)
        if question and anchor != self._looked_at:
            self._looked_at = anchor
            if self._has_more(state) and self.recall.rules.inject:
                bare = builder.using(handoff=builder.extras.handoff)
                limit = min(self.recall.rules.tokens or share, input_budget - bare.prompt_tokens(state))
                self._turn = self._search(state, bare.wire_of(state), question, anchor, max(limit, 0))
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
        if turn.injection is not None:
            payload |= {"tokens": turn.injection.tokens, "hits": [_hit_payload(hit) for hit in turn.injection.hits]}
        elif turn.result is not None:
            best = max((hit.chance for hit in turn.result.hits), default=0.0)
            payload |= {"best": round(best, 4), "threshold": self.recall.rules.threshold}
        kind = MISSED if turn.injection is None else INJECTED
        self._events.record(kind, payload, f"recall/{turn.anchor}")

    def _search(self, state: WindowState, wire: str, question: int, anchor: int, limit: int) -> _RecalledTurn:
        try:
            injection, result = self.recall.build_injection(
                self._query(state, question, anchor),
                budget=limit,
                count=partial(self._messages.cost_of_text, wire=wire),
                hidden=(state.messages.keys() - state.shortened.keys()) | state.refused,
                hidden_memories=self.shown_memories,
            )
        except Exception as error:  # noqa: BLE001  # recall never fails the turn
            return _RecalledTurn(question=question, anchor=anchor, error=str(error) or repr(error))
        note = TurnNote(question=question, text=injection.text, tokens=injection.tokens) if injection else None
        return _RecalledTurn(question=question, anchor=anchor, injection=injection, result=result, note=note)

    def _query(self, state: WindowState, question: int, anchor: int) -> Query:
        text = self._messages.text_of(question)
        asked_at = next(iter(self.recall.searcher.store.read(self.recall.session, question, question))).ts
        task = (
            self._messages.text_of(state.task_seq)
            if state.task_seq in state.messages and state.task_seq != question
            else ""
        )
        context = self._context(state, question, anchor, text)
        seconds = self.recall.rules.query_seconds
        return Query(text=text, task=task, context=context, now=asked_at, before=anchor, seconds=seconds)

    def _context(self, state: WindowState, question: int, anchor: int, text: str) -> str:
        """The latest step of the turn; at its beginning, for a short question, the question before."""
        steps = [seq for seq, line in state.messages.items() if question < seq < anchor and line.role == "assistant"]
        if steps:
            return self._messages.text_of(steps[-1])[:_CONTEXT_CHARACTERS]
        earlier = [seq for seq, line in state.messages.items() if seq < question and line.acts_as == "user"]
        if len(text) < _SHORT_QUESTION and earlier:
            return self._messages.text_of(earlier[-1])[:_CONTEXT_CHARACTERS]
        return ""


def _hit_payload(hit: Hit) -> dict[str, Any]:
    """A hit in an event: where it is and why it was chosen, not its text."""
    return {
        "pointer": hit.pointer,
        "score": round(hit.score, 4),
        "chance": round(hit.chance, 4),
        "parts": {name: round(value, 4) for name, value in hit.parts.items()},
        "superseded_by": hit.superseded_by,
    }
