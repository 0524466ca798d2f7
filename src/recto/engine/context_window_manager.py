"""Four hooks for agent loops that want one place to plug Recto in.

    manager = ContextWindowManager(recto.open("agent.db", model="gpt-4o"))
    prompt = manager.on_turn_start({"role": "user", "content": "…"})
    …the model answers with calls…
    prompt = manager.on_tool_result(reply, *results)
    manager.on_turn_end(reply, usage)

They are a thin face over `Session`; every part behind it can be replaced there: the store, the meter, the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recto.context.policies.compact import Compact
from recto.context.policies.planner import ReliefRules
from recto.context.window.pressure import PressureReading
from recto.context.window.report import DecisionSummary, Report
from recto.engine.prompt_builder import Prompt
from recto.engine.report import decisions
from recto.engine.session import MessageLike, Session
from recto.health.metrics import Alert
from recto.health.trends import HealthReport
from recto.tokens.limits import ModelLimits, limits_in_error
from recto.transcript.entries import Entry

_TIGHTER = 0.9
"""What a prompt may have after an error that names no limit, as a share of what it had."""


class ContextWindowManager:
    """Keeps an agent's prompt inside its window, called at four places of its loop."""

    def __init__(
        self,
        session: Session,
        *,
        tools: Sequence[Any] = (),
        rules: ReliefRules | None = None,
        on_event: Callable[[Entry], None] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
    ) -> None:
        self.session = session
        self.tools = tools
        self._overflows = 0
        if rules is not None:
            self.session.window.configure(rules=rules)
        if on_event is not None:
            self.session.window.listen(on_event)
        if on_alert is not None:
            self.session.health.on_alert(on_alert)

    def on_turn_start(self, message: MessageLike) -> Prompt:
        """The user has spoken: stores it and gives the prompt for the first call."""
        self._overflows = 0
        self.session.append(message)
        return self.session.prompt(self.tools)

    def on_tool_result(self, *messages: MessageLike) -> Prompt:
        """Calls and their results have come: stores them, measures, and gives the prompt for the next call."""
        self._overflows = 0
        self.session.append_all(messages)
        self.session.window.measure()
        return self.session.prompt(self.tools)

    def on_turn_end(self, *messages: MessageLike, usage: Mapping[str, Any] | None = None) -> PressureReading:
        """The model has answered: stores it, and learns from the usage the provider reported for the last prompt."""
        if usage is not None:
            last = self.session.window.last
            self.session.observe(last.messages if last else (), usage, tools=self.tools)
        self.session.append_all(messages)
        return self.session.window.measure()

    def on_overflow(self, error: Mapping[str, Any] | str) -> Prompt:
        """The provider said that the prompt was too long: takes its word, and gives a tighter prompt.

        Where the work stands is written down first. Where summaries are written, and where a tighter prompt was too
        long too, a new window is opened.
        """
        self._overflows += 1
        tightened(self.session, limits_in_error(error), again=self._overflows > 1)
        return self.session.prompt(self.tools)

    def use(self, **changes: Any) -> None:  # noqa: ANN401  # the fields of Rules
        """Changes rules at run time: `manager.use(policies=(Evict(scorer=Lru()),))`."""
        self.session.window.configure(rules=replace(self.session.window.rules, **changes))

    def get_audit_trail(self) -> list[DecisionSummary]:
        """Every decision of late, newest first: what, why, how much, and every score that went into it."""
        return list(decisions(self.session.window, scores=True))

    def get_status_report(self) -> Report:
        """What the prompt is made of now, and what is not in it."""
        return self.session.report(self.tools)

    def get_health_report(self) -> HealthReport:
        """How the last turns went, where that is heading, and what should be looked at."""
        return self.session.health.report()


def tightened(session: Session, limits: ModelLimits | None, *, again: bool = False) -> None:
    """Gives the prompts of a session less room after one was too long, by what the provider named as its limit."""
    window = session.window
    said = (limits.max_input or limits.window) if limits else None
    room = int(window.budget.input_budget * _TIGHTER)
    session.checkpoint()
    # A window far smaller than it was taken for has no room for the reserve of the larger one.
    window.configure(at_most=min(max(said - window.budget.reserve, said // 2), room) if said else room)
    if again or isinstance(window.rules.forced_policy, Compact):
        window.start_next()
