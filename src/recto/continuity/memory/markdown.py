"""The Markdown page of a memory: front matter that people and machines read and write, and the text below it.

People edit these pages. What is unknown here, comments and order among it, is kept as it stands: a change replaces the
characters of one value and no others. Values are read as they are written; no object is ever made of YAML. Which file a
page is in is only a name here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import yaml

from recto.continuity.memory.model import (
    HALF_LIFE_DAYS,
    KINDS,
    LONGEST_TAG,
    LONGEST_TEXT,
    LONGEST_TITLE,
    MOST_REPLACED,
    MOST_SOURCES,
    MOST_TAGS,
    STATES,
    Memory,
    memory_id,
    title_of,
)
from recto.errors import InputError, MalformedMemory
from recto.recall.quoting import format_day
from recto.text.unicode import invisible_characters
from recto.transcript.session_keys import parse_pointer

LARGEST = 64 * 1024
"""Bytes of a page."""
_FRONT = 16_000
"""Characters of front matter."""
_RULE = "---"
_NEVER = "never"
_ID = re.compile(r"[0-9a-f]{12}", re.ASCII)
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,6})?", re.ASCII)
_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d)(?::(\d\d))?Z?)?", re.ASCII)
_SECOND = 1_000_000
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The quick one where it is there; both make plain nodes and no objects."""
_REMEMBERED = 128
"""Pages that were read and need not be read again: one approval looks at the same page several times."""
USES = ("hits", "prevented", "last_applied", "state")
"""What Recto itself keeps up to date; approval is not asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkdownPage:
    """A page that was read: what it says, and every character of it."""

    memory: Memory
    text: str
    places: Mapping[str, tuple[int, int]]
    """Where the value of each key of the front matter begins and ends."""
    end: int
    """Where the front matter ends, for keys that are added."""
    has_id: bool


def page_of(memory: Memory) -> str:
    """A memory as a page. What `read_page` reads of it is the same memory."""
    lines = [
        _RULE,
        f"id: {_text(memory.id)}",
        f"kind: {memory.kind}",
        f"title: {_text(memory.title)}",
        f"tags: [{', '.join(map(_text, memory.tags))}]",
        f"created: {_written_time(memory.created)}",
        f"half_life_days: {memory.half_life_days:g}",
        f"critical: {_flag(memory.critical)}",
        f"evergreen: {_flag(memory.evergreen)}",
        f"hits: {memory.hits}",
        f"prevented: {memory.prevented}",
        f"last_applied: {_written_time(memory.last_applied)}",
        *_listed("sources", memory.sources),
        *_listed("replaces", memory.replaces),
        f"state: {memory.state}",
        _RULE,
        "",
        memory.text.strip("\n"),
        "",
    ]
    return "\n".join(lines)


@lru_cache(_REMEMBERED)
def read_page(raw: bytes, name: str) -> MarkdownPage:
    """The page in a file. Raises `MalformedMemory`, which names the file, the line and what is wrong there."""
    if len(raw) > LARGEST:
        raise MalformedMemory(name, 1, f"it has {len(raw):,} bytes, and a memory has at most {LARGEST:,}")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedMemory(name, raw[: error.start].count(b"\n") + 1, "this is not text in UTF-8") from None
    start, stop, body = _front(text, name)
    reading = _Reading(name, text[start:stop], text.count("\n", 0, start) + 1)
    said = text[body:].replace("\r\n", "\n").strip("\n")
    memory = reading.memory(said, text.count("\n", 0, body) + 1)
    for number, line in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        if hidden := invisible_characters(line):
            reason = f"there are characters here that cannot be seen ({', '.join(hidden)}); take them out"
            raise MalformedMemory(name, number, reason)
    return MarkdownPage(
        memory=memory,
        text=text,
        places={key: (start + first, start + last) for key, (first, last) in reading.places.items()},
        end=stop,
        has_id="id" in reading.nodes,
    )


def amended(page: MarkdownPage, memory: Memory) -> str:
    """The page with what Recto keeps up to date set as in a memory; every other character is as it was."""
    values = {
        "hits": str(memory.hits),
        "prevented": str(memory.prevented),
        "last_applied": _written_time(memory.last_applied),
        "state": memory.state,
    }
    text = page.text
    missing = "".join(f"{key}: {value}\n" for key, value in values.items() if key not in page.places)
    text = text[: page.end] + missing + text[page.end :]
    for key in sorted(values.keys() & page.places.keys(), key=lambda key: -page.places[key][0]):
        first, last = page.places[key]
        apart = " " if first == last and text[first - 1] == ":" else ""
        text = f"{text[:first]}{apart}{values[key]}{text[last:]}"
    return text


def essence(page: MarkdownPage) -> str:
    """The page without regard to what Recto keeps up to date: what an approval stands for."""
    at_first = Memory(id="", kind="fact", title="", text="", created=0)
    return amended(page, at_first)


def _front(text: str, name: str) -> tuple[int, int, int]:
    """Where the front matter begins and ends, and where the text below it begins."""
    first = text.find("\n")
    if first < 0 or text[:first].removeprefix("\ufeff").rstrip() != _RULE:
        raise MalformedMemory(name, 1, "a memory begins with a line '---', then keys and values, then '---' again")
    at = first + 1
    while at < len(text) and at - first <= _FRONT:
        after = text.find("\n", at)
        after = len(text) if after < 0 else after
        if text[at:after].rstrip() == _RULE:
            return first + 1, at, min(after + 1, len(text))
        at = after + 1
    reason = "the keys and values do not end with a line '---'"
    raise MalformedMemory(name, 1, reason if at >= len(text) else f"{reason} within {_FRONT:,} characters")


class _Reading:
    """Reads the values of one front matter, and knows the line of each."""

    def __init__(self, name: str, front: str, line: int) -> None:
        self._name = name
        self._line = line
        try:
            root = yaml.compose(front, Loader=_LOADER)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            said = getattr(error, "problem", None) or "it cannot be read"
            raise self._wrong(mark.line if mark else 0, f"this is not YAML: {said}") from None
        except (RecursionError, ValueError):
            raise self._wrong(0, "this is not YAML that can be read") from None
        if not isinstance(root, yaml.MappingNode) or root.flow_style:
            raise self._wrong(0, "keys and values are expected here, one key a line")
        self.nodes: dict[str, yaml.Node] = {}
        for key, value in root.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._wrong(key.start_mark.line, "a key is a word")
            if key.value in self.nodes:
                raise self._wrong(key.start_mark.line, f"'{key.value[:40]}' stands here twice")
            self.nodes[key.value] = value
        self.places = {
            key: (node.start_mark.index, node.end_mark.index)
            for key, node in self.nodes.items()
            if isinstance(node, yaml.ScalarNode)
        }

    def memory(self, said: str, line: int) -> Memory:
        """The memory that the front matter and the text below it tell."""
        if not said.strip():
            raise MalformedMemory(self._name, line, "there is no text below the keys and values")
        if len(said) > LONGEST_TEXT:
            raise MalformedMemory(self._name, line, f"the text has {len(said):,} characters, at most {LONGEST_TEXT:,}")
        kind: Any = self._one("kind", "", self._among(KINDS))
        state: Any = self._one("state", "approved", self._among(STATES))
        sources = self._list("sources", MOST_SOURCES, self._pointer)
        given = self._one("id", "", lambda value: value if _ID.fullmatch(value) else "")
        return Memory(
            id=given or memory_id(kind, said, sources),
            kind=kind,
            title=self._one("title", title_of(said), _short(LONGEST_TITLE)),
            text=said,
            created=self._one("created", None, _time),
            tags=self._list("tags", MOST_TAGS, _short(LONGEST_TAG)),
            half_life_days=self._one("half_life_days", HALF_LIFE_DAYS, _days),
            critical=self._one("critical", False, _truth),
            evergreen=self._one("evergreen", False, _truth),
            hits=self._one("hits", 0, _count),
            prevented=self._one("prevented", 0, _count),
            last_applied=self._one("last_applied", 0, lambda value: 0 if value == _NEVER else _time(value)),
            sources=sources,
            replaces=self._list("replaces", MOST_REPLACED, lambda value: value if _ID.fullmatch(value) else ""),
            state=state,
        )

    def _one(self, key: str, usual: Any, read: Callable[[str], Any]) -> Any:  # noqa: ANN401  # as each key wants
        node = self.nodes.get(key)
        if node is None:
            if usual in ("", None) and key != "id":
                raise self._wrong(0, f"'{key}' is missing; {_EXPECTED[key]}")
            return usual
        if not isinstance(node, yaml.ScalarNode):
            raise self._wrong(node.start_mark.line, f"'{key}' is one value; {_EXPECTED[key]}")
        found = read(node.value)
        if found is None or found == "":
            raise self._wrong(node.start_mark.line, f"'{key}' is {node.value[:40]!r}; {_EXPECTED[key]}")
        return found

    def _list(self, key: str, most: int, read: Callable[[str], str]) -> tuple[str, ...]:
        node = self.nodes.get(key)
        if node is None or (isinstance(node, yaml.ScalarNode) and not node.value):
            return ()
        if not isinstance(node, yaml.SequenceNode):
            raise self._wrong(node.start_mark.line, f"'{key}' is a list; {_EXPECTED[key]}")
        if len(node.value) > most:
            raise self._wrong(node.start_mark.line, f"'{key}' has {len(node.value)} values, at most {most}")
        for item in node.value:
            if not isinstance(item, yaml.ScalarNode) or not read(item.value):
                raise self._wrong(item.start_mark.line, f"a value of '{key}' cannot be used; {_EXPECTED[key]}")
        return tuple(read(item.value) for item in node.value)

    def _pointer(self, value: str) -> str:
        try:
            parse_pointer(value)
        except InputError:
            return ""
        return value

    def _among(self, names: Sequence[str]) -> Callable[[str], str]:
        return lambda value: value if value in names else ""

    def _wrong(self, line: int, reason: str) -> MalformedMemory:
        return MalformedMemory(self._name, self._line + line, reason)


_EXPECTED = {
    "id": "twelve of the characters 0-9 a-f",
    "kind": f"one of {', '.join(KINDS)}",
    "state": f"one of {', '.join(STATES)}",
    "title": f"a line of at most {LONGEST_TITLE} characters",
    "created": "a day such as 2026-11-14, or a time such as 2026-11-14T09:30:00Z",
    "last_applied": f"a day, a time, or '{_NEVER}'",
    "half_life_days": "a number of days above 0",
    "critical": "true or false",
    "evergreen": "true or false",
    "hits": "a whole number",
    "prevented": "a whole number",
    "tags": f"words of at most {LONGEST_TAG} characters",
    "sources": "pointers such as recto://agent:default:main/57",
    "replaces": "ids of other memories",
}


def _short(most: int) -> Callable[[str], str]:
    return lambda value: value if value.strip() and len(value) <= most and "\n" not in value else ""


def _count(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None


def _days(value: str) -> float | None:
    return (float(value) or None) if _NUMBER.fullmatch(value) else None


def _truth(value: str) -> bool | None:
    return {"true": True, "false": False, "yes": True, "no": False}.get(value.lower())


def _time(value: str) -> int | None:
    found = _TIME.fullmatch(value)
    if not found:
        return None
    year, month, day, hour, minute, second = (int(group or 0) for group in found.groups())
    if not (year >= 1970 and 1 <= month <= 12 and hour < 24 and minute < 60 and second < 60):
        return None
    shifted = year - (month <= 2)
    of_year = (153 * (month + (9 if month <= 2 else -3)) + 2) // 5 + day - 1
    days = (
        shifted // 400 * 146_097 + shifted % 400 * 365 + shifted % 400 // 4 - shifted % 400 // 100 + of_year - 719_468
    )
    when = (((days * 24 + hour) * 60 + minute) * 60 + second) * _SECOND
    return when if format_day(when) == value[:10] else None


def _written_time(when: int) -> str:
    if when <= 0:
        return _NEVER
    second = when // _SECOND % 86_400
    return f"{format_day(when)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}Z"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _listed(key: str, values: Sequence[str]) -> list[str]:
    return [f"{key}:", *(f"  - {_text(value)}" for value in values)] if values else [f"{key}: []"]
