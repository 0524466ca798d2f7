"""Creates and edits Chat messages."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from recto.formats.json_spans import apply_edits, quoted, set_member, text_of
from recto.formats.message import fields_of
from recto.formats.openai_chat.validation import is_empty, tool_call_ids
from recto.formats.tool_calls import NewToolCall

_STARTS_WITH_TEXT = re.compile(rb'\{\s*"role"\s*:\s*"\w+"\s*,\s*"content"\s*:\s*"')
"""The start of nearly every message. One that starts so is not empty, and need not be parsed to know it."""


def settle(messages: Iterable[bytes]) -> list[bytes]:
    """Drops assistant messages without any content."""
    return [raw for raw in messages if _STARTS_WITH_TEXT.match(raw) or not is_empty(fields_of(raw))]


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


def result_messages(results: Sequence[tuple[str, str]]) -> list[bytes]:
    """Creates one message for each result."""
    return [result_message(call_id, "", text) for call_id, text in results]


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


def text_block_type(raw: bytes, key: str) -> str:
    """Returns the type of a text part."""
    return "text"
