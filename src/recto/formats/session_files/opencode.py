"""Sessions of opencode: a message and its parts per line, as `adapters.agent_databases` writes them from its database,
or one document with all of them, as `opencode export` writes it.

A message has text, reasoning and tool calls with their results. It is converted to Anthropic's format: the results are
a message of their own. Summaries of compacted history are no messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recto.formats.anthropic import ANTHROPIC
from recto.formats.json_spans import Json, parse, text_of
from recto.formats.message import object_in, text_in
from recto.formats.session_files.jsonl import ConvertedMessage, JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members

NAME: Final = "opencode"

_META_KEYS = ("id", "sessionID", "parentID", "modelID", "providerID", "agent", "tokens", "finish")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only opencode writes such a line, or a document that begins so."""
    info = object_in(fields.get("info"))
    return {"info", "parts"} <= fields.keys() or {"directory", "projectID"} <= info.keys()


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    info = object_in(fields.get("info"))
    return info.get("id") if "directory" in info else info.get("sessionID")


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one session."""

    def read(line: JsonlLine) -> list[SourceEntry]:
        return _entries(line, line.parse().fields, session)

    return read


def read_document(line: JsonlLine, session: str) -> list[SourceEntry]:
    """Reads a document, passed as one line."""
    return _entries(line, object_in(parse(text_of(line.body))), session)


def _entries(line: JsonlLine, fields: dict[str, Json], session: str) -> list[SourceEntry]:
    messages = fields.get("messages")
    records = [object_in(message) for message in messages] if isinstance(messages, list) else [fields]
    found = [conversion for record in records for conversion in _conversions(record)]
    if found:
        return line.as_conversions(session, found, wire=ANTHROPIC)
    info = object_in(fields.get("info"))
    meta = present_members(info, *_META_KEYS, "directory")
    return [line.as_event(session, ts=_created(info), meta=meta, is_known=True)]


def _conversions(record: dict[str, Json]) -> Iterator[ConvertedMessage]:
    info = object_in(record.get("info"))
    role = info.get("role")
    if role not in ("user", "assistant") or info.get("summary") is True:
        return
    meta = present_members({**info, "model": info.get("modelID")}, *_META_KEYS, "model")
    parts = record.get("parts")
    said: list[Json] = []
    results: list[Json] = []
    for part in map(object_in, parts if isinstance(parts, list) else []):
        if results and part.get("type") != "tool":  # the next step of the same message
            yield ConvertedMessage({"role": "assistant", "content": said}, _created(info), meta)
            yield ConvertedMessage({"role": "user", "content": results}, _created(info), meta)
            said, results = [], []
        said += _blocks(part)
        results += _results(part)
    if said:
        yield ConvertedMessage({"role": role, "content": said}, _created(info), meta)
    if results:
        yield ConvertedMessage({"role": "user", "content": results}, _created(info), meta)


def _created(info: dict[str, Json]) -> int | None:
    return microseconds(object_in(info.get("time")).get("created"))


def _blocks(part: dict[str, Json]) -> Iterator[Json]:
    text = text_in(part.get("text"))
    match part.get("type"):
        case "text" if text:
            yield {"type": "text", "text": text}
        case "reasoning" if text:
            yield {"type": "thinking", "thinking": text, "signature": ""}
        case "tool":
            state = object_in(part.get("state"))
            yield {
                "type": "tool_use",
                "id": text_in(part.get("callID")),
                "name": text_in(part.get("tool")),
                "input": object_in(state.get("input")),
            }
        case "file":
            yield _file(part)


def _file(part: dict[str, Json]) -> Json:
    kind, url = text_in(part.get("mime")), text_in(part.get("url"))
    head, comma, data = url.partition(",")
    if kind.startswith("image/") and comma and head.endswith(";base64"):
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    return {"type": "text", "text": f"[file {text_in(part.get('filename')) or url[:200]}]"}


def _results(part: dict[str, Json]) -> Iterator[Json]:
    state = object_in(part.get("state"))
    match part.get("type"), state.get("status"):
        case "tool", "completed":
            result = text_in(state.get("output"))
            yield {"type": "tool_result", "tool_use_id": text_in(part.get("callID")), "content": result}
        case "tool", "error":
            result = text_in(state.get("error"))
            call = text_in(part.get("callID"))
            yield {"type": "tool_result", "tool_use_id": call, "content": result, "is_error": True}
