"""Recall in the life of a window: what is indexed before it leaves, what comes back for a turn, and what is told of it.

What comes back is found once for a turn, and anew when a decision has changed the prompt anyway. It depends on nothing
but the transcript up to there, so that it is the same again after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from recto.context.window.state import WindowState
from recto.engine.prompt_builder import PromptBuilder, TurnNote
from recto.errors import KeyReused
from recto.recall.types import USED, Confirmation, Hit, Injection, Query, SearchResult
from recto.transcript.entries import Entry

if TYPE_CHECKING:
    from recto.recall.recall import RecallService

INJECTED, MISSED, INDEX_FAILED = "recall_injected", "recall_miss", "index_failed"
_SHORT_QUESTION = 40
"""Characters below which a question is searched for together with the exchange before it."""
_CATCHING_UP = 2.0
"""Seconds that a prompt waits for words that should be in the index and are not."""
_BESIDE = 2000
"""Characters of what stands beside a question that are searched for with it."""


class EventAppender(Protocol):
    """How a window appends an event."""

    def __call__(self, kind: str, about: Mapping[str, Any], key: str | None = None) -> Entry:
        """Stores it and tells listeners."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """What was brought back, and for which state of the prompt."""

    question: int
    anchor: int
    injection: Injection | None
    found: SearchResult | None
    trouble: str = ""


class RecallInjection:
    """What one window remembers of its recall."""

    def __init__(self, opened: Callable[[], RecallService], material: PromptBuilder, tell: EventAppender) -> None:
        self._opened = opened
        self._material = material
        self._tell = tell
        self._turn: _Turn | None = None
        self._told = 0
        self._failure: Confirmation | None = None

    @cached_property
    def recall(self) -> RecallService:
        """Opened when it is first needed: a session that never fills its window needs no index."""
        return self._opened()

    def close(self) -> None:
        """Closes recall, if it was ever opened."""
        if "recall" in self.__dict__:
            self.recall.close()

    def behind(self, seq: int) -> int:
        """Entries up to this one whose words are not in the index; 0 while nothing has had to be. Reads nothing."""
        if "recall" not in self.__dict__:
            return 0
        return max(seq - self.recall.indexer.reached(self.recall.session), 0)

    @property
    def hits(self) -> tuple[Hit, ...]:
        """What stands in the prompt now because it came back."""
        injection = self._turn.injection if self._turn else None
        return injection.hits if injection and self._material.recalled else ()

    @property
    def kept_by_the_index(self) -> str:
        """Why nothing may leave; empty where the index does not stand in the way."""
        return self._failure.reason if self._failure is not None and not self._failure.words else ""

    def may_leave(self, seqs: Collection[int]) -> Confirmation:
        """Whether entries are in the index, so that they may leave. Says so once where they are not."""
        confirmed = self.recall.confirm(seqs)
        before, self._failure = self._failure, None if confirmed.whole else confirmed
        if self._failure and (before is None or (before.words, before.vectors) != (confirmed.words, confirmed.vectors)):
            self._tell(
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

    def turn_to(self, state: WindowState) -> None:
        """A prompt is asked for. What came back for the question before goes, and whether it helped is noted."""
        turn = self._turn
        if turn is None or turn.question == _question(state):
            return
        self._turn = self._material.recalled = None
        if turn.injection is None:
            return
        answers = [
            self._material.text_of(line.seq)
            for line in state.messages.values()
            if line.role == "assistant" and line.seq > turn.question
        ]
        if answers:
            question = self._material.text_of(turn.question) if turn.question in state.messages else ""
            used = self.recall.used(turn.injection, question, answers)
            shown = [hit.seq for hit in turn.injection.hits if hit.session == self.recall.session]
            with suppress(KeyReused):
                self._tell(USED, {"question": turn.question, "shown": shown, "used": used}, f"{USED}/{turn.question}")

    def bring_back(self, state: WindowState, *, room: int, share: int) -> None:
        """Finds what has left and matters for the question, and puts it behind it, within its share and the room."""
        question = _question(state)
        if not question or not (state.evicted_messages or state.shortened) or not self.recall.rules.inject:
            return
        anchor = max(question, state.last_edit)
        if self._turn is not None and self._turn.anchor == anchor:
            return
        self._material.recalled = None
        limit = min(self.recall.rules.tokens or share, room - self._material.prompt_tokens(state))
        try:
            # How rare a word is depends on all messages up to here, so all of them must be in. Mostly they are.
            self.recall.indexer.take_words(self.recall.session, anchor, _CATCHING_UP)
            injection, found = self._search(state, question, anchor, max(limit, 0))
        except Exception as error:  # noqa: BLE001  # recall never fails the turn
            told = str(error) or repr(error)
            self._turn = _Turn(question=question, anchor=anchor, injection=None, found=None, trouble=told)
            return
        self._turn = _Turn(question=question, anchor=anchor, injection=injection, found=found)
        if injection is not None:
            self._material.recalled = TurnNote(question=question, text=injection.text, tokens=injection.tokens)

    def report(self) -> None:
        """Tells what came back for the prompt that is sent now, or that nothing did. Once, also after a restart."""
        turn = self._turn
        if turn is None or turn.anchor == self._told:
            return
        self._told = turn.anchor
        about: dict[str, Any] = {"question": turn.question}
        if turn.found is None:
            about["reason"] = turn.trouble[:500]
        else:
            about |= {"searched": turn.found.searched, "notes": list(turn.found.notes)}
        if turn.injection is not None:
            about |= {"tokens": turn.injection.tokens, "hits": [_told(hit) for hit in turn.injection.hits]}
        elif turn.found is not None:
            best = max((hit.chance for hit in turn.found.hits), default=0.0)
            about |= {"best": round(best, 4), "threshold": self.recall.rules.threshold}
        kind = MISSED if turn.injection is None else INJECTED
        with suppress(KeyReused):
            self._tell(kind, about, f"recall/{turn.anchor}")

    def _search(
        self, state: WindowState, question: int, anchor: int, limit: int
    ) -> tuple[Injection | None, SearchResult]:
        wire = self._material.wire_of(state)
        text = self._material.text_of(question)
        said_at = next(iter(self.recall.searcher.store.read(self.recall.session, question, question))).ts
        task = (
            self._material.text_of(state.task_seq)
            if state.task_seq in state.messages and state.task_seq != question
            else ""
        )
        beside = self._beside(state, question, anchor, text)
        asked = Query(text=text, task=task, beside=beside, now=said_at, before=anchor)
        whole = [seq for seq in state.messages if seq not in state.shortened]
        return self.recall.injection(
            asked, room=limit, count=lambda text: self._material.cost_of_text(text, wire), hidden=frozenset(whole)
        )

    def _beside(self, state: WindowState, question: int, anchor: int, text: str) -> str:
        """The latest step of the turn; at its beginning, for a question that says little by itself, the one before."""
        steps = [seq for seq, line in state.messages.items() if question < seq < anchor and line.role == "assistant"]
        if steps:
            return self._material.text_of(steps[-1])[:_BESIDE]
        earlier = [seq for seq, line in state.messages.items() if seq < question and line.role == "user"]
        if len(text) < _SHORT_QUESTION and earlier:
            return self._material.text_of(earlier[-1])[:_BESIDE]
        return ""


def _told(hit: Hit) -> dict[str, Any]:
    """A hit as an event tells it: where it is and why it came, not what it says."""
    return {
        "pointer": hit.pointer,
        "score": round(hit.score, 4),
        "chance": round(hit.chance, 4),
        "parts": {name: round(value, 4) for name, value in hit.parts.items()},
        "superseded_by": hit.superseded_by,
    }


def _question(state: WindowState) -> int:
    return next((line.seq for line in reversed(state.messages.values()) if line.role == "user"), 0)
