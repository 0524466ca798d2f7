"""Session files of Gemini CLI: one record per line, or, of older versions, one document with all records.

A record is a message, or changes the file's head (`$set`), or goes back to an earlier message (`$rewindTo`). A message
is written again under its id when the results of its calls are known; only what is new in it is read then. Calls and
their results are one record, and the results follow once more as a record of their own, which is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from recto.formats.gemini import GEMINI
from recto.formats.json_spans import Json, parse, text_of
from recto.formats.message import object_in, text_in
from recto.formats.session_files.jsonl import ConvertedMessage, JsonlLine, LineReader
from recto.formats.session_files.types import SourceEntry, microseconds, present_members

NAME: Final = "gemini_cli"

_MESSAGES: Final = {"user": "user", "gemini": "model"}
"""The types of records that are messages, with their roles in Gemini's API."""
_META_KEYS = ("id", "model", "sessionId", "projectHash", "kind")


def is_line(fields: dict[str, Json]) -> bool:
    """Whether only Gemini CLI writes such a line, or a document that begins so."""
    if "$set" in fields or "$rewindTo" in fields or {"sessionId", "projectHash"} <= fields.keys():
        return True
    return fields.get("type") == "gemini" and {"id", "content"} <= fields.keys()


def session_in(fields: dict[str, Json]) -> Json:
    """Returns the session name in a line."""
    return fields.get("sessionId")


def reader(session: str) -> LineReader:
    """Creates a reader for the lines of one file."""
    seen = _Seen()

    def read(line: JsonlLine) -> list[SourceEntry]:
        return _entries(line, line.parse().fields, session, seen)

    return read


def read_document(line: JsonlLine, session: str) -> list[SourceEntry]:
    """Reads a document, passed as one line."""
    return _entries(line, object_in(parse(text_of(line.body))), session, _Seen())


@dataclass(slots=True)
class _Seen:
    """What was read of a file so far."""

    texts: dict[str, list[Json]] = field(default_factory=dict)
    """The parts of each message but its calls, by id."""
    calls: set[str] = field(default_factory=set)
    results: set[str] = field(default_factory=set)

    def new_in(self, record: dict[str, Json]) -> Iterator[dict[str, Json]]:
        """Yields the contents of a message that were not read before, in Gemini's format."""
        role = _MESSAGES[str(record["type"])]
        name = text_in(record.get("id"))
        parts = [*_thoughts(record.get("thoughts")), *_parts(record.get("content"))]
        parts = [part for part in parts if not self._is_known_result(part)]
        if parts and self.texts.get(name) != parts:
            self.texts[name] = parts
            yield {"role": role, "parts": parts}
        calls = [object_in(call) for call in _list(record.get("toolCalls"))]
        if new := [call for call in calls if self._is_new(self.calls, call)]:
            yield {"role": "model", "parts": [{"functionCall": _members(call, "id", "name", "args")} for call in new]}
        answered = [call for call in calls if call.get("result") and self._is_new(self.results, call)]
        if results := [part for call in answered for part in _result(call)]:
            yield {"role": "user", "parts": results}

    def _is_new(self, known: set[str], call: dict[str, Json]) -> bool:
        name = text_in(call.get("id"))
        is_new = name not in known
        known.add(name)
        return is_new

    def _is_known_result(self, part: Json) -> bool:
        result = object_in(object_in(part).get("functionResponse"))
        return bool(result) and not self._is_new(self.results, result)


def _entries(line: JsonlLine, fields: dict[str, Json], session: str, seen: _Seen) -> list[SourceEntry]:
    head = object_in(fields.get("$set")) or fields
    records = [object_in(record) for record in _list(head.get("messages"))] or [fields]
    found = [
        ConvertedMessage(message, microseconds(record.get("timestamp")), _meta(record))
        for record in records
        if text_in(record.get("type")) in _MESSAGES
        for message in seen.new_in(record)
    ]
    if found:
        return line.as_conversions(session, found, wire=GEMINI.name)
    ts = microseconds(fields.get("timestamp") or fields.get("startTime"))
    return [line.as_event(session, ts=ts, meta=_meta(fields), is_known=True)]


def _meta(record: dict[str, Json]) -> dict[str, Json]:
    return present_members({**record, "usage": record.get("tokens")}, *_META_KEYS, "usage")


def _thoughts(thoughts: Json) -> Iterator[Json]:
    for thought in map(object_in, _list(thoughts)):
        text = "\n".join(filter(None, (text_in(thought.get("subject")), text_in(thought.get("description")))))
        if text:
            yield {"text": text, "thought": True}


def _parts(content: Json) -> list[Json]:
    """Returns content as parts: it is a text, a part, or a list of both."""
    if isinstance(content, str):
        return [{"text": content}] if content else []
    if isinstance(content, list):
        return [part for item in content for part in _parts(item)]
    return [content] if isinstance(content, dict) and content else []


def _result(call: dict[str, Json]) -> list[Json]:
    result = call["result"]
    if isinstance(result, str):
        return [{"functionResponse": {**_members(call, "id", "name"), "response": {"output": result}}}]
    return _parts(result)


def _members(fields: dict[str, Json], *keys: str) -> dict[str, Json]:
    return {key: fields[key] for key in keys if key in fields}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
