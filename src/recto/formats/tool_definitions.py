"""The tool definitions of a request, in every wire format: which of them the client runs, and the list without some."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from recto.formats.json_spans import Json, JsonSpan, TextEdit, apply_edits, elements, elements_of, members, removals
from recto.formats.message import object_in, text_in
from recto.formats.own_tool import tool_names

_GROUPS: Final = ("functionDeclarations", "function_declarations")
"""The members in which Gemini lists functions."""
_STAY: Final = ("cache_control", "defer_loading")
"""Members of a definition that the provider acts upon: a cache mark, and tools that it searches itself."""


_MAX_MEMOISED: Final = 256 * 1024
"""Bytes of a list above which its definitions are not kept in memory."""


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
