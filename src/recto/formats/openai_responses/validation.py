"""Which lists of Responses items the provider rejects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recto.formats.json_spans import Json
from recto.formats.message import content_defect, text_in
from recto.formats.openai_responses.message import role_of
from recto.formats.tool_calls import NO_CALLS, ToolCallIds, unanswered_calls


def tool_call_ids(fields: Mapping[str, Json]) -> ToolCallIds:
    """Returns the ids of the calls that an item makes or answers."""
    kind = text_in(fields.get("type"))
    call_id = fields.get("call_id")
    if kind.endswith("_call_output") or (kind == "tool_search_output" and isinstance(call_id, str)):
        return ToolCallIds((), (text_in(call_id) or text_in(fields.get("id")),))
    return ToolCallIds((call_id,), ()) if kind.endswith("_call") and isinstance(call_id, str) else NO_CALLS


def problems(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    """Yields every reason for which the provider would reject these items."""
    open_calls: dict[str, int] = {}
    answered: set[str] = set()
    for place, fields in enumerate(messages):
        calls, answers = tool_call_ids(fields)
        if role_of(fields) == "user":
            yield from unanswered_calls(open_calls)
            open_calls = {}
        for call in calls:
            if call in open_calls:
                yield f"message {place}: the id {call!r} stands for two open calls"
            open_calls[call] = place
            answered.discard(call)
        for call in answers:
            if call in answered:
                yield f"message {place}: call {call!r} has a result already"
            elif call not in open_calls:
                yield f"message {place}: the result for {call!r} does not follow its call"
            answered.add(call)
            open_calls.pop(call, None)
        if leads_on(fields) and (place + 1 == len(messages) or role_of(messages[place + 1]) != "assistant"):
            yield f"message {place}: the reasoning stands without what it led to"
    yield from unanswered_calls(open_calls)


def defect(fields: Mapping[str, Json]) -> str:
    """Returns why the provider rejects an item in any context; empty if it might accept it."""
    if wrong := content_defect(fields):
        return wrong
    needs_id = text_in(fields.get("type")).removesuffix("_output") in ("function_call", "custom_tool_call")
    return "its 'call_id' is no text" if needs_id and not text_in(fields.get("call_id")) else ""


def leads_on(fields: Mapping[str, Json]) -> bool:
    """Whether the item is reasoning, which is valid only before the output that it led to."""
    return fields.get("type") == "reasoning"
