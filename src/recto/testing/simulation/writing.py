"""What was said, as a provider's messages. Every call has its result, and no id comes twice in a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from recto.core.entries import Role
from recto.testing.simulation.saying import Call, Said
from recto.wire.making import result_message, text_message
from recto.wire.names import ANTHROPIC, CHAT


class Written(NamedTuple):
    """One message."""

    role: Role
    content: bytes
    fact: int
    """The fact that stands in it; 0 where none does."""


def written(said: Said, wire: str, name: str) -> Iterator[Written]:
    """The messages of something that was said, with the results of its calls. `name` begins the ids of the calls."""
    if not said.calls:
        if said.by != "system" or wire != ANTHROPIC:  # which has another place for it than its messages
            yield Written(said.by, text_message(said.by, said.text, wire), said.fact)
        return
    calls = [(f"{name}_{place}", call) for place, call in enumerate(said.calls)]
    if wire == CHAT:
        yield from _chat(said, calls)
    elif wire == ANTHROPIC:
        yield from _anthropic(said, calls)
    else:
        yield from _responses(said, calls)


def _chat(said: Said, calls: list[tuple[str, Call]]) -> Iterator[Written]:
    listed = [
        {"id": name, "type": "function", "function": {"name": call.tool, "arguments": json.dumps(dict(call.given))}}
        for name, call in calls
    ]
    yield Written("assistant", _json({"role": "assistant", "content": said.text or None, "tool_calls": listed}), 0)
    for name, call in calls:
        yield Written("tool", result_message(name, "", call.output, CHAT), call.fact)


def _anthropic(said: Said, calls: list[tuple[str, Call]]) -> Iterator[Written]:
    blocks: list[dict[str, object]] = [{"type": "text", "text": said.text}] if said.text else []
    blocks += [{"type": "tool_use", "id": name, "name": call.tool, "input": dict(call.given)} for name, call in calls]
    yield Written("assistant", _json({"role": "assistant", "content": blocks}), 0)
    results = [{"type": "tool_result", "tool_use_id": name, "content": call.output} for name, call in calls]
    fact = next((call.fact for _, call in calls if call.fact), 0)
    yield Written("tool", _json({"role": "user", "content": results}), fact)


def _responses(said: Said, calls: list[tuple[str, Call]]) -> Iterator[Written]:
    if said.text:
        yield Written("assistant", _json({"role": "assistant", "content": said.text}), 0)
    for name, call in calls:
        arguments = json.dumps(dict(call.given))
        item = {"type": "function_call", "call_id": name, "name": call.tool, "arguments": arguments}
        yield Written("assistant", _json(item), 0)
    for name, call in calls:
        item = {"type": "function_call_output", "call_id": name, "output": call.output}
        yield Written("tool", _json(item), call.fact)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
