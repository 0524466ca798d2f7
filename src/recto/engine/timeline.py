"""How full the prompt was over time, turn by turn, with the decisions that made it smaller.

It is the fold of the transcript, looked at while it runs: nothing is kept for it, and any past session has one.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field

from recto.core.entries import MESSAGE, Entry
from recto.core.pressure import Zone
from recto.core.window import WindowState
from recto.engine.fold import DECISIONS, RESTORED, Fold
from recto.engine.material import Material
from recto.engine.recollection import INJECTED, MISSED
from recto.engine.window import Window
from recto.errors import InputError

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
    thresholds, room = window.rules.thresholds, window.budget.room
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
    material = _material_like(window)
    turns: list[_Turn] = []
    beside = material.fixed
    for entry, state in Fold(window.store, window.session, material, window.budget.room).states(first, last):
        begins = not turns or (entry.kind == MESSAGE and entry.role == "user")
        if begins:
            turns.append(_Turn(first=entry.seq, entry=entry))
        if begins or entry.kind in DECISIONS or entry.kind == RESTORED:
            beside = _beside(material, state)  # what is not a message changes with these alone
        now = turns[-1]
        if entry.kind in (INJECTED, MISSED):
            found = json.loads(entry.content).get("tokens")
            now.recalled = found if isinstance(found, int) else 0
        now.entry, now.turn, now.tokens = entry, state.turn, state.tokens + beside + now.recalled
        now.peak = max(now.peak, now.tokens)
        now.messages, now.left = len(state.lines), state.left_messages
        if entry.kind in DECISIONS or entry.kind == RESTORED:
            about = json.loads(entry.content)
            mark = DecisionMark(
                seq=entry.seq, kind=entry.kind, policy=about.get("policy", ""), frees=about.get("frees", 0)
            )
            now.decisions.append(mark)
    return turns


def _beside(material: Material, state: WindowState) -> int:
    """What a prompt holds that is no message of the session: tools, frame, and what stands for what left."""
    with suppress(InputError):  # a session in two formats at once can be looked at, though it cannot be sent
        return material.used(state) - state.tokens
    return material.fixed


def _material_like(window: Window) -> Material:
    """Material of its own, so that looking back leaves the live window as it is."""
    live = window.material
    return Material(
        meter=live.meter,
        pointer_of=live.pointer_of,
        marker_of=live.marker_of,
        mark=live.mark,
        usual_wire=live.usual_wire,
        fixed=live.fixed,
        foreword=live.foreword,
    )
