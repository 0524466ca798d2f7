"""Units: groups of messages that are evicted together.

A `WindowMessage` is what the window knows about one message. A unit is the smallest group of messages whose removal
leaves a valid prompt: one assistant message with all results of its calls, or a message without calls. Units form
exchanges: a user message and everything up to the next. A short exchange is one unit. A long tool loop is divided into
steps, and its opening message is evicted last.

This module knows no text, budgets or policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recto.context.window.budget import BudgetWarning
from recto.transcript.entries import Role

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
