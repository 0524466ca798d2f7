"""Hands work to a sub-agent through a dispatcher that the caller provides, and takes back a bounded answer.

The sub-agent's transcript is a session of its own, linked both ways. What it answers is text like any other: bounded,
checked against its sources where it is to stand for them, and never an instruction. A dispatcher that breaks or takes
too long has failed; nothing else has.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from recto.concurrency import BackgroundCall
from recto.context.compaction.protocols import Delegated, Delegation, Dispatcher
from recto.context.compaction.writer import Attempt, WrittenSummary, held, sources_of
from recto.context.facts.types import MessageView
from recto.errors import DelegationFailed
from recto.formats import DEFAULT_FORMAT
from recto.text.truncation import clamp
from recto.tokens.meter import Meter
from recto.transcript.entries import Draft, Entry
from recto.transcript.events import event, new_id
from recto.transcript.protocols import Clock, TranscriptStore
from recto.transcript.session_keys import pointer_to

DELEGATED, DELEGATED_FROM = "delegated", "delegated_from"
ENGINE = "sub-agent"
_TASK = (
    "Say what in this material matters for the task: decisions, open errors, constraints, names, numbers, next steps."
)


class Delegator:
    """Asks sub-agents for one session."""

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

    def ask(self, task: str, told: Sequence[MessageView], *, goal: str = "", most: int) -> Delegated:
        """The answer of a sub-agent, cut to size. Raises `DelegationFailed`; its transcript is kept all the same."""
        child = f"{self._session}/sub/{new_id(self._clock)}"
        origin = {"session": self._session, "entries": [one.seq for one in told][:1000]}
        self._append(child, [event(self._clock, DELEGATED_FROM, origin), self._message("user", task)])
        given = Delegation(task=task, goal=goal, told=tuple(told), max_tokens=most, session=child)
        call = BackgroundCall(lambda: self._dispatcher(given), "recto sub-agent")
        if not call.run_within(self._seconds):
            raise self._failed(child, f"it has not answered within {self._seconds:g} s")
        if call.error is not None:
            raise self._failed(child, f"it broke ({type(call.error).__name__})") from call.error
        answer = call.results[0]
        if not isinstance(answer, str) or not answer.strip():
            raise self._failed(child, "it answered nothing")
        said = self._append(child, [self._message("assistant", answer)])[0]
        bounded = clamp(answer, most, self._meter.count, pointer_to(child, said.seq))
        about = {"session": child, "task": task[:2000], "tokens": self._meter.count(bounded), "cut": bounded != answer}
        kept = self._append(self._session, [event(self._clock, DELEGATED, about)])[0]
        return Delegated(answer=bounded, session=child, seq=kept.seq, cut=bounded != answer)

    def narrative(self, told: Sequence[MessageView], *, goal: str, focus: str, most: int) -> WrittenSummary | None:
        """What a sub-agent says of messages that leave, checked against them; None where it gave nothing of use."""
        began = time.monotonic()
        task = f"{_TASK} Above all, what is about: {focus}" if focus else _TASK
        try:
            found = self.ask(task, told, goal=goal, most=most)
        except DelegationFailed:
            return None
        written = held(found.answer, sources_of(told, goal))
        attempt = Attempt(engine=ENGINE, outcome="used", seconds=time.monotonic() - began)
        return replace(written, engine=ENGINE, attempts=(attempt,)) if written.lines else None

    def _failed(self, child: str, reason: str) -> DelegationFailed:
        self._append(self._session, [event(self._clock, DELEGATED, {"session": child, "failed": reason})])
        return DelegationFailed(child, reason)

    def _append(self, session: str, drafts: Sequence[Draft]) -> list[Entry]:
        return self._store.append(session, drafts)

    def _message(self, role: Literal["user", "assistant"], text: str) -> Draft:
        raw = DEFAULT_FORMAT.text_message(role, text)
        return Draft(
            id=new_id(self._clock),
            ts=self._clock.now(),
            role=role,
            content=raw,
            wire=DEFAULT_FORMAT.name,
            surface="window",
            tokens=self._meter.text(text),
            counter="",
        )
