"""Which lists of Chat messages the provider rejects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from recto.formats.json_spans import Json
from recto.formats.message import ROLES, content_defect, text_in
from recto.formats.tool_calls import ToolCallIds, call_defect, repeated_ids, unanswered_calls


def tool_call_ids(fields: Mapping[str, Json]) -> ToolCallIds:
    """Returns the ids of the calls that a message makes or answers."""
    if fields.get("role") == "tool":
        return ToolCallIds((), (text_in(fields.get("tool_call_id")),))
    calls = fields.get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    return ToolCallIds(tuple(text_in(call.get("id")) for call in listed if isinstance(call, dict)), ())


def problems(messages: Sequence[dict[str, Json]]) -> Iterator[str]:
    """Yields every reason for which the provider would reject these messages."""
    open_calls: dict[str, int] = {}
    answered: set[str] = set()
    for place, fields in enumerate(messages):
        calls, answers = tool_call_ids(fields)
        if fields.get("role") not in ("tool", "function"):
            yield from unanswered_calls(open_calls)
            open_calls, answered = dict.fromkeys(calls, place), set()
        yield from repeated_ids(calls, place)
        for call in answers:
            if call in answered:
                yield f"message {place}: call {call!r} has a result already"
            elif call not in open_calls:
                yield f"message {place}: the result for {call!r} does not follow its call"
            answered.add(call)
            open_calls.pop(call, None)
        if is_empty(fields):
            yield f"message {place}: the assistant says nothing and calls nothing"
    yield from unanswered_calls(open_calls)


def defect(fields: Mapping[str, Json]) -> str:
    """Returns why the provider rejects a message in any context; empty if it might accept it."""
    if wrong := content_defect(fields):
        return wrong
    role = text_in(fields.get("role"))
    if fields.get("content") is None and ROLES.get(role, "user") == "user":
        return "it has no 'content'"
    return call_defect(tool_call_ids(fields), role, ("user", "tool"))


def leads_on(fields: Mapping[str, Json]) -> bool:
    """Never: reasoning is a member of the message that it led to."""
    return False


def is_empty(fields: Mapping[str, Json]) -> bool:
    """Whether an assistant message has no content at all, which OpenAI rejects."""
    others = ("tool_calls", "function_call", "refusal", "audio")
    return (
        fields.get("role") == "assistant" and fields.get("content") in (None, []) and not any(map(fields.get, others))
    )
