"""Which messages are in the prompt now: the fold of a session's messages and decisions.

The state holds only what is in the prompt, so its size is bounded by the window and not by the history. It is rebuilt
from a snapshot and what follows it, and comes out the same on whichever machine that happens. It knows lines and their
costs, not bytes; who decides that something leaves is not its business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

from recto.context.window.budget import Burn, Component
from recto.context.window.notes import Note, bounded
from recto.context.window.plan import Shrink
from recto.context.window.pressure import Growth, Zone
from recto.context.window.summary import Summary
from recto.context.window.units import Line, Unit, leaving_order, steps_of, units_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What never leaves, besides what was pinned by hand."""

    min_recent_messages: int = 24
    """The newest messages, as many as fit."""
    tools: frozenset[str] = frozenset()
    """Tools whose calls and results stay."""
    task: bool = True
    """Whether the first user message, the task, stays."""

    def __post_init__(self) -> None:
        if self.min_recent_messages < 0:
            raise ValueError("min_recent_messages must not be below zero")


@dataclass(slots=True)
class WindowState:
    """What is in the prompt, as of one entry of the transcript."""

    seq: int = 0
    """The last entry that is part of this."""
    turn: int = 0
    """How many exchanges there have been."""
    calls: int = 0
    """How often the model has answered."""
    task: int = 0
    """The entry with the original task: the first user message. 0 before there is one."""
    lines: dict[int, Line] = field(default_factory=dict)
    """What is in, by number, in order."""
    shrunk: dict[int, Shrink] = field(default_factory=dict)
    pins: set[int] = field(default_factory=set)
    tokens: int = 0
    """What everything that is in costs, without the frame of the prompt."""
    spent: dict[Component, int] = field(default_factory=dict)
    """The same, by component of the budget."""
    growth: Growth = field(default_factory=Growth)
    """How it grew over the last turns."""
    burn: Burn = field(default_factory=Burn)
    """How each component grew."""
    zone: Zone = "green"
    """The zone that was told last."""
    levels: dict[str, str] = field(default_factory=dict)
    """How each component stood with its budget when that was told last, where it was not well."""
    reported: int = 0
    """What the provider reported for the last prompt; 0 where it did not, or the prompt was edited since."""
    reported_of: int = 0
    """Our own count of that prompt."""
    wire: str = ""
    """The wire format of the session, once a message told it."""
    cache_mark: str = ""
    """The newest cache mark of a message that left: it goes to where the prompt is stable now."""
    edited: int = 0
    """The decision that last changed what was sent before."""
    left_messages: int = 0
    left_tokens: int = 0
    left_first: int = 0
    left_last: int = 0
    """How much has left, and between which entries."""
    summary: Summary | None = None
    """What is known of it, where it was written down."""
    promised: int = 0
    """In a plan: what a text may cost that is not written yet, and that will stand in place of the summary."""
    notes: tuple[Note, ...] = ()
    """What the agent wrote down while it worked."""
    shown_notes: tuple[Note, ...] = ()
    """Those that stand in the prompt: as they were when it was last edited, so that its beginning stays as it is."""
    checkpoints: int = 0
    """How many checkpoints there are."""
    windows: int = 0
    """How often the window was made anew."""
    standing: str = ""
    """The digest of what was last told to stand before everything else."""
    replayed: tuple[int, int] = (0, 0)
    """The handoff that was shown last, and the question behind which it stands."""

    def add(self, line: Line) -> None:
        """A message was appended."""
        if line.role == "user":
            self.growth = self.growth.turn(self.tokens)
            self.burn = self.burn.turn(self.components())
            self.turn += 1
            self.task = self.task or line.seq
        self.calls += line.role == "assistant"
        self.wire = line.wire or self.wire
        self.lines[line.seq] = line
        self._charge(line, line.tokens)
        self.seq = line.seq

    def cost(self, seq: int) -> int:
        """What an entry that is in costs now."""
        shrink = self.shrunk.get(seq)
        return self.lines[seq].tokens if shrink is None else shrink.tokens

    def components(self) -> dict[Component, int]:
        """What each component of the budget uses, as far as messages go."""
        none: dict[Component, int] = {"system": 0, "history": 0, "results": 0}
        return none | self.spent

    def leave(self, seqs: Iterable[int]) -> None:
        """A decision took these out."""
        before = self.tokens
        self.shown_notes = self.notes
        for seq in seqs:
            if seq not in self.lines:
                continue
            self._charge(self.lines[seq], -self.cost(seq))
            line = self.lines.pop(seq)
            self.shrunk.pop(seq, None)
            self.left_messages += 1
            self.left_tokens += line.tokens
            self.left_first = min(self.left_first or seq, seq)
            self.left_last = max(self.left_last, seq)
        self._relieved(before)

    def shrink(self, shrinks: Iterable[Shrink]) -> None:
        """A decision made these shorter."""
        before = self.tokens
        for shrink in shrinks:
            if shrink.seq in self.lines:
                self._charge(self.lines[shrink.seq], shrink.tokens - self.cost(shrink.seq))
                self.shrunk[shrink.seq] = shrink
        self._relieved(before)

    def come_back(self, lines: Iterable[Line]) -> None:
        """A decision was undone: these are in again, whole and in their old places."""
        before = self.tokens
        for line in lines:
            if line.seq in self.lines:
                self._charge(line, -self.cost(line.seq))
            else:
                self.left_messages -= 1
                self.left_tokens -= line.tokens
            self.lines[line.seq] = line
            self._charge(line, line.tokens)
            self.shrunk.pop(line.seq, None)
        self.lines = dict(sorted(self.lines.items()))
        self._relieved(before)

    def note(self, note: Note) -> None:
        """The agent wrote something down."""
        self.notes = bounded((*self.notes, note))

    def copy(self) -> WindowState:
        """A state of its own to plan on."""
        return replace(
            self,
            lines=dict(self.lines),
            shrunk=dict(self.shrunk),
            pins=set(self.pins),
            levels=dict(self.levels),
            spent=dict(self.spent),
        )

    def _charge(self, line: Line, tokens: int) -> None:
        component = component_of(line)
        self.tokens += tokens
        self.spent[component] = self.spent.get(component, 0) + tokens

    def _relieved(self, before: int) -> None:
        """An edit says nothing about growth, and makes the provider's last report one of another prompt."""
        self.growth = self.growth.relieved(self.tokens, before)
        for component, used in self.components().items():
            self.burn = self.burn.relieved(component, used)
        self.reported = self.reported_of = 0
        self.levels.clear()

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON, without the lines themselves: they are read from the transcript again."""
        return {
            "seq": self.seq,
            "turn": self.turn,
            "calls": self.calls,
            "task": self.task,
            "in": ranges_of(self.lines),
            "pins": ranges_of(sorted(self.pins)),
            "shrunk": {str(s.seq): {"text": s.text, "tokens": s.tokens} for s in self.shrunk.values()},
            "left": [self.left_messages, self.left_tokens, self.left_first, self.left_last],
            "growth": [self.growth.level, list(self.growth.gains)],
            "zone": self.zone,
            "edited": self.edited,
            "burn": {name: [grown.level, list(grown.gains)] for name, grown in self.burn.growths.items()},
            "levels": self.levels,
            "reported": [self.reported, self.reported_of],
            "cache_mark": self.cache_mark,
            "wire": self.wire,
            "summary": self.summary.at if self.summary else 0,
            "notes": [asdict(note) for note in self.notes],
            "shown_notes": [asdict(note) for note in self.shown_notes],
            "counts": [self.checkpoints, self.windows],
            "replayed": list(self.replayed),
            "standing": self.standing,
        }

    @classmethod
    def from_snapshot(
        cls, snapshot: Mapping[str, Any], lines: Iterable[Line], summary: Summary | None = None
    ) -> WindowState:
        """The state that made the snapshot, given the lines and the summary it names."""
        messages, tokens, first, last = snapshot["left"]
        level, gains = snapshot["growth"]
        checkpoints, windows = snapshot.get("counts", (0, 0))
        handoff, shown_behind = snapshot.get("replayed", (0, 0))
        state = cls(
            seq=snapshot["seq"],
            turn=snapshot["turn"],
            calls=snapshot["calls"],
            task=snapshot["task"],
            lines={line.seq: line for line in lines},
            pins=set(seqs_in(snapshot["pins"])),
            shrunk={int(seq): Shrink(seq=int(seq), **about) for seq, about in snapshot["shrunk"].items()},
            left_messages=messages,
            left_tokens=tokens,
            left_first=first,
            left_last=last,
            growth=Growth(level=level, gains=tuple(gains)),
            zone=snapshot["zone"],
            edited=snapshot["edited"],
            burn=Burn(growths={name: Growth(level=at, gains=tuple(g)) for name, (at, g) in snapshot["burn"].items()}),
            levels=dict(snapshot["levels"]),
            reported=snapshot["reported"][0],
            reported_of=snapshot["reported"][1],
            cache_mark=snapshot["cache_mark"],
            wire=snapshot["wire"],
            summary=summary,
            notes=tuple(Note(**note) for note in snapshot.get("notes", ())),
            shown_notes=tuple(Note(**note) for note in snapshot.get("shown_notes", ())),
            checkpoints=checkpoints,
            windows=windows,
            replayed=(handoff, shown_behind),
            standing=snapshot.get("standing", ""),
        )
        for seq, line in state.lines.items():
            state._charge(line, state.cost(seq))
        return state


def component_of(line: Line) -> Component:
    """Which part of the budget a message is charged to."""
    if line.role == "system":
        return "system"
    return "results" if line.role == "tool" else "history"


@dataclass(frozen=True, slots=True)
class Split:
    """The units of a window: those that may leave, in the order in which they would, and those that stay."""

    eligible: tuple[Unit, ...]
    protected: tuple[Unit, ...]


def split(state: WindowState, protection: Protection) -> Split:
    """Tells apart what may leave from what stays."""
    stay = _staying(state, protection)
    eligible: list[Unit] = []
    protected: list[Unit] = []
    for unit in units_of(state.lines.values()):
        touched = stay.intersection(unit.seqs)
        # Where only a part is protected, its steps are told apart: the question may stay while an old result leaves.
        steps = [unit] if len(touched) in (0, len(unit.lines)) else steps_of(unit)
        for step in steps:
            (eligible if stay.isdisjoint(step.seqs) else protected).append(step)
    return Split(tuple(leaving_order(eligible)), tuple(protected))


def in_flight(state: WindowState) -> frozenset[int]:
    """The current user message, and the step the model has not answered yet: its calls and their results."""
    flying: set[int] = set()
    for line in reversed(state.lines.values()):
        flying.add(line.seq)
        if line.role in ("assistant", "user"):
            break
    question = next((line.seq for line in reversed(state.lines.values()) if line.role == "user"), None)
    return frozenset(flying | ({question} if question else set()))


def _staying(state: WindowState, protection: Protection) -> set[int]:
    stay = (state.pins & state.lines.keys()) | in_flight(state)
    if protection.task and state.task:
        stay.add(state.task)
    stay.update(islice(reversed(state.lines), protection.min_recent_messages))
    stay.update([line.seq for line in state.lines.values() if line.marked or line.role == "system"])
    if protection.tools:
        stay.update([line.seq for line in state.lines.values() if protection.tools.intersection(line.tools)])
    return stay


def protected_tokens(state: WindowState, protection: Protection) -> int:
    """What the messages cost that may not leave."""
    return sum(state.cost(seq) for seq in _staying(state, protection) if seq in state.lines)  # the task may have left


def ranges_of(seqs: Iterable[int]) -> list[list[int]]:
    """Ascending numbers as ranges, both ends included."""
    ranges: list[list[int]] = []
    for seq in seqs:
        if ranges and ranges[-1][1] == seq - 1:
            ranges[-1][1] = seq
        else:
            ranges.append([seq, seq])
    return ranges


def seqs_in(ranges: Iterable[Iterable[int]]) -> list[int]:
    """The numbers that ranges stand for."""
    return [seq for first, last in ranges for seq in range(first, last + 1)]
