"""Sessions of Cursor: a line about the session, then a bubble per line, as `adapters.agent_databases` writes them.

Cursor documents none of this: the reader follows what public tools have found in its databases, and was not tried with
files that Cursor wrote. A bubble is what a user said (type 1, or `user`) or a step of the model (type 2, `ai` or
`assistant`): a text, or a tool call with its result. They are converted to Anthropic's format. A bubble that is not
understood is an error, with its line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from recto.errors import InputError, MalformedJson
from recto.formats.anthropic import ANTHROPIC
from recto.formats.json_spans import Json, parse
from recto.formats.message import object_in, text_in
from recto.formats.session_files.jsonl import ConvertedMessage, JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members
from recto.text.lazy_re import lazy_re

NAME: Final = "cursor"

_ROLES: Final = {1: "user", "user": "user", 2: "assistant", "ai": "assistant", "assistant": "assistant"}
_FAILED = frozenset({"error", "cancelled", "rejected"})
_ENDED = _FAILED | {"completed", "success"}
_UNSAFE = lazy_re(r"[^A-Za-z0-9_-]", re.ASCII)


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only Cursor writes such a line."""
    return isinstance(fields.get("composerId"), str) and "role" not in fields


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return fields.get("composerId")


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one session."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        fields = line.parse().fields
        ts = microseconds(fields.get("createdAt"))
        meta = present_members(fields, "bubbleId", "name", "cwd")
        if "bubbleId" not in fields:
            return [line.as_event(session, ts=ts, meta=meta, is_known=True)]
        meta |= present_members({"model": object_in(fields.get("modelInfo")).get("modelName")}, "model")
        found = [ConvertedMessage(message, ts, meta) for message in _messages(fields)]
        return line.as_conversions(session, found, wire=ANTHROPIC) if found else [line.as_event(session, ts=ts)]

    return read


def _messages(bubble: dict[str, Json]) -> Iterator[dict[str, Json]]:
    """Yields the messages of a bubble: none of one that is empty or holds only thoughts.

    Raises:
        InputError: If the bubble is not understood.
    """
    if bubble.get("missing") is True:  # the session names it, and it is not stored
        return
    kind = bubble.get("type")
    role = _ROLES.get(kind) if isinstance(kind, int | str) else None
    text, tool = bubble.get("text") or "", bubble.get("toolFormerData") or {}
    if role is None or not isinstance(text, str) or not isinstance(tool, dict) or (tool and role == "user"):
        raise InputError(f"a bubble of Cursor is not understood (type {kind!r:.40})")
    said: list[Json] = [{"type": "text", "text": text}] if text else []
    call = _UNSAFE.sub("_", text_in(tool.get("toolCallId")) or text_in(bubble.get("bubbleId")))[:64] or "call"
    if text_in(tool.get("name")):
        said.append({"type": "tool_use", "id": call, "name": text_in(tool["name"]), "input": _input(tool)})
    if not said:
        return
    thoughts = text_in(object_in(bubble.get("thinking")).get("text"))
    if thoughts and role == "assistant":
        said.insert(0, {"type": "thinking", "thinking": thoughts, "signature": ""})
    yield {"role": role, "content": said}
    if text_in(tool.get("name")):
        yield from _results(call, tool)


def _input(tool: dict[str, Json]) -> Json:
    """Returns the arguments of a call: the model's own, or those that Cursor made of them."""
    for written in (tool.get("rawArgs"), tool.get("params")):
        value = _parsed(written)
        if isinstance(value, dict):
            return value
    return present_members(tool, "rawArgs", "params")


def _parsed(written: Json) -> Json:
    if not isinstance(written, str):
        return written
    try:
        return parse(written)
    except MalformedJson:
        return None


def _results(call: str, tool: dict[str, Json]) -> Iterator[dict[str, Json]]:
    status = text_in(object_in(tool.get("additionalData")).get("status")) or text_in(tool.get("status"))
    result = text_in(tool.get("result"))
    if not result and status not in _ENDED:
        return  # the call has not ended
    block: dict[str, Json] = {"type": "tool_result", "tool_use_id": call, "content": result or status}
    if status in _FAILED:
        block["is_error"] = True
    yield {"role": "user", "content": [block]}
