"""Messages of OpenAI's Chat Completions, and of the many who speak it with fields of their own."""

from __future__ import annotations

from collections.abc import Iterator

from recto.formats.json_spans import Json
from recto.formats.message import (
    CACHE_MARKS,
    Message,
    Part,
    as_json,
    fields_of,
    image,
    leftovers,
    object_in,
    other,
    result,
    stated_role,
    text_in,
    weight_in,
)

_KNOWN = (
    frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio", "id"})
    | frozenset({"reasoning_content", "reasoning", "reasoning_details"})
    | CACHE_MARKS
)


def read(raw: bytes) -> Message:
    """What a message says."""
    fields = fields_of(raw)
    role = stated_role(fields)
    parts: list[Part] = []
    if role == "tool":
        call_id, name = text_in(fields.get("tool_call_id")), text_in(fields.get("name"))
        parts += result(call_id, name, content_parts(fields.get("content")))
    else:
        parts += _thinking(fields)
        parts += content_parts(fields.get("content"))
    if refusal := text_in(fields.get("refusal")):
        parts.append(Part(kind="text", text=refusal))
    parts += _calls(fields)
    if audio := fields.get("audio"):
        parts.append(_audio(audio))
    parts += leftovers(fields, _KNOWN)
    return Message(role=role, parts=tuple(parts), name=text_in(fields.get("name")))


def content_parts(content: Json) -> Iterator[Part]:
    """The parts of a message's content, which is a text, a list of parts, or nothing."""
    if isinstance(content, str):
        yield Part(kind="text", text=content)
    elif isinstance(content, list):
        for item in content:
            yield _content_part(item)
    elif content is not None:
        yield other(content)


def _content_part(item: Json) -> Part:
    if isinstance(item, str):
        return Part(kind="text", text=item)
    if not isinstance(item, dict):
        return other(item)
    match item:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return Part(kind="text", text=text)
        case {"type": "image_url", "image_url": dict()}:
            given = object_in(item["image_url"])
            return image(given.get("url"), given.get("detail"))
        case {"type": "image_url", "image_url": str(url)}:
            return image(url)
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
            return other(item)


def _thinking(fields: dict[str, Json]) -> Iterator[Part]:
    """Reasoning as vendors send it: one text, a list of details, or the same text in both."""
    seen: set[str] = set()
    for key in ("reasoning_content", "reasoning"):
        value = fields.get(key)
        if isinstance(value, str):
            if value and value not in seen:
                seen.add(value)
                yield Part(kind="thinking", text=value)
        elif value:
            yield Part(kind="thinking", text=other(value).text, weight=other(value).weight)
    details = fields.get("reasoning_details")
    for detail in details if isinstance(details, list) else []:
        part = _detail(detail)
        if part.weight or part.text not in seen:
            yield part


def _detail(detail: Json) -> Part:
    if not isinstance(detail, dict):
        return other(detail)
    text = text_in(detail.get("text")) or text_in(detail.get("summary"))
    return Part(kind="thinking", text=text, weight=weight_in(detail.get("data")) + weight_in(detail.get("signature")))


def _calls(fields: dict[str, Json]) -> Iterator[Part]:
    calls = fields.get("tool_calls")
    for call in calls if isinstance(calls, list) else []:
        if isinstance(call, dict):
            yield _call(call)
        else:
            yield other(call)
    old = fields.get("function_call")
    if isinstance(old, dict):
        yield Part(kind="call", name=text_in(old.get("name")), text=_arguments(old.get("arguments")))


def _call(call: dict[str, Json]) -> Part:
    # `custom` calls carry free text; `extra_content` carries Gemini's thought signature
    function = call.get("function") or call.get("custom")
    given = object_in(function)
    return Part(
        kind="call",
        name=text_in(given.get("name")),
        text=_arguments(given.get("arguments", given.get("input"))),
        call_id=text_in(call.get("id")),
        weight=weight_in(call.get("extra_content")),
    )


def _arguments(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else as_json(value)


def _audio(audio: Json) -> Part:
    given = object_in(audio)
    return Part(kind="media", text=text_in(given.get("transcript")), weight=weight_in(given.get("data")))
