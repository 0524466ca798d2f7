"""Tools in requests of every wire format: their definitions, the tools of the gateway, and Recto's MCP tools by name.

The gateway offers tools to the model and answers them itself. A response that calls one of them is not passed on as it
is. Its other content is passed on, the call is answered, the model is asked again, and the responses of these rounds
become one: one beginning, one end, one numbering, and the sum of what they cost. A response without such a call passes
unchanged, byte for byte.

Hosts prefix the name of an MCP tool with that of its server, each in its own way: `mcp__recto__recall`,
`mcp_recto_recall`, `recto.recall`. A bare `read` may be any server's.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from recto.formats.json_spans import Json, JsonSpan, TextEdit, apply_edits, elements, elements_of, members, removals
from recto.formats.message import object_in, text_in
from recto.formats.streaming import SseEvent
from recto.text.lazy_re import lazy_re

MCP_SERVER: Final = "recto"
"""The name under which `recto mcp add` adds the server."""
MCP_TOOLS: Final = (
    "sessions",
    "recall",
    "read",
    "outline",
    "grep",
    "work",
    "note",
    "judge",
    "pin",
    "unpin",
    "checkpoint",
    "resume",
    "context_report",
    "decisions",
    "restore",
)
HISTORY_TOOLS: Final = ("recall", "history_search", "history_read", "new_context")
"""Tools of the gateway by which a model looks up its history and opens a window. `note` is too common a name."""
_OWN = lazy_re(rf"(?:^|[^A-Za-z0-9]){MCP_SERVER}(?:__|[._:/-])(?:{'|'.join(MCP_TOOLS)})$")
_LONGEST = 200
_RECALL = lazy_re(rb'"name"\s*:\s*"([A-Za-z0-9_.:/-]{1,200}recall)"')
_GROUPS: Final = ("functionDeclarations", "function_declarations")
"""The members in which Gemini lists functions."""
_STAY: Final = ("cache_control", "defer_loading")
"""Members of a definition that the provider acts upon: a cache mark, and tools that it searches itself."""


_MAX_MEMOISED: Final = 256 * 1024
"""Bytes of a list above which its definitions are not kept in memory."""


class OwnTool(Struct, frozen=True, kw_only=True):
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
        functions = declared if isinstance(declared, list) else ()
        for kind in (tool, tool.get("function"), tool.get("custom"), *functions):
            if isinstance(kind, dict):  # for every tool of every request: no calls of Python functions
                names.add(text_in(kind.get("name")))
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


def is_own_tool(name: str) -> bool:
    """Whether a tool name, as a host writes it, is one of Recto's own tools."""
    return _OWN.search(name[-_LONGEST:]) is not None


def is_own_call(name: str) -> bool:
    """Whether a call is of one of Recto's own tools, those of the gateway included."""
    return name in HISTORY_TOOLS or is_own_tool(name)


def recall_tool_in(schemas: bytes) -> str:
    """The name, as its host writes it, of Recto's own `recall` among tool schemas; empty without one."""
    if b"recall" not in schemas:
        return ""
    names = (match[1].decode() for match in _RECALL.finditer(schemas))
    return next((name for name in names if is_own_tool(name)), "")


class ListedTool(NamedTuple):
    """One tool of a request."""

    name: str
    description: str
    element: str
    """Its JSON, as an element of the list."""
    is_optional: bool
    """Whether it is a function of the client with a schema, which the provider does not need to see."""


def tool_definitions(tools: bytes) -> tuple[ListedTool, ...]:
    """Return the tools of a request that have a name, in their order."""
    return (_definitions if len(tools) > _MAX_MEMOISED else _memoised)(tools)


def _definitions(tools: bytes) -> tuple[ListedTool, ...]:
    text = tools.decode()
    found: list[ListedTool] = []
    for element in elements(text):
        functions = _functions(text, element)
        if functions:
            found += [_definition(text, span, object_in(span.value), is_declared=True) for span in functions]
        else:
            fields = object_in(element.value)
            inner = object_in(fields.get("function")) or object_in(fields.get("custom")) or fields
            found.append(_definition(text, element, inner))
    return tuple(tool for tool in found if tool.name)


_memoised = lru_cache(maxsize=32)(_definitions)


def without_tools(tools: bytes, names: Collection[str]) -> bytes:
    """Return a list of tools without those of these names; the others keep their bytes."""
    text = tools.decode()
    spans = list(elements(text))
    edits: list[TextEdit] = []
    gone = []
    for element in spans:
        functions = _functions(text, element)
        left_out = [text_in(object_in(span.value).get("name")) in names for span in functions]
        is_empty = all(left_out) and len(object_in(element.value)) == 1
        if functions and not is_empty:
            edits += removals([(span.start, span.end) for span in functions], left_out)
        gone.append(is_empty if functions else bool(tool_names({"tools": [element.value]}) & {*names}))
    return apply_edits(text, [*edits, *removals([(span.start, span.end) for span in spans], gone)]).encode()


def chosen_tools(fields: Mapping[str, Json]) -> set[str]:
    """Return the tools that a request names as those that are called, or may be."""
    choice = object_in(fields.get("tool_choice"))
    allowed = choice.get("tools") or object_in(choice.get("allowed_tools")).get("tools")
    config = object_in(object_in(fields.get("toolConfig")).get("functionCallingConfig"))
    names = config.get("allowedFunctionNames")
    chosen = {text_in(name) for name in names} if isinstance(names, list) else set()
    return chosen | tool_names({"tools": [choice, *(allowed if isinstance(allowed, list) else [])]})


def _functions(text: str, element: JsonSpan) -> list[JsonSpan]:
    """Return the functions that an element of Gemini's list declares."""
    if not object_in(element.value).keys() & {*_GROUPS}:
        return []
    return [
        function
        for member in members(text, element.start)
        if member.key in _GROUPS
        for function in elements_of(text, member.value)
    ]


def _definition(text: str, span: JsonSpan, function: Mapping[str, Json], *, is_declared: bool = False) -> ListedTool:
    fields, source = object_in(span.value), text[span.start : span.end]
    kind = text_in(fields.get("type"))
    runs_here = is_declared or kind == "function" or ("input_schema" in fields and kind in ("", "custom"))
    return ListedTool(
        name=text_in(function.get("name")),
        description=text_in(function.get("description")),
        element=f'{{"functionDeclarations": [{source}]}}' if is_declared else source,
        is_optional=runs_here and not any(fields.get(name) for name in _STAY),
    )
