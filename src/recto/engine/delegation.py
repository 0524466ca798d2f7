"""Delegates work to a sub-agent through the caller's dispatcher, and returns a bounded answer.

The sub-agent's transcript is a session of its own, linked both ways. Its answer is plain text: bounded, checked against
its sources where it replaces them, and never an instruction. A dispatcher that fails or times out raises
`DelegationFailed` and has no other effect.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from recto.concurrency import BackgroundCall
from recto.context.compaction.protocols import Delegated, Delegation, Dispatcher
from recto.context.compaction.writer import WriterAttempt, WrittenSummary, keep_grounded, source_texts
from recto.context.facts.types import MessageView
from recto.errors import DelegationFailed
from recto.formats import DEFAULT_FORMAT
from recto.recall.stemmer import shared_lexicon
from recto.recall.term_rows import with_row
from recto.text.truncation import clamp
from recto.tokens.meter import Meter
from recto.transcript.entries import Clock, Draft, Entry, event, new_id
from recto.transcript.protocols import TranscriptStore
from recto.transcript.session_keys import pointer_to

DELEGATED, DELEGATED_FROM = "delegated", "delegated_from"
ENGINE = "sub-agent"
_TASK = (
    "Say what in this material matters for the task: decisions, open errors, constraints, names, numbers, next steps."
)


class Delegator:
    """Runs sub-agents for one session."""

    def __init__(
        self,
        store: TranscriptStore,
        session: str,
        *,
        dispatcher: Dispatcher,
        meter: Meter,
        clock: Clock,
        seconds: float = 300.0,
    ) -> None:
        self._store = store
        self._session = session
        self._dispatcher = dispatcher
        self._meter = meter
        self._clock = clock
        self._seconds = seconds
        self._pending: list[Draft] = []
        """Events of sub-agents that wrote for a decision, until they are stored with it."""

    def take_events(self) -> list[Draft]:
        """The events to store with the decision that sub-agents wrote for."""
        pending, self._pending = self._pending, []
        return pending

    def delegate(
        self,
        task: str,
        messages: Sequence[MessageView],
        *,
        goal: str = "",
        max_tokens: int,
        for_decision: bool = False,
    ) -> Delegated:
        """Return the answer of a sub-agent, truncated to `max_tokens`. Raises `DelegationFailed`; the sub-agent's
        transcript is kept. With `for_decision`, its event waits for `take_events`."""
        child = f"{self._session}/sub/{new_id(self._clock)}"
        origin = {"session": self._session, "entries": [message.seq for message in messages][:1000]}
        self._append(child, [event(self._clock, DELEGATED_FROM, origin), self._message("user", task)])
        request = Delegation(task=task, goal=goal, messages=tuple(messages), max_tokens=max_tokens, session=child)
        call = BackgroundCall(lambda: self._dispatcher(request), "recto sub-agent")
        if not call.run_within(self._seconds):
            raise self._failed(child, f"it has not answered within {self._seconds:g} s", for_decision)
        if call.error is not None:
            raise self._failed(child, f"it broke ({type(call.error).__name__})", for_decision) from call.error
        answer = call.results[0]
        if not isinstance(answer, str) or not answer.strip():
            raise self._failed(child, "it answered nothing", for_decision)
        reply = self._append(child, [self._message("assistant", answer)])[0]
        bounded = clamp(answer, max_tokens, self._meter.count, pointer_to(child, reply.seq))
        payload = {
            "session": child,
            "task": task[:2000],
            "tokens": self._meter.count(bounded),
            "cut": bounded != answer,
        }
        seq = self._report(payload, for_decision)
        return Delegated(answer=bounded, session=child, seq=seq, cut=bounded != answer)

    def narrative(
        self, messages: Sequence[MessageView], *, goal: str, focus: str, max_tokens: int
    ) -> WrittenSummary | None:
        """Return a sub-agent's summary of evicted messages, checked against them; None if it gave nothing useful."""
        began = time.monotonic()
        task = f"{_TASK} Above all, what is about: {focus}" if focus else _TASK
        try:
            delegated = self.delegate(task, messages, goal=goal, max_tokens=max_tokens, for_decision=True)
        except DelegationFailed:
            return None
        written = keep_grounded(delegated.answer, source_texts(messages, goal))
        attempt = WriterAttempt(engine=ENGINE, outcome="used", seconds=time.monotonic() - began)
        return replace(written, engine=ENGINE, attempts=(attempt,)) if written.lines else None

    def _failed(self, child: str, reason: str, for_decision: bool) -> DelegationFailed:
        self._report({"session": child, "failed": reason}, for_decision)
        return DelegationFailed(child, reason)

    def _report(self, payload: Mapping[str, object], for_decision: bool) -> int:
        """Store the event of a sub-agent, or keep it for a decision; returns its entry, 0 for one that waits.

        A decision is refused if anything is stored after its plan was made, so its events go with it.
        """
        draft = event(self._clock, DELEGATED, payload)
        if for_decision:
            self._pending.append(draft)
            return 0
        return self._append(self._session, [draft])[0].seq

    def _append(self, session: str, drafts: Sequence[Draft]) -> list[Entry]:
        return self._store.append(session, drafts)

    def _message(self, role: Literal["user", "assistant"], text: str) -> Draft:
        raw = DEFAULT_FORMAT.text_message(role, text)
        draft = Draft(
            id=new_id(self._clock),
            ts=self._clock.now(),
            role=role,
            content=raw,
            wire=DEFAULT_FORMAT.name,
            surface="window",
            tokens=self._meter.text(text),
            counter="",
        )
        return with_row(draft, shared_lexicon())
