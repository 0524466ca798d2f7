"""What a policy proposes, before anything is written: which units should leave, which results should shrink.

A policy says what, never when: it gets what may be touched and how many tokens are needed, and returns a plan. Nobody
here appends events or calls a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from recto.context.window.units import Unit
from recto.tokens.estimates import byte_bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink:
    """A tool result that becomes shorter; the message and its pair stay."""

    seq: int
    text: str
    """What stands in place of the result's output."""
    tokens: int
    """What the message costs afterwards."""


Style = Literal["results", "levels", "sections", "delegated"]
"""What is written: shorter results; exchanges at levels by their age; one text in sections; a sub-agent's answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOrder:
    """Text that is written when a plan is carried out, and not before: writing may take a model's time and money."""

    style: Style
    most: int
    """Tokens it may have, whatever is written."""
    focus: str = ""
    """What it should keep above all, where somebody said so."""
    handoff: int = 0
    """Tokens of a handoff that stands in the prompt too, for one turn; 0: none is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done. Frees nothing and does nothing where it is empty."""

    policy: str
    leaves: tuple[Unit, ...] = ()
    shrinks: tuple[Shrink, ...] = ()
    frees: int = 0
    """Tokens the prompt would lose, before markers."""
    reason: str = ""
    scores: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """For each unit that was weighed, by its first entry: every score that went into it."""
    writes: TextOrder | None = None
    """What has to be written in place of what leaves or shrinks."""

    def __bool__(self) -> bool:
        return bool(self.leaves or self.shrinks)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What one entry with a tool's result answers and says."""

    tool: str
    arguments: str
    """Those of the call, as JSON."""
    output: str
    """Where one entry answers several calls, all that they gave back."""
    turn: int = 0
    """The number of its exchange in the session, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """What a policy may look at and touch."""

    eligible: Sequence[Unit]
    """Units that may leave, in the order in which they would leave."""
    protected: Sequence[Unit]
    """Units that stay."""
    tokens: Mapping[int, int]
    """What each entry in the prompt costs now, shrunk or not."""
    shrunk: frozenset[int] = frozenset()
    """Entries that have shrunk already."""
    turn: int = 0
    """The number of the current exchange."""
    goal: str = ""
    """The original task, in words."""
    written: int = 0
    """What the text in place of what left before costs."""
    text_of: Callable[[int], str] = lambda _: ""
    """The text of an entry. Costly: ask only for what is needed."""
    result_of: Callable[[int], ToolResult] = lambda _: ToolResult(tool="", arguments="", output="")
    """The call and the output of an entry that carries a tool's result. Costly too."""
    pointer_of: Callable[[int], str] = lambda seq: f"recto://{seq}"
    """Where an entry can be read whole."""
    count: Callable[[str], int] = byte_bound
    """The tokens of a text by itself."""
    cost_with: Callable[[int, str], int] = lambda _, text: byte_bound(text)
    """What an entry would cost with this text in place of its result's output."""

    def cost(self, unit: Unit) -> int:
        """What a unit costs now."""
        return sum(self.tokens[line.seq] for line in unit.lines)


class Policy(Protocol):
    """A pure rule that says what should leave or shrink."""

    @property
    def name(self) -> str:
        """As it is configured and recorded."""
        ...

    def plan(self, view: PolicyView, need: int) -> Plan:
        """How to free at least `need` tokens, or as near to it as the policy can come."""
        ...
