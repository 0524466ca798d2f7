"""Renders simulated steps as messages of a provider. Every call has its result, and ids are unique in a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from recto.formats import format_named
from recto.formats.tool_calls import NewToolCall, NewToolResult
from recto.lab.probes import NeedKind
from recto.transcript.entries import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCall:
    """A tool call and its output."""

    tool: str
    arguments: tuple[tuple[str, str], ...]
    output: str
    fact: int = 0
    """The fact in its output; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """A message, with the tools that it calls in parallel."""

    by: Literal["system", "user", "assistant"]
    text: str = ""
    calls: tuple[SimulatedCall, ...] = ()
    fact: int = 0
    """The fact in the text; 0 for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedQuestion:
    """What an exchange asks for."""

    kind: NeedKind
    fact: int
    expect: tuple[str, ...]
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedExchange:
    """A user message and all that follows it."""

    steps: tuple[SimulatedStep, ...]
    question: SimulatedQuestion | None = None


FactScript: TypeAlias = Iterator[SimulatedExchange | int]
"""The course of a fact: exchanges, with the number of turns between them."""


def user(text: str, *, fact: int = 0) -> SimulatedStep:
    """Creates a user message."""
    return SimulatedStep(by="user", text=text, fact=fact)


def assistant(text: str, *calls: SimulatedCall, fact: int = 0) -> SimulatedStep:
    """Creates an assistant message with text, tool calls or both."""
    return SimulatedStep(by="assistant", text=text, calls=calls, fact=fact)


class SimulatedMessage(NamedTuple):
    """A rendered message."""

    role: Role
    content: bytes
    fact: int
    """The fact in it; 0 for none."""


def render_step(step: SimulatedStep, wire: str, name: str) -> Iterator[SimulatedMessage]:
    """Renders a step and the results of its calls. `name` is the prefix of the call ids."""
    format = format_named(wire)
    if not step.calls:
        if step.by != "system" or not format.system_apart:
            yield SimulatedMessage(step.by, format.text_message(step.by, step.text), step.fact)
        return
    calls = [(f"{name}_{place}", call) for place, call in enumerate(step.calls)]
    tool_calls = [NewToolCall(id, call.tool, dict(call.arguments)) for id, call in calls]
    for raw in format.edits.call_messages(step.text, tool_calls):
        yield SimulatedMessage("assistant", raw, 0)
    results = format.edits.result_messages([NewToolResult(id, call.output, call.tool) for id, call in calls])
    facts = [call.fact for call in step.calls]
    if len(results) < len(facts):  # the format puts all results into one message
        facts = [next(filter(None, facts), 0)]
    for raw, fact in zip(results, facts, strict=True):
        yield SimulatedMessage("tool", raw, fact)
