"""What was said, as a provider's messages. Every call has its result, and no id comes twice in a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from recto.formats.edits import result_message, text_message
from recto.formats.message import ANTHROPIC, CHAT
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
    if not said.calls:
        if said.by != "system" or wire != ANTHROPIC:  # which has another place for it than its messages
            yield SimulatedMessage(said.by, text_message(said.by, said.text, wire), said.fact)
        return
    calls = [(f"{name}_{place}", call) for place, call in enumerate(said.calls)]
    if wire == CHAT:
        yield from _chat(said, calls)
    elif wire == ANTHROPIC:
        yield from _anthropic(said, calls)
    else:
        yield from _responses(said, calls)


def _chat(said: SimulatedStep, calls: list[tuple[str, SimulatedCall]]) -> Iterator[SimulatedMessage]:
    listed = [
        {"id": name, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(dict(call.given))}}
        for name, call in calls
    ]
    yield SimulatedMessage(
        "assistant", _json({"role": "assistant", "content": said.text or None, "tool_calls": listed}), 0
    )
    for name, call in calls:
        yield SimulatedMessage("tool", result_message(name, "", call.output, CHAT), call.fact)


def _anthropic(said: SimulatedStep, calls: list[tuple[str, SimulatedCall]]) -> Iterator[SimulatedMessage]:
    blocks: list[dict[str, object]] = [{"type": "text", "text": said.text}] if said.text else []
    blocks += [{"type": "tool_use", "id": name, "name": call.tool, "input": dict(call.given)} for name, call in calls]
    yield SimulatedMessage("assistant", _json({"role": "assistant", "content": blocks}), 0)
    results = [{"type": "tool_result", "tool_use_id": name, "content": call.output} for name, call in calls]
    fact = next((call.fact for _, call in calls if call.fact), 0)
    yield SimulatedMessage("tool", _json({"role": "user", "content": results}), fact)


def _responses(said: SimulatedStep, calls: list[tuple[str, SimulatedCall]]) -> Iterator[SimulatedMessage]:
    if said.text:
        yield SimulatedMessage("assistant", _json({"role": "assistant", "content": said.text}), 0)
    for name, call in calls:
        arguments = json.dumps(dict(call.given))
        item = {"type": "function_call", "call_id": name, "name": call.tool, "arguments": arguments}
        yield SimulatedMessage("assistant", _json(item), 0)
    for name, call in calls:
        item = {"type": "function_call_output", "call_id": name, "output": call.output}
        yield SimulatedMessage("tool", _json(item), call.fact)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
