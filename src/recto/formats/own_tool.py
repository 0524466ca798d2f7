"""Tools that the gateway offers to the model and answers itself, in every wire format.

A response that calls one of them is not passed on as it is. Its other content is passed on, the call is answered, the
model is asked again, and the responses of these rounds become one: one beginning, one end, one numbering, and the sum
of what they cost. A response without such a call passes unchanged, byte for byte.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from recto.formats.json_spans import Json
from recto.formats.message import object_in, text_in
from recto.formats.sse import SseEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """A tool of the gateway."""

    name: str
    description: str
    schema: Mapping[str, Json]


class StreamRounds(Protocol):
    """Joins the streams of several rounds into one."""

    has_own_calls: bool
    """Whether the round under way calls one of the tools."""

    def ends_round(self, event: SseEvent) -> bool:
        """Whether every call of the round has arrived with this event. Usage may still follow."""
        ...

    def observe(self, event: SseEvent) -> None:
        """Takes an event that is not passed on."""
        ...

    def feed(self, event: SseEvent) -> list[bytes]:
        """Takes an event. Returns what is passed on of it."""
        ...

    def next_round(self) -> None:
        """The calls of the round were answered; the events of the next round follow."""
        ...


class OwnToolFormat(Protocol):
    """How a format writes a tool, and joins responses."""

    no_calls: Mapping[str, Json]
    """The members of a request that forbid calls."""

    def definition(self, tool: OwnTool) -> dict[str, Json]:
        """Returns the tool as an element of `tools`."""
        ...

    def join(self, bodies: Sequence[Mapping[str, Json]], names: frozenset[str]) -> dict[str, Json]:
        """Joins complete responses, oldest first, into one without calls of these tools."""
        ...

    def rounds(self, names: frozenset[str]) -> StreamRounds:
        """Creates what joins streams."""
        ...


def tool_names(fields: Mapping[str, Json]) -> set[str]:
    """Returns the names of the tools in a request body."""
    tools = fields.get("tools")
    names: set[str] = set()
    for tool in map(object_in, tools if isinstance(tools, list) else []):
        declared = tool.get("functionDeclarations", tool.get("function_declarations"))
        functions = map(object_in, declared if isinstance(declared, list) else [])
        kinds = (tool, object_in(tool.get("function")), object_in(tool.get("custom")), *functions)
        names.update(text_in(kind.get("name")) for kind in kinds)
    return names - {""}


def may_choose(fields: Mapping[str, Json]) -> bool:
    """Whether a request lets the model choose among all of its tools, and another one may be beside them."""
    tools = fields.get("tools")
    if any(_is_exclusive(object_in(tool)) for tool in (tools if isinstance(tools, list) else [])):
        return False
    config = object_in(object_in(fields.get("toolConfig")).get("functionCallingConfig"))
    if config.get("allowedFunctionNames") or text_in(config.get("mode")).upper() == "NONE":
        return False
    choice = fields.get("tool_choice")
    kind = choice if isinstance(choice, str) else text_in(object_in(choice).get("type"))
    return kind in ("", "auto", "required", "any")


def _is_exclusive(tool: Mapping[str, Json]) -> bool:
    """Whether it is a built-in tool of Gemini: most of its models accept no functions beside one."""
    return bool(tool) and not tool.keys() & _OF_FUNCTIONS


_OF_FUNCTIONS: Final = frozenset({"type", "name", "function", "functionDeclarations", "function_declarations"})


def added_usage(first: Mapping[str, Json], second: Mapping[str, Json]) -> dict[str, Json]:
    """Adds up the token counts of two `usage` objects; of other members the later one counts."""
    total: dict[str, Json] = {**first, **{key: value for key, value in second.items() if value is not None}}
    for key in first.keys() & second.keys():
        one, other = first[key], second[key]
        if isinstance(one, dict) and isinstance(other, dict):
            total[key] = added_usage(one, other)
        elif _is_number(one) and _is_number(other):
            total[key] = one + other  # type: ignore[operator]  # checked above
    return total


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
