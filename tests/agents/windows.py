"""The smallest window that an agent's own prompt allows, derived from the requests that it sends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, takewhile

from tests.agents.agents import wire_of
from tests.agents.listening_in import Exchange

from recto.context.window.budget import Budget
from recto.formats import read
from recto.formats.message import Message
from recto.gateway.request import open_request
from recto.tokens.meter import Meter, Tokenizers
from recto.tokens.model_registry import Registry

ROUNDING = 500
"""Windows are multiples of this: the agent's description of its machine varies by a few tokens."""
_MARKER = 100
"""Tokens of the note that replaces evicted messages, without the working record."""
_RECORD = 20
"""The working record gets this fraction (1/20) of the input budget, however small the budget is."""


def meter_for(model: str) -> Meter:
    return Tokenizers().meter_for(Registry().card(model))


def counter(meter: Meter) -> Callable[[bytes, str], int]:
    """Counts the tokens of a request as the model's provider would report them."""

    def tokens(raw: bytes, wire: str) -> int:
        request = open_request(raw, wire)
        system = (request.body.system or b"").decode()
        messages = [read(message, wire) for message in request.body.messages]
        return meter.prompt(messages, request.tools.decode()) + (meter.text(system) if system else 0)

    return tokens


def needed(steps: Sequence[Exchange], recall_tool: int, meter: Meter) -> int:
    """Tokens that a prompt needs: the agent's own (system text, tools, task), its largest step, and Recto's marker.

    `recall_tool` is the size in tokens of the tool that Recto offers after the first eviction.
    """
    last = steps[-1]
    messages = [read(raw, wire_of(last.path)) for raw in open_request(last.raw, wire_of(last.path)).messages]
    largest = max(sum(meter.message(message) for message in step) for step in _steps(messages))
    return steps[0].tokens + recall_tool + largest + _MARKER


def _steps(messages: Sequence[Message]) -> list[list[Message]]:
    """The steps of a history: each answer of the model with its tool results."""
    steps: list[list[Message]] = []
    for before, message in zip([None, *messages], messages, strict=False):
        if message.role == "assistant" and (before is None or before.role != "assistant"):
            steps.append([])
        if steps:
            steps[-1].append(message)
    return steps


def room_in(window: int, model: str, answer: int) -> int:
    """The input budget in a window of a model, for this output limit."""
    budget = Budget.for_model(Registry({model: {"window": window}}).card(model))
    return budget.input_budget - min(max(answer - budget.reserve, 0), budget.input_budget // 2)


def smallest_window(tokens: int, model: str, answer: int) -> int:
    """The smallest window, rounded up, that fits this many tokens and the working record."""
    return next(
        window
        for window in count(ROUNDING, ROUNDING)
        if (room := room_in(window, model, answer)) - room // _RECORD >= tokens
    )


def too_small_window(first: Exchange, model: str) -> int:
    """A window that is a fifth too small for an agent's tools and system text, without any message."""
    wire, meter = wire_of(first.path), meter_for(model)
    messages = open_request(first.raw, wire).messages
    fixed = first.tokens - sum(meter.message(read(raw, wire)) for raw in messages)
    [*_, window] = takewhile(lambda window: room_in(window, model, first.answer) < fixed * 4 // 5, count(100, 100))
    return window
