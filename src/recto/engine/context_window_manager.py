"""One object for an agent's loop: four hooks around each model call, over a session.

    with recto.manager("agent.db", model="gpt-4o", goal=task) as manager:
        while True:
            prompt = manager.on_turn_start(question)
            reply = manager.on_turn_end(call(prompt.messages, prompt.tools))
            for tool in reply.calls:
                manager.on_tool_result(tool.name, run(tool), id=tool.id)
            if not reply.calls:
                break
        manager.on_task_complete()

The manager keeps no history of its own: what was asked, which calls wait for results and which task is open is read
from the transcript, so a program that is started again continues where the last one stopped.
`AsyncContextWindowManager` has the same hooks as coroutines.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

from recto.context.policies.eviction import Compact
from recto.context.policies.planner import ReliefRules
from recto.context.window.budget import PressureReading
from recto.context.window.report import DecisionSummary, Report
from recto.context.window.state import WindowState
from recto.continuity.checkpoints.checkpoint import BEGUN, COMPLETED, Checkpoint, TaskStatement
from recto.engine.async_session import AsyncFace, AsyncSession, awaited
from recto.engine.continuity import awaits_answer
from recto.engine.projection import NEW_WINDOW, RESULT_HELD, TASK_COMPLETED, guarded
from recto.engine.prompt_builder import Prompt
from recto.engine.report import decisions
from recto.engine.session import Session
from recto.errors import (
    HookOutOfOrder,
    InputError,
    MalformedMessage,
    RectoError,
    UnknownCall,
    WrongSession,
)
from recto.formats import Usage, detect, format_named, read
from recto.formats.format import Format
from recto.formats.message import fields_of
from recto.formats.response import usage_in
from recto.formats.response_objects import MessageLike, RequestedCall, calls_of, plain, read_any_response
from recto.formats.tool_calls import NewToolResult
from recto.health.metrics import Alert
from recto.health.trends import HealthReport
from recto.tokens.limits import ModelLimits, limits_in_error
from recto.transcript.entries import Entry, to_json

Status = Literal["healthy", "preparing", "active", "emergency"]
"""How full the prompt is: relief is far, is being prepared, is at work, or was not enough."""
STATUSES: tuple[Status, ...] = ("healthy", "preparing", "active", "emergency")
_STATUS_OF_ZONE: Mapping[str, Status] = {
    "green": "healthy",
    "yellow": "preparing",
    "orange": "active",
    "red": "active",
}
_TIGHTER = 0.9
"""The share of its input budget that a prompt keeps after an error that names no limit."""
_LOST_RESULT = "[No result: the program ended before the call was done.]"

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A response of the model, as it is stored."""

    text: str
    """What the model says; empty if it only calls tools."""
    calls: tuple[RequestedCall, ...]
    """The tool calls that wait for a result, in order."""
    entries: tuple[Entry, ...]
    reading: PressureReading
    """The pressure with it."""
    stop_reason: str = ""
    """Why the model stopped, in the provider's word."""
    usage: Usage | None = None
    """What the provider counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusReport:
    """The state of a manager."""

    status: Status
    session: str
    goal: str
    turn: int
    """Turns of the session."""
    windows: int
    """Windows of the session; the first is 1."""
    utilization: float
    decisions: int
    """Decisions among the recent entries, as `get_audit_trail` lists them."""
    calls: tuple[RequestedCall, ...]
    """Calls that wait for a result."""
    checkpoint: int
    """Version of the newest checkpoint; 0 before the first."""
    report: Report
    """What the prompt contains now, by component, and what it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCompletion:
    """The end of a task."""

    goal: str
    summary: str
    """The state of the work at its end, in the words of the transcript."""
    checkpoint: Checkpoint
    """The last checkpoint. It is archived: nothing waits to be taken up."""
    health: HealthReport
    """The measures of the last turns, and their trends."""
    turns: int
    windows: int
    decisions: int
    entry: Entry
    """The event `task_completed`."""


def _in_turn(
    method: Callable[Concatenate[ContextWindowManager, _P], _R],
) -> Callable[Concatenate[ContextWindowManager, _P], _R]:
    """Serialises the hooks of one manager: results of parallel calls may arrive on several threads."""

    @wraps(method)
    def call(manager: ContextWindowManager, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with manager._lock:
            manager._open_task()
            return method(manager, *args, **kwargs)

    return call


class ContextWindowManager:
    """Keeps an agent's prompt inside its window, with a hook for each place in its loop. See `recto.manager`."""

    def __init__(  # noqa: PLR0913  # what a task and its prompt consist of
        self,
        session: Session,
        *,
        goal: str = "",
        success_criteria: Sequence[str] = (),
        constraints: Sequence[str] = (),
        tools: Sequence[Any] = (),
        wire: str | None = None,
        rules: ReliefRules | None = None,
        on_event: Callable[[Entry], None] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
        on_status_change: Callable[[Status, Status], object] | None = None,
    ) -> None:
        """Manage an open session; closing the manager closes it.

        Args:
            session: A session, as `recto.open` returns it.
            goal: What the agent is to do. It is in every prompt until `on_task_complete`, with the next two.
            success_criteria: When it is done.
            constraints: What must not be done, or how it must be done.
            tools: Schemas of the tools that are sent with each prompt.
            wire: The format of the prompt, while no message shows another; without it, that of the model's provider.
            rules: Replaces the relief rules of the session's settings.
            on_event: Is called with every event of the window: decisions, zone changes, spikes.
            on_alert: Is called when a health alert is raised, and when it is over.
            on_status_change: Is called with the status before and after.
        """
        if not isinstance(session, Session):
            raise WrongSession(self, session)
        self.session = session
        self.tools = tools
        self.wire = wire
        self._task = _statement(goal, success_criteria, constraints)
        self._resumed: Checkpoint | None = None
        self._to_take_up = False
        self._is_opened = False
        self._is_live = False
        """Whether this object has built a prompt: open calls of an earlier program may never get a result."""
        self._awaits_response = False
        self._status: Status = "healthy"
        self._status_listeners = [guarded(on_status_change)] if on_status_change is not None else []
        self._overflows = 0
        self._lock = threading.RLock()
        if rules is not None:
            session.window.configure(rules=rules)
        if on_event is not None:
            session.window.listen(on_event)
        if on_alert is not None:
            session.health.on_alert(on_alert)

    @property
    def status(self) -> Status:
        """`healthy`, `preparing`, `active` or `emergency`, as of the last hook."""
        return self._status

    @property
    def task(self) -> TaskStatement:
        """The open task: what was passed in, or what the checkpoint of an earlier program says."""
        with self._lock:
            self._open_task()
            return self._task

    @property
    def resumed(self) -> Checkpoint | None:
        """The checkpoint that waited when the manager was opened; None if the work begins here."""
        with self._lock:
            self._open_task()
            return self._resumed

    @property
    def calls(self) -> tuple[RequestedCall, ...]:
        """The calls that wait for a result, also those that an earlier program left behind."""
        with self._lock:
            held = self._held()
            return tuple(call for call in self._open_calls() if call.id not in held)

    @_in_turn
    def on_task_start(
        self, goal: str = "", *, success_criteria: Sequence[str] = (), constraints: Sequence[str] = ()
    ) -> None:
        """Begins another task in the same session: its text is in every prompt, and a checkpoint of it waits.

        The task that is passed when the manager is created needs no call.
        """
        self._begin(_statement(goal, success_criteria, constraints))

    @_in_turn
    def on_turn_start(self, question: str | MessageLike | None = None) -> Prompt:
        """Stores the question and returns the prompt for the next model call.

        Call it before every model call. A question is stored once: while its turn is open, the same question, or none,
        continues the turn. Where the checkpoint of an earlier program waits, the first prompt contains the
        state of its work and what has changed around it.

        Raises:
            HookOutOfOrder: Calls of the last response have no result yet, or there is no question and no open turn.
        """
        if self._is_live and (waiting := self.calls):
            named = ", ".join(call.name for call in waiting)
            raise HookOutOfOrder(
                "on_turn_start", f"{named} of the last response has no result", "call on_tool_result for each call"
            )
        state = self.session.window.state
        is_open = awaits_answer(state)
        if question is None and not is_open:
            raise HookOutOfOrder("on_turn_start", "there is no open turn to continue", "pass a question")
        raw = None if question is None else self._question(question)
        self._store_held(complete=True)
        if raw is not None and not (is_open and self._is_last_question(raw, state)):
            self.session.append(raw)
        if self._to_take_up:
            self._to_take_up = False
            self.session.window.continuity.take_up(self.session.window.rules)
        self._overflows = 0
        return self._prompt()

    @_in_turn
    def on_turn_end(self, response: Any, *, usage: Any = None) -> Reply:  # noqa: ANN401  # objects of any client
        """Stores the response to the last prompt, and returns what it says and which calls it makes.

        Args:
            response: What the model call returned, in any wire format: an object of the provider's client, its JSON, a
                message, a list of items, or a text.
            usage: What the provider counted, if the response does not say.

        Raises:
            HookOutOfOrder: No prompt awaits a response.
            MalformedMessage: It is no response: a stream, a coroutine, an error.
        """
        if not self._awaits_response:
            raise HookOutOfOrder("on_turn_end", "no prompt awaits a response", "call on_turn_start before the model")
        parsed = read_any_response(response, self._format())
        wires = [parsed.wire or _wire_of(raw) for raw in parsed.messages]
        messages = [read(raw, wire) for raw, wire in zip(parsed.messages, wires, strict=True)]
        if any(message.role in ("user", "system") for message in messages):
            raise MalformedMessage("a response holds messages of the assistant, and this one has others")
        reported = _usage(usage) or parsed.usage
        entries = self.session.append_all(parsed.messages, wire=parsed.wire, usage=reported) if messages else []
        self._awaits_response = False
        return Reply(
            text="\n".join(part.text for message in messages for part in message.parts if part.kind == "text"),
            calls=tuple(call for raw, wire in zip(parsed.messages, wires, strict=True) for call in calls_of(raw, wire)),
            entries=tuple(entries),
            reading=self._measure(),
            stop_reason=parsed.stop_reason,
            usage=reported,
        )

    @_in_turn
    def on_tool_result(self, name: str, result: Any, *, id: str | None = None) -> PressureReading:  # noqa: ANN401
        """Stores the result of a tool call, and measures the prompt with it.

        Args:
            name: The tool.
            result: A text, any JSON value, an exception, or a complete result message in the provider's format.
            id: The call; without it, the first open call of that tool.

        Raises:
            UnknownCall: The model made no such call, or it has a result already.
        """
        waiting, held = self._open_calls(), self._held()
        call = self._find_call(name, id, [call for call in waiting if call.id not in held])
        if all(_stands_alone(call, self._format()) for call in waiting):
            self.session.append(self._result(call, result))
        else:
            # The format tells calls of one tool apart by their places alone: their results are one message.
            self.session.record(RESULT_HELD, {"call": call.id, "name": call.name, "text": _text_of(result)})
            self._store_held()
        return self._measure()

    @_in_turn
    def on_overflow(self, error: BaseException | Mapping[str, Any] | str | None = None) -> Prompt:
        """Returns a shorter prompt after the provider refused the last one as too long.

        Pass what the provider's client raised: an exception that says something else is raised again, so this may be
        called for every exception. A checkpoint is written first. A new window is opened where summaries are written,
        and where the shorter prompt was refused too.
        """
        limits = _limits_in(error)
        if limits is None and isinstance(error, BaseException):
            raise error
        self._overflows += 1
        self._set_status("emergency")
        shrink_input_budget(self.session, limits, again=self._overflows > 1)
        return self._prompt(at_least="emergency")

    @_in_turn
    def on_task_complete(self) -> TaskCompletion:
        """Ends the task: writes its last checkpoint and archives it, and records how its turns went.

        Nothing of it waits to be taken up afterwards, and its text is no longer in the prompt.

        Raises:
            HookOutOfOrder: A prompt awaits its response, or calls have no result.
        """
        if self._awaits_response:
            raise HookOutOfOrder("on_task_complete", "a prompt awaits its response", "call on_turn_end first")
        if waiting := self.calls:
            named = ", ".join(call.name for call in waiting)
            raise HookOutOfOrder("on_task_complete", f"{named} has no result", "call on_tool_result for each call")
        window, goal = self.session.window, self._task.goal
        _, handoff = window.continuity.checkpoint(reason=COMPLETED)
        checkpoint = window.continuity.newest()
        assert checkpoint is not None  # noqa: S101  # it was just written
        health, state = self.session.health.report(), window.state
        made = sum(1 for _ in decisions(window))
        totals = {"turns": state.turn, "windows": state.windows + 1, "decisions": made}
        trends = {
            trend.name: {"now": trend.now, "delta": trend.delta, "direction": trend.direction, "worse": trend.worse}
            for trend in health.trends
            if trend.now is not None
        }
        payload = {"checkpoint": checkpoint.version, "handoff": handoff.seq, **totals, "trends": trends}
        entry = self.session.record(TASK_COMPLETED, payload)
        self._task, self._resumed, self._to_take_up = TaskStatement(), None, False
        window.state_task(self._task)
        summary = str(json.loads(handoff.content)["text"])
        return TaskCompletion(
            goal=goal or checkpoint.goal, summary=summary, checkpoint=checkpoint, health=health, entry=entry, **totals
        )

    @_in_turn
    def use(self, /, **settings: Any) -> None:  # noqa: ANN401  # the settings of the group `window`
        """Changes window settings at run time, by the names of the settings file: `manager.use(policy="fifo")`."""
        self.session.window.use(**settings)

    def on_status_change(self, callback: Callable[[Status, Status], object]) -> Callable[[Status, Status], object]:
        """Calls back with the status before and after, whenever it changes. Returns the callback.

        What it raises is logged and fails no hook.

        Raises:
            InputError: It cannot be called.
        """
        self._status_listeners.append(guarded(callback))
        return callback

    def get_audit_trail(self) -> list[DecisionSummary]:
        """The recent decisions, newest first: what, why, how much, and every score that went into them."""
        return list(decisions(self.session.window, scores=True))

    @_in_turn
    def get_status_report(self) -> StatusReport:
        """The state of the manager, and what the prompt contains now."""
        window = self.session.window
        report, state = self.session.report(self.tools), window.state
        return StatusReport(
            status=self._status,
            session=self.session.key,
            goal=self._task.goal,
            turn=state.turn,
            windows=state.windows + 1,
            utilization=report.reading.utilization,
            decisions=sum(1 for _ in decisions(window)),
            calls=self.calls,
            checkpoint=window.continuity.version(),
            report=report,
        )

    def get_health_report(self) -> HealthReport:
        """The measures of the last turns, their trends, and the alerts that are active."""
        return self.session.health.report()

    def close(self) -> None:
        """Closes the session. A task that is not complete leaves a checkpoint, from which it is taken up again."""
        try:
            if self._is_live and (self._task or self._awaits_response):
                with suppress(RectoError):  # closing goes on; the checkpoint before this one waits
                    self.session.window.continuity.checkpoint(reason="the program ends")
        finally:
            self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_task(self) -> None:
        """Finds out what waits in the transcript: once, before the first hook."""
        if self._is_opened:
            return
        self._is_opened = True
        window = self.session.window
        self.session.checkpoints.is_announced = True  # the first prompt contains the state of the work
        waiting = window.continuity.unfinished()
        known = TaskStatement.of(waiting) if waiting is not None else TaskStatement()
        if self._task and (waiting is None or self._task.as_given().goal != known.goal):
            self._begin(self._task)
            return
        if self._task and waiting is not None and self._task.as_given() != known.as_given():
            window.continuity.checkpoint(reason=BEGUN, task=self._task)
        self._task = self._task or known
        window.state_task(self._task)
        if waiting is not None and (self._task or awaits_answer(window.state)):
            self._resumed, self._to_take_up = waiting, bool(window.state.messages)

    def _begin(self, task: TaskStatement) -> None:
        self.session.window.continuity.checkpoint(reason=BEGUN, task=task)
        self.session.window.state_task(task)
        self._task, self._resumed, self._to_take_up = task, None, False

    def _format(self) -> Format:
        window = self.session.window
        return format_named(window.builder_for(self.tools, wire=self.wire).wire_of(window.state))

    def _question(self, question: str | MessageLike) -> bytes:
        value = plain(question)
        if isinstance(value, str):
            return self._format().text_message("user", value)
        if isinstance(value, bytes):
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"a question is a text or a message, not '{type(question).__name__}'. Nothing was stored.")
        return to_json(value)

    def _is_last_question(self, raw: bytes, state: WindowState) -> bool:
        """Whether a message says what the last message of the user says, in whichever format."""
        lines = reversed(state.messages.values())
        seq = next((line.seq for line in lines if line.role == "user" and not line.answers), 0)
        return bool(seq) and read(raw, detect(raw)) == self.session.window.messages.message(seq)

    def _open_calls(self) -> list[RequestedCall]:
        """The calls of the last step that have no result in the transcript."""
        window = self.session.window
        with window.lock:
            answered: set[str] = set()
            calls: list[RequestedCall] = []
            is_response = False
            for line in reversed(window.state.messages.values()):
                if line.role == "assistant":
                    calls[:0] = calls_of(window.messages.raws[line.seq], window.messages.wires[line.seq])
                    is_response = True
                elif line.answers and not is_response:
                    answered.update(line.answers)
                else:
                    break
        return [call for call in calls if call.id not in answered]

    def _find_call(self, name: str, id: str | None, waiting: Sequence[RequestedCall]) -> RequestedCall:
        found = next((call for call in waiting if (call.id == id if id is not None else call.name == name)), None)
        open_calls = [(call.name, call.id) for call in waiting]
        if found is None:
            raise UnknownCall(name, id, "the model made no such call, or it has a result already", open_calls)
        if found.name and name and found.name != name:
            raise UnknownCall(name, id, f"that call is of '{found.name}'", open_calls)
        return found

    def _result(self, call: RequestedCall, result: Any) -> bytes:  # noqa: ANN401  # whatever a tool returns
        format, value = self._format(), plain(result)
        if isinstance(value, Mapping) and _answers_in(raw := _json(value), format) == (call.id,):
            return raw
        return format.edits.result_message(call.id, call.name, _text_of(result), call.kind)

    def _held(self) -> dict[str, NewToolResult]:
        """Results of the last step that wait for the others, by call."""
        last = self.session.window.state.last_assistant
        entries = self.session.read(last + 1) if last else ()
        payloads = [json.loads(entry.content) for entry in entries if entry.kind == RESULT_HELD]
        return {held["call"]: NewToolResult(held["call"], held["text"], held["name"]) for held in payloads}

    def _store_held(self, *, complete: bool = False) -> None:
        """Stores the results that wait for each other, once each call has one.

        With `complete`, calls that an earlier program left without a result get one that says so.
        """
        held, calls, format = self._held(), self._open_calls(), self._format()
        if not calls or not (complete or (held and all(call.id in held for call in calls))):
            return
        results = [held.get(call.id, NewToolResult(call.id, _LOST_RESULT, call.name)) for call in calls]
        if all(_stands_alone(call, format) for call in calls):
            pairs = zip(calls, results, strict=True)
            raws = [format.edits.result_message(call.id, call.name, text, call.kind) for call, (_, text, _) in pairs]
        else:
            raws = format.edits.result_messages(results)
        self.session.append_all(raws)

    def _prompt(self, at_least: Status = "healthy") -> Prompt:
        prompt = self.session.prompt(self.tools, wire=self.wire)
        self._is_live = True
        self._awaits_response = awaits_answer(self.session.window.state)
        relieved: Status = "active" if prompt.decisions else "healthy"
        is_too_full = prompt.reading.utilization > self.session.window.rules.ceiling
        if is_too_full or any(entry.kind == NEW_WINDOW for entry in prompt.decisions):
            relieved = "emergency"
        self._set_status(_worst(_STATUS_OF_ZONE[prompt.reading.zone], relieved, at_least))
        return prompt

    def _measure(self) -> PressureReading:
        reading = self.session.window.measure()
        self._set_status(_STATUS_OF_ZONE[reading.zone])
        return reading

    def _set_status(self, status: Status) -> None:
        before, self._status = self._status, status
        if before != status:
            for listener in self._status_listeners:
                listener(before, status)


class AsyncContextWindowManager(AsyncFace[ContextWindowManager]):
    """`ContextWindowManager` over an `AsyncSession`: the hooks are awaited. See `recto.manager_async`."""

    def __init__(  # noqa: PLR0913  # what a task and its prompt consist of
        self,
        session: AsyncSession,
        *,
        goal: str = "",
        success_criteria: Sequence[str] = (),
        constraints: Sequence[str] = (),
        tools: Sequence[Any] = (),
        wire: str | None = None,
        rules: ReliefRules | None = None,
        on_event: Callable[[Entry], None] | None = None,
        on_alert: Callable[[Alert], object] | None = None,
        on_status_change: Callable[[Status, Status], object] | None = None,
    ) -> None:
        """See `ContextWindowManager`. Callbacks run on the thread of the hook, not on the loop."""
        if not isinstance(session, AsyncSession):
            raise WrongSession(self, session)
        blocking = ContextWindowManager(
            session.session,
            goal=goal,
            success_criteria=success_criteria,
            constraints=constraints,
            tools=tools,
            wire=wire,
            rules=rules,
            on_event=on_event,
            on_alert=on_alert,
            on_status_change=on_status_change,
        )
        super().__init__(blocking)
        self.session = session

    @classmethod
    def over(cls, manager: ContextWindowManager) -> Self:
        """The async face of a manager."""
        face = cls.__new__(cls)
        AsyncFace.__init__(face, manager)
        face.session = AsyncSession(manager.session)
        return face

    @property
    def tools(self) -> Sequence[Any]:
        """Schemas of the tools that are sent with each prompt."""
        return self._blocking.tools

    @tools.setter
    def tools(self, tools: Sequence[Any]) -> None:
        self._blocking.tools = tools

    @property
    def wire(self) -> str | None:
        """The format of the prompt, while no message shows another."""
        return self._blocking.wire

    @property
    def status(self) -> Status:
        """See `ContextWindowManager.status`."""
        return self._blocking.status

    @property
    def task(self) -> TaskStatement:
        """See `ContextWindowManager.task`. Read from the store once, before the first hook."""
        return self._blocking.task

    @property
    def resumed(self) -> Checkpoint | None:
        """See `ContextWindowManager.resumed`. Read from the store once, before the first hook."""
        return self._blocking.resumed

    @property
    def calls(self) -> tuple[RequestedCall, ...]:
        """See `ContextWindowManager.calls`."""
        return self._blocking.calls

    def on_status_change(self, callback: Callable[[Status, Status], object]) -> Callable[[Status, Status], object]:
        """See `ContextWindowManager.on_status_change`. The callback runs on the thread of the hook."""
        return self._blocking.on_status_change(callback)

    on_task_start = awaited(ContextWindowManager.on_task_start)
    on_turn_start = awaited(ContextWindowManager.on_turn_start)
    on_tool_result = awaited(ContextWindowManager.on_tool_result)
    on_turn_end = awaited(ContextWindowManager.on_turn_end)
    on_overflow = awaited(ContextWindowManager.on_overflow)
    on_task_complete = awaited(ContextWindowManager.on_task_complete)
    use = awaited(ContextWindowManager.use)
    get_audit_trail = awaited(ContextWindowManager.get_audit_trail)
    get_status_report = awaited(ContextWindowManager.get_status_report)
    get_health_report = awaited(ContextWindowManager.get_health_report)
    close = awaited(ContextWindowManager.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def shrink_input_budget(session: Session, limits: ModelLimits | None, *, again: bool = False) -> None:
    """Lowers the input budget of a session after a prompt was refused, to the limit that the provider named."""
    window = session.window
    lower = int(window.budget.input_budget * _TIGHTER)
    session.checkpoint()
    window.lower_limits(limits, at_most=lower)
    if again or isinstance(window.rules.forced_policy, Compact):
        window.start_next()


def _statement(goal: str, success_criteria: Sequence[str], constraints: Sequence[str]) -> TaskStatement:
    lists = {"success_criteria": success_criteria, "constraints": constraints}
    for name, items in lists.items():
        if isinstance(items, str) or not all(isinstance(item, str) and item.strip() for item in items):
            raise InputError(f"'{name}' is a list of texts. Nothing was stored.")
    if not isinstance(goal, str):
        raise InputError(f"the goal is a text, not '{type(goal).__name__}'. Nothing was stored.")
    return TaskStatement(goal=goal, success_criteria=tuple(success_criteria), constraints=tuple(constraints))


def _worst(*statuses: Status) -> Status:
    return max(statuses, key=STATUSES.index)


def _limits_in(error: BaseException | Mapping[str, Any] | str | None) -> ModelLimits | None:
    """The limits that an error names; None where it does not say that the prompt was too long."""
    if not isinstance(error, BaseException):
        return limits_in_error(error) if error is not None else None
    body = getattr(error, "body", None)
    found = limits_in_error(body) if isinstance(body, Mapping | str) else None
    return limits_in_error(str(error)) if found is None else found


def _usage(usage: Any) -> Usage | None:  # noqa: ANN401  # an object of any client
    if usage is None or isinstance(usage, Usage):
        return usage
    value = plain(usage)
    found = usage_in(dict(value)) if isinstance(value, Mapping) else None
    if found is None:
        raise InputError("this usage reports no prompt tokens. Nothing was stored.")
    return found


def _wire_of(raw: bytes) -> str:
    return detect(raw)


def _stands_alone(call: RequestedCall, format: Format) -> bool:
    """Whether a message with the result of this call alone names the call."""
    return _answers_in(format.edits.result_message(call.id, call.name, "", call.kind), format) == (call.id,)


def _answers_in(raw: bytes, format: Format) -> tuple[str, ...]:
    return format.validation.tool_call_ids(fields_of(raw)).answers


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(dict(value), ensure_ascii=False, default=str).encode("utf-8", "surrogatepass")


def _text_of(result: Any) -> str:  # noqa: ANN401  # whatever a tool returns
    if isinstance(result, BaseException):
        return f"{type(result).__name__}: {result}"
    value = plain(result)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
