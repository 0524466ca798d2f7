"""How full the prompt was over time, turn by turn, with the decisions that made it smaller.

It is the fold of the transcript, looked at while it runs: nothing is kept for it, and any past session has one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field, replace

from recto.context.window.pressure import Zone
from recto.context.window.state import WindowState
from recto.context.window.units import WindowMessage
from recto.engine.projection import DECISIONS, RESTORED, WindowProjection
from recto.engine.prompt_builder import MessageCache, PromptBuilder
from recto.engine.recall_injection import INJECTED, MISSED
from recto.engine.window import Window
from recto.errors import InputError
from recto.transcript.entries import MESSAGE, Entry

MOST = 2_000
"""Entries that one timeline goes through at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionMark:
    """A decision, or the undoing of one, where it happened."""

    seq: int
    kind: str
    policy: str
    frees: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPoint:
    """One turn."""

    turn: int
    """Which exchange it is; 0 before the first question."""
    first: int
    last: int
    """Its entries, as far as the range goes."""
    ts: int
    """When the last of them was stored."""
    tokens: int
    """What the prompt was at its end, with what was recalled for it."""
    recalled: int
    """What of it was recalled."""
    peak: int
    """The most it was in it."""
    utilization: float
    zone: Zone
    messages: int
    """How many were in at its end."""
    left: int
    """How many had left."""
    decisions: tuple[DecisionMark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The turns of a range of entries, oldest first."""

    room: int
    yellow: float
    orange: float
    red: float
    """Where the zones begin, as shares of the room."""
    points: tuple[TurnPoint, ...]
    next: int | None
    """The entry the next page begins with; none where this is the last."""


@dataclass(slots=True)
class _Turn:
    first: int
    entry: Entry
    turn: int = 0
    tokens: int = 0
    recalled: int = 0
    peak: int = 0
    messages: int = 0
    left: int = 0
    decisions: list[DecisionMark] = field(default_factory=list)


def timeline(window: Window, start: int | None = None, *, limit: int = MOST) -> Timeline:
    """The timeline of so many entries from one on; without one, of the last ones. Turns stay whole where they fit."""
    head = window.store.head(window.session).seq
    first = max(head - limit + 1, 1) if start is None else start
    last = min(first + limit - 1, head)
    turns = _turns(window, first, last)
    following = last + 1 if last < head else None
    if following and len(turns) > 1:
        following = turns.pop().first  # it may go on: the next page has all of it
    thresholds, room = window.rules.thresholds, window.budget.input_budget
    points = tuple(
        TurnPoint(
            turn=one.turn,
            first=one.first,
            last=one.entry.seq,
            ts=one.entry.ts,
            tokens=one.tokens,
            recalled=one.recalled,
            peak=one.peak,
            utilization=one.tokens / max(room, 1),
            zone=thresholds.zone(one.tokens / max(room, 1)),
            messages=one.messages,
            left=one.left,
            decisions=tuple(one.decisions),
        )
        for one in turns
    )
    return Timeline(
        room=room,
        yellow=thresholds.yellow,
        orange=thresholds.orange,
        red=thresholds.red,
        points=points,
        next=following,
    )


def _turns(window: Window, first: int, last: int) -> list[_Turn]:
    builder = builder_like(window)
    turns: list[_Turn] = []
    beside = _Beside(builder)
    for entry, state in WindowProjection(
        window.store, window.session, builder.messages, window.budget.input_budget
    ).states(first, last):
        begins = not turns or (entry.kind == MESSAGE and entry.role == "user")
        if begins:
            turns.append(_Turn(first=entry.seq, entry=entry))
        decides = entry.kind in DECISIONS or entry.kind == RESTORED
        beside.follow(state, entry, begins=begins, decides=decides)
        now = turns[-1]
        if entry.kind in (INJECTED, MISSED):
            found = json.loads(entry.content).get("tokens")
            now.recalled = found if isinstance(found, int) else 0
        now.entry, now.turn, now.tokens = entry, state.turn, state.tokens + beside.tokens + now.recalled
        now.peak = max(now.peak, now.tokens)
        now.messages, now.left = len(state.messages), state.evicted_messages
        if decides:
            about = json.loads(entry.content)
            mark = DecisionMark(
                seq=entry.seq, kind=entry.kind, policy=about.get("policy", ""), frees=about.get("frees", 0)
            )
            now.decisions.append(mark)
    return turns


class _Beside:
    """What a prompt holds that is no message of the session: tools, frame, and what stands for what left.

    To count it, every message that is in is looked at. It changes with decisions, with another format, and with calls
    that wait for a result; so it is counted anew after those and not for every turn.
    """

    def __init__(self, builder: PromptBuilder) -> None:
        self.tokens = builder.extras.fixed
        self._builder = builder
        self._waiting: set[str] | None = None
        self._counted: tuple[bool, str] | None = None
        """Whether calls waited when it was counted last, and in which format."""

    def follow(self, state: WindowState, entry: Entry, *, begins: bool, decides: bool) -> None:
        """One more entry was taken in: it may begin a turn, or be a decision."""
        line = state.messages.get(entry.seq)
        if self._waiting is None:
            self._waiting = set()
            for one in state.messages.values():
                self._hear(one)
        elif line is not None:
            self._hear(line)
        now = bool(self._waiting), state.wire
        if decides or self._counted is None or (begins and (now != self._counted or now[0])):
            self._counted = now
            self.tokens = self._count(state)

    def _hear(self, line: WindowMessage) -> None:
        if self._waiting is not None:
            self._waiting.update(line.calls)
            self._waiting.difference_update(line.answers)

    def _count(self, state: WindowState) -> int:
        with suppress(InputError):  # a session in two formats at once can be looked at, though it cannot be sent
            return self._builder.prompt_tokens(state) - state.tokens
        return self._builder.extras.fixed


def builder_like(window: Window) -> PromptBuilder:
    """A builder with messages of its own, so that the live window is not touched. Tools of the past are not known."""
    live = window.builder_for()
    cache = MessageCache(meter=live.messages.meter, pointer_of=live.messages.pointer_of, mark=live.messages.mark)
    return replace(live, messages=cache, extras=replace(live.extras, handoff=None, recalled=None))
