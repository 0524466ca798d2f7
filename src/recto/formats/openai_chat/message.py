"""Messages of OpenAI's Chat Completions: how they are parsed and edited, and what the provider refuses."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from recto.formats.json_spans import apply_edits, members, quoted, removals, set_member, text_of
from recto.formats.message import (
    CACHE_MARKS,
    ROLES,
    Message,
    Part,
    as_json,
    content_defect,
    fields_of,
    image_part,
    object_in,
    result_parts,
    stated_role,
    text_in,
    unknown_members,
    unknown_part,
    weight_in,
)
from recto.formats.tool_calls import ToolCallIds, call_defect, repeated_ids, unanswered_calls
from recto.text.lazy_re import lazy_re

if TYPE_CHECKING:
    from recto.formats.json_spans import Json
    from recto.formats.tool_calls import NewToolCall, NewToolResult
    from recto.transcript.entries import Role

_KNOWN = (
    frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "id"})
    | frozenset({"reasoning_content", "reasoning", "reasoning_details"})
    | CACHE_MARKS
)


def read(raw: bytes) -> Message:
    """Parses a message."""
    fields = fields_of(raw)
    role = stated_role(fields)
    parts: list[Part] = []
    if role == "tool":
        call_id, name = text_in(fields.get("tool_call_id")), text_in(fields.get("name"))
        parts += result_parts(call_id, name, content_parts(fields.get("content")))
    else:
        parts += _thinking(fields)
        parts += content_parts(fields.get("content"))
    if refusal := text_in(fields.get("refusal")):
        parts.append(Part(kind="text", text=refusal))
    parts += _calls(fields)
    if audio := fields.get("audio"):
        parts.append(_audio(audio))
    parts += unknown_members(fields, _KNOWN)
    return Message(role=role, parts=tuple(parts), name=text_in(fields.get("name")))


def role_of(fields: dict[str, Json]) -> Role:
    """Returns the role of a message."""
    return stated_role(fields)


def is_own_message(fields: dict[str, Json]) -> bool:
    """Whether only Chat has such a message: one with tool calls or a role of its own, and no `type`.

    Gemini's SDK gives results the role `tool` too; its contents have parts.
    """
    has_parts = "parts" in fields and "content" not in fields
    return fields.get("type") is None and not has_parts and has_chat_members(fields)


def has_chat_members(fields: dict[str, Json]) -> bool:
    """Whether a message has the tool members or the roles that OpenAI's formats have and Anthropic's does not."""
    own_role = fields.get("role") in ("tool", "function", "developer")
    return own_role or "tool_calls" in fields or "tool_call_id" in fields


def is_own_block(block: dict[str, Json]) -> bool:
    """Whether only Chat has such a content part."""
    return block.get("type") in ("image_url", "input_audio", "file")


def is_own_wrapper(fields: dict[str, Json]) -> bool:
    """Never: Chat messages have no `type`."""
    return False


def canonical_fields(fields: dict[str, Json]) -> dict[str, Json]:
    """Returns all members: in Chat, none of them may differ between two copies of a message."""
    return fields


def content_parts(content: Json) -> Iterator[Part]:
    """Parses the content of a message: a string, a list of parts, or null."""
    if isinstance(content, str):
        yield Part(kind="text", text=content)
    elif isinstance(content, list):
        for item in content:
            yield _content_part(item)
    elif content is not None:
        yield unknown_part(content)


def _content_part(item: Json) -> Part:
    if isinstance(item, str):
        return Part(kind="text", text=item)
    if not isinstance(item, dict):
        return unknown_part(item)
    match item:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return Part(kind="text", text=text)
        case {"type": "image_url", "image_url": dict()}:
            source = object_in(item["image_url"])
            return image_part(source.get("url"), source.get("detail"))
        case {"type": "image_url", "image_url": str(url)}:
            return image_part(url)
        case {"type": "input_audio", "input_audio": {"data": data}}:
            return Part(kind="media", weight=weight_in(data))
        case {"type": "file", "file": dict()}:
            file = object_in(item["file"])
            label = text_in(file.get("filename")) or text_in(file.get("file_id"))
            return Part(kind="media", text=label, weight=weight_in(file.get("file_data")))
        case {"type": "thinking", "thinking": thinking}:
            texts = (part.text for part in content_parts(thinking))
            return Part(kind="thinking", text="\n".join(texts), weight=weight_in(item.get("signature")))
        case _:
            return unknown_part(item)


def _thinking(fields: dict[str, Json]) -> Iterator[Part]:
    """Parses reasoning as vendors send it: one text, a list of details, or the same text in both."""
    seen: set[str] = set()
    for key in ("reasoning_content", "reasoning"):
        value = fields.get(key)
        if isinstance(value, str):
            if value and value not in seen:
                seen.add(value)
                yield Part(kind="thinking", text=value)
        elif value:
            yield Part(kind="thinking", text=unknown_part(value).text, weight=unknown_part(value).weight)
    details = fields.get("reasoning_details")
    for detail in details if isinstance(details, list) else []:
        part = _detail(detail)
        if part.weight or part.text not in seen:
            yield part


def _detail(detail: Json) -> Part:
    if not isinstance(detail, dict):
        return unknown_part(detail)
    text = text_in(detail.get("text")) or text_in(detail.get("summary"))
    return Part(kind="thinking", text=text, weight=weight_in(detail.get("data")) + weight_in(detail.get("signature")))


def _calls(fields: dict[str, Json]) -> Iterator[Part]:
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict):
            yield _call(call)
        else:
            yield unknown_part(call)
    deprecated = fields.get("function_call")
    if isinstance(deprecated, dict):
        yield Part(kind="call", name=text_in(deprecated.get("name")), text=_arguments(deprecated.get("arguments")))


def _call(call: dict[str, Json]) -> Part:
    # `custom` calls carry free text; `extra_content` carries Gemini's thought signature
    function = object_in(call.get("function") or call.get("custom"))
    return Part(
        kind="call",
        name=text_in(function.get("name")),
        text=_arguments(function.get("arguments", function.get("input"))),
        call_id=text_in(call.get("id")),
        weight=weight_in(call.get("extra_content")),
    )


def _arguments(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else as_json(value)


def _audio(audio: Json) -> Part:
    fields = object_in(audio)
    return Part(kind="media", text=text_in(fields.get("transcript")), weight=weight_in(fields.get("data")))


def tool_call_ids(fields: Mapping[str, Json]) -> ToolCallIds:
    """Returns the ids of the calls that a message makes or answers."""
    if fields.get("role") == "tool":
        return ToolCallIds((), (text_in(fields.get("tool_call_id")),))
    calls = fields.get("tool_calls")
    if not isinstance(calls, list):
        return ToolCallIds((), ())
    return ToolCallIds(tuple([text_in(call.get("id")) for call in calls if isinstance(call, dict)]), ())


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


_IS_NOT_EMPTY = lazy_re(
    rb'\{\s*"role"\s*:\s*"(?:\w+"\s*,\s*"content"\s*:\s*"|(?:tool|user|system)"\s*,'
    rb'|assistant"\s*,\s*"(?:content"\s*:\s*null\s*,\s*")?tool_calls"\s*:\s*\[\s*\{)'
)
"""The start of nearly every message: with text, with calls, or of another role. It need not be parsed."""


def settle(messages: Iterable[bytes]) -> list[bytes]:
    """Drops assistant messages without any content."""
    return [raw for raw in messages if _IS_NOT_EMPTY.match(raw) or not is_empty(fields_of(raw))]


def result_message(call_id: str, name: str, text: str, kind: str = "function_call") -> bytes:
    """Creates the result of a call."""
    named = f', "name": {quoted(name)}' if name else ""
    return f'{{"role": "tool", "tool_call_id": {quoted(call_id)}{named}, "content": {quoted(text)}}}'.encode()


def call_messages(text: str, calls: Sequence[NewToolCall]) -> list[bytes]:
    """Creates an assistant message with these calls."""
    listed = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for call in calls
    ]
    message = {"role": "assistant", "content": text or None, "tool_calls": listed}
    return [json.dumps(message, ensure_ascii=False).encode()]


def result_messages(results: Sequence[NewToolResult]) -> list[bytes]:
    """Creates one message for each result."""
    return [result_message(result.call_id, "", result.text) for result in results]


def with_results(raw: bytes, texts: Mapping[str, str]) -> bytes:
    """Replaces the output of a tool result."""
    call = next(iter(tool_call_ids(fields_of(raw)).answers), None)
    if call is None or call not in texts:
        return raw
    text = text_of(raw)
    return apply_edits(text, [set_member(text, 0, "content", quoted(texts[call]))]).encode()


def only_answers(raw: bytes, keep: Collection[str], *, rest: bool = True) -> bytes | None:
    """Keeps a result of one of these calls, and with `rest` a message that is no result."""
    answers = tool_call_ids(fields_of(raw)).answers
    return raw if (rest and not answers) or (answers and answers[0] in keep) else None


def without_thinking(raw: bytes) -> bytes | None:
    """Returns the message as it is: vendors require reasoning back as they sent it."""
    return raw


def without_old_thinking(raw: bytes) -> bytes | None:
    """Removes `reasoning_content` and `reasoning`: vendors require them back only in the current turn.

    `reasoning_details` may hold signatures that other servers check, so a message that has them stays as it is.
    """
    fields = fields_of(raw)
    if fields.get("reasoning_details") or fields.get("role") != "assistant":
        return raw
    text = text_of(raw)
    spans = list(members(text))
    gone = [member.key in ("reasoning_content", "reasoning") for member in spans]
    if not any(gone):
        return raw
    if not fields.get("content") and not fields.get("tool_calls"):
        return None
    return apply_edits(text, removals([(member.start, member.value.end) for member in spans], gone)).encode()


def text_block_type(raw: bytes, key: str) -> str:
    """Returns the type of a text part."""
    return "text"
