"""What may leave the prompt together: units, made of lines.

A line is what the window needs to know about one message. A unit is the smallest group of lines that can leave and
leave the prompt valid: one assistant message with all results of its calls, or a message that calls nothing. Units form
exchanges: a user message and everything up to the next. A short exchange is one unit; a long tool loop is many, and
then the message that opened it stays until the last of them has left.

Nothing here knows text, budgets or policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recto.transcript.entries import Role

LONG_EXCHANGE = 12
"""Messages from which on an exchange is a tool loop whose steps may leave one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
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
    """Whether its text says that it must not leave."""
    wire: str = ""
    """The wire format it can only be in; empty where it is the same in all."""
    leads: bool = False
    """Whether it only leads on to the next message, as reasoning does to the call it ends in: they go together."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Lines that stay or leave together, in order."""

    lines: tuple[Line, ...]
    exchange: int
    """The number of the exchange it belongs to, counted from the beginning of the window."""
    opens: bool
    """Whether it holds the user message that opened the exchange."""

    @property
    def first(self) -> int:
        """The number of its first entry."""
        return self.lines[0].seq

    @property
    def last(self) -> int:
        """The number of its last entry."""
        return self.lines[-1].seq

    @property
    def seqs(self) -> tuple[int, ...]:
        """The numbers of its entries."""
        return tuple(line.seq for line in self.lines)

    @property
    def tokens(self) -> int:
        """What it costs when nothing in it has shrunk."""
        return sum(line.tokens for line in self.lines)

    @property
    def is_whole(self) -> bool:
        """Whether every call in it has its result in it, and every result its call."""
        calls = {call for line in self.lines for call in line.calls}
        return calls == {answer for line in self.lines for answer in line.answers}


def units_of(lines: Iterable[Line], long_exchange: int = LONG_EXCHANGE) -> list[Unit]:
    """The units of lines that stand in order. A result belongs to its call's unit, however late it came."""
    units: list[Unit] = []
    for number, steps in enumerate(_exchanges(_steps(lines))):
        if sum(map(len, steps)) < long_exchange:
            together = sorted((line for step in steps for line in step), key=lambda line: line.seq)
            units.append(Unit(tuple(together), number, opens=True))
        else:
            units += [Unit(tuple(step), number, opens=place == 0) for place, step in enumerate(steps)]
    return units


def steps_of(unit: Unit) -> list[Unit]:
    """The unit taken apart as far as it can be: each step by itself."""
    steps = _steps(unit.lines)
    return [Unit(tuple(step), unit.exchange, unit.opens and place == 0) for place, step in enumerate(steps)]


def leaving_order(units: Sequence[Unit]) -> list[Unit]:
    """Oldest first; but the message that opened a long exchange leaves after everything that answers it."""
    return sorted(units, key=lambda unit: (unit.exchange, unit.opens, unit.first))


def _steps(lines: Iterable[Line]) -> list[list[Line]]:
    steps: list[list[Line]] = []
    owners: dict[str, list[Line]] = {}
    leading: list[Line] | None = None
    for line in lines:
        owner = next((owners[answer] for answer in line.answers if answer in owners), None)
        if owner is not None:
            owner.append(line)
            continue
        if leading is not None and line.role == "assistant":
            step = leading
            step.append(line)
        else:
            step = [line]
            steps.append(step)
        owners |= dict.fromkeys(line.calls, step)
        leading = step if line.leads else None
    return steps


def _exchanges(steps: Iterable[list[Line]]) -> list[list[list[Line]]]:
    exchanges: list[list[list[Line]]] = []
    for step in steps:
        if not exchanges or step[0].role == "user":
            exchanges.append([])
        exchanges[-1].append(step)
    return exchanges
