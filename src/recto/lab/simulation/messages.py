"""What was said, as a provider's messages. Every call has its result, and no id comes twice in a session."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from recto.formats import format_named
from recto.formats.tool_calls import NewToolCall
from recto.lab.probes import NeedKind
from recto.transcript.entries import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCall:
    """A tool that is called, and what it gives back."""

    tool: str
    given: tuple[tuple[str, str], ...]
    output: str
    fact: int = 0
    """The fact that stands in what it gives back; 0 where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedStep:
    """Something that is said, with the tools that are called at once."""

    by: Literal["system", "user", "assistant"]
    text: str = ""
    calls: tuple[SimulatedCall, ...] = ()
    fact: int = 0
    """The fact that stands in the text; 0 where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedQuestion:
    """What an exchange asks for."""

    kind: NeedKind
    fact: int
    expect: tuple[str, ...]
    outdated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A user message and all that follows it."""

    said: tuple[SimulatedStep, ...]
    question: SimulatedQuestion | None = None


Life: TypeAlias = Iterator[Exchange | int]
"""What becomes of a fact: exchanges, and between two of them how many turns pass."""


def user(text: str, *, fact: int = 0) -> SimulatedStep:
    """The user says something."""
    return SimulatedStep(by="user", text=text, fact=fact)


def assistant(text: str, *calls: SimulatedCall, fact: int = 0) -> SimulatedStep:
    """The assistant says something, or calls tools, or both."""
    return SimulatedStep(by="assistant", text=text, calls=calls, fact=fact)


class SimulatedMessage(NamedTuple):
    """One message."""

    role: Role
    content: bytes
    fact: int
    """The fact that stands in it; 0 where none does."""


def written(said: SimulatedStep, wire: str, name: str) -> Iterator[SimulatedMessage]:
    """The messages of something that was said, with the results of its calls. `name` begins the ids of the calls."""
    format = format_named(wire)
    if not said.calls:
        if said.by != "system" or not format.system_apart:
            yield SimulatedMessage(said.by, format.text_message(said.by, said.text), said.fact)
        return
    calls = [(f"{name}_{place}", call) for place, call in enumerate(said.calls)]
    for raw in format.edits.call_messages(
        said.text, [NewToolCall(id, call.tool, dict(call.given)) for id, call in calls]
    ):
        yield SimulatedMessage("assistant", raw, 0)
    results = format.edits.result_messages([(id, call.output) for id, call in calls])
    facts = [call.fact for call in said.calls]
    if len(results) < len(facts):  # the format puts all results into one message
        facts = [next(filter(None, facts), 0)]
    for raw, fact in zip(results, facts, strict=True):
        yield SimulatedMessage("tool", raw, fact)
