"""Units and plans: what is evicted together, and what a policy proposes to evict or shorten.

Units: groups of messages that are evicted together.

A `WindowMessage` is what the window knows about one message. A unit is the smallest group of messages whose removal
leaves a valid prompt: one assistant message with all results of its calls, or a message without calls. Units form
exchanges: a user message and everything up to the next. A short exchange is one unit. A long tool loop is divided into
steps, and its opening message is evicted last.

This module knows no text, budgets or policies.

Plans: what a policy proposes before anything is written.

A policy decides what to evict or shorten, never when: it receives the units it may touch and the tokens needed, and
returns a plan. This module appends no events and calls no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from msgspec import Struct, field

from recto.context.window.budget import BudgetWarning
from recto.tokens.meter import byte_bound
from recto.transcript.entries import Role

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


LONG_EXCHANGE = 12
"""Number of messages from which an exchange counts as a tool loop whose steps may be evicted separately."""


class WindowMessage(NamedTuple):
    """One message, as the window sees it."""

    seq: int
    id: str
    role: Role
    tokens: int
    calls: tuple[str, ...] = ()
    """Ids of the tool calls it makes."""
    answers: tuple[str, ...] = ()
    """Ids of the calls whose results it carries."""
    tools: tuple[str, ...] = ()
    """Names of the tools it calls, or whose results it carries."""
    marked: bool = False
    """Whether its text contains the mark that protects it from eviction."""
    wire: str = ""
    """The only wire format that can express it; empty if all can."""
    leads: bool = False
    """Whether it belongs to the next assistant message, as reasoning does to the call it leads to."""
    runs: bool = False
    """Whether it writes a command as text, for a harness that answers with the output in a user message."""
    is_output: bool = False
    """Whether it is such a user message: the output of a command, not words of the user."""
    is_injected: bool = False
    """Whether it is a user message without words of the user: an instruction file, an environment note, a reminder, the
    echo of a command."""
    has_typed: bool = False
    """Whether it carries tool results and behind them something that the user typed, as after an interrupt."""
    warning: BudgetWarning | None = None
    """What it says about the model's window, if it is a budget warning."""

    @property
    def acts_as(self) -> Role:
        """The role it plays in the conversation, which may differ from the role it is sent with."""
        if self.is_output:
            return "tool"
        return "user" if self.role == "tool" and self.has_typed else self.role

    @property
    def has_result(self) -> bool:
        """Whether it carries the output of a tool or command."""
        return self.is_output or (bool(self.answers) and self.role != "assistant")


class Unit(NamedTuple):
    """Messages that stay or leave the prompt together, in order."""

    messages: tuple[WindowMessage, ...]
    exchange: int
    """Number of its exchange, counted from the beginning of the window."""
    opens: bool
    """Whether it contains the user message that opened the exchange."""

    @property
    def first(self) -> int:
        """Number of its first entry."""
        return self.messages[0].seq

    @property
    def last(self) -> int:
        """Number of its last entry."""
        return self.messages[-1].seq

    @property
    def seqs(self) -> tuple[int, ...]:
        """Numbers of its entries."""
        return tuple([message.seq for message in self.messages])

    @property
    def tokens(self) -> int:
        """Cost with nothing in it shortened."""
        return sum(message.tokens for message in self.messages)

    @property
    def is_complete(self) -> bool:
        """Whether every call in it has its result in it, and every result its call."""
        calls = {call for message in self.messages for call in message.calls}
        return calls == {answer for message in self.messages for answer in message.answers}


def units_of(messages: Iterable[WindowMessage], long_exchange: int = LONG_EXCHANGE) -> list[Unit]:
    """Group messages in order into units. A result belongs to its call's unit, however late it arrived."""
    units: list[Unit] = []
    for number, steps in enumerate(_exchanges(_steps(messages))):
        if sum(map(len, steps)) < long_exchange:
            members = sorted([message for step in steps for message in step])  # by number
            units.append(Unit(tuple(members), number, opens=True))
        else:
            units += [Unit(tuple(step), number, opens=place == 0) for place, step in enumerate(steps)]
    return units


def steps_in(messages: Iterable[WindowMessage]) -> list[Unit]:
    """Group messages in order into steps, without regard to exchanges."""
    return [Unit(tuple(step), 0, opens=False) for step in _steps(messages)]


def steps_of(unit: Unit) -> list[Unit]:
    """Divide a unit into its steps."""
    steps = _steps(unit.messages)
    return [Unit(tuple(step), unit.exchange, unit.opens and place == 0) for place, step in enumerate(steps)]


def eviction_order(units: Sequence[Unit]) -> list[Unit]:
    """Oldest first; the message that opened a long exchange comes after everything that answers it."""
    return sorted(units, key=lambda unit: (unit.exchange, unit.opens, unit.first))


def _steps(messages: Iterable[WindowMessage]) -> list[list[WindowMessage]]:
    steps: list[list[WindowMessage]] = []
    owners: dict[str, list[WindowMessage]] = {}
    open_step: list[WindowMessage] | None = None
    for message in messages:
        owner = None
        if message.answers:
            owner = next((owners[answer] for answer in message.answers if answer in owners), None)
        if owner is None and message.is_output and steps and steps[-1][-1].runs:
            owner = steps[-1]
        if owner is not None:
            owner.append(message)
            continue
        if open_step is not None and message.role == "assistant":
            step = open_step
            step.append(message)
        else:
            step = [message]
            steps.append(step)
        for call in message.calls:
            owners[call] = step
        open_step = step if message.leads else None
    return steps


def _exchanges(steps: Iterable[list[WindowMessage]]) -> list[list[list[WindowMessage]]]:
    exchanges: list[list[list[WindowMessage]]] = []
    for step in steps:
        if not exchanges or step[0].acts_as == "user":
            exchanges.append([])
        exchanges[-1].append(step)
    return exchanges


class ShortenedResult(Struct, frozen=True, kw_only=True):
    """A tool result replaced by a shorter text; the message and its call stay in the prompt."""

    seq: int
    text: str
    """Text shown instead of the result's output."""
    tokens: int
    """Cost of the message with this text."""


class MergedUnit(Struct, frozen=True, kw_only=True):
    """An evicted unit whose content a newer unit repeats. One line in the prompt names it beside the newer one."""

    first: int
    """Its first entry."""
    ranges: tuple[tuple[int, int], ...]
    """Its entries, as ranges with both ends included."""
    kept: int
    """The first entry of the newer unit, which stays in the prompt."""
    digest: str = ""
    """The beginning of the newer unit's text, by which a reader of the prompt finds it."""
    decision: int = 0
    """The decision that merged it; 0 in a plan."""


class ClearedThinking(Struct, frozen=True, kw_only=True):
    """A message that is sent without its thinking."""

    seq: int
    tokens: int
    """Cost of the message without it; 0 if nothing else is in it."""


class LeftOutTools(Struct, frozen=True, kw_only=True):
    """Tools whose definitions are not sent with a prompt, by name. The model can search for them."""

    names: tuple[str, ...] = ()
    """The tools that the last decision left out, in the order of the client's list."""
    found: tuple[str, ...] = ()
    """Those of them that are sent again since: the model searched for them or called them, or a request names them."""
    offered: str = ""
    """Digest of the names of all tools of the client at that decision; empty before there is one."""
    tokens: int = 0
    """Tokens that the prompt saves."""

    @property
    def hidden(self) -> tuple[str, ...]:
        """The tools that are left out now."""
        return tuple(name for name in self.names if name not in self.found)


TextStyle = Literal["results", "levels", "sections", "delegated"]
"""What to write: shorter tool results; exchanges at levels by age; one text in sections; a sub-agent's summary."""


class TextRequest(Struct, frozen=True, kw_only=True):
    """A text to be written when the plan is executed, not before: writing may cost model time and money."""

    style: TextStyle
    max_tokens: int
    """Maximum tokens of the text."""
    focus: str = ""
    """What the text must keep above all, if the caller named something."""
    handoff_tokens: int = 0
    """Tokens of a handoff that is also shown for one turn; 0: none is written."""


class Plan(Struct, frozen=True, kw_only=True):
    """A proposed edit of the prompt. An empty plan does nothing."""

    policy: str
    evicts: tuple[Unit, ...] = ()
    shortens: tuple[ShortenedResult, ...] = ()
    frees: int = 0
    """Tokens the prompt would lose, before markers are added."""
    reason: str = ""
    scores: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Every part of each unit's score, by the unit's first entry."""
    writes: TextRequest | None = None
    """The text to write in place of what is evicted or shortened."""
    merges: tuple[MergedUnit, ...] = ()
    """Those of the evicted units that a newer unit repeats which stays."""
    clears: tuple[ClearedThinking, ...] = ()
    """Messages that are sent without their thinking from now on."""

    def __bool__(self) -> bool:
        return bool(self.evicts or self.shortens or self.clears)


class ToolResult(Struct, frozen=True, kw_only=True):
    """A tool result entry: the call it answers and its output."""

    tool: str
    arguments: str
    """Arguments of the call, as JSON."""
    output: str
    """The output; all outputs together if the entry answers several calls."""
    turn: int = 0
    """Number of its user turn in the session; 0 if unknown."""
    failed: bool = False
    """Whether the client marked the result of this call as an error."""


class EntryVectors(Struct, frozen=True, kw_only=True):
    """The vectors that recall has stored for the entries of a view. Nothing is embedded to fill the gaps."""

    entries: Mapping[int, NDArray[np.float32]] = field(default_factory=dict)
    """Unit vectors of each entry, one per row. Entries without vectors are missing."""
    goal: NDArray[np.float32] | None = None
    """The vector of the goal; None if it is not known."""
    characters: int = 0
    """Characters at the beginning of an entry's text that its vectors represent."""


class PolicyView(Struct, frozen=True, kw_only=True):
    """What a policy may read and touch."""

    eligible: Sequence[Unit]
    """Units that may be evicted, in eviction order."""
    protected: Sequence[Unit]
    """Units that must stay."""
    tokens: Mapping[int, int]
    """Current cost of each entry in the prompt, shortened or not."""
    recent: Sequence[Unit] = ()
    """Those of the protected units that must stay only because they are recent: their results may be shortened."""
    input_budget: int = 0
    """Tokens a prompt may have; 0 if unknown."""
    shortened: frozenset[int] = frozenset()
    """Entries that are already shortened."""
    turn: int = 0
    """Number of the current user turn."""
    goal: str = ""
    """Text of the original task."""
    written: int = 0
    """Cost of the current summary of evicted messages."""
    text_of: Callable[[int], str] = lambda _: ""
    """Text of an entry. Expensive: read only what is needed."""
    result_of: Callable[[int], ToolResult] = lambda _: ToolResult(tool="", arguments="", output="")
    """Call and output of a tool result entry. Expensive."""
    pointer_of: Callable[[int], str] = lambda seq: f"recto://{seq}"
    """Where an entry can be read in full."""
    count: Callable[[str], int] = byte_bound
    """Tokens of a text by itself."""
    cost_with: Callable[[int, str], int] = lambda _, text: byte_bound(text)
    """Cost of an entry with this text instead of its result's output."""
    thinking: Callable[[int], Mapping[int, int]] = lambda _: {}
    """Messages before the last so many user turns whose thinking the provider lets a client leave out, with what each
    costs without it. Expensive: messages are parsed."""
    vectors: Callable[[], EntryVectors] = EntryVectors
    """Vectors of the entries. Expensive: they are read from the index of recall when a policy first asks for them, and
    every call within one plan returns the same ones."""

    def cost(self, unit: Unit) -> int:
        """Current cost of a unit."""
        return sum(self.tokens[message.seq] for message in unit.messages)


class Policy(Protocol):
    """A pure rule that decides what to evict or shorten."""

    @property
    def name(self) -> str:
        """Name in settings and decisions."""
        ...

    def plan(self, view: PolicyView, need: int) -> Plan:
        """Plan to free at least `need` tokens, or as many as this policy can."""
        ...
