"""Two ways to keep a conversation that need no Recto: everything is sent, or the oldest is left out until it fits.

They are what a window is weighed against, so they are as good as they can be: what the caller would send is counted
and nothing around it, calls stay with their results, and trimming keeps as much as fits. Which model is asked is known
here only by its card, and what a turn needed is judged by the same code as for a window.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from recto.formats import DEFAULT_FORMAT, format_named, format_of_provider, read
from recto.formats.message import fields_of
from recto.health.regret import RegretTracker
from recto.lab.backtest import Backtest, ReplayedTurn
from recto.tokens.meter import Meter
from recto.tokens.model_card import ModelCard
from recto.transcript.entries import MESSAGE, Entry

BASELINES = ("none", "trim")


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineMessage:
    """One message, as far as a baseline looks at it."""

    seq: int
    tokens: int
    is_system: bool
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinePrompt:
    """What is sent now."""

    tokens: int
    """Of the messages."""
    unchanged: int
    """Of these, what stood at the beginning of the one sent before."""
    before: int
    """What the one sent before had."""
    left: tuple[int, ...] = ()
    """Entries that are left out from now on."""


class Keeper(Protocol):
    """Somebody who keeps a conversation and says what is sent."""

    def take(self, said: BaselineMessage) -> None:
        """Takes one message in."""

    def prompt(self, room: int) -> BaselinePrompt:
        """What is sent, where it may have so many tokens."""


@dataclass(slots=True)
class Everything:
    """The whole history each time, whether it fits or not. It only grows, so all of the one before is unchanged."""

    _tokens: int = 0
    _sent: int = 0

    def take(self, said: BaselineMessage) -> None:
        """It stays for good."""
        self._tokens += said.tokens

    def prompt(self, room: int) -> BaselinePrompt:
        """All of it."""
        before, self._sent = self._sent, self._tokens
        return BaselinePrompt(tokens=self._tokens, unchanged=before, before=before)


@dataclass(slots=True)
class _Step:
    """A message that calls with all its results, or a message that calls nothing."""

    lines: list[BaselineMessage]
    tokens: int


@dataclass(slots=True)
class Trimming:
    """The oldest messages are left out, at every call just as many as must; system messages stay.

    Where the newest message alone is too long, it is sent all the same.
    """

    _steps: deque[_Step] = field(default_factory=deque)
    _owners: dict[str, _Step] = field(default_factory=dict)
    _system: int = 0
    _tokens: int = 0
    _sent: int = 0
    _left: list[int] = field(default_factory=list)

    def take(self, said: BaselineMessage) -> None:
        """A result goes with its call; without it no provider would take it, so it is left out."""
        if said.is_system:
            self._system += said.tokens
            return
        owner = next((self._owners[call] for call in said.answers if call in self._owners), None)
        if owner is None and said.answers and not said.calls:
            self._left.append(said.seq)
            return
        if owner is None:
            owner = _Step([], 0)
            self._steps.append(owner)
        owner.lines.append(said)
        owner.tokens += said.tokens
        self._tokens += said.tokens
        self._owners |= dict.fromkeys(said.calls, owner)

    def prompt(self, room: int) -> BaselinePrompt:
        """What still fits. Once something is left out, only the system messages before it are unchanged."""
        dropped = False
        while self._system + self._tokens > room and len(self._steps) > 1:
            self._drop(self._steps.popleft())
            dropped = True
        tokens = self._system + self._tokens
        before, self._sent = self._sent, tokens
        left, self._left = tuple(self._left), []
        return BaselinePrompt(
            tokens=tokens, unchanged=min(self._system, before) if dropped else before, before=before, left=left
        )

    def _drop(self, step: _Step) -> None:
        self._tokens -= step.tokens
        self._left += [said.seq for said in step.lines]
        for call in (call for said in step.lines for call in said.calls):
            if self._owners.get(call) is step:
                del self._owners[call]


def keeper_named(name: str) -> Keeper:
    """The baseline of a name."""
    return Everything() if name == "none" else Trimming()


def backtest_baseline(
    name: str,
    entries: Iterable[Entry],
    *,
    card: ModelCard,
    room: int,
    meter: Meter,
    turned: Callable[[ReplayedTurn], object] = lambda turn: None,
) -> Backtest:
    """Goes through a conversation as `backtest` does with a session, and judges what the baseline would have sent."""
    tally, keeper, needs = Backtest(), keeper_named(name), RegretTracker()
    beside = meter.frame.prompt
    for number, entry, is_asked in _asked(entries):
        message = read(entry.content, entry.wire)
        if is_asked:
            sent = keeper.prompt(room - beside)
            needs.evict(sent.left)
            turn = ReplayedTurn(
                number=number,
                seq=entry.seq,
                tokens=sent.tokens + beside,
                room=room,
                unchanged=sent.unchanged,
                broke=sent.unchanged < sent.before,
                decisions=int(bool(sent.left)),
                regret=needs.judge(message),
            )
            tally = tally.with_turn(turn, card)
            turned(turn)
        tokens = entry.tokens if entry.counter == meter.name else meter.message(message)
        if _goes_beside(entry, card):
            beside += tokens
        else:
            keeper.take(_said(entry, tokens))
        needs.add(entry.seq, message)
    return tally


def _asked(entries: Iterable[Entry]) -> Iterator[tuple[int, Entry, bool]]:
    """The messages, how often the model has been asked by then, and whether it was asked before this one."""
    number, waiting = 0, False
    for entry in entries:
        if entry.kind != MESSAGE:
            continue
        is_asked = entry.role == "assistant" and waiting
        number += is_asked
        waiting = entry.role != "assistant"
        yield number, entry, is_asked


def _goes_beside(entry: Entry, card: ModelCard) -> bool:
    """Whether it is system text where that has a place of its own: as in a window's prompt, no part of the list."""
    if entry.role != "system":
        return False
    format = format_named(entry.wire) if entry.wire else DEFAULT_FORMAT
    return (format_of_provider(card.provider) if format is DEFAULT_FORMAT else format).system_apart


def _said(entry: Entry, tokens: int) -> BaselineMessage:
    tied = format_named(entry.wire).validation.tool_call_ids(fields_of(entry.content))
    return BaselineMessage(
        seq=entry.seq,
        tokens=tokens,
        is_system=entry.role == "system",
        calls=tuple(tied.calls),
        answers=tuple(tied.answers),
    )
