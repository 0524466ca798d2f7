"""Four hooks for agent loops that want one place to plug Recto in.

    manager = ContextWindowManager(recto.open("agent.db", model="gpt-4o"))
    prompt = manager.on_turn_start({"role": "user", "content": "…"})
    …the model answers with calls…
    prompt = manager.on_tool_result(reply, *results)
    manager.on_turn_end(reply, usage)

They call `Session`, where every part can be replaced: the store, the meter, the rules. `AsyncContextWindowManager` has
the same hooks for an `AsyncSession`, as coroutines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recto.context.policies.compact import Compact
from recto.context.policies.planner import ReliefRules
from recto.context.window.pressure import PressureReading
from recto.context.window.report import DecisionSummary, Report
from recto.engine.async_session import AsyncFace, AsyncSession, awaited
from recto.engine.prompt_builder import Prompt
from recto.engine.report import decisions
from recto.engine.session import MessageLike, Session
from recto.errors import InputError
from recto.health.metrics import Alert
from recto.health.trends import HealthReport
from recto.tokens.limits import ModelLimits, limits_in_error
from recto.transcript.entries import Entry

_WRONG_SESSION = (
    "ContextWindowManager takes a Session, as recto.open returns it, not '{given}'. For an AsyncSession use "
    "AsyncContextWindowManager."
)
_WRONG_ASYNC_SESSION = (
    "AsyncContextWindowManager takes an AsyncSession, as recto.open_async returns it, not '{given}'. For a Session use "
    "ContextWindowManager."
)
_TIGHTER = 0.9
"""The share of its input budget that a prompt keeps after an error that names no limit."""


class ContextWindowManager:
    """Keeps an agent's prompt inside its window, with a hook for each of four places in its loop."""

    def __init__(
        self,
        session: Session,
        *,
        tools: Sequence[Any] = (),
        rules: ReliefRules | None = None,
        on_event: Callable[[Entry], None] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
    ) -> None:
        if not isinstance(session, Session):
            raise InputError(_WRONG_SESSION.format(given=type(session).__name__))
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
        """Stores a user message and returns the prompt for the first model call."""
        self._overflows = 0
        self.session.append(message)
        return self.session.prompt(self.tools)

    def on_tool_result(self, *messages: MessageLike) -> Prompt:
        """Stores tool calls and their results, measures, and returns the prompt for the next model call."""
        self._overflows = 0
        self.session.append_all(messages)
        self.session.window.measure()
        return self.session.prompt(self.tools)

    def on_turn_end(self, *messages: MessageLike, usage: Mapping[str, Any] | None = None) -> PressureReading:
        """Stores the answer, and records the usage that the provider reported for the last prompt."""
        if usage is not None:
            last = self.session.window.last
            self.session.observe(last.messages if last else (), usage, tools=self.tools)
        self.session.append_all(messages)
        return self.session.window.measure()

    def on_overflow(self, error: Mapping[str, Any] | str) -> Prompt:
        """Returns a shorter prompt after the provider refused the last one as too long.

        A checkpoint is written first. A new window is opened where summaries are written, and where the shorter prompt
        was refused too.
        """
        self._overflows += 1
        shrink_input_budget(self.session, limits_in_error(error), again=self._overflows > 1)
        return self.session.prompt(self.tools)

    def use(self, /, **changes: Any) -> None:  # noqa: ANN401  # the fields of Rules
        """Changes rules at run time: `manager.use(policies=(Evict(scorer=Lru()),))`."""
        self.session.window.configure(rules=replace(self.session.window.rules, **changes))

    def get_audit_trail(self) -> list[DecisionSummary]:
        """The recent decisions, newest first: what, why, how much, and every score that went into them."""
        return list(decisions(self.session.window, scores=True))

    def get_status_report(self) -> Report:
        """What the prompt contains now, and what it does not."""
        return self.session.report(self.tools)

    def get_health_report(self) -> HealthReport:
        """The measures of the last turns, their trends, and the alerts that are active."""
        return self.session.health.report()


class AsyncContextWindowManager(AsyncFace[ContextWindowManager]):
    """`ContextWindowManager` over an `AsyncSession`: the hooks are awaited."""

    def __init__(
        self,
        session: AsyncSession,
        *,
        tools: Sequence[Any] = (),
        rules: ReliefRules | None = None,
        on_event: Callable[[Entry], None] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
    ) -> None:
        if not isinstance(session, AsyncSession):
            raise InputError(_WRONG_ASYNC_SESSION.format(given=type(session).__name__))
        super().__init__(
            ContextWindowManager(session.session, tools=tools, rules=rules, on_event=on_event, on_alert=on_alert)
        )
        self.session = session
        self.tools = tools

    on_turn_start = awaited(ContextWindowManager.on_turn_start)
    on_tool_result = awaited(ContextWindowManager.on_tool_result)
    on_turn_end = awaited(ContextWindowManager.on_turn_end)
    on_overflow = awaited(ContextWindowManager.on_overflow)
    use = awaited(ContextWindowManager.use)
    get_audit_trail = awaited(ContextWindowManager.get_audit_trail)
    get_status_report = awaited(ContextWindowManager.get_status_report)
    get_health_report = awaited(ContextWindowManager.get_health_report)


def shrink_input_budget(session: Session, limits: ModelLimits | None, *, again: bool = False) -> None:
    """Lowers the input budget of a session after a prompt was refused, to the limit that the provider named."""
    window = session.window
    limit = (limits.max_input or limits.window) if limits else None
    lower = int(window.budget.input_budget * _TIGHTER)
    session.checkpoint()
    # A window far smaller than assumed cannot hold the output reserve of the larger one.
    window.configure(at_most=min(max(limit - window.budget.reserve, limit // 2), lower) if limit else lower)
    if again or isinstance(window.rules.forced_policy, Compact):
        window.start_next()
