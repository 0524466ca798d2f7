"""Timeline: how full the prompt was over time, turn by turn, with the decisions that relieved it.

It is computed by folding the transcript; nothing is stored for it, and any past session has one.
"""

from __future__ import annotations

import json
from contextlib import suppress

from msgspec import Struct, field
from msgspec.structs import replace

from recto.context.window.budget import Zone
from recto.context.window.state import WindowState
from recto.context.window.units import WindowMessage
from recto.engine.monitor import composition_in
from recto.engine.projection import DECISIONS, RESTORED, WindowProjection
from recto.engine.prompt_builder import MessageCache, PromptBuilder
from recto.engine.recall_injection import INJECTED, MISSED
from recto.engine.relief import prompt_size
from recto.engine.report import current_reading
from recto.engine.window import Window
from recto.errors import InputError
from recto.health.metrics import PromptComposition
from recto.transcript.entries import MESSAGE, Entry

MAX_ENTRIES = 2_000
"""Maximum number of entries of one timeline."""


class DecisionMark(Struct, frozen=True, kw_only=True):
    """A decision, or the undoing of one, and where it happened."""

    seq: int
    kind: str
    policy: str
    frees: int


class TurnPoint(Struct, frozen=True, kw_only=True):
    """One turn."""

    turn: int
    """The number of the exchange; 0 before the first question."""
    first: int
    last: int
    """Its entries, as far as the range goes."""
    ts: int
    """When the last of them was stored."""
    tokens: int
    """Tokens of the prompt at its end, including recalled text."""
    recalled: int
    """Tokens of recalled text."""
    peak: int
    """The maximum of `tokens` during the turn."""
    utilization: float
    zone: Zone
    messages: int
    """Messages in the prompt at its end."""
    left: int
    """Messages evicted by then."""
    decisions: tuple[DecisionMark, ...]


class Timeline(Struct, frozen=True, kw_only=True):
    """The turns of a range of entries, oldest first."""

    room: int
    yellow: float
    orange: float
    red: float
    """Where the zones begin, as shares of the input budget."""
    utilization: float
    zone: Zone
    """How full the prompt is now, as every screen shows it. The last turn of the range may be older, or that of a
    history that was imported and never sent."""
    points: tuple[TurnPoint, ...]
    next: int | None
    """The entry the next page begins with; None on the last page."""


class _TurnBuilder(Struct):
    first: int
    entry: Entry
    turn: int = 0
    tokens: int = 0
    recalled: int = 0
    peak: int = 0
    messages: int = 0
    left: int = 0
    decisions: list[DecisionMark] = field(default_factory=list)


def timeline(window: Window, start: int | None = None, *, limit: int = MAX_ENTRIES) -> Timeline:
    """Return the timeline of `limit` entries from `start` on, or of the last ones. Turns are not split where they
    fit."""
    head = window.store.head(window.session).seq
    first = max(head - limit + 1, 1) if start is None else start
    last = min(first + limit - 1, head)
    turns = _turns(window, first, last)
    next_start = last + 1 if last < head else None
    if next_start and len(turns) > 1:
        next_start = turns.pop().first  # it may continue: the next page has all of it
    thresholds, room, now = window.rules.thresholds, window.outlook().input_budget, current_reading(window)
    points = tuple(
        TurnPoint(
            turn=turn.turn,
            first=turn.first,
            last=turn.entry.seq,
            ts=turn.entry.ts,
            tokens=turn.tokens,
            recalled=turn.recalled,
            peak=turn.peak,
            utilization=turn.tokens / max(room, 1),
            zone=thresholds.zone(turn.tokens / max(room, 1)),
            messages=turn.messages,
            left=turn.left,
            decisions=tuple(turn.decisions),
        )
        for turn in turns
    )
    return Timeline(
        room=room,
        yellow=thresholds.yellow,
        orange=thresholds.orange,
        red=thresholds.red,
        utilization=now.utilization,
        zone=now.zone,
        points=points,
        next=next_start,
    )


def _turns(window: Window, first: int, last: int) -> list[_TurnBuilder]:
    builder = copy_builder(window)
    turns: list[_TurnBuilder] = []
    overhead = _OverheadCounter(builder)
    exact = builder.messages.meter.exact
    for entry, state in WindowProjection(
        window.store, window.session, builder.messages, window.budget.input_budget
    ).states(first, last):
        begins = not turns or (entry.kind == MESSAGE and entry.role == "user")
        if begins:
            turns.append(_TurnBuilder(first=entry.seq, entry=entry))
        decides = entry.kind in DECISIONS or entry.kind == RESTORED
        if composition := PromptComposition.from_json(composition_in(entry), pieces=False):
            overhead.use(composition)
        overhead.update(state, entry, begins=begins, decides=decides)
        current = turns[-1]
        if entry.kind in (INJECTED, MISSED):
            tokens = json.loads(entry.content).get("tokens")
            current.recalled = tokens if isinstance(tokens, int) else 0
        handoff = window.continuity.handoff_note(state, builder.usual_wire) if state.shown_handoff[0] else None
        counted = state.tokens + overhead.tokens + current.recalled + (handoff.tokens if handoff else 0)
        size, _ = prompt_size(state, counted, exact=exact)
        current.entry, current.turn, current.tokens = entry, state.turn, size.tokens
        current.peak = max(current.peak, current.tokens)
        current.messages, current.left = len(state.messages), state.evicted_messages
        if decides:
            payload = json.loads(entry.content)
            mark = DecisionMark(
                seq=entry.seq, kind=entry.kind, policy=payload.get("policy", ""), frees=payload.get("frees", 0)
            )
            current.decisions.append(mark)
    return turns


class _OverheadCounter:
    """Counts the part of a prompt that is not messages of the session: tools, frame, and the notice of evicted
    messages.

    Counting examines every message in the prompt. The result changes with decisions, with another format, and with
    calls that wait for a result, so it is counted again after those and not for every turn.
    """

    def __init__(self, builder: PromptBuilder) -> None:
        self.tokens = builder.extras.fixed
        self._builder = builder
        self._pending_calls: set[str] | None = None
        self._counted_for: tuple[bool, str] | None = None
        """Whether calls were pending when it was counted last, and the format."""

    def use(self, composition: PromptComposition) -> None:
        """Count from now on with the tools and the system text of a prompt that was answered."""
        extras = self._builder.extras
        if (extras.tools, extras.system) != (composition.tools, composition.system):
            costs = extras.costing(extras.frame, composition.tools, composition.system, 0)
            self._builder = replace(self._builder, extras=costs)
            self._counted_for = None

    def update(self, state: WindowState, entry: Entry, *, begins: bool, decides: bool) -> None:
        """Update for one more entry, which may begin a turn or be a decision."""
        line = state.messages.get(entry.seq)
        if self._pending_calls is None:
            self._pending_calls = set()
            for earlier in state.messages.values():
                self._track_calls(earlier)
        elif line is not None:
            self._track_calls(line)
        condition = bool(self._pending_calls), state.wire
        if decides or self._counted_for is None or (begins and (condition != self._counted_for or condition[0])):
            self._counted_for = condition
            self.tokens = self._count(state)

    def _track_calls(self, line: WindowMessage) -> None:
        if self._pending_calls is not None:
            self._pending_calls.update(line.calls)
            self._pending_calls.difference_update(line.answers)

    def _count(self, state: WindowState) -> int:
        with suppress(InputError):  # a session in two formats can be examined, though it cannot be sent
            return self._builder.prompt_tokens(state) - state.tokens
        return self._builder.extras.fixed


def copy_builder(window: Window) -> PromptBuilder:
    """Return a copy of the window's prompt builder, so that looking back does not change the live window.

    It has the tools and the system text of the last answered prompt.
    """
    live = window.outlook().builder
    cache = MessageCache(meter=live.messages.meter, pointer_of=live.messages.pointer_of, mark=live.messages.mark)
    return replace(live, messages=cache, extras=replace(live.extras, handoff=None, recalled=None))
