"""Two baselines that do not use Recto: send the full history, or drop the oldest messages until the rest fits.

They are as good as they can be: only what the caller would send is counted, calls stay with their results, and trimming
keeps as much as fits. Needs are judged by the same code as for a window.
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
    """The attributes of a message that a baseline uses."""

    seq: int
    tokens: int
    is_system: bool
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselinePrompt:
    """What a baseline sends."""

    tokens: int
    """Tokens of the messages."""
    unchanged: int
    """Of these, tokens of the prefix that is the same as in the previous prompt."""
    previous: int
    """Tokens of the previous prompt."""
    evicted: tuple[int, ...] = ()
    """Entries that are dropped from now on."""


class Baseline(Protocol):
    """Stores a conversation and decides what is sent."""

    def take(self, message: BaselineMessage) -> None:
        """Adds a message."""

    def prompt(self, input_budget: int) -> BaselinePrompt:
        """Returns what is sent within a budget of tokens."""


@dataclass(slots=True)
class FullHistory:
    """Sends the full history each time, whether it fits or not. It only grows, so the previous prompt is always a
    prefix.
    """

    _tokens: int = 0
    _sent: int = 0

    def take(self, message: BaselineMessage) -> None:
        """Adds a message, which is never dropped."""
        self._tokens += message.tokens

    def prompt(self, input_budget: int) -> BaselinePrompt:
        """Returns everything."""
        previous, self._sent = self._sent, self._tokens
        return BaselinePrompt(tokens=self._tokens, unchanged=previous, previous=previous)


@dataclass(slots=True)
class _BaselineStep:
    """A message with tool calls and all its results, or a message without calls."""

    messages: list[BaselineMessage]
    tokens: int


@dataclass(slots=True)
class OldestTrimmed:
    """Drops the oldest messages, as few as possible at every call; system messages stay.

    The newest message is sent even if it alone is too long.
    """

    _steps: deque[_BaselineStep] = field(default_factory=deque)
    _owners: dict[str, _BaselineStep] = field(default_factory=dict)
    _system: int = 0
    _tokens: int = 0
    _sent: int = 0
    _evicted: list[int] = field(default_factory=list)

    def take(self, message: BaselineMessage) -> None:
        """Adds a message. A result joins its call; a result without a call is dropped, because providers refuse it."""
        if message.is_system:
            self._system += message.tokens
            return
        owner = next((self._owners[call] for call in message.answers if call in self._owners), None)
        if owner is None and message.answers and not message.calls:
            self._evicted.append(message.seq)
            return
        if owner is None:
            owner = _BaselineStep([], 0)
            self._steps.append(owner)
        owner.messages.append(message)
        owner.tokens += message.tokens
        self._tokens += message.tokens
        self._owners |= dict.fromkeys(message.calls, owner)

    def prompt(self, input_budget: int) -> BaselinePrompt:
        """Returns what still fits. After a drop, only the system messages are an unchanged prefix."""
        dropped = False
        while self._system + self._tokens > input_budget and len(self._steps) > 1:
            self._drop(self._steps.popleft())
            dropped = True
        tokens = self._system + self._tokens
        previous, self._sent = self._sent, tokens
        evicted, self._evicted = tuple(self._evicted), []
        return BaselinePrompt(
            tokens=tokens,
            unchanged=min(self._system, previous) if dropped else previous,
            previous=previous,
            evicted=evicted,
        )

    def _drop(self, step: _BaselineStep) -> None:
        self._tokens -= step.tokens
        self._evicted += [message.seq for message in step.messages]
        for call in (call for message in step.messages for call in message.calls):
            if self._owners.get(call) is step:
                del self._owners[call]


def make_baseline(name: str) -> Baseline:
    """Creates the baseline with a name."""
    return FullHistory() if name == "none" else OldestTrimmed()


def backtest_baseline(
    name: str,
    entries: Iterable[Entry],
    *,
    card: ModelCard,
    input_budget: int,
    meter: Meter,
    on_turn: Callable[[ReplayedTurn], object] = lambda turn: None,
) -> Backtest:
    """Replays a conversation as `backtest` does with a session, and measures what the baseline would have sent."""
    tally, baseline, needs = Backtest(), make_baseline(name), RegretTracker()
    overhead = meter.frame.prompt
    for number, entry, is_called in with_calls(entries):
        message = read(entry.content, entry.wire)
        if is_called:
            sent = baseline.prompt(input_budget - overhead)
            needs.evict(sent.evicted)
            turn = ReplayedTurn(
                number=number,
                seq=entry.seq,
                tokens=sent.tokens + overhead,
                input_budget=input_budget,
                unchanged=sent.unchanged,
                broke=sent.unchanged < sent.previous,
                decisions=int(bool(sent.evicted)),
                regret=needs.judge(message),
            )
            tally = tally.with_turn(turn, card)
            on_turn(turn)
        tokens = entry.tokens if entry.counter == meter.name else meter.message(message)
        if _is_system_field(entry, card):
            overhead += tokens
        else:
            baseline.take(baseline_message(entry, tokens))
        needs.add(entry.seq, message)
    return tally


def with_calls(entries: Iterable[Entry]) -> Iterator[tuple[int, Entry, bool]]:
    """Yields each message, the number of model calls so far, and whether the model was called before it."""
    number, waiting = 0, False
    for entry in entries:
        if entry.kind != MESSAGE:
            continue
        is_called = entry.role == "assistant" and waiting
        number += is_called
        waiting = entry.role != "assistant"
        yield number, entry, is_called


def _is_system_field(entry: Entry, card: ModelCard) -> bool:
    """Returns whether it is system text that the format keeps outside the message list, as a window's prompt does."""
    if entry.role != "system":
        return False
    format = format_named(entry.wire) if entry.wire else DEFAULT_FORMAT
    return (format_of_provider(card.provider) if format is DEFAULT_FORMAT else format).system_apart


def baseline_message(entry: Entry, tokens: int) -> BaselineMessage:
    """Returns the attributes of an entry that a baseline uses."""
    tied = format_named(entry.wire).validation.tool_call_ids(fields_of(entry.content))
    return BaselineMessage(
        seq=entry.seq,
        tokens=tokens,
        is_system=entry.role == "system",
        calls=tuple(tied.calls),
        answers=tuple(tied.answers),
    )
